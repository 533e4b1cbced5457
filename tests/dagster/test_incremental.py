"""Inputs of changes: an asset gets what changed since its own last commit, once, whatever happens in between."""

import os
import shutil
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import duckrun
from duckrun import SQL, CleanupLogSpec, Frame, InvalidConfig, OptimizeSpec, VacuumSpec, WriteSpec
from duckrun_dagster import UnseenChanges, changes_sensor, check_definitions

COPY = {"merge_keys": "id"}
RAW = dg.AssetSpec(dg.AssetKey(["raw"]), metadata={"schema": "shop", "table": "raw"})


@dg.asset(ins={"raw": dg.AssetIn(metadata={"changes": "min_delta", "key": ["id"]})}, metadata=COPY)
def copy(raw: pa.Table) -> pa.Table:
    """Equal to raw, always."""
    return raw


def fill(shop: Any, *statements: str) -> None:
    with duckrun.connect(shop.root, schema="shop") as session:
        if not session.lake.exists(session.ref("raw")):
            rows = "select range as id, range * 10 as v from range(5)"
            session.execute("raw", WriteSpec("overwrite"), SQL(rows))
        for statement in statements:
            session.sql(statement)


def assets(*more: Any) -> list[Any]:
    return [*more, RAW.with_io_manager_key("io_manager")]


def equal(shop: Any, table: str = "copy") -> None:
    assert shop.rows(f"select * from {table} order by id") == shop.rows("select * from raw order by id")


def test_an_asset_follows_its_upstream(shop: Any, metadata: Any) -> None:
    fill(shop)
    found = metadata(shop.run(assets(copy)), "copy")
    equal(shop)
    assert (found["raw_from"], found["raw_to"], found["changes_whole"], found["mode"]) == (-1, 0, True, "overwrite")
    fill(shop, "update raw set v = 7 where id = 1", "delete from raw where id = 2", "insert into raw values (9, 90)")
    found = metadata(shop.run(assets(copy)), "copy")
    equal(shop)
    assert (found["raw_from"], found["raw_to"], found["changes_whole"], found["raw_source"]) == (0, 3, False, "files")
    told = {kind: found[f"raw_{kind}"] for kind in ("insert", "delete", "update_preimage", "update_postimage")}
    assert told == {"insert": 1, "delete": 1, "update_preimage": 1, "update_postimage": 1}
    assert (found["rows_inserted"], found["rows_updated"], found["rows_deleted"]) == (1, 1, 1)
    assert [field.name for field in shop.snapshot("copy").schema] == ["id", "v"]


def test_nothing_changed_is_no_version_and_what_changes_no_row_moves_the_cursor(shop: Any, metadata: Any) -> None:
    fill(shop)
    for _ in range(2):
        found = metadata(shop.run(assets(copy)), "copy")
        assert shop.version("copy") == 0
    assert (found["raw_from"], found["raw_to"]) == (0, 0)
    fill(shop, "update raw set v = v where id = 1")
    shop.run(assets(copy))
    assert shop.version("copy") == 1
    found = metadata(shop.run(assets(copy)), "copy")
    assert (found["raw_from"], found["raw_to"], shop.version("copy")) == (1, 1, 1)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pl.LazyFrame, Frame, pa.RecordBatchReader])
def test_changes_as_any_frame(shop: Any, kind: Any) -> None:
    def body(raw: Any) -> Any:
        return raw

    body.__annotations__ = {"raw": kind, "return": kind}
    followed = dg.asset(
        name="copy", ins={"raw": dg.AssetIn(metadata={"changes": "min_delta", "key": "id"})}, metadata=COPY
    )(body)
    fill(shop)
    shop.run(assets(followed))
    fill(shop, "update raw set v = 7 where id = 1", "delete from raw where id = 2")
    shop.run(assets(followed))
    equal(shop)


def test_a_run_that_failed_between_the_offsets_and_the_commit_is_taken_up(shop: Any, metadata: Any) -> None:
    fails = True

    @dg.asset(name="copy", ins={"raw": dg.AssetIn(metadata={"changes": "min_delta", "key": "id"})}, metadata=COPY)
    def failing(raw: pa.Table) -> pa.Table:
        if fails:
            raise RuntimeError("half-way")
        return raw

    fill(shop)
    assert "half-way" in shop.error(assets(failing))
    fill(shop, "update raw set v = 1")
    fails = False
    assert metadata(shop.run(assets(failing)), "copy")["raw_to"] == 0  # what the failed run had noted
    assert metadata(shop.run(assets(failing)), "copy")["raw_to"] == 1
    equal(shop)
    fill(shop, "update raw set v = 2")
    fails = True
    shop.error(assets(failing))
    fill(shop, "update raw set v = 3 where id < 2")
    fails = False
    assert metadata(shop.run(assets(failing)), "copy")["raw_to"] == 2
    shop.run(assets(failing))
    equal(shop)


