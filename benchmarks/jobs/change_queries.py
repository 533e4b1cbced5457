"""What changed between two versions of lineitem, of which 0.1 % (at scale factor 5) was updated: by the files that the commit touched, by its feed, and by comparing
both versions whole. And an asset that follows such changes, beside the same asset made anew.
"""

# No "from __future__ import annotations" here: Dagster must see the types of the assets, not their names.

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.case import Data, Job, Relations, Run
from benchmarks.harness.duck import delta, parquet, plain
from benchmarks.jobs import lineitem, warm

if TYPE_CHECKING:
    import pyarrow as pa

_ORDER_KEYS = 6_000_000  # dbgen's largest, for each scale; as many as there are rows
LATEST = 30_000
COLUMN, VALUE = "l_quantity", "CAST(l_quantity + 1 AS DECIMAL(15, 2))"
KINDS: dict[str, dict[str, Any]] = {
    "vectors": {"merge_mode": "deletion_vectors"},
    "random": {"merge_mode": "deletion_vectors", "random": True},
    "copy": {"merge_mode": "copy_on_write"},
    "feed": {"merge_mode": "deletion_vectors", "feed": True},
}


def changed(data: Data, random: bool) -> str:
    """SQL for the rows that were updated: about 30,000 of the latest orders, whatever the scale, or one of a thousand anywhere."""
    if random:
        return "hash(l_orderkey, l_linenumber, 11) % 1000 = 0"
    return f"l_orderkey > {int(_ORDER_KEYS * data.scale) - LATEST}"


