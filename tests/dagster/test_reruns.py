"""Reruns: every value that is computed is written, and an append counts once. Source: docs/reliability.md, Reruns."""

from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

import duckrun
from duckrun.errors import CommitConflict, TableNotFound
from duckrun.values.rows import MergeClause, MergeSpec, WorkTransaction, WriteSpec
from duckrun_dagster import DeltaIOManager, DuckrunResource
from duckrun_dagster.chain import chain_of
from tests.dagster.rerun import RETRIED, RerunLake


def values(mode: str, said: list[Any], **metadata: Any) -> dg.AssetsDefinition:
    """An asset whose next value is the next of a list."""

    @dg.asset(name="orders", metadata={"mode": mode, **metadata})
    def _orders() -> pa.Table:
        return pa.table({"id": [1], "item": [said.pop(0)]})

    return _orders


@pytest.mark.parametrize(
    ("mode", "metadata"),
    [("overwrite", {}), ("merge", {"merge_keys": ["id"]}), ("append", {}), ("delete+insert", {"merge_keys": ["id"]})],
)
def test_the_value_of_the_last_attempt_is_in_the_table(shop: Any, mode: str, metadata: dict[str, Any]) -> None:
    said = ["bad", "mended"]
    first = shop.run([values(mode, said, **metadata)])
    shop.run([values(mode, said, **metadata)], tags={"dagster/parent_run_id": first.run_id, **RETRIED})
    assert shop.rows("select item from orders") == [("mended",)]


def test_an_asset_whose_own_check_failed_is_written_again_from_failure(shop: Any) -> None:
    said = ["bad", "mended"]

    @dg.asset(check_specs=[dg.AssetCheckSpec("good", asset="orders", blocking=True)])
    def orders() -> Any:
        value = said.pop(0)
        yield dg.Output(pa.table({"item": [value]}))
        yield dg.AssetCheckResult(passed=value != "bad")

    first = shop.run([orders], fails=True)
    shop.run([orders], tags={"dagster/parent_run_id": first.run_id, **RETRIED})
    assert shop.rows("select item from orders") == [("mended",)]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_the_older_of_two_attempts_at_once_is_superseded(shop: Any, mode: str) -> None:
    """Dagster took the first run for dead and retries it, while its step still computes."""

    @dg.asset(metadata={"mode": mode})
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        if "dagster/retry_number" not in context.run.tags:
            shop.run([orders], tags={"dagster/parent_run_id": context.run.run_id, "dagster/retry_number": "1"})
            return pa.table({"item": ["late"]})
        return pa.table({"item": ["newer"]})

    message = shop.error([orders])
    assert "shop.orders is superseded: a newer attempt of the same work" in message
    assert shop.rows("select item from orders") == [("newer",)]


def test_a_retry_of_a_run_whose_other_steps_went_on(shop: Any) -> None:
    """The retry runs a step again that has committed since the run was taken for dead; its append counts once."""
    computed: list[str] = []

    def adding(name: str) -> dg.AssetsDefinition:
        @dg.asset(name=name, metadata={"mode": "append", "table": "orders"})
        def _adding() -> pa.Table:
            computed.append(name)
            return pa.table({"item": [f"{name} {computed.count(name)}"]})

        return _adding

    @dg.asset(deps=["a", "b"], metadata={"mode": "append", "table": "orders"})
    def last() -> pa.Table:
        if not computed.count("last"):
            computed.append("last")
            raise RuntimeError("the worker is gone")
        return pa.table({"item": ["last"]})

    job = [adding("a"), adding("b"), last]
    first = shop.run(job, fails=True)
    retry = {"dagster/parent_run_id": first.run_id, "dagster/retry_number": "1", "dagster/retry_strategy": "ALL_STEPS"}
    shop.run(job, tags=retry)
    assert shop.rows("select item from orders order by item") == [("a 2",), ("b 2",), ("last",)]