def test_a_restored_output_is_brought_forward_again(shop: Any) -> None:
    fill(shop)
    shop.run(assets(copy))
    for number in (1, 2):
        fill(shop, f"update raw set v = {number} where id = {number}")
        shop.run(assets(copy))
    with duckrun.connect(shop.root, schema="shop") as session:
        session.table("copy").restoreToVersion(0)
    shop.run(assets(copy))
    equal(shop)
    fill(shop, "restore table raw to version as of 0")
    shop.run(assets(copy))
    equal(shop)


def test_what_only_a_full_refresh_mends_is_asked_for_and_never_done_by_itself(shop: Any, metadata: Any) -> None:
    fill(shop)
    shop.run(assets(copy))
    fill(shop, "drop table raw")
    fill(shop, "update raw set v = 0")
    message = shop.error(assets(copy))
    assert (
        "shop.raw is another table now than the one that was read up to version 0" in message
        and "full refresh" in message
    )
    assert shop.version("copy") == 0
    found = metadata(shop.run(assets(copy), tags={"duckrun/full_refresh": "copy"}), "copy")
    assert found["changes_whole"]
    equal(shop)
    fill(shop, "update raw set v = 5 where id = 3")
    shop.run(assets(copy))
    equal(shop)


def test_the_first_run_overwrites_rows_that_are_there(shop: Any) -> None:
    fill(shop)
    with duckrun.connect(shop.root, schema="shop") as session:
        session.execute("copy", WriteSpec("overwrite"), SQL("select 77 as id, 7 as v"))
    shop.run(assets(copy))
    equal(shop)


def test_changes_of_a_history_and_of_appends(shop: Any) -> None:
    changes = {"changes": "full_delta", "key": ["id"]}

    @dg.asset(
        ins={"raw": dg.AssetIn(metadata=changes)},
        metadata={"mode": "scd2", "merge_keys": "id", "sequence_by": "_commit_version"},
    )
    def past(raw: Frame) -> Frame:
        return raw

    @dg.asset(ins={"raw": dg.AssetIn(metadata={"changes": "append_only", "key": "id"})}, metadata={"mode": "append"})
    def log(raw: pl.DataFrame) -> pl.DataFrame:
        return raw

    fill(shop)
    shop.run(assets(past, log))
    fill(shop, "update raw set v = 7 where id = 1", "delete from raw where id = 2", "insert into raw values (9, 90)")
    shop.run(assets(past, log))
    assert shop.rows("select * from past where id in (1, 2, 9) order by id, valid_from") == [
        (1, 10, 0, 1), (1, 7, 1, None), (2, 20, 0, 2), (9, 90, 3, None),
    ]  # fmt: skip
    assert shop.rows("select * from log order by id") == [(0, 0), (1, 10), (2, 20), (3, 30), (4, 40), (9, 90)]


def test_a_cursor_for_each_partition(shop: Any) -> None:
    halves = dg.StaticPartitionsDefinition(["0", "1"])

    @dg.asset(
        partitions_def=halves,
        ins={"raw": dg.AssetIn(metadata={"changes": "upsert", "key": "id"})},
        metadata={"partition_expr": "p", **COPY},
    )
    def part(context: dg.AssetExecutionContext, raw: pl.DataFrame) -> pl.DataFrame:
        mine = raw.filter(pl.col("id") % 2 == int(context.partition_key)).drop("_change_type")
        return mine.with_columns(p=pl.lit(context.partition_key))

    fill(shop)
    shop.run(assets(part), partitions="0")
    fill(shop, "update raw set v = 100")
    for key in ("1", "0"):
        shop.run(assets(part), partitions=key)
    assert shop.rows("select id, v, p from part order by id") == [(i, 100, str(i % 2)) for i in range(5)]
    assert "has a cursor for each partition" in shop.error(assets(part), partitions=("0", "1"))


