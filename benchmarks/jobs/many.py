"""Long logs: a table of 100,000 files, and one of 10,000 commits. Each piece of work begins in a process that has not seen the table."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.harness.case import Data, Job, Relations, Run
from benchmarks.harness.duck import delta
from benchmarks.jobs import tuned, warm

if TYPE_CHECKING:
    import pyarrow as pa

FILES, COMMITS, TEN = 100_000, 10_000, 10
READ = "SELECT count(*) AS n FROM {t} WHERE id BETWEEN 100 AND 104"


def rows(number: int) -> pa.Table:
    """The rows of one file, whose ids no other file has."""
    import pyarrow as pa

    ids = range(number * TEN, number * TEN + TEN)
    return pa.table({"id": pa.array(ids, pa.int64()), "note": pa.array(["note"] * TEN)})


def prepare_files(data: Data) -> None:
    """A table of many small files, which one commit added and a checkpoint lists."""
    prepare(data, "files", data.count(FILES), at_once=True)


def prepare_commits(data: Data) -> None:
    """A table that so many appends made, with a checkpoint 99 of them ago, as deltalake makes one of each hundredth."""
    prepare(data, "commits", data.count(COMMITS), at_once=False)


def prepare(data: Data, name: str, count: int, *, at_once: bool) -> None:
    """The log as deltalake spells it, written by hand: ten thousand appends take it a quarter of an hour."""
    import pyarrow.parquet as pq
    from deltalake import DeltaTable, write_deltalake

    if data.base(name).exists():
        return
    part = data.base(f"{name}.part")
    shutil.rmtree(part, ignore_errors=True)
    write_deltalake(str(part), rows(0))
    log = part / "_delta_log"
    lines = (log / f"{0:020d}.json").read_text(encoding="utf-8").splitlines()
    add = next(json.loads(line)["add"] for line in lines if json.loads(line).get("add"))
    info = json.dumps({"commitInfo": {"timestamp": add["modificationTime"], "operation": "WRITE"}})
    actions = []
    for number in range(1, count):
        file = f"part-00000-{uuid.UUID(int=number)}-c000.snappy.parquet"
        pq.write_table(rows(number), part / file)
        first = number * TEN
        bounds = {"minValues": {"id": first, "note": "note"}, "maxValues": {"id": first + TEN - 1, "note": "note"}}
        stats = {"numRecords": TEN, **bounds, "nullCount": {"id": 0, "note": 0}}
        size = (part / file).stat().st_size
        actions.append(json.dumps({"add": {**add, "path": file, "size": size, "stats": json.dumps(stats)}}))
    if at_once:
        (log / f"{1:020d}.json").write_text("\n".join([info, *actions]), encoding="utf-8")
        DeltaTable(str(part)).create_checkpoint()
    for version, action in enumerate([] if at_once else actions, 1):
        (log / f"{version:020d}.json").write_text(f"{info}\n{action}", encoding="utf-8")
        if version == count // 100 * 100 - 100:
            DeltaTable(str(part)).create_checkpoint()
    part.rename(data.base(name))


def _merged(whole: int) -> pa.Table:
    """Five rows of the first files, and one that is new."""
    import pyarrow as pa

    ids = [*range(200, 205), whole * TEN + 1]
    return pa.table({"id": pa.array(ids, pa.int64()), "note": pa.array(["merged"] * 6)})


def by_duckrun(run: Run, count: int) -> Relations:
    import duckrun

    whole = run.data.count(count)
    more, merged = rows(whole), _merged(whole)
    warm.duckrun()
    with duckrun.connect(run.lake) as s:
        with run.clock("first read"):
            s.sql(READ.format(t="main.t")).collect()
        with run.clock("append"):
            s.execute("main.t", duckrun.WriteSpec("append"), more)
        with run.clock("delete"):
            s.execute("main.t", duckrun.DeleteSpec("id BETWEEN 300 AND 302"))
        with run.clock("merge"):
            s.execute("main.t", duckrun.MergeSpec(("id",)), merged)
    return {"rows": delta(run.table)}


def by_deltalake(run: Run, count: int) -> Relations:
    from deltalake import DeltaTable, QueryBuilder, write_deltalake

    whole = run.data.count(count)
    more, merged = rows(whole), _merged(whole)
    warm.deltalake()
    with run.clock("first read"):
        QueryBuilder().register("t", DeltaTable(str(run.table))).execute(READ.format(t="t")).read_all()
    with run.clock("append"):
        write_deltalake(str(run.table), more, mode="append")
    with run.clock("delete"):
        DeltaTable(str(run.table)).delete("id BETWEEN 300 AND 302")
    with run.clock("merge"):
        merge = tuned.merge(run.table, merged, "target.id = source.id")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    return {"rows": delta(run.table)}


def _expected(data: Data, count: int) -> Relations:
    total = (data.count(count) + 1) * TEN
    inserted = data.count(count) * TEN + 1
    return {
        "rows": f"""(SELECT range AS id, CASE WHEN range BETWEEN 200 AND 204 OR range = {inserted} THEN 'merged' ELSE 'note' END AS note
            FROM range({total}) WHERE range NOT BETWEEN 300 AND 302)"""
    }


def _job(name: str, title: str, count: int, prepare: Callable[[Data], Any]) -> Job:
    return Job(
        f"many-{name}",
        title,
        {"duckrun": partial(by_duckrun, count=count), "deltalake": partial(by_deltalake, count=count)},
        partial(_expected, count=count),
        prepare,
        base=name,
        scaled=False,
    )


JOBS = (
    _job("files", "A table of 100,000 files", FILES, prepare_files),
    _job("commits", "A table of 10,000 commits", COMMITS, prepare_commits),
)