@pytest.mark.parametrize("lake_format", ["delta", "ducklake"])
def test_a_materialization_shows_what_was_taken_back(tmp_path: Any, lake_format: str, metadata: Any) -> None:
    numbers = [1, 2]

    @dg.asset(metadata={"mode": "append"}, retry_policy=dg.RetryPolicy(max_retries=1))
    def orders() -> Any:
        rows = numbers.pop(0)
        yield dg.Output(pa.table({"id": range(rows)}))
        if rows == 1:
            raise RuntimeError("lost the connection")

    lake = DuckrunResource(root_path=str(tmp_path / "lake"), format=lake_format)
    result = dg.materialize([orders], resources={"io_manager": DeltaIOManager(duckrun=lake, schema="shop")})
    shown = metadata(result, "orders")
    assert (shown["retracted_version"], shown["retracted_rows"]) == (shown["version"] - 1, 1)
    assert (shown["dagster/row_count"], shown["replayed"]) == (2, False)


def test_a_part_of_the_steps_of_a_run_goes_on_with_it(shop: Any) -> None:
    """Dagster's Python API sets the parent only: re-execution of a part of the steps is a retry, of all steps a new chain."""
    run = dg.DagsterRun(job_name="j", run_id="first", step_keys_to_execute=None)
    shop.instance.add_run(run)
    part = dg.DagsterRun(
        job_name="j", run_id="part", parent_run_id="first", root_run_id="first", step_keys_to_execute=["after"]
    )
    whole = dg.DagsterRun(job_name="j", run_id="whole", parent_run_id="first", root_run_id="first")
    assert chain_of(part, shop.instance) == "first"
    assert chain_of(whole, shop.instance) == "whole"


class TestAppends:
    """Takes back exactly what an older attempt of the same work appended."""

    def append(self, session: Any, item: str, attempt: str, started: float, **spec: Any) -> Any:
        app = WorkTransaction("chain/orders", attempt=attempt, started=started)
        return session.execute("main.orders", WriteSpec("append", app=app, **spec), pa.table({"item": [item]}))

    def items(self, session: Any) -> list[str]:
        return sorted(session.sql("select item from main.orders").toArrow()["item"].to_pylist())

    def test_rows_of_others_stay_and_those_of_the_older_attempt_go_in_one_commit(self, duck: Any) -> None:
        duck.sql("create table main.orders as select 'others' as item")
        self.append(duck, "bad", "a", 1)
        duck.sql("insert into main.orders values ('more')")
        commit = self.append(duck, "mended", "b", 2)
        assert self.items(duck) == ["mended", "more", "others"]
        assert (commit.version, commit.rows_inserted, commit.rows_deleted, commit.replayed) == (3, 1, 1, False)

    def test_an_attempt_commits_once(self, duck: Any) -> None:
        self.append(duck, "one", "a", 1)
        assert self.append(duck, "one", "a", 1).replayed
        assert self.items(duck) == ["one"]

    def test_an_older_attempt_is_superseded(self, duck: Any) -> None:
        self.append(duck, "new", "b", 2)
        with pytest.raises(CommitConflict, match=r"main\.orders is superseded: a newer attempt"):
            self.append(duck, "old", "a", 1)
        assert self.items(duck) == ["new"]

    @pytest.mark.parametrize(
        "between", ["optimize main.orders", "update main.orders set item = 'ONE' where item = 'one'"]
    )
    def test_equal_rows_are_the_same_commit_where_others_changed_the_files(self, duck: Any, between: str) -> None:
        duck.sql("create table main.orders as select 'other' as item")
        self.append(duck, "one", "a", 1)
        duck.sql(between)
        before = self.items(duck)
        assert self.append(duck, "one", "b", 2).replayed
        assert self.items(duck) == before

    def test_other_rows_are_a_conflict_where_others_changed_the_files(self, duck: Any) -> None:
        duck.sql("create table main.orders as select 'other' as item")
        self.append(duck, "one", "a", 1)
        duck.sql("optimize main.orders")
        with pytest.raises(CommitConflict, match="appended other rows at version 1.*Restore the table to version 0"):
            self.append(duck, "two", "b", 2)
        assert self.items(duck) == ["one", "other"]

    def test_a_table_that_is_append_only_keeps_its_rows(self, duck: Any) -> None:
        duck.sql("create table main.orders (item varchar)")
        duck.sql("alter table main.orders set tblproperties ('delta.appendOnly' = 'true')", dialect="spark")
        self.append(duck, "one", "a", 1)
        assert self.append(duck, "one", "b", 2).replayed
        with pytest.raises(CommitConflict, match="append-only"):
            self.append(duck, "two", "c", 3)

    def test_a_third_attempt_takes_back_the_second(self, duck: Any) -> None:
        for number, item in enumerate(("one", "two", "three")):
            self.append(duck, item, item, number)
        assert self.items(duck) == ["three"]


