"""Another writer's commit between what a step read of its own table and what it writes there."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import write_deltalake

import duckrun
from duckrun import SQL
from duckrun_dagster import DuckrunResource
from tests import races
from tests.races import CONSTANT_SOURCE, FOREIGN, MOMENTS, OF_ITSELF, Foreign, LetIn, Source

MODES: dict[str, dict[str, Any]] = {
    "append": {"mode": "append"},
    "overwrite": {"mode": "overwrite"},
    "replace": {"mode": "replace"},
    "merge": {"mode": "merge", "merge_keys": ["id"]},
    "delete_insert": {"mode": "delete+insert", "merge_keys": ["id"]},
}
VALUES = ("table", "sql", "frame")


@pytest.fixture
def let_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[LetIn]:
    yield LetIn(monkeypatch)


def made(name: str, mode: str, source: Source, value: str) -> Any:
    """An asset that reads its own table in its body, through the resource, and returns rows, SQL or a Frame."""
    query = source.query.format(t=f"shop.{name}")

    @dg.asset(name=name, metadata=MODES[mode])
    def asset(duckrun: DuckrunResource) -> Any:
        if value == "sql":
            return SQL(query)
        frame = duckrun.session().sql(query)
        return frame if value == "frame" else frame.toArrow()

    return asset


@pytest.mark.matrix
@pytest.mark.drawn(5)
@pytest.mark.parametrize("locked", [True, False], ids=["", "without a lock"])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("foreign", FOREIGN, ids=races.named(FOREIGN))
def test_a_commit_in_between_is_before_or_after_a_step(
    shop: Any, let_in: LetIn, foreign: Foreign, moment: str, locked: bool
) -> None:
    if not locked:
        let_in.lock_away()
    cases = {
        f"{mode}_{value}_{'plain' if source is CONSTANT_SOURCE else 'self'}": (mode, source, value)
        for mode in MODES
        for value in VALUES
        for source in (CONSTANT_SOURCE, OF_ITSELF)
    }
    for name in cases:
        races.make(shop.root / "shop" / name)
        let_in.next(shop.root / "shop" / name, moment, foreign)
    result = dg.materialize(
        [made(name, *case) for name, case in cases.items()],
        instance=shop.instance,
        resources=shop.resources(preview=False),
        raise_on_error=False,
    )
    assert let_in.came()
    for name, (mode, source, value) in cases.items():
        failed = [e for e in result.filter_events(lambda e: e.is_step_failure) if e.step_key == name]
        error = None
        if failed:
            raised = failed[0].step_failure_data.error
            error = RuntimeError((raised.cause or raised).message.replace("shop.", "main."))
            assert value != "sql" or foreign.name == "column", f"{name}: SQL is computed again, and not {error}"
        races.judge(shop.root / "shop" / name, foreign, races.Write(mode, source), error, of_itself=source is OF_ITSELF)


@pytest.fixture
def raced(shop: Any, let_in: LetIn) -> Path:
    """The table t, into which another writer puts a row just before our commit."""
    location = shop.root / "shop" / "t"
    races.make(location)
    let_in.next(location, "before the commit", FOREIGN[0])
    return location


def test_a_step_that_loads_its_own_table_is_run_again_by_its_retry_policy(shop: Any, raced: Path) -> None:
    @dg.asset(name="t", metadata={"mode": "append"}, retry_policy=dg.RetryPolicy(max_retries=2))
    def t(duckrun: DuckrunResource) -> pa.Table:
        before = duckrun.session().table("shop.t").toDF().toArrow().to_pylist()
        return races.arrow([{"id": max(r["id"] for r in before) + 1, "v": "new", "n": len(before), "p": "a"}])

    result = shop.run([t])
    assert len(result.filter_events(lambda e: e.event_type == dg.DagsterEventType.STEP_RESTARTED)) == 1
    assert races.held(raced) == races.counted([*races.START, *races.UNRELATED, {"id": 8, "v": "new", "n": 4, "p": "a"}])


def test_the_error_says_that_a_retry_reads_anew(shop: Any, raced: Path) -> None:
    @dg.asset(name="t", metadata={"mode": "merge", "merge_keys": ["id"]})
    def t(duckrun: DuckrunResource) -> pa.Table:
        return duckrun.session().sql("select * from shop.t").toArrow()

    message = shop.error([t])
    assert "shop.t was computed from version 1" in message and "RetryPolicy" in message
    assert races.held(raced) == races.counted([*races.START, *races.UNRELATED])


def daily(reads: Callable[[Any, Any], Any]) -> Any:
    days = dg.DailyPartitionsDefinition(start_date="2024-01-01", end_date="2024-01-06")

    @dg.asset(
        name="t",
        partitions_def=days,
        metadata={"partition_expr": "day"},
        ins={
            "t": dg.AssetIn(
                key=["t"],
                partition_mapping=dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1),
                metadata={"allow_missing_partitions": True},
            )
        },
    )
    def t(context: dg.AssetExecutionContext, t: pa.Table) -> pa.Table:
        return reads(context, t)

    return t


@pytest.mark.parametrize(("other_day", "conflict"), [("2024-01-05", False), ("2024-01-02", True)])
def test_a_partition_that_loads_the_one_before_minds_a_change_of_that_one_alone(
    shop: Any, let_in: LetIn, other_day: str, conflict: bool
) -> None:
    asset = daily(lambda context, before: pa.table({"day": [context.partition_key], "n": [before.num_rows + 1]}))
    with duckrun.connect(shop.root, schema="shop") as session:
        rows = pa.table({"day": ["2024-01-01", "2024-01-02"], "n": [1, 2]})
        session.execute("t", duckrun.WriteSpec("append", partition_by=("day",)), rows)
    rows = pa.table({"day": [other_day], "n": [99]})
    other = Foreign("", lambda at: write_deltalake(at, rows, mode="append"), lambda before: before)
    let_in.next(shop.root / "shop" / "t", "before the write", other)
    if conflict:
        assert "was computed from version 0" in shop.error([asset], partitions="2024-01-03")
    else:
        shop.run([asset], partitions="2024-01-03")
        assert ("2024-01-03", 2) in shop.rows("select day, n from t")