@pytest.mark.spark
def test_a_step_of_spark(shop: Any, with_spark: dict[str, Any]) -> None:
    on_spark = dg.asset(
        name="copy",
        ins={"raw": dg.AssetIn(metadata={"changes": "min_delta", "key": "id"})},
        metadata={**COPY, "engine": "spark"},
    )(lambda raw: raw)
    fill(shop)
    shop.run(assets(on_spark), settings=with_spark)
    fill(shop, "update raw set v = 7 where id = 1", "delete from raw where id = 2")
    shop.run(assets(on_spark), settings=with_spark)
    equal(shop)
    with duckrun.connect(shop.root, schema="shop") as session:
        session.table("copy").restoreToVersion(0)
    shop.run(assets(on_spark), settings=with_spark)
    equal(shop)


def test_changes_go_with_one_table(shop: Any) -> None:
    @dg.multi_asset(
        outs={"a": dg.AssetOut(), "b": dg.AssetOut()},
        ins={"raw": dg.AssetIn(metadata={"changes": "upsert", "key": "id"})},
    )
    def both(raw: pa.Table) -> tuple[pa.Table, pa.Table]:
        return raw, raw

    @dg.asset(ins={"raw": dg.AssetIn(metadata={"changes": "upsert"})})
    def none(raw: pa.Table) -> None: ...

    for asset, words in ((both, "it writes a and b"), (none, "it writes none")):
        with pytest.raises(InvalidConfig, match=f"go with exactly one output.*{words}"):
            check_definitions(dg.Definitions(assets=assets(asset), resources=shop.resources()))
        fill(shop)
        assert "exactly one output" in shop.error(assets(asset))


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"changes": "upserts"}, "upserts"),
        ({"key": "id"}, "'key' goes with 'changes'"),
        ({"changes": "upsert", "version": 3}, "leave out 'version'"),
        ({"changes": "upsert", "key": "nr"}, "names the column nr"),
    ],
)
def test_what_an_input_of_changes_may_say(shop: Any, metadata: dict[str, Any], words: str) -> None:
    fill(shop)
    asked = dg.asset(name="copy", ins={"raw": dg.AssetIn(metadata=metadata)}, metadata=COPY)(lambda raw: raw)
    assert words in shop.error(assets(asked))


def test_a_sensor_asks_for_a_run_where_rows_changed(shop: Any) -> None:
    fill(shop)
    sensor = changes_sensor("late", [copy])
    defs = dg.Definitions(assets=assets(copy), sensors=[sensor], resources=shop.resources())

    def asked() -> list[str]:
        with dg.build_sensor_context(
            shop.instance, repository_def=defs.get_repository_def(), resources=shop.resources()
        ) as context:
            found = sensor.evaluate_tick(context)
        assert all(request.asset_selection == [copy.key] for request in found.run_requests)
        return [request.run_key for request in found.run_requests]

    (first,) = asked()
    assert first.endswith(":0")
    shop.run(assets(copy))
    assert asked() == []
    fill(shop, "insert into raw values (9, 90)")  # outside of Dagster
    (second,) = asked()
    assert second.endswith(":1") and asked() == [second]
    shop.run(assets(copy))
    with duckrun.connect(shop.root, schema="shop") as session:
        assert session.execute("raw", OptimizeSpec()).version == 2
    assert asked() == []  # a compaction changes no row
    fill(shop, "drop table raw")
    fill(shop)
    assert asked() == []  # only a full refresh goes on, which is asked for in words


def test_a_condition_is_true_where_rows_changed(shop: Any) -> None:
    fill(shop)
    manager = shop.resources()["io_manager"]
    watched = copy.map_asset_specs(lambda spec: spec.replace_attributes(automation_condition=UnseenChanges(manager)))
    defs = dg.Definitions(assets=assets(watched), resources=shop.resources())

    def wanted(cursor: Any = None) -> Any:
        return dg.evaluate_automation_conditions(defs, instance=shop.instance, cursor=cursor)

    assert wanted().total_requested == 1
    shop.run(assets(watched))
    assert wanted().total_requested == 0
    fill(shop, "update raw set v = 3")
    assert wanted().total_requested == 1


def test_what_a_sensor_watches(shop: Any) -> None:
    @dg.asset
    def plain() -> pa.Table: ...

    with (
        dg.build_sensor_context(shop.instance, resources=shop.resources()) as context,
        pytest.raises(InvalidConfig, match="has no input of changes"),
    ):
        changes_sensor("late", [plain]).evaluate_tick(context)