def test_a_merge_that_reads_its_target_is_made_once(duck: Any) -> None:
    rows = pa.table({"id": [1], "n": [1]})
    duck.sql("create table main.t as select 1::bigint as id, 10::bigint as n")
    clause = MergeClause("matched_update", set={"n": "target.n + source.n"})
    for attempt in ("a", "b"):
        app = WorkTransaction("chain/t", attempt=attempt, started=ord(attempt))
        duck.execute("main.t", MergeSpec(("id",), (clause,), app=app), rows)
    assert duck.sql("select n from main.t").toArrow()["n"].to_pylist() == [11]


def test_reruns_are_the_same_for_a_session_that_opens_the_lake_anew(root: Any) -> None:
    for attempt, item in (("a", "bad"), ("b", "mended")):
        with duckrun.connect(root) as session:
            TestAppends().append(session, item, attempt, ord(attempt))
    with duckrun.connect(root) as session:
        assert TestAppends().items(session) == ["mended"]


def test_a_step_reads_its_own_table_as_it_was_before_the_older_attempt(shop: Any) -> None:
    """An append by max(id), whose check fails and whose code is mended, goes on from the rows that were there before."""
    fails = [True]

    @dg.asset(metadata={"mode": "append"}, check_specs=[dg.AssetCheckSpec("good", asset="orders", blocking=True)])
    def orders(duckrun: DuckrunResource) -> Any:
        session = duckrun.session()
        known = session.sql("select max(id) as id from shop.orders").toArrow()["id"][0].as_py()
        yield dg.Output(pa.table({"id": [known + 1]}))
        yield dg.AssetCheckResult(passed=not fails.pop() if fails else True)

    with duckrun.connect(shop.root) as session:
        session.execute("shop.orders", WriteSpec("error"), pa.table({"id": [7]}))
    failed = shop.run([orders], fails=True)
    shop.run([orders], tags={"dagster/parent_run_id": failed.run_id, **RETRIED})
    assert shop.rows("select id from orders order by id") == [(7,), (8,)]


class OwnTable(RerunLake):
    """An asset that reads its own table, which its first run makes; ``fails`` says how many of its next attempts fail after their commit."""

    def __init__(self, root: Path, lake_format: str, read: str = "sql", **metadata: Any) -> None:
        super().__init__(root, lake_format)
        self.fails, self.adds = 0, 1
        self.between: list[str] = []
        own = self

        @dg.asset(metadata=metadata)
        def totals(duckrun: DuckrunResource) -> Any:
            known = SEES[read](duckrun.session())
            for statement in own.between:
                own.sql(statement)
            new = pa.table({"id": [max(known, default=0) + 1], "v": [own.adds]})
            yield dg.Output(new if metadata.get("mode") else _with_known(duckrun.session(), known, new))
            if own.fails:
                own.fails -= 1
                raise RuntimeError("after the commit")

        self.asset = totals

    def run(self, parent: Any = None, *, fails: int = 0, adds: int = 1) -> Any:
        self.fails, self.adds = fails, adds
        return self.materialize([self.asset], parent)

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(self.query("select id, v from totals"))


def _by_error(session: Any) -> list[int]:
    try:
        return list(session.sql("select id from shop.totals").toArrow()["id"].to_pylist())
    except TableNotFound:
        return []


def _if(session: Any, there: bool) -> list[int]:
    return _by_error(session) if there else []


