"""From a dbt node's config to the spec of one write: no dbt and no lake is needed."""

from __future__ import annotations

import pyarrow as pa
import pytest
from dbt.adapters.duckrun.materialize.strategy import Staged, plan_write, write_strategy
from dbt.adapters.duckrun.model.config import _KEYS, STRATEGIES, ModelConfig, parse_model

from duckrun.errors import InvalidConfig, SchemaMismatch
from duckrun.values.rows import DeleteInsertSpec, MergeSpec, WriteSpec
from duckrun.values.snapshot import Snapshot, TableRef


def config_of(**config) -> ModelConfig:
    return parse_model({"unique_id": "model.shop.a", "config": config})


def plan(config: ModelConfig, strategy: str, source: list[str], target: list[str] | None):
    names = None if target is None or strategy == "overwrite" else snapshot(*target)
    return plan_write(config, strategy, Staged("stage", source, "main.a", names))


def snapshot(*names: str) -> Snapshot:
    schema = pa.schema([(name, pa.int64()) for name in names])
    return Snapshot(TableRef("main", "a", "lake/main/a"), 7, "id", schema)


def test_both_spellings_of_a_key_and_of_partitions():
    assert config_of(unique_key="id").unique_key == config_of(unique_key=["id"]).unique_key == ("id",)
    assert config_of(unique_key=['"Odd ""key"""']).unique_key == ('Odd "key"',)
    assert config_of(partitioned_by=["day"]).partition_by == config_of(partition_by="day").partition_by == ("day",)
    assert config_of(unique_key="").unique_key == config_of(unique_key=[]).unique_key == ()


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("partiton_by", "partition_by"),
        ("unique_keys", "unique_key"),
        ("Partition_By", "partition_by"),
        ("zorder_by", "z_order_by"),
    ],
)
def test_a_misspelled_key_is_refused_and_keys_of_others_are_not(key: str, near: str):
    with pytest.raises(InvalidConfig, match=f"model.shop.a: unknown config '{key}'. Did you mean '{near}'"):
        config_of(**{key: "id"})
    keys = ("clustered_by", "order_by", "file_format", "buckets", "meta", "elementary", "pre-hook", "partitions")
    assert config_of(**dict.fromkeys(keys, "id")) == config_of()


class _Recorded(dict):
    """A config that records which keys are read."""

    def __init__(self, **values):
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, key):
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key, default=None):
        self.read.add(key)
        return super().get(key, default)


def test_every_key_that_is_read_is_known_to_the_search_for_misspelled_ones():
    read: set[str] = set()
    for strategy in STRATEGIES:
        config = _Recorded(
            materialized="incremental",
            incremental_strategy=strategy,
            unique_key=None if strategy == "microbatch" else "id",
            sequence_by="at",
            event_time="at",
        )
        batch = {"event_time_start": "2026-01-01", "event_time_end": "2026-01-02"}
        parse_model({"unique_id": "model.shop.a", "config": config, "batch": batch})
        read |= config.read
    of_dbt = {"contract", "event_time", "materialized", "persist_docs", "predicates", "sql_header"}
    assert read - of_dbt <= set(_KEYS)
    assert {"only_if_changed", "deletes", "merge_clauses"} <= read  # the recording works


def test_booleans_and_numbers_of_table_properties_are_text_as_delta_has_them():
    found = config_of(table_properties={"delta.appendOnly": True, "delta.checkpointInterval": 20})
    assert found.table_properties == {"delta.appendOnly": "true", "delta.checkpointInterval": "20"}


@pytest.mark.parametrize(
    ("strategy", "key", "exists", "refresh", "expected"),
    [
        ("merge", "id", True, False, "merge"),
        ("merge", "id", False, False, "create"),
        ("merge", "id", True, True, "overwrite"),
        ("merge", None, True, False, "append"),
        (None, "id", True, False, "delete+insert"),
        (None, None, True, False, "append"),
        ("default", "id", True, False, "delete+insert"),
        ("append", "id", True, False, "append"),
        ("insert", "id", True, False, "insert"),
        ("safeappend", None, True, False, "safeappend"),
        ("insert_overwrite", None, True, False, "insert_overwrite"),
    ],
)
def test_how_an_incremental_model_writes(strategy, key, exists, refresh, expected):
    config = config_of(incremental_strategy=strategy, unique_key=key)
    assert write_strategy(config, exists_as_table=exists, full_refresh=refresh) == expected


def test_a_whole_write_takes_what_the_model_has():
    spec = plan(config_of(partition_by="day", sort_by=["n"]), "overwrite", ["n", "day"], None).spec
    assert spec == WriteSpec(mode="overwrite", partition_by=("day",), sort_by=("n",))


@pytest.mark.parametrize("key", ["cluster_by", "liquid_clustered_by"])
def test_liquid_clustering_goes_with_every_write(key):
    config = config_of(**{key: ["n", "id"]}, unique_key="id")
    for strategy in ("overwrite", "append", "merge", "insert", "delete+insert"):
        assert plan(config, strategy, ["id", "n"], ["id", "n"]).spec.cluster_by == ("n", "id")