def prepare(data: Data, name: str) -> None:
    """The table of both versions."""
    import duckrun
    from benchmarks.harness.rounds import copy_table

    lineitem.prepare_base(data)
    how = KINDS[name]
    if data.base(f"changed-{name}").exists():
        return
    part = data.folder / "part"
    shutil.rmtree(part, ignore_errors=True)
    copy_table(data.base(lineitem.NAME), part / "main" / "t")
    with duckrun.connect(part) as s:
        if how.get("feed"):
            s.sql("ALTER TABLE main.t SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
        where = changed(data, how.get("random", False))
        s.execute("main.t", duckrun.UpdateSpec({COLUMN: VALUE}, where, merge_mode=how["merge_mode"]))
    (part / "main" / "t").rename(data.base(f"changed-{name}"))


def _versions(table: Path) -> tuple[int, int]:
    newest = max(int(entry.stem) for entry in (table / "_delta_log").glob("*.json"))
    return newest - 1, newest


def by_duckrun(run: Run) -> Relations:
    import duckrun

    warm.duckrun()
    first, last = _versions(run.table)
    with run.clock(), run.clock.reading(), duckrun.connect(run.lake) as s:
        rows = s.table("main.t").changes("min_delta", first, last, key=list(lineitem.KEYS)).toArrow()
    return _kept(run, rows, "CASE WHEN _change_type IN ('delete', 'update_preimage') THEN -1 ELSE 1 END")


def by_difference(run: Run) -> Relations:
    """Both versions whole, as a multiset difference each way."""
    first, last = _versions(run.table)
    with plain("delta") as con:
        con.execute(f"SET temp_directory = '{run.lake.as_posix()}/spill'")
        old, new = (f"delta_scan('{run.table.resolve().as_uri()}', version => {v})" for v in (first, last))
        with run.clock(), run.clock.reading():
            rows = con.sql(
                f"SELECT *, 1 AS sign FROM (FROM {new} EXCEPT ALL FROM {old}) UNION ALL SELECT *, -1 AS sign FROM (FROM {old} EXCEPT ALL FROM {new})"
            ).to_arrow_table()
    return _kept(run, rows, "sign")


def by_spark(run: Run) -> Relations:
    """Delta's own table_changes, of the feed."""
    session = warm.spark()
    _, last = _versions(run.table)
    with run.clock():
        found = session.sql(f"SELECT * FROM table_changes_by_path('{run.table.resolve().as_posix()}', {last}, {last})")
        rows = found.toArrow()
    return _kept(run, rows, "CASE WHEN _change_type IN ('delete', 'update_preimage') THEN -1 ELSE 1 END")


def _kept(run: Run, rows: "pa.Table", sign: str) -> Relations:
    import pyarrow.parquet as pq

    file = run.lake / "changes.parquet"
    pq.write_table(rows, file)
    return {"rows": f"(SELECT l_orderkey, l_linenumber, l_quantity, l_comment, {sign} AS sign FROM {parquet(file)})"}


def _expected(data: Data, name: str) -> Relations:
    where = changed(data, KINDS[name].get("random", False))
    old = (
        f"SELECT l_orderkey, l_linenumber, l_quantity, l_comment FROM {parquet(data.file(lineitem.NAME))} WHERE {where}"
    )
    return {
        "rows": f"(SELECT *, -1 AS sign FROM ({old}) UNION ALL SELECT * REPLACE ({VALUE} AS l_quantity), 1 FROM ({old}))"
    }


def _job(name: str, title: str) -> Job:
    sides: dict[str, Callable[[Run], Relations]] = {"duckrun": by_duckrun, "difference": by_difference}
    if KINDS[name].get("feed"):
        sides["Spark"] = by_spark
    return Job(
        f"changes-{name}",
        title,
        sides,
        lambda data: _expected(data, name),
        lambda data: prepare(data, name),
        base=f"changed-{name}",
    )


def follow(run: Run, incremental: bool) -> Relations:
    """A second run of an asset that holds what its upstream does, after the upstream's latest rows were updated. Of the first run,
    which is the same for both sides, nothing is timed.
    """
    import dagster as dg

    import duckrun
    from duckrun_dagster import DeltaIOManager, DuckrunResource

    upstream = dg.AssetIn(
        ["main", "t"],
        metadata={"type": "duckrun", **({"changes": "min_delta", "key": list(lineitem.KEYS)} if incremental else {})},
    )
    written = {"merge_keys": list(lineitem.KEYS), "merge_mode": "deletion_vectors"} if incremental else {}

    @dg.asset(key=["main", "followed"], ins={"t": upstream}, metadata=written)
    def followed(t: Any) -> Any:
        return t

    source = dg.AssetSpec(["main", "t"]).with_io_manager_key("io_manager")
    instance = dg.DagsterInstance.ephemeral()

    def materialize() -> None:
        manager = DeltaIOManager(duckrun=DuckrunResource(root_path=str(run.lake)), preview=False)
        dg.materialize([followed, source], resources={"io_manager": manager}, instance=instance)

    warm.duckrun()
    materialize()
    with duckrun.connect(run.lake) as s:
        update = duckrun.UpdateSpec({COLUMN: VALUE}, changed(run.data, False), merge_mode="deletion_vectors")
        s.execute("main.t", update)
    with run.clock(), run.clock.reading():
        materialize()
    return {"rows": delta(run.lake / "main" / "followed")}


def _updated(data: Data) -> Relations:
    value = f"CASE WHEN {changed(data, False)} THEN {VALUE} ELSE {COLUMN} END AS {COLUMN}"
    return {"rows": f"(SELECT * REPLACE ({value}) FROM {parquet(data.file(lineitem.NAME))})"}


JOBS = (
    _job("vectors", "What changed, the latest 30,000 rows, by vectors"),
    _job("random", "What changed, 0.1 % of rows at random, by vectors"),
    _job("copy", "What changed, the latest 30,000 rows, by copy"),
    _job("feed", "What changed, the latest 30,000 rows, by the feed"),
    Job(
        "changes-asset",
        "An asset of what changed, the latest 30,000 rows, beside its full rebuild",
        {"duckrun": lambda run: follow(run, True), "rebuild": lambda run: follow(run, False)},
        _updated,
        lineitem.prepare_base,
        base=lineitem.NAME,
    ),
)