def _with_known(session: Any, known: list[int], new: pa.Table) -> pa.Table:
    return pa.concat_tables([session.table("shop.totals").toDF().toArrow(), new]) if known else new


SEES = {
    "sql": _by_error,
    "table": lambda s: _opened(s),
    "tables": lambda s: _if(s, "shop.totals" in s.tables()),
    "show": lambda s: _if(s, "totals" in s.sql("show tables").toArrow()["name"].to_pylist()),
    "information": lambda s: _if(
        s, s.sql("select * from information_schema.tables where table_name = 'totals'").count() > 0
    ),
    "folder": lambda s: _if(s, s.lake.has_catalog or duckrun.DeltaTable.isDeltaTable(s, f"{s.lake.root}/shop/totals")),
}


def _opened(session: Any) -> list[int]:
    try:
        return list(session.table("shop.totals").toDF().toArrow()["id"].to_pylist())
    except TableNotFound:
        return []


BOTH_FORMATS = pytest.mark.parametrize("lake_format", ["delta", "ducklake"])


@pytest.mark.drawn(3)
@BOTH_FORMATS
@pytest.mark.parametrize("read", SEES)
def test_the_table_that_an_older_attempt_made_is_none_to_a_step_that_reads_it(
    tmp_path: Path, lake_format: str, read: str
) -> None:
    own = OwnTable(tmp_path / "lake", lake_format, read)
    failed = own.run(fails=1)
    assert own.rows() == [(1, 1)]
    again = own.run(failed, fails=1, adds=2)
    assert own.rows() == [(1, 2)], again.all_events
    assert own.run(again, adds=3).success  # a third attempt
    assert own.rows() == [(1, 3)]
    assert own.run(adds=4).success
    assert own.rows() == [(1, 3), (2, 4)]


@pytest.mark.drawn(3)
@BOTH_FORMATS
@pytest.mark.parametrize(
    "metadata",
    [
        {"mode": "append"},
        {"mode": "merge", "merge_keys": ["id"]},
        {"mode": "delete+insert", "merge_keys": ["id"]},
        {"mode": "error"},
        {"mode": "ignore"},
        {"mode": "overwrite", "change_data_feed": True, "sort_by": "id"},
    ],
    ids=lambda metadata: metadata["mode"],
)
def test_every_mode_takes_the_place_of_the_table_that_an_older_attempt_made(
    tmp_path: Path, lake_format: str, metadata: dict[str, Any]
) -> None:
    if lake_format == "ducklake":
        metadata = {key: value for key, value in metadata.items() if key != "change_data_feed"}
    own = OwnTable(tmp_path / "lake", lake_format, **metadata)
    failed = own.run(fails=1)
    assert own.run(failed, adds=2).success
    assert own.rows() == [(1, 2)]


@pytest.mark.drawn(2)
@BOTH_FORMATS
@pytest.mark.parametrize("when", ["before the attempt", "between its read and its write"])
def test_rows_that_others_have_put_into_that_table_are_not_taken_back(
    tmp_path: Path, lake_format: str, when: str
) -> None:
    own = OwnTable(tmp_path / "lake", lake_format)
    failed = own.run(fails=1)
    others = ["insert into totals values (50, 50)"]
    if when == "before the attempt":
        own.sql(*others)
    else:
        own.between = others
    again = own.run(failed, adds=2)
    assert not again.success and own.rows() == [(1, 1), (50, 50)]
    error = next(event for event in again.all_events if event.is_step_failure).step_failure_data.error
    assert "others have changed rows since" in (error.cause or error).message
    assert "drop it if its rows and later changes may go" in (error.cause or error).message


