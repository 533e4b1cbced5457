"""Small writes: ten rows appended through an open session to a young and to an older table, ten merged into a million, and a
thousand appends with a read after them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.harness.case import Data, Job, Relations, Run
from benchmarks.harness.duck import delta
from benchmarks.jobs.merges import SIDES

if TYPE_CHECKING:
    import pyarrow as pa

TEN = 10
LAPS = 20
MILLION = 1_000_000
YOUNG, BIG = "versions-1", "million"
READ = "SELECT count(*) AS n, sum(id) AS total FROM {t}"


def _rows(start: int, count: int = TEN, step: int = 1, note: str = "row") -> pa.Table:
    import pyarrow as pa

    ids = range(start, start + count * step, step)
    return pa.table({"id": pa.array(ids, pa.int64()), "note": pa.array([f"{note} {each}" for each in ids])})


def _expected_rows(count: int) -> str:
    return f"(SELECT range AS id, 'row ' || range AS note FROM range({count}))"


def prepare_versions(data: Data, versions: int) -> None:
    """A table that so many appends of ten rows made."""
    from deltalake import write_deltalake

    name = f"versions-{versions}"
    if data.base(name).exists():
        return
    part = data.base(f"{name}.part")
    shutil.rmtree(part, ignore_errors=True)
    for number in range(versions):
        write_deltalake(str(part), _rows(number * TEN), mode="append")
    part.rename(data.base(name))


def prepare_million(data: Data) -> None:
    from deltalake import write_deltalake

    if not data.base(BIG).exists():
        part = data.base(f"{BIG}.part")
        shutil.rmtree(part, ignore_errors=True)
        write_deltalake(str(part), _rows(0, data.count(MILLION)))
        part.rename(data.base(BIG))


# -- appends of ten rows


def append_by_duckrun(run: Run, versions: int) -> Relations:
    import duckrun

    with duckrun.connect(run.lake) as s:
        for number in range(LAPS + 1):
            rows = _rows((versions + number) * TEN)
            with run.clock("first" if number == 0 else "run"):
                s.execute("main.t", duckrun.WriteSpec("append"), rows)
    return {"rows": delta(run.table)}


def append_by_path(run: Run, versions: int) -> Relations:
    from deltalake import write_deltalake

    for number in range(LAPS + 1):
        rows = _rows((versions + number) * TEN)
        with run.clock("first" if number == 0 else "run"):
            write_deltalake(str(run.table), rows, mode="append")
    return {"rows": delta(run.table)}


def append_by_table(run: Run, versions: int) -> Relations:
    from deltalake import DeltaTable, write_deltalake

    table = DeltaTable(str(run.table))
    for number in range(LAPS + 1):
        rows = _rows((versions + number) * TEN)
        with run.clock("first" if number == 0 else "run"):
            write_deltalake(table, rows, mode="append")
    return {"rows": delta(run.table)}


# -- merges of ten rows: nine of ten keys exist, spread over the table; one is new


def _changes(data: Data, number: int) -> pa.Table:
    import pyarrow as pa

    whole = data.count(MILLION)
    step = max(1, whole // TEN)
    return pa.concat_tables(
        [_rows(number % step, TEN - 1, step, f"change {number} of"), _rows(whole + number, 1, 1, "new")]
    )


def _merged(data: Data) -> Relations:
    """A plain model: the last change of a key counts."""
    whole = data.count(MILLION)
    step = max(1, whole // TEN)
    changed = " UNION ALL ".join(
        f"SELECT {number % step} + range * {step} AS id, {number} AS turn FROM range({TEN - 1})"
        for number in range(LAPS + 1)
    )
    return {
        "rows": f"""(
            WITH changed AS (SELECT id, max(turn) AS turn FROM ({changed}) GROUP BY id)
            SELECT range AS id, CASE WHEN turn IS NULL THEN 'row ' || range ELSE 'change ' || turn || ' of ' || range END AS note
            FROM range({whole}) LEFT JOIN changed ON id = range
            UNION ALL SELECT {whole} + range, 'new ' || ({whole} + range) FROM range({LAPS + 1}))"""
    }


def merge_by_duckrun(run: Run, how: Mapping[str, Any]) -> Relations:
    import duckrun

    spec = duckrun.MergeSpec(("id",), **how)
    with duckrun.connect(run.lake) as s:
        for number in range(LAPS + 1):
            rows = _changes(run.data, number)
            with run.clock("first" if number == 0 else "run"):
                s.execute("main.t", spec, rows)
    return {"rows": delta(run.table)}


def merge_by_deltalake(run: Run) -> Relations:
    from benchmarks.jobs import tuned

    for number in range(LAPS + 1):
        rows = _changes(run.data, number)
        with run.clock("first" if number == 0 else "run"):
            merge = tuned.merge(run.table, rows, "target.id = source.id")
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
    return {"rows": delta(run.table)}


# -- a thousand appends, then a read


def appends_by_duckrun(run: Run) -> Relations:
    import duckrun

    batches = [_rows((number + 1) * TEN) for number in range(run.data.count(1000))]
    with duckrun.connect(run.lake) as s, run.clock("appends"):
        for rows in batches:
            s.execute("main.t", duckrun.WriteSpec("append"), rows)
    with duckrun.connect(run.lake) as s, run.clock("read after"):
        s.sql(READ.format(t="main.t")).collect()
    return {"rows": delta(run.table)}


def appends_by_deltalake(run: Run) -> Relations:
    from deltalake import DeltaTable, QueryBuilder, write_deltalake

    batches = [_rows((number + 1) * TEN) for number in range(run.data.count(1000))]
    table = DeltaTable(str(run.table))
    with run.clock("appends"):
        for rows in batches:
            write_deltalake(table, rows, mode="append")
    with run.clock("read after"):
        QueryBuilder().register("t", DeltaTable(str(run.table))).execute(READ.format(t="t")).read_all()
    return {"rows": delta(run.table)}


def _append_job(versions: int, title: str) -> Job:
    def of(side: Callable[[Run, int], Relations]) -> Callable[[Run], Relations]:
        return lambda run: side(run, versions)

    return Job(
        f"append-ten-{versions}",
        title,
        {
            "duckrun": of(append_by_duckrun),
            "deltalake": of(append_by_path),
            "deltalake, table kept open": of(append_by_table),
        },
        lambda data: {"rows": _expected_rows((versions + LAPS + 1) * TEN)},
        partial(prepare_versions, versions=versions),
        base=f"versions-{versions}",
        scaled=False,
    )


JOBS = (
    _append_job(1, "Append of ten rows to a young table"),
    _append_job(100, "Append of ten rows to a table of 100 versions"),
    Job(
        "merge-ten",
        "Merge of ten rows into a million",
        {
            **{side: partial(merge_by_duckrun, how=how) for side, how in SIDES.items()},
            "deltalake": merge_by_deltalake,
        },
        _merged,
        prepare_million,
        base=BIG,
        scaled=False,
    ),
    Job(
        "small-appends",
        "1,000 appends of ten rows, then a read",
        {"duckrun": appends_by_duckrun, "deltalake": appends_by_deltalake},
        lambda data: {"rows": _expected_rows((data.count(1000) + 1) * TEN)},
        partial(prepare_versions, versions=1),
        base=YOUNG,
        scaled=False,
    ),
)
