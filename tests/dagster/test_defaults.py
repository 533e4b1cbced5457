"""What the IO manager says of all assets holds where an asset says nothing else."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from duckrun.errors import InvalidConfig
from duckrun.values.rows import MergeClause
from duckrun_dagster import DeltaIOManager, DuckrunResource, check_definitions
from duckrun_dagster.config import parse_table

ROWS = pa.table({"id": [2, 1], "day": ["mon", "tue"]})


def asset(name: str, rows: Any = ROWS, **metadata: Any) -> dg.AssetsDefinition:
    @dg.asset(name=name, metadata=metadata)
    def made() -> Any:
        return rows

    return made


def parsed(defaults: dict[str, Any], **metadata: Any) -> Any:
    return parse_table(dg.AssetKey("a"), metadata, default_schema="main", defaults=defaults)


def test_an_asset_without_metadata_is_written_as_the_manager_says(shop: Any) -> None:
    settings = {
        "mode": "append",
        "schema_mode": "append_new_columns",
        "table_properties": {"delta.enableChangeDataFeed": True, "delta.appendOnly": "false"},
        "partition_by": "day",
        "sort_by": ["id"],
        "commit_metadata": {"team": "shop"},
    }
    plain = asset("plain")
    own = asset("own", mode="overwrite", table_properties={"delta.appendOnly": "true"}, partition_by=[])
    for _ in range(2):
        shop.run([plain], settings=settings)
    shop.run([asset("plain", pa.table({"id": [3], "day": ["wed"], "note": ["x"]})), own], settings=settings)
    assert shop.rows("select count(*), count(note) from plain") == [(5, 1)]
    table = DeltaTable(f"{shop.root}/shop/plain")
    assert table.metadata().partition_columns == ["day"]
    assert table.metadata().configuration["delta.enableChangeDataFeed"] == "true"
    assert [json.loads(each["userMetadata"]) for each in table.history()] == [{"team": "shop"}] * 3
    other = DeltaTable(f"{shop.root}/shop/own").metadata()
    assert other.partition_columns == []
    assert other.configuration["delta.appendOnly"] == other.configuration["delta.enableChangeDataFeed"] == "true"


@pytest.mark.spark
def test_words_of_a_commit_are_in_spark_s_history_too(shop: Any, spark: Any, with_spark: dict[str, Any]) -> None:
    settings = {**with_spark, "engine": "spark", "commit_metadata": {"team": "shop", "é": "'"}}
    goods = asset("goods", commit_metadata={"team": "stock"})
    shop.run([goods], settings=settings)
    shop.run([asset("goods", mode="merge", merge_keys="id")], settings=settings)
    shop.run([asset("goods", mode="merge", merge_keys="id")], settings={**settings, "engine": "duckdb"})
    history = spark.sql(f"describe history delta.`{shop.root}/shop/goods`").collect()
    words = [json.loads(row["userMetadata"]) for row in history]
    assert [(each["team"], each["é"]) for each in words] == [("shop", "'"), ("shop", "'"), ("stock", "'")]


def test_a_table_of_an_op_has_them_too_and_a_run_may_say_otherwise(shop: Any) -> None:
    @dg.op(out=dg.Out(metadata={"table": "log"}))
    def note() -> Any:
        return ROWS

    @dg.job
    def nightly() -> None:
        note()

    resources = shop.resources(mode="merge", merge_keys="id", merge_clauses=[MergeClause("not_matched_insert")])
    for _ in range(2):
        nightly.execute_in_process(instance=shop.instance, resources=resources)
    assert shop.rows("select count(*) from log") == [(2,)]

    settings = {"mode": "append"}
    config = {"resources": {"io_manager": {"config": {"writes": {"goods": {"mode": "overwrite"}}}}}}
    for run_config in (None, None, config):
        shop.run([asset("goods")], settings=settings, run_config=run_config)
    assert shop.rows("select count(*) from goods") == [(2,)]
    launched = {"resources": {"io_manager": {"config": {"mode": "append", "sort_by": ["id"]}}}}
    shop.run([asset("goods")], run_config=launched)
    assert shop.rows("select count(*) from goods") == [(4,)]


def test_a_merge_of_equal_rows_makes_no_version(shop: Any) -> None:
    settings = {"merge_keys": "id", "only_if_changed": True}
    for rows, version in (([{"id": 1, "v": 1}], 0), ([{"id": 1, "v": 1}], 0), ([{"id": 1, "v": 2}], 1)):
        shop.run([asset("goods", rows)], settings=settings)
        assert DeltaTable(f"{shop.root}/shop/goods").version() == version
    assert shop.rows("select id, v from goods") == [(1, 2)]


def test_partitions_stay_apart_with_a_default_of_overwrite(shop: Any) -> None:
    @dg.asset(partitions_def=dg.StaticPartitionsDefinition(["mon", "tue"]))
    def visits(context: dg.AssetExecutionContext) -> Any:
        return [{"day": context.partition_key}]

    for key in ("mon", "tue", "tue"):
        shop.run([visits], partitions=key, settings={"mode": "overwrite", "partition_expr": "day"})
    assert sorted(shop.rows("from visits")) == [("mon",), ("tue",)]


def test_what_an_asset_says_takes_the_place_of_what_does_not_go_with_it() -> None:
    by_key = {"mode": "merge", "merge_keys": "id"}
    assert parsed(by_key).merge_keys == ("id",)
    assert parsed(by_key, merge_keys="day").merge_keys == ("day",)
    assert parsed(by_key, mode="append").merge_keys == ()
    assert parsed({"only_if_changed": True}, merge_keys="id").only_if_changed
    assert not parsed({"only_if_changed": True}).only_if_changed
    assert not parsed({"only_if_changed": True}, merge_keys="id", mode="delete+insert").only_if_changed
    assert not parsed({**by_key, "only_if_changed": True}, mode="append").only_if_changed
    assert parsed({"mode": "append"}, merge_keys="id").mode is None
    assert parsed({"cluster_by": ["id"]}, partition_by=["day"]).cluster_by is None
    assert parsed({"target_file_size": "1MB"}, target_file_size="2MB").target_file_size == 2_000_000
    assert parsed({"compression": "snappy"}).compression == "snappy"
    assert parsed({"compression": "snappy"}, compression="zstd").compression == "zstd"
    assert parsed({"writer": "delta_rs", "merge_mode": "deletion_vectors"}, engine="spark").writer == "auto"
    with pytest.raises(InvalidConfig, match="Asset a: metadata 'mode' is 'merge', which needs 'merge_keys'"):
        parsed({"mode": "merge"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mod": "append"}, "DeltaIOManager has no 'mod'. Did you mean 'mode'?"),
        ({"mode": "apend"}, "DeltaIOManager: 'mode' is 'apend'; it takes one of .* Did you mean 'append'?"),
        ({"writer": "deltars"}, "'writer' is 'deltars'; it takes one of .* Did you mean 'delta_rs'"),
        ({"merge_mode": "vectors"}, "'merge_mode' is 'vectors'; it takes one of auto, deletion_vectors, copy_on_write"),
        ({"mode": "append", "merge_keys": ["id"]}, "'merge_keys' goes with mode 'merge'"),
        ({"partition_by": "day", "cluster_by": "id"}, "exclude each other"),
        ({"merge_clauses": ["matched_updat"], "merge_keys": "id"}, "Did you mean 'matched_update'"),
        ({"compression": "gzip"}, "'compression' is 'gzip'; it takes one of snappy, zstd"),
        ({"target_file_size": "big"}, "'target_file_size': 'big' is not a memory size"),
        ({"commit_metadata": {"duckrun": "x"}}, "'duckrun' is ours"),
    ],
)
def test_a_default_that_cannot_work_is_refused_where_it_is_said(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        DeltaIOManager(duckrun=DuckrunResource(root_path="lake"), **settings)


def test_definitions_are_checked_with_the_defaults() -> None:
    manager = DeltaIOManager(duckrun=DuckrunResource(root_path="lake"), mode="merge")
    with pytest.raises(InvalidConfig, match="Asset goods: .*needs 'merge_keys'"):
        check_definitions(dg.Definitions(assets=[asset("goods")], resources={"io_manager": manager}))


def test_a_default_writer_is_for_the_writes_that_it_can_do(root: Path) -> None:
    @dg.asset(key=["main", "whole"])
    def whole() -> pa.Table:
        return pa.table({"id": [1], "day": ["2026-01-01"]})

    days = dg.StaticPartitionsDefinition(["2026-01-01"])

    @dg.asset(key=["main", "by_day"], partitions_def=days, metadata={"partition_expr": "day"})
    def by_day() -> pa.Table:
        return pa.table({"id": [1], "day": ["2026-01-01"]})

    def reasons(duckrun: DuckrunResource, **defaults: Any) -> list[tuple[str, bool]]:
        manager = DeltaIOManager(duckrun=duckrun, **defaults)
        told = []
        for _ in range(2):
            result = dg.materialize([whole, by_day], partition_key="2026-01-01", resources={"io_manager": manager})
            for event in result.get_asset_materialization_events():
                values = event.materialization.metadata
                told.append((values["writer"].value, "not by delta_rs" in values["reason"].value))
        return told

    expected = [("delta_rs", False), ("delta_rs", False), ("delta_rs", False), ("staged", True)]
    assert sorted(reasons(DuckrunResource(root_path=str(root / "a")), writer="delta_rs")) == expected
    assert sorted(reasons(DuckrunResource(root_path=str(root / "b"), writer="delta_rs"))) == expected
    with pytest.raises(InvalidConfig, match="writer is 'deltars'"):
        DuckrunResource(root_path="lake", writer="deltars")