@pytest.mark.drawn(2)
@BOTH_FORMATS
@pytest.mark.parametrize("partition", ["a", "b"])
def test_a_partition_that_reads_the_one_before_takes_the_place_of_the_table_that_it_made(
    tmp_path: Path, lake_format: str, partition: str
) -> None:
    """Nobody has materialized anything before it."""
    halves = dg.StaticPartitionsDefinition(["a", "b"])
    values = [1, 2, 3]

    @dg.asset(partitions_def=halves, metadata={"partition_expr": "p"}, retry_policy=dg.RetryPolicy(max_retries=2))
    def totals(context: dg.AssetExecutionContext, duckrun: DuckrunResource) -> Any:
        known = _by_error(duckrun.session())
        value = values.pop(0)
        yield dg.Output(pa.table({"id": [len(known)], "v": [value], "p": [context.partition_key]}))
        if values:
            raise RuntimeError("after the commit")

    lake = DuckrunResource(root_path=str(tmp_path / "lake"), format=lake_format)
    resources = {"duckrun": lake, "io_manager": DeltaIOManager(duckrun=lake, schema="shop")}
    assert dg.materialize([totals], resources=resources, partition_key=partition).success
    with duckrun.connect(tmp_path / "lake", schema="shop", format=lake_format) as session:
        assert session.sql("select id, v, p from totals").collect() == [{"id": 0, "v": 3, "p": partition}]
        assert session.table("totals").snapshot().partition_columns == ("p",)


@pytest.mark.drawn(1)
@BOTH_FORMATS
def test_a_partition_gets_the_one_before_as_its_first_attempt_got_it(tmp_path: Path, lake_format: str) -> None:
    days = dg.DailyPartitionsDefinition("2026-01-01")
    got, failing = [], [True]

    @dg.asset(
        partitions_def=days,
        metadata={"partition_expr": "day"},
        ins={"totals": dg.AssetIn(partition_mapping=dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1))},
    )
    def totals(context: dg.AssetExecutionContext, totals: pa.Table | None) -> Any:
        got.append(None if totals is None else totals.num_rows)
        yield dg.Output(pa.table({"n": [len(got)], "day": [date.fromisoformat(context.partition_key)]}))
        if failing:
            raise RuntimeError("after the commit")

    lake = DuckrunResource(root_path=str(tmp_path / "lake"), format=lake_format)
    resources = {"io_manager": DeltaIOManager(duckrun=lake, schema="shop")}
    instance = dg.DagsterInstance.ephemeral()

    def run(day: str, **tags: str) -> Any:
        return dg.materialize(
            [totals], instance=instance, resources=resources, partition_key=day, tags=tags, raise_on_error=False
        )

    failed = run("2026-01-02")
    failing.clear()
    retry = {"dagster/parent_run_id": failed.run_id, **RETRIED}
    assert run("2026-01-02", **retry).success
    assert run("2026-01-03").success
    assert got == [None, None, 1]
    with duckrun.connect(tmp_path / "lake", schema="shop", format=lake_format) as session:
        assert [row["n"] for row in session.sql("select n from totals order by day").collect()] == [2, 3]


@pytest.mark.spark
def test_spark_takes_the_place_of_the_table_that_an_older_attempt_made(shop: Any, with_spark: dict[str, Any]) -> None:
    values = [1, 2, 3]

    @dg.asset(metadata={"mode": "merge", "merge_keys": ["id"]}, retry_policy=dg.RetryPolicy(max_retries=2))
    def totals(duckrun: DuckrunResource) -> Any:
        known = _by_error(duckrun.session("spark", spark=with_spark["spark"]))
        yield dg.Output(pa.table({"id": [values[0]], "n": [len(known)]}))
        if len(values) > 1:
            values.pop(0)
            raise RuntimeError("after the commit")

    shop.run([totals], settings={**with_spark, "engine": "spark"})
    assert shop.rows("select id, n from totals") == [(3, 0)]


def test_a_rerun_of_an_asset_that_writes_its_data_itself_lists_tables(shop: Any) -> None:
    tables: list[list[str]] = []

    @dg.asset(key=["a", "b", "c"], retry_policy=dg.RetryPolicy(max_retries=1))
    def written(duckrun: DuckrunResource) -> None:
        tables.append(duckrun.session().tables())
        duckrun.session().sql("create table if not exists shop.t as select 1 as n")
        if len(tables) == 1:
            raise RuntimeError("once")

    shop.run([written])
    assert tables == [[], ["shop.t"]]
