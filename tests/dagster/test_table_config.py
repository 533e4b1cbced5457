"""Metadata becomes one typed value; what is nearly ours is refused, what is others' passes."""

from typing import Any

import dagster as dg
import pytest

from duckrun.errors import InvalidConfig
from duckrun.values.rows import DeleteInsertSpec, MergeClause, MergeSpec, ReadSpec, WriteSpec
from duckrun_dagster.config import parse_input, parse_table


def table(key: list[str] | None = None, **metadata: Any) -> Any:
    return parse_table(dg.AssetKey(key or ["orders"]), metadata, default_schema="main")


def spec(predicate: str | None = None, **metadata: Any) -> Any:
    return table(**metadata).write_spec(app=None, predicate=predicate)


@pytest.mark.parametrize(
    ("key", "metadata", "name"),
    [
        (["orders"], {}, "main.orders"),
        (["sales", "orders"], {}, "sales.orders"),
        (["sales", "orders"], {"schema": "raw"}, "raw.orders"),
        (["eu", "sales", "orders"], {"schema": "sales", "table": "eu_orders"}, "sales.eu_orders"),
        (["eu", "sales", "orders"], {"table": "eu_orders"}, "main.eu_orders"),
    ],
)
def test_the_key_names_the_table_and_metadata_says_otherwise(key: list[str], metadata: Any, name: str) -> None:
    assert table(key, **metadata).name == name


def test_a_long_key_needs_metadata() -> None:
    with pytest.raises(InvalidConfig, match="Asset a/b/c: a key of 3 parts names no table"):
        table(["a", "b", "c"])


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("Mode", "mode"), ("merge-keys", "merge_keys"), ("partition_exp", "partition_expr"), ("sortby", "sort_by")],
)
def test_a_near_miss_is_refused_with_the_key_that_was_meant(wrong: str, right: str) -> None:
    with pytest.raises(InvalidConfig, match=f"Asset orders: unknown metadata key '{wrong}'. Did you mean '{right}'"):
        table(**{wrong: "x"})


def test_keys_of_others_pass() -> None:
    theirs = {"dagster/table_name": "x", "dagster_dbt/unique_id": "y", "owners": ["z"], "priority": 1, "model": "gpt"}
    assert table(**theirs) == table()


def test_values_that_dagster_wrapped_are_unwrapped() -> None:
    assert table(merge_keys=dg.MetadataValue.json(["id"])).merge_keys == ("id",)


def test_a_clustered_table_takes_no_partitions_of_the_asset_s() -> None:
    config = table(cluster_by="day")
    found = config.write_spec(app=None, predicate="day = 1", partition_by=("day",))
    assert found == WriteSpec("replace", predicate="day = 1", cluster_by=("day",))
    with pytest.raises(InvalidConfig, match="not both"):
        spec(cluster_by=["day"], partition_by=["day"])
    assert spec(mode="merge", merge_keys="id", cluster_by=["day", "id"]).cluster_by == ("day", "id")


def test_the_mode_follows_from_what_is_given() -> None:
    assert spec() == WriteSpec("overwrite")
    assert spec(predicate="day = 1") == WriteSpec("replace", predicate="day = 1")
    assert spec(mode="append", predicate="day = 1") == WriteSpec("append", within="day = 1")
    assert spec(merge_keys="id", predicate="day = 1") == MergeSpec(("id",), within="day = 1")
    assert spec(merge_keys="id") == MergeSpec(("id",))
    assert spec(merge_keys="id", only_if_changed=True) == MergeSpec(("id",), only_if_changed=True)
    assert spec(mode="delete+insert", merge_keys=["a", "b"]) == DeleteInsertSpec(("a", "b"))


def test_how_rows_are_written_goes_with_every_mode() -> None:
    how: dict[str, Any] = {"writer": "delta_rs", "merge_mode": "copy_on_write", "compression": "zstd"}
    assert spec(**how) == WriteSpec("overwrite", **how)
    assert spec(merge_keys="id", **how) == MergeSpec(("id",), **how)
    assert spec(mode="delete+insert", merge_keys="id", **how) == DeleteInsertSpec(("id",), **how)


def test_merge_clauses_are_mappings_or_kinds() -> None:
    clauses = ["not_matched_insert", {"kind": "matched_update", "condition": "source.v > target.v", "columns": ["v"]}]
    assert spec(merge_keys="id", merge_clauses=clauses).clauses == (
        MergeClause("not_matched_insert"),
        MergeClause("matched_update", "source.v > target.v", ("v",)),
    )


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"mode": "upsert"}, "takes one of"),
        ({"mode": "overwrit"}, "Did you mean 'overwrite'"),
        ({"mode": "merge"}, "needs 'merge_keys'"),
        ({"mode": "append", "merge_keys": "id"}, "goes with mode 'merge'"),
        ({"merge_clauses": ["not_matched_insert"]}, "goes with mode 'merge'"),
        ({"only_if_changed": True}, "goes with mode 'merge'"),
        ({"only_if_changed": True, "merge_keys": "id", "mode": "delete+insert"}, "goes with mode 'merge'"),
        ({"only_if_changed": "yes", "merge_keys": "id"}, "takes True or False"),
        ({"merge_keys": "id", "merge_clauses": [{"kind": "matched_updat"}]}, "Did you mean 'matched_update'"),
        ({"merge_keys": "id", "merge_clauses": [{"kindd": "matched_update"}]}, "Did you mean 'kind'"),
        ({"merge_keys": "id", "merge_clauses": [{"kind": "matched_delete", "columns": "v"}]}, "a condition only"),
        ({"merge_keys": 3}, "column name or a list"),
        ({"engine": "sparks"}, "Did you mean 'spark'"),
        ({"schema_mode": "evolve"}, "takes one of fail"),
        ({"merge_mode": "vectors"}, "takes one of auto, deletion_vectors, copy_on_write"),
        ({"writer": "deltars"}, "Did you mean 'delta_rs'"),
        ({"writer": "staged", "engine": "spark"}, "makes the data files of engine duckdb"),
        ({"table_properties": ["x"]}, "takes a mapping"),
        ({"partition_expr": 3}, "takes a column name"),
        ({"schema": ""}, None),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_asset_and_key(metadata: Any, message: str | None) -> None:
    if message is None:
        assert table(**metadata).schema == "main"
        return
    with pytest.raises(InvalidConfig, match="^Asset orders: ") as caught:
        table(**metadata)
    assert message in str(caught.value)


def test_an_input_is_parsed_once() -> None:
    metadata = {"columns": ["a"], "predicate": "a > 1", "version": 3, "note": "theirs"}
    assert parse_input(metadata, what="Input x").read == ReadSpec(("a",), "a > 1", 3)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"predicates": "a > 1"}, "Did you mean 'predicate'"),
        ({"version": "3"}, "takes a version number"),
        ({"version": 3, "timestamp": "2024-01-01"}, "give one of them"),
        ({"columns": 1}, "column name or a list"),
    ],
)
def test_an_input_that_cannot_work_is_refused(metadata: Any, message: str) -> None:
    with pytest.raises(InvalidConfig, match="^Input x") as caught:
        parse_input(metadata, what="Input x")
    assert message in str(caught.value)