def test_maintenance_names_the_consumers_that_it_strands(shop: Any, tmp_path: Path) -> None:
    fill(shop)
    shop.run(assets(copy))
    with duckrun.connect(shop.root, schema="shop") as session:
        assert session.execute("raw", VacuumSpec(0, enforce_retention=False)).warnings == ()
        fill(shop, "update raw set v = 1", "update raw set v = 2")
        dry = session.execute("raw", VacuumSpec(0, dry_run=True, enforce_retention=False))
        assert len(dry.warnings) == 1 and "changes:copy has read table shop.raw up to version 0" in dry.warnings[0]
        other = shutil.copytree(shop.root, tmp_path / "other")
        shop.run(assets(copy))
        with duckrun.connect(other, schema="shop") as copied:  # its own output is where it was
            assert copied.execute("raw", VacuumSpec(0, dry_run=True, enforce_retention=False)).warnings == dry.warnings
        assert session.execute("raw", VacuumSpec(0, dry_run=True, enforce_retention=False)).warnings == ()
        fill(shop, "update raw set v = 3", "update raw set v = 4")
        done = session.execute("raw", VacuumSpec(0, enforce_retention=False))
        assert len(done.warnings) == 1 and "needs a full refresh" in done.warnings[0]
    message = shop.error(assets(copy))
    assert "gone" in message and "Run a full refresh" in message
    shop.run(assets(copy), tags={"duckrun/full_refresh": "true"})
    equal(shop)


def test_a_cursor_moves_before_the_log_forgets_it(shop: Any) -> None:
    fill(shop, "alter table raw set tblproperties ('delta.logRetentionDuration' = 'interval 1 second')")
    shop.run(assets(copy))
    shop.run(assets(copy))
    time.sleep(0.6)
    shop.run(assets(copy))
    version = shop.version("copy")
    assert version >= 1
    with duckrun.connect(shop.root, schema="shop") as session:
        assert session.table("copy").history(1)[0]["operation"] == "WRITE"
    fill(shop, "update raw set v = 5")
    shop.run(assets(copy))
    equal(shop)


def test_an_entry_that_has_expired_asks_for_a_full_refresh(shop: Any) -> None:
    fill(shop)
    shop.run(assets(copy))
    with duckrun.connect(shop.root, schema="shop") as session:
        session.sql(
            "alter table copy set tblproperties ('delta.setTransactionRetentionDuration' = 'interval 1 second')"
        )
    time.sleep(1.2)
    fill(shop, "update raw set v = 1 where id = 1")
    for _ in range(2):
        message = shop.error(assets(copy))
        assert "there are offsets, and the table has no commit of the consumer (its entry has expired" in message
        assert "Run a full refresh" in message
    assert shop.rows("select count(*) from copy where v = 10") == [(1,)]
    shop.run(assets(copy), tags={"duckrun/full_refresh": "true"})
    equal(shop)


def test_an_upstream_whose_log_was_cleaned_asks_for_a_full_refresh_and_says_so_before(shop: Any) -> None:
    fill(shop, "alter table raw set tblproperties ('delta.logRetentionDuration' = 'interval 0 seconds')")
    shop.run(assets(copy))
    fill(shop, *(f"update raw set v = {number} where id = 1" for number in range(4)))
    with duckrun.connect(shop.root, schema="shop") as session:
        log = shop.root / "shop" / "raw" / "_delta_log"
        for file in log.iterdir():
            os.utime(file, (0, 0))
        session.table("raw").checkpoint()
        done = session.execute("raw", CleanupLogSpec())
        assert done.removed and len(done.warnings) == 1
        assert "changes:copy has read table shop.raw up to version 1" in done.warnings[0]
    message = shop.error(assets(copy))
    assert "Version 1 of table shop.raw is not in its log" in message and "Run a full refresh" in message
    shop.run(assets(copy), tags={"duckrun/full_refresh": "true"})
    equal(shop)


