"""A retry of an asset of changes reads the changes again that the attempt before has read, and takes back what that wrote."""

from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest

import duckrun
from duckrun import SQL, Session, WriteSpec
from duckrun_dagster import DeltaIOManager, DuckrunResource
from tests.dagster.rerun import RETRIED, RerunLake

RAW = dg.AssetSpec(dg.AssetKey(["raw"]), metadata={"schema": "shop", "table": "raw"}).with_io_manager_key("io_manager")
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "apply": ("min_delta", {"merge_keys": "id"}),
    "scd1": ("full_delta", {"mode": "scd1", "merge_keys": "id", "sequence_by": "_commit_version"}),
    "scd2": ("full_delta", {"mode": "scd2", "merge_keys": "id", "sequence_by": "_commit_version"}),
    "append": ("append_only", {"mode": "append"}),
    "merge": ("upsert", {"mode": "merge", "merge_keys": "id"}),
}


class Copying:
    """A table raw, and an asset of its changes whose function is ``work`` at the moment."""

    def __init__(self, root: Path, lake_format: str, kind: str = "apply", retries: int = 0, **settings: Any) -> None:
        self.root, self.format, self.work = root, lake_format, lambda rows, number: rows
        self.instance = dg.DagsterInstance.ephemeral()
        lake = DuckrunResource(root_path=str(root), format=lake_format)
        self.resources = {"io_manager": DeltaIOManager(duckrun=lake, schema="shop", preview=False, **settings)}
        self.good = True
        changes, metadata = KINDS[kind]
        copying = self

        @dg.asset(
            ins={"raw": dg.AssetIn(metadata={"changes": changes, "key": "id"})},
            metadata=metadata,
            check_specs=[dg.AssetCheckSpec("good", asset="copy", blocking=True)],
            retry_policy=dg.RetryPolicy(max_retries=retries) if retries else None,
        )
        def copy(context: dg.AssetExecutionContext, raw: pl.DataFrame) -> Any:
            number = context.op_execution_context.retry_number
            rows = copying.work(raw, number)
            if rows is None:
                yield dg.Output(raw.clear())
            else:
                yield dg.Output(rows)
            yield dg.AssetCheckResult(passed=copying.good or number > 0)
            if not copying.good and number == 0:
                raise RuntimeError("its own check failed")

        self.asset = copy
        with self.session() as session:
            session.execute("raw", WriteSpec("overwrite"), SQL("select range as id, range * 10 as v from range(5)"))

    def session(self) -> Session:
        return duckrun.connect(self.root, schema="shop", format=self.format)

    def sql(self, *statements: str) -> None:
        with self.session() as session:
            for statement in statements:
                session.sql(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.session() as session:
            return sorted(tuple(row.values()) for row in session.sql(query).collect())

    def run(self, *, good: bool = True, of: Any = None, succeeds: bool | None = None) -> dict[str, Any]:
        """Materialize the asset, in a run or as a retry of one; the metadata of its materialization, and the ``result``."""
        self.good = good
        tags = {} if of is None else {"dagster/parent_run_id": of.run_id, **RETRIED}
        result = dg.materialize(
            [self.asset, RAW], instance=self.instance, resources=self.resources, tags=tags, raise_on_error=False
        )
        assert result.success is (good if succeeds is None else succeeds), [
            event.step_failure_data.error for event in result.all_events if event.is_step_failure
        ]
        events = result.asset_materializations_for_node("copy")
        metadata = events[-1].metadata if events else {}
        return {"result": result, **{key: getattr(value, "value", value) for key, value in metadata.items()}}


@pytest.fixture(params=["delta", "ducklake"])
def lake_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def wrong(rows: pl.DataFrame, number: int) -> pl.DataFrame:
    """Every value is wrong, and there is a row too many."""
    there = rows.filter(pl.col("_change_type") == "insert") if "_change_type" in rows.columns else rows
    first = there.head(1).with_columns(id=pl.lit(77, pl.Int64))
    return pl.concat([rows, first]).with_columns(v=pl.col("v") * 0 - 1)


@pytest.mark.drawn(2)
def test_the_retry_of_an_asset_whose_own_check_failed_reads_the_same_changes_again(
    tmp_path: Path, lake_format: str
) -> None:
    copying = Copying(tmp_path / "lake", lake_format)
    copying.run()
    copying.sql("update raw set v = 7 where id = 1", "delete from raw where id = 2", "insert into raw values (9, 90)")
    right, copying.work = copying.work, wrong
    failed = copying.run(good=False)
    assert (77, -1) in copying.rows("select id, v from copy")
    copying.sql("update raw set v = 8 where id = 1")  # comes in between
    copying.work = right
    again = copying.run(of=failed["result"])
    assert copying.rows("select id, v from copy") == copying.rows("select id, v from raw")
    assert again["raw_from"] == failed["raw_from"] and again["raw_to"] > failed["raw_to"]
    assert "reads the same changes again, and takes it back" in again["changes_rerun"]
    copying.sql("delete from raw where id = 3")
    assert "changes_rerun" not in copying.run()
    assert copying.rows("select id, v from copy") == copying.rows("select id, v from raw")


@pytest.mark.drawn(10)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("retries", [0, 1])
def test_a_retry_leaves_what_a_run_that_never_failed_leaves(
    tmp_path: Path, lake_format: str, kind: str, retries: int
) -> None:
    """The first run, whose table the attempt before has made, and a later one."""
    copying = Copying(tmp_path / "lake", lake_format, kind, retries)
    plain = Copying(tmp_path / "plain", lake_format, kind)
    for step in ("insert into raw values (8, 80)", "insert into raw values (9, 90)"):
        for each in (copying, plain):
            each.sql(step)
        plain.run()
        copying.work = lambda rows, number: wrong(rows, number) if number == 0 else rows
        failed = copying.run(good=False, succeeds=bool(retries))
        if not retries:
            copying.work = lambda rows, number: rows
            copying.run(of=failed["result"])
        columns = "id, v" if lake_format == "ducklake" else "*"  # whose versions count the commits of all tables
        assert copying.rows(f"select {columns} from copy") == plain.rows(f"select {columns} from copy")


@pytest.mark.drawn(2)
def test_a_retry_goes_on_from_the_present_cursor_where_others_have_changed_the_table(
    tmp_path: Path, lake_format: str
) -> None:
    copying = Copying(tmp_path / "lake", lake_format)
    copying.run()
    copying.sql("update raw set v = 7 where id = 1")
    failed = copying.run(good=False)
    copying.sql("insert into copy values (50, 500)", "insert into raw values (9, 90)")
    again = copying.run(of=failed["result"])
    assert again["raw_from"] == failed["raw_to"]
    assert "cannot be taken back: others have changed rows since" in again["changes_rerun"]
    assert "goes on from there" in again["changes_rerun"]
    assert copying.rows("select id, v from copy") == sorted([*copying.rows("select id, v from raw"), (50, 500)])


@pytest.mark.drawn(2)
def test_a_retry_that_finds_nothing_to_write_takes_back_all_the_same(tmp_path: Path, lake_format: str) -> None:
    copying = Copying(tmp_path / "lake", lake_format)
    copying.run()
    before = copying.rows("select id, v from copy")
    copying.sql("update raw set v = 7 where id = 1")
    copying.work = wrong
    failed = copying.run(good=False)
    copying.work = lambda rows, number: None
    copying.run(of=failed["result"])
    assert copying.rows("select id, v from copy") == before
    copying.work = lambda rows, number: rows
    assert copying.run()["raw_insert"] == 0  # it has read on


@pytest.mark.drawn(2)
def test_another_run_goes_on_from_the_present_cursor(tmp_path: Path, lake_format: str) -> None:
    copying = Copying(tmp_path / "lake", lake_format)
    copying.run()
    copying.sql("update raw set v = 7 where id = 1")
    failed = copying.run(good=False)
    copying.sql("insert into raw values (9, 90)")
    found = copying.run()
    assert found["raw_from"] == failed["raw_to"] and "changes_rerun" not in found


class Running(RerunLake):
    """An asset of changes that numbers the rows which it appends, from the number of rows that its own table has."""

    def __init__(self, root: Path, lake_format: str) -> None:
        super().__init__(root, lake_format)
        self.fails, self.sign = False, 1
        running = self

        @dg.asset(
            ins={"raw": dg.AssetIn(metadata={"changes": "append_only", "key": "id"})}, metadata={"mode": "append"}
        )
        def log(raw: pl.DataFrame, duckrun: DuckrunResource) -> Any:
            session = duckrun.session()
            n = session.sql("select * from shop.log").count() if "shop.log" in session.tables() else 0
            rows = raw.sort("id").with_row_index("n", offset=n + 1).with_columns(pl.col("n").cast(pl.Int64))
            yield dg.Output(rows.select("n", pl.col("id") * running.sign))
            if running.fails:
                raise RuntimeError("after the commit")

        self.asset = log

    def rows(self) -> list[tuple[Any, ...]]:
        return self.query("select n, id from log order by n, id")

    def run(self, parent: Any = None, *, fails: bool = False, sign: int = 1) -> Any:
        self.fails, self.sign = fails, sign
        result = self.materialize([self.asset, RAW], parent)
        failures = [event.step_failure_data.error for event in result.all_events if event.is_step_failure]
        assert ["after the commit" in str(error and error.cause) for error in failures] == [True] * fails, failures
        return result


@pytest.mark.drawn(2)
def test_an_asset_of_changes_reads_its_own_table_as_its_older_attempts_did(tmp_path: Path, lake_format: str) -> None:
    running = Running(tmp_path / "lake", lake_format)
    running.sql("create table raw as select range + 1 as id from range(2)")
    first = running.run(fails=True, sign=-1)  # makes the table
    assert running.rows() == [(1, -1), (2, -2)]
    second = running.run(first, fails=True, sign=-1)
    assert running.rows() == [(1, -1), (2, -2)]
    running.sql("insert into raw values (3)")
    running.run(second)
    assert running.rows() == [(1, 1), (2, 2), (3, 3)]
    running.sql("insert into raw values (4)")
    failed = running.run(fails=True, sign=-1)  # the table was there before
    failed = running.run(failed, fails=True, sign=-1)
    assert running.rows() == [(1, 1), (2, 2), (3, 3), (4, -4)]
    running.sql("insert into raw values (5)")
    running.run(failed)
    assert running.rows() == [(n, n) for n in range(1, 6)]
    running.sql("insert into raw values (6)")
    assert running.run().success
    assert running.rows() == [(n, n) for n in range(1, 7)]


@pytest.mark.drawn(2)
def test_an_asset_of_changes_reads_what_others_have_put_into_its_own_table(tmp_path: Path, lake_format: str) -> None:
    """Its older attempt cannot be taken back then: it goes on from there."""
    running = Running(tmp_path / "lake", lake_format)
    running.sql("create table raw as select range + 1 as id from range(2)")
    first = running.run(fails=True)
    running.sql("insert into log values (50, 50)", "insert into raw values (3)")
    running.run(first)
    assert running.rows() == [(1, 1), (2, 2), (4, 3), (50, 50)]