def test_how_rows_are_written_goes_with_every_write():
    config = config_of(writer="delta_rs", merge_mode="deletion_vectors", compression="zstd", unique_key="id")
    for strategy in ("overwrite", "append", "safeappend", "merge", "insert", "delete+insert", "insert_overwrite"):
        found = plan(config, strategy, ["id", "n"], None if strategy == "overwrite" else ["id", "n"]).spec
        assert (found.writer, found.merge_mode, found.compression) == ("delta_rs", "deletion_vectors", "zstd")


def test_merge_spells_columns_as_the_source_does():
    config = config_of(incremental_strategy="merge", unique_key="ID", merge_exclude_columns=["Made_At"])
    spec = plan(config, "merge", ["id", "n", "made_at"], ["id", "n", "made_at"]).spec
    assert isinstance(spec, MergeSpec)
    assert spec.keys == ("id",)
    assert spec.clauses[0].columns == ("id", "n")
    assert spec.clauses[1].columns is None


def test_dbts_aliases_become_the_cores():
    config = config_of(
        incremental_strategy="merge",
        unique_key="id",
        incremental_predicates=["DBT_INTERNAL_DEST.day > '2024-01-01'", "DBT_INTERNAL_SOURCE.n > 0"],
    )
    spec = plan(config, "merge", ["id", "day", "n"], ["id", "day", "n"]).spec
    assert isinstance(spec, MergeSpec)
    assert spec.on == "(target.day > '2024-01-01') and (source.n > 0)"


def test_delete_insert_adds_columns_in_its_own_commit():
    config = config_of(unique_key="id", on_schema_change="append_new_columns")
    spec = plan(config, "delete+insert", ["id", "x"], ["id"]).spec
    assert isinstance(spec, DeleteInsertSpec)
    assert spec.schema_mode == "append_new_columns"


def test_ignore_writes_the_tables_columns_in_the_tables_order():
    write = plan(config_of(), "append", ["new", "b", "a"], ["a", "b"])
    assert write.select == 'select "a", "b" from "stage"'


@pytest.mark.parametrize(
    ("config", "source", "target", "error", "words"),
    [
        ({"unique_key": "nope"}, ["id"], ["id"], InvalidConfig, ["unique_key", "nope", "main.a", "model.shop.a"]),
        ({"partition_by": "day"}, ["id"], None, InvalidConfig, ["partition_by", "day"]),
        ({}, [], None, InvalidConfig, ["returns no columns"]),
        ({}, ["id"], ["id", "gone"], SchemaMismatch, ["gone", "on_schema_change"]),
        ({"on_schema_change": "fail"}, ["id", "new"], ["id"], SchemaMismatch, ["new", "--full-refresh"]),
    ],
)
def test_what_does_not_fit_is_refused_with_names(config, source, target, error, words):
    with pytest.raises(error) as raised:
        plan(config_of(**config), "append" if target else "overwrite", source, target)
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize(
    ("config", "error", "words"),
    [
        ({"incremental_strategy": "mrge"}, InvalidConfig, ["'mrge'", "Did you mean 'merge'"]),
        ({"incremental_strategy": "microbatch"}, InvalidConfig, ["event_time"]),
        ({"incremental_strategy": "microbatch", "unique_key": "id"}, InvalidConfig, ["unique_key"]),
        ({"on_schema_change": "sync"}, InvalidConfig, ["sync_all_columns"]),
        ({"only_if_changed": "yes"}, InvalidConfig, ["only_if_changed", "true or false"]),
        ({"merge_clauses": {"when_matched": []}}, InvalidConfig, ["merge_clauses.when_matched"]),
        ({"merge_clauses": {"when_mached": [{}]}}, InvalidConfig, ["when_mached"]),
        ({"merge_clauses": {"when_matched": [{"action": "upsert"}]}}, InvalidConfig, ["'upsert'", "do_nothing"]),
        (
            {"merge_clauses": {"when_matched": [{"action": "delete"}]}, "merge_update_columns": ["a"]},
            InvalidConfig,
            ["merge_update_columns"],
        ),
        (
            {"merge_clauses": {"when_not_matched": [{"action": "insert", "mode": "explicit"}]}},
            InvalidConfig,
            ["insert.columns"],
        ),
        (
            {"merge_clauses": {"when_not_matched": [{"action": "update", "by": "source"}]}},
            InvalidConfig,
            ["set_expressions"],
        ),
        ({"unique_key": {"a": 1}}, InvalidConfig, ["unique_key"]),
        ({"merge_mode": "vectors"}, InvalidConfig, ["'vectors'", "auto, deletion_vectors, copy_on_write"]),
        ({"compression": "gzip"}, InvalidConfig, ["'gzip'", "snappy, zstd"]),
        ({"writer": "deltars"}, InvalidConfig, ["Did you mean 'delta_rs'"]),
        ({"table_properties": ["a"]}, InvalidConfig, ["table_properties"]),
        ({"merge_update_condition": "a >"}, InvalidConfig, ["merge_update_condition"]),
    ],
)
def test_values_that_are_not_known_are_refused_by_name(config, error, words):
    with pytest.raises(error) as raised:
        config_of(**config)
    for word in ["model.shop.a", *words]:
        assert word in str(raised.value)