def test_a_log_that_expires_by_itself_names_the_consumers_left_behind(
    shop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fill(shop, "alter table raw set tblproperties ('delta.logRetentionDuration' = 'interval 0 seconds')")
    shop.run(assets(copy))
    fill(shop, *(f"update raw set v = {number} where id = 1" for number in range(8)))
    for file in (shop.root / "shop" / "raw" / "_delta_log").iterdir():
        os.utime(file, (0, 0))
    assert "left" not in caplog.text
    fill(shop, "update raw set v = 77 where id = 1")  # version 10, with which the log is cleaned
    assert (
        "changes:copy has read table shop.raw up to version 1, and the log no longer holds what came next"
        in caplog.text
    )
    assert "Run a full refresh" in shop.error(assets(copy))


@pytest.mark.spark
def test_an_output_that_became_a_clone_asks_for_a_full_refresh(shop: Any, spark: Any) -> None:
    fill(shop)
    shop.run(assets(copy))
    fill(shop, "update raw set v = 7 where id = 1")
    shop.run(assets(copy))
    with duckrun.connect(shop.root, schema="shop") as session:
        session.execute("kept", WriteSpec("overwrite"), SQL("select 1 as id, 2 as v"))
    folder = shop.root / "shop"
    spark.sql(f"delete from delta.`{folder}/copy`")  # into rows Spark clones nothing
    spark.sql(f"create or replace table delta.`{folder}/copy` shallow clone delta.`{folder}/kept`")
    assert "Run a full refresh" in shop.error(assets(copy))
    shop.run(assets(copy), tags={"duckrun/full_refresh": "true"})
    equal(shop)


def test_inputs_of_another_io_manager_keep_their_own_words(shop: Any) -> None:
    @dg.io_manager
    def other() -> Any:
        class Fixed(dg.IOManager):
            def handle_output(self, context: dg.OutputContext, obj: Any) -> None: ...

            def load_input(self, context: dg.InputContext) -> pa.Table:
                return pa.table({"id": [1]})

        return Fixed()

    @dg.asset(ins={"there": dg.AssetIn(metadata={"keys": "a", "change": 1}, input_manager_key="other")})
    def plain(there: pa.Table) -> pa.Table:
        return there

    there = dg.AssetSpec("there").with_io_manager_key("other")
    defs = dg.Definitions(assets=[plain, there], resources={**shop.resources(), "other": other})
    assert set(check_definitions(defs).resolve_all_asset_keys()) == set(defs.resolve_all_asset_keys())
    resources = {**shop.resources(), "other": other}
    assert dg.materialize([plain, there], resources=resources, instance=shop.instance).success


def test_a_view_has_no_changes(shop: Any) -> None:
    fill(shop)
    with duckrun.connect(shop.root, schema="shop") as session:
        session.sql("create view seen as select * from raw")
    seen = dg.AssetSpec("seen").with_io_manager_key("io_manager")
    asked = dg.asset(name="copy", ins={"seen": dg.AssetIn(metadata={"changes": "upsert", "key": "id"})}, metadata=COPY)
    message = shop.error([asked(lambda seen: seen), seen])
    assert "shop.seen is a view, which has no versions and so no changes" in message


REPLACES = "reads changes, and without 'merge_keys' or 'mode' the changed rows alone would replace"


@pytest.mark.parametrize("partitions", [None, dg.StaticPartitionsDefinition(["0"])], ids=["whole", "partitions"])
def test_changed_rows_do_not_replace_a_table_unless_the_asset_says_so(shop: Any, partitions: Any) -> None:
    by_part = {} if partitions is None else {"partition_expr": "p"}
    mode = "overwrite" if partitions is None else "replace"

    def asset(**metadata: Any) -> dg.AssetsDefinition:
        @dg.asset(
            partitions_def=partitions,
            ins={"raw": dg.AssetIn(metadata={"changes": "min_delta", "key": "id"})},
            metadata={**by_part, **metadata},
        )
        def count(raw: pl.DataFrame) -> pl.DataFrame:
            return pl.DataFrame({"n": [len(raw)], "p": ["0"]})

        return count

    def checked(asset: dg.AssetsDefinition, **settings: Any) -> None:
        check_definitions(dg.Definitions(assets=assets(asset), resources=shop.resources(**settings)))

    partition = None if partitions is None else "0"
    fill(shop)
    with pytest.raises(InvalidConfig, match=f"Asset count {REPLACES}.*'mode': 'append' for a log of changes"):
        checked(asset())
    with pytest.raises(InvalidConfig, match=REPLACES):
        checked(asset(), mode="overwrite")  # a default of all assets says nothing of changes
    assert REPLACES in shop.error(assets(asset()), partitions=partition)
    assert not shop.lake.lake().exists(shop.lake.lake().resolve("shop", "count"))
    for said in ({"mode": mode}, {"merge_keys": "n"}, {"mode": "append"}):
        checked(asset(**said))
    shop.run(assets(asset(mode=mode)), partitions=partition)
    fill(shop, "update raw set v = 7 where id = 1")
    shop.run(assets(asset(mode=mode)), partitions=partition)
    assert shop.rows("select n from count") == [(2,)]
    fill(shop, "update raw set v = 8 where id = 1")
    assert REPLACES in shop.error(assets(asset()), partitions=partition)
    assert shop.rows("select n from count") == [(2,)]
    run_config = {"resources": {"io_manager": {"config": {"writes": {"count": {"mode": mode}}}}}}
    shop.run(assets(asset()), partitions=partition, run_config=run_config)  # this run says it
