"""What a user sees of the Spark engine: every mode on one session, exactly once, and errors that leave the table alone."""

from __future__ import annotations

import ast
import datetime as dt
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from duckrun.engines.spark.engine import SparkEngine
from duckrun.engines.spark.process.session import java_version, spark_session
from duckrun.engines.tabular.values import is_of_spark
from duckrun.errors import (
    CommitConflict,
    DuplicateSourceKeys,
    InvalidConfig,
    RowsOutsidePartition,
    SchemaMismatch,
    TableNotFound,
    UnsupportedFeature,
)
from duckrun.lake.lake import Lake
from duckrun.run.transaction import Transaction
from duckrun.sql.names import parse_query, replace_tables
from duckrun.values.rows import (
    AppTransaction,
    Commit,
    DeleteInsertSpec,
    DeleteSpec,
    MergeClause,
    MergeSpec,
    ReadSpec,
    UpdateSpec,
    WriteSpec,
)

needs_spark = pytest.mark.spark
SPARK_AT = {"remote" if "DUCKRUN_TEST_SPARK_REMOTE" in os.environ else "master": "local[2]"}


class Workbench:
    """One table of a lake, written and read by the Spark engine."""

    def __init__(self, root: Path, spark: Any) -> None:
        self.lake = Lake(root)
        self.spark = spark
        self.engine = SparkEngine(self.lake, spark)
        self.ref = self.lake.parse("sales.orders")

    def run(self, spec: Any, source: Any = None) -> Commit:
        if isinstance(source, list):
            source = pa.Table.from_pylist(source)
        return self.engine.execute(spec, source, Transaction(self.lake, self.ref, app=spec.app))

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        frame = self.engine.scan(self.lake.snapshot(self.ref), ReadSpec(columns=columns or None))
        return sorted((tuple(row.values()) for row in frame.collect()), key=repr)

    @property
    def version(self) -> int | None:
        return self.lake.format.latest_version(self.ref)


@pytest.fixture
def bench(tmp_path: Path, spark: Any) -> Workbench:
    return Workbench(tmp_path / "lake", spark)


ORDERS = [{"id": 1, "day": "a", "v": 10.0}, {"id": 2, "day": "b", "v": 20.0}]


@pytest.fixture
def orders(bench: Workbench) -> Workbench:
    bench.run(WriteSpec("error", partition_by=("day",)), ORDERS)
    return bench


# -- write modes


@needs_spark
def test_a_new_table_has_its_partitions_properties_description_and_comments(bench: Workbench) -> None:
    spec = WriteSpec(
        "error", partition_by=("day",), table_properties={"delta.appendOnly": "false", "duckrun.team": "me"},
        description="all orders", column_comments={"id": "the key"}, app=AppTransaction("create", 0),
    )  # fmt: skip
    commit = bench.run(spec, ORDERS)
    snapshot = bench.lake.snapshot(bench.ref)
    assert (commit.version, commit.rows_inserted, commit.engine, commit.writer) == (0, 2, "spark", "spark")
    assert snapshot.partition_columns == ("day",)
    assert snapshot.properties == {"delta.appendOnly": "false", "duckrun.team": "me"}
    assert snapshot.description == "all orders"
    assert (snapshot.schema.field("id").metadata or {}).get(b"comment") == b"the key"
    assert bench.run(spec, ORDERS).replayed


@needs_spark
def test_mode_error_refuses_a_table_that_exists(orders: Workbench) -> None:
    with pytest.raises(CommitConflict, match="sales.orders exists already"):
        orders.run(WriteSpec("error"), ORDERS)
    assert orders.version == 0


@needs_spark
def test_mode_ignore_leaves_a_table_that_exists(orders: Workbench) -> None:
    commit = orders.run(WriteSpec("ignore"), [{"id": 9, "day": "z", "v": 0.0}])
    assert (commit.version, commit.writer, orders.version) == (0, "none", 0)


@needs_spark
def test_append_adds_rows_in_the_tables_types(orders: Workbench) -> None:
    narrow = pa.table({"v": pa.array([1], pa.int32()), "DAY": ["a"], "id": pa.array([3], pa.int16())})
    commit = orders.run(WriteSpec("append"), narrow)
    assert (commit.version, commit.rows_inserted, commit.rows_deleted) == (1, 1, 0)
    assert orders.rows() == [(1, "a", 10.0), (2, "b", 20.0), (3, "a", 1.0)]


@needs_spark
def test_overwrite_takes_a_new_schema_and_new_partitions(orders: Workbench) -> None:
    orders.run(WriteSpec("overwrite", partition_by=("kind",)), [{"name": "x", "kind": 1}])
    assert orders.rows() == [("x", 1)]
    assert orders.lake.snapshot(orders.ref).partition_columns == ("kind",)
    orders.run(WriteSpec("overwrite"), [{"name": "y", "kind": 2}])
    assert orders.lake.snapshot(orders.ref).partition_columns == ("kind",)


@needs_spark
def test_replace_without_predicate_replaces_exactly_the_partitions_of_the_source(orders: Workbench) -> None:
    commit = orders.run(WriteSpec("replace"), [{"id": 7, "day": "b", "v": 7.0}])
    assert (commit.version, commit.files_removed) == (1, 1)
    assert orders.rows() == [(1, "a", 10.0), (7, "b", 7.0)]


@needs_spark
def test_replace_without_predicate_needs_partitions(bench: Workbench) -> None:
    bench.run(WriteSpec("error"), ORDERS)
    with pytest.raises(InvalidConfig, match="has no partitions"):
        bench.run(WriteSpec("replace"), ORDERS)
    assert bench.version == 0


@needs_spark
def test_replace_by_predicate_replaces_the_rows_that_satisfy_it(orders: Workbench) -> None:
    orders.run(WriteSpec("append"), [{"id": 3, "day": "b", "v": math.nan}])
    commit = orders.run(WriteSpec("replace", predicate="v >= 15"), [{"id": 4, "day": "a", "v": 99.0}])
    assert (commit.rows_inserted, commit.rows_deleted) == (1, 2)
    assert orders.rows() == [(1, "a", 10.0), (4, "a", 99.0)]


@needs_spark
def test_replace_takes_between_over_a_partition_column(bench: Workbench) -> None:
    days = [{"id": i, "day": dt.date(2023, 1, i)} for i in (1, 2, 3)]
    bench.run(WriteSpec("error", partition_by=("day",)), days)
    year = "day between date '2023-01-01' and date '2023-01-02'"
    bench.run(WriteSpec("replace", predicate=year), [{"id": 9, "day": dt.date(2023, 1, 2)}])
    assert bench.rows("id") == [(3,), (9,)]


@needs_spark
@pytest.mark.parametrize("v", [1.0, None])
def test_rows_outside_what_is_replaced_are_refused_before_the_commit(orders: Workbench, v: float | None) -> None:
    data = pa.table({"id": [4], "day": ["a"], "v": pa.array([v], pa.float64())})
    with pytest.raises(RowsOutsidePartition, match="sales.orders.*1 rows lie outside .*v >= 15"):
        orders.run(WriteSpec("replace", predicate="v >= 15"), data)
    assert orders.version == 0


@needs_spark
def test_rows_outside_the_predicate_are_refused_for_a_new_table_too(bench: Workbench) -> None:
    with pytest.raises(RowsOutsidePartition):
        bench.run(WriteSpec("replace", predicate="v >= 15"), ORDERS)
    assert bench.version is None


@needs_spark
def test_safeappend_is_fenced_to_the_version_that_was_read(orders: Workbench) -> None:
    assert orders.run(WriteSpec("safeappend", read_version=0), [{"id": 3, "day": "c", "v": 1.0}]).version == 1
    with pytest.raises(CommitConflict, match="computed from version 0"):
        orders.run(WriteSpec("safeappend", read_version=0), [{"id": 4, "day": "c", "v": 1.0}])
    assert orders.version == 1


@needs_spark
def test_a_fenced_write_on_an_object_store_names_the_engine_that_can(spark: Any) -> None:
    lake = Lake("s3://bucket/lake", storage_options={"AWS_REGION": "eu-west-1"})
    ref = lake.at("s3://bucket/lake/sales/orders")
    with pytest.raises(UnsupportedFeature, match="engine: duckdb"):
        SparkEngine(lake, spark).execute(
            WriteSpec("safeappend", read_version=0), pa.table({"a": [1]}), Transaction(lake, ref)
        )


@needs_spark
def test_sort_by_and_file_size_are_kept_within_files(bench: Workbench) -> None:
    rows = [{"id": i, "day": "ab"[i % 2], "v": float(-i)} for i in range(20)]
    bench.run(WriteSpec("error", partition_by=("day",), sort_by=("v",)), rows)
    frame = bench.engine.scan(bench.lake.snapshot(bench.ref), ReadSpec(predicate="day = 'a'")).toArrow()
    assert frame["v"].to_pylist() == sorted(frame["v"].to_pylist())
    assert bench.run(WriteSpec("append", target_file_size=64 << 20), rows).rows_inserted == 20


@needs_spark
@pytest.mark.parametrize("spec", [WriteSpec("append"), WriteSpec("replace"), MergeSpec(("id",))], ids=lambda s: s.mode)
def test_a_source_without_rows_changes_no_row(orders: Workbench, spec: Any) -> None:
    empty = pa.Table.from_pylist(ORDERS).slice(0, 0)
    assert orders.run(spec, empty).rows_inserted in (0, None)
    assert len(orders.rows()) == 2


@needs_spark
def test_a_row_that_breaks_a_constraint_is_refused(orders: Workbench) -> None:
    orders.spark.sql(f"ALTER TABLE delta.`{orders.ref.location}` ADD CONSTRAINT positive CHECK (v > 0)")
    with pytest.raises(SchemaMismatch, match="sales.orders: a row breaks a constraint.*positive"):
        orders.run(WriteSpec("append"), [{"id": 3, "day": "c", "v": -1.0}])
    assert orders.version == 1


# -- schema


@needs_spark
@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([{"id": 1, "day": "a"}], "missing in the data: v"),
        ([{"id": 1, "day": "a", "v": 1.0, "w": 2}], "not in the table: w"),
        ([{"id": "x", "day": "a", "v": 1.0}], "id is bigint in the table and string in the data"),
    ],
)
@pytest.mark.parametrize("mode", ["append", "replace", "merge", "delete+insert"])
def test_rows_that_do_not_fit_leave_the_table_at_its_version(
    orders: Workbench, rows: list[dict[str, Any]], told: str, mode: str
) -> None:
    specs = {"merge": MergeSpec(("id",)), "delete+insert": DeleteInsertSpec(("id",))}
    with pytest.raises(SchemaMismatch, match=told) as raised:
        orders.run(specs.get(mode) or WriteSpec(mode), rows)  # type: ignore[arg-type]
    assert "sales.orders" in str(raised.value)
    assert orders.version == 0


@needs_spark
@pytest.mark.parametrize(
    "spec",
    [
        WriteSpec("append", schema_mode="append_new_columns"),
        WriteSpec("replace", schema_mode="append_new_columns", predicate="id = 3"),
        MergeSpec(("id",), schema_mode="append_new_columns"),
        DeleteInsertSpec(("id",), schema_mode="append_new_columns"),
    ],
    ids=lambda spec: spec.mode,
)
def test_append_new_columns_adds_them_and_fills_what_is_missing(orders: Workbench, spec: Any) -> None:
    orders.run(spec, [{"id": 3, "day": "c", "w": "new"}])
    assert orders.rows("id", "day", "v", "w") == [(1, "a", 10.0, None), (2, "b", 20.0, None), (3, "c", None, "new")]
    assert orders.version == 1


@needs_spark
def test_a_merge_that_adds_a_column_leaves_missing_ones_as_they_are(orders: Workbench) -> None:
    orders.run(MergeSpec(("id",), schema_mode="append_new_columns"), [{"id": 1, "day": "a", "w": 5}])
    assert orders.rows("id", "v", "w") == [(1, 10.0, 5), (2, 20.0, None)]


@needs_spark
def test_sync_all_columns_also_takes_columns_away_in_one_commit(orders: Workbench) -> None:
    orders.run(WriteSpec("append", schema_mode="sync_all_columns"), [{"id": 3, "day": "c", "w": "new"}])
    assert orders.version == 1
    assert sorted(orders.lake.snapshot(orders.ref).schema.names) == ["day", "id", "w"]
    assert orders.rows("id", "w") == [(1, None), (2, None), (3, "new")]


@needs_spark
def test_a_partition_column_missing_from_the_data_is_named(bench: Workbench) -> None:
    with pytest.raises(SchemaMismatch, match="partition column month is missing"):
        bench.run(WriteSpec("overwrite", partition_by=("month",)), ORDERS)
    assert bench.version is None


@needs_spark
def test_an_empty_string_as_partition_value_is_refused(orders: Workbench) -> None:
    with pytest.raises(SchemaMismatch, match="partition column day holds an empty string"):
        orders.run(WriteSpec("append"), [{"id": 3, "day": "", "v": 1.0}])
    assert orders.version == 0


@needs_spark
def test_a_value_too_large_for_its_column_is_an_error_and_not_another_value(bench: Workbench) -> None:
    bench.run(WriteSpec("error"), pa.table({"id": pa.array([1], pa.int32())}))
    with pytest.raises(SchemaMismatch, match=r"sales\.orders.*column id cannot hold the value 1099511627776 as int"):
        bench.run(WriteSpec("append"), pa.table({"id": pa.array([2**40], pa.int64())}))
    assert bench.version == 0


@needs_spark
def test_a_type_that_delta_does_not_have_is_named_with_its_column(bench: Workbench) -> None:
    with pytest.raises(SchemaMismatch, match="column 'at' has the type time64"):
        bench.run(WriteSpec("error"), pa.table({"at": pa.array([dt.time(1)], pa.time64("us"))}))


# -- merge


@needs_spark
def test_merge_updates_and_inserts(orders: Workbench) -> None:
    commit = orders.run(MergeSpec(("id",)), [{"id": 2, "day": "b", "v": 21.0}, {"id": 3, "day": "c", "v": 30.0}])
    assert (commit.rows_inserted, commit.rows_updated, commit.rows_deleted) == (1, 1, 0)
    assert orders.rows() == [(1, "a", 10.0), (2, "b", 21.0), (3, "c", 30.0)]


@needs_spark
def test_merge_clauses_with_conditions_in_duckdbs_dialect(orders: Workbench) -> None:
    spec = MergeSpec(
        ("id",),
        (
            MergeClause("matched_delete", condition="source.v < 0"),
            MergeClause(
                "matched_update",
                condition="source.v > target.v AND source.id // 2 = 1",
                set={"v": "target.v + source.v"},
            ),
            MergeClause("not_matched_insert", condition="length(source.day) = 1", columns=("id", "day")),
            MergeClause("not_matched_by_source_update", condition="target.v > 40", set={"v": "0.0"}),
            MergeClause("not_matched_by_source_delete", condition="target.day = 'd'"),
        ),
    )
    orders.run(WriteSpec("append"), [{"id": 4, "day": "d", "v": 1.0}, {"id": 5, "day": "e", "v": 50.0}])
    orders.run(
        spec,
        [
            {"id": 1, "day": "a", "v": -1.0},
            {"id": 2, "day": "b", "v": 100.0},
            {"id": 8, "day": "h", "v": 8.0},
            {"id": 9, "day": "long", "v": 9.0},
        ],
    )
    assert orders.rows() == [(2, "b", 120.0), (5, "e", 0.0), (8, "h", None)]


@needs_spark
def test_null_keys_never_match(bench: Workbench) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    bench.run(MergeSpec(("id",)), pa.table({"id": [None, 1], "v": [1, 1]}, schema=schema))
    commit = bench.run(MergeSpec(("id",)), pa.table({"id": [None, None, 1], "v": [2, 3, 9]}, schema=schema))
    assert (commit.rows_inserted, commit.rows_updated) == (2, 1)
    assert bench.rows() == [(1, 9), (None, 1), (None, 2), (None, 3)]


@needs_spark
@pytest.mark.parametrize("keys", [(1, 1), (77, 77)], ids=["matching", "matching nothing"])
def test_duplicate_source_keys_are_refused_with_examples(orders: Workbench, keys: tuple[int, int]) -> None:
    rows = [{"id": key, "day": "a", "v": float(i)} for i, key in enumerate(keys)]
    with pytest.raises(DuplicateSourceKeys, match=rf"sales.orders: 1 keys .*id = {keys[0]} \(2 times\)"):
        orders.run(MergeSpec(("id",)), rows)
    assert orders.version == 0


@needs_spark
def test_duplicate_source_keys_are_refused_for_a_table_that_does_not_exist_yet(bench: Workbench) -> None:
    rows = [{"id": i % 5, "v": i} for i in range(10)]
    with pytest.raises(DuplicateSourceKeys, match="5 keys occur more than once"):
        bench.run(MergeSpec(("id",)), rows)
    assert bench.version is None


@needs_spark
def test_merge_creates_the_table_of_the_rows_that_its_clauses_insert(bench: Workbench) -> None:
    spec = MergeSpec(
        ("id",), (MergeClause("not_matched_insert", condition="source.v > 0"),), partition_by=("day",),
        table_properties={"delta.appendOnly": "false"},
    )  # fmt: skip
    assert bench.run(spec, [*ORDERS, {"id": 3, "day": "c", "v": -1.0}]).version == 0
    assert bench.rows() == [(1, "a", 10.0), (2, "b", 20.0)]
    assert bench.lake.snapshot(bench.ref).partition_columns == ("day",)


@needs_spark
def test_an_expression_that_spark_does_not_know_names_the_table(orders: Workbench) -> None:
    with pytest.raises(InvalidConfig, match="sales.orders"):
        orders.run(MergeSpec(("id",), (MergeClause("matched_update", set={"v": "nonsense(source.v)"}),)), ORDERS)
    with pytest.raises(InvalidConfig, match="sales.orders"):
        orders.run(UpdateSpec({"v": "w + 1"}))
    assert orders.version == 0


@needs_spark
def test_a_key_that_neither_side_has_is_named(orders: Workbench) -> None:
    with pytest.raises(InvalidConfig, match="nr"):
        orders.run(MergeSpec(("nr",)), ORDERS)


# -- delete+insert, delete, update


@needs_spark
def test_delete_insert_replaces_by_key_in_one_commit_and_keys_may_repeat(orders: Workbench) -> None:
    rows = [{"id": 1, "day": "x", "v": 1.0}, {"id": 1, "day": "y", "v": 2.0}, {"id": 5, "day": "z", "v": 3.0}]
    commit = orders.run(DeleteInsertSpec(("id",)), rows)
    assert (commit.version, commit.rows_inserted, commit.rows_deleted) == (1, 3, 1)
    assert orders.rows() == [(1, "x", 1.0), (1, "y", 2.0), (2, "b", 20.0), (5, "z", 3.0)]


@needs_spark
def test_delete_insert_deletes_only_where_its_predicate_holds(orders: Workbench) -> None:
    orders.run(DeleteInsertSpec(("id",), predicate="day <> 'a'"), [{"id": i, "day": "n", "v": 0.0} for i in (1, 2)])
    assert orders.rows() == [(1, "a", 10.0), (1, "n", 0.0), (2, "n", 0.0)]


@needs_spark
def test_delete_and_update_by_predicate(orders: Workbench) -> None:
    commit = orders.run(UpdateSpec({"v": "v * 2", "day": "upper(day)"}, predicate="id = 1"))
    assert (commit.version, commit.rows_updated) == (1, 1)
    commit = orders.run(DeleteSpec("v = 20 AND id = 2"))
    assert (commit.version, commit.rows_deleted) == (2, 1)
    assert orders.rows() == [(1, "A", 20.0)]
    orders.run(DeleteSpec())
    assert orders.rows() == []


@needs_spark
def test_changing_a_table_that_does_not_exist_says_so(bench: Workbench) -> None:
    for spec in (DeleteSpec("id = 1"), UpdateSpec({"v": "1"})):
        with pytest.raises(TableNotFound, match="sales.orders"):
            bench.run(spec)


# -- exactly once

EVERY_SPEC = [
    WriteSpec("append"),
    WriteSpec("overwrite"),
    WriteSpec("replace"),
    WriteSpec("replace", predicate="id < 100"),
    MergeSpec(("id",)),
    DeleteInsertSpec(("id",)),
    DeleteSpec("id = 1"),
    UpdateSpec({"v": "v + 1"}),
]


@needs_spark
@pytest.mark.parametrize("spec", EVERY_SPEC, ids=lambda spec: spec.mode)
def test_the_same_application_version_commits_once(orders: Workbench, spec: Any) -> None:
    from dataclasses import replace

    source = None if isinstance(spec, DeleteSpec | UpdateSpec) else ORDERS
    first = orders.run(replace(spec, app=AppTransaction("run-1/orders", 3)), source)
    rows = orders.rows()
    again = orders.run(replace(spec, app=AppTransaction("run-1/orders", 3)), source)
    assert (first.version, first.replayed) == (1, False)
    assert (again.version, again.replayed, again.mode, orders.version) == (1, True, spec.mode, 1)
    assert (again.rows_inserted, again.rows_updated, again.rows_deleted) == (
        first.rows_inserted, first.rows_updated, first.rows_deleted,
    )  # fmt: skip
    assert orders.rows() == rows
    assert orders.lake.format.app_version(orders.ref, "run-1/orders") == 3
    # and the id does not leak into what runs after it
    assert orders.run(WriteSpec("append"), ORDERS).version == 2
    assert not orders.lake.format.actions(orders.ref, 2).transactions  # type: ignore[union-attr]


@needs_spark
def test_a_twin_that_commits_first_does_not_make_a_skipped_write_look_done(orders: Workbench) -> None:
    app = AppTransaction("twin", 0)
    transaction = Transaction(orders.lake, orders.ref, app=app)
    original = orders.lake.format.find_commit
    calls = []

    def blind_once(ref: Any, wanted: AppTransaction) -> Commit | None:
        calls.append(wanted)
        if len(calls) == 1:  # the twin commits between the check and Spark's own
            frame = orders.spark.createDataFrame([(8, "t", 8.0)], "id long, day string, v double")
            frame.write.format("delta").mode("append").option("txnAppId", "twin").option("txnVersion", "0").save(
                ref.location
            )
            return None
        return original(ref, wanted)

    orders.lake.format.find_commit = blind_once  # type: ignore[method-assign]
    commit = orders.engine.execute(WriteSpec("append", app=app), pa.Table.from_pylist(ORDERS), transaction)
    assert (commit.replayed, commit.version, orders.version) == (True, 1, 1)


@needs_spark
def test_application_ids_do_not_leak_between_writes_that_run_at_once(bench: Workbench) -> None:
    from concurrent.futures import ThreadPoolExecutor

    refs = [bench.lake.parse(f"sales.t{i}") for i in range(4)]
    specs: list[Any] = [MergeSpec(("id",)), WriteSpec("append"), DeleteInsertSpec(("id",)), WriteSpec("append")]
    apps = [AppTransaction("a", 0), None, AppTransaction("c", 0), AppTransaction("d", 0)]

    def work(i: int) -> None:
        source = pa.Table.from_pylist(ORDERS)
        for spec, app in ((WriteSpec("error"), None), (specs[i], apps[i])):
            bench.engine.execute(spec, source, Transaction(bench.lake, refs[i], app=app))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    committed = [bench.lake.format.actions(ref, 1).transactions for ref in refs]  # type: ignore[union-attr]
    assert committed == [() if app is None else (app,) for app in apps]


# -- reading


@needs_spark
def test_a_session_on_spark_reads_and_writes_by_name(bench: Workbench) -> None:
    import duckrun
    from duckrun.session import SQL

    with duckrun.connect(bench.lake.root, engine="spark", spark=bench.spark) as session:
        session.execute("sales.orders", WriteSpec("error"), pa.Table.from_pylist(ORDERS))
        commit = session.execute("sales.large", WriteSpec("error"), SQL("select id, v from sales.orders where v > 15"))
        assert (commit.engine, commit.rows_inserted) == ("spark", 1)
        frame = session.sql("select sum(v) as total from sales.large")
        assert (frame.engine, frame.collect()) == ("spark", [{"total": 20.0}])
        frame.createOrReplaceTempView("sums")
        session.register("factors", pa.table({"factor": [2.0]}))
        assert session.sql("select total * factor as x from sums, factors").collect() == [{"x": 40.0}]
    with duckrun.connect(bench.lake.root) as session:  # the other engine reads the same
        assert session.sql("select * from sales.large").collect() == [{"id": 2, "v": 20.0}]


@needs_spark
def test_nan_long_strings_and_sub_millisecond_times_are_found_by_predicates(bench: Workbench) -> None:
    at = dt.datetime(2020, 1, 1, 0, 0, 0, 123456)
    data = pa.table(
        {"id": [1, 2, 3], "f": [1.0, math.nan, None], "s": ["a", "x" * 200 + "z", "b"], "t": [None, at, None]}
    )
    bench.run(WriteSpec("error"), data)
    snapshot = bench.lake.snapshot(bench.ref)
    for predicate in ("isnan(f)", "f > 1e300", f"s = '{'x' * 200}z'", "t = TIMESTAMP '2020-01-01 00:00:00.123456'"):
        found = bench.engine.scan(snapshot, ReadSpec(columns=("id",), predicate=predicate)).collect()
        assert found == [{"id": 2}], predicate
    assert snapshot.schema.field("t").type == pa.timestamp("us")


@needs_spark
def test_a_read_keeps_its_version_while_the_table_moves(orders: Workbench) -> None:
    snapshot = orders.lake.snapshot(orders.ref)
    scan = orders.engine.scan(snapshot, ReadSpec())
    tree = parse_query(
        "with o as (select * from sales.orders) select sales.orders.id, o.id // 2 as w from sales.orders join o using (id)",
        "duckdb",
    )
    query = orders.engine.select(replace_tables(tree, lambda table: orders.engine.pinned(snapshot)))
    orders.run(WriteSpec("overwrite"), [{"id": 9, "day": "z", "v": 0.0}])
    assert sorted(row["id"] for row in scan.collect()) == [1, 2]
    assert sorted((row["id"], row["w"]) for row in query.collect()) == [(1, 0), (2, 1)]
    assert query.schema.names == ["id", "w"]


@needs_spark
def test_a_query_with_an_unknown_name_says_which(orders: Workbench) -> None:
    with pytest.raises(InvalidConfig, match="nowhere"):
        orders.engine.select(parse_query("select * from nowhere", "spark"))


@needs_spark
@pytest.mark.parametrize("vectors", ["false", "true"])
def test_parts_of_a_scan_read_each_row_once_also_with_deletion_vectors(bench: Workbench, vectors: str) -> None:
    days = ["a b", "ü+%20", "x/y", "100%"]
    rows = [{"id": i, "day": days[i % 4]} for i in range(40)]
    spec = WriteSpec("error", partition_by=("day",), table_properties={"delta.enableDeletionVectors": vectors})
    bench.run(spec, rows)
    bench.run(DeleteSpec("id % 5 = 0"))
    parts = bench.lake.snapshot(bench.ref).scan().split(3)
    assert len(parts) == 3
    found = [row["id"] for part in parts for row in bench.engine.open(part).collect()]
    assert sorted(found) == [i for i in range(40) if i % 5]


# -- values


@needs_spark
@pytest.mark.parametrize("kind", ["pyarrow", "reader", "pandas", "polars", "lazy", "spark", "frame"])
def test_every_kind_of_value_is_written(orders: Workbench, kind: str) -> None:
    table = pa.Table.from_pylist([{"id": 3, "day": "c", "v": 3.0}])
    value: Any = {
        "pyarrow": lambda: table,
        "reader": lambda: table.to_reader(),
        "pandas": lambda: pd.DataFrame(table.to_pylist()),
        "polars": lambda: pl.from_arrow(table),
        "lazy": lambda: pl.from_arrow(table).lazy(),  # type: ignore[union-attr]
        "spark": lambda: orders.spark.createDataFrame(table),
        "frame": lambda: orders.engine.select(parse_query("select 3L as id, 'c' as day, 3.0D as v", "spark")),
    }[kind]()
    assert is_of_spark(value) is (kind in ("spark", "frame"))
    assert orders.engine.schema_of(value).names == ["id", "day", "v"]
    assert orders.run(WriteSpec("append"), value).rows_inserted == 1
    assert orders.rows()[-1] == (3, "c", 3.0)


@needs_spark
def test_a_spark_dataframe_is_never_collected(orders: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = orders.spark.range(100).selectExpr("id", "'q' AS day", "cast(id AS double) AS v")
    for name in ("collect", "toArrow", "toPandas", "toLocalIterator"):
        monkeypatch.setattr(type(frame), name, lambda *a, **k: pytest.fail("the rows came to the driver"))
    assert orders.run(WriteSpec("append"), frame).rows_inserted == 100


@needs_spark
def test_types_come_back_as_they_were_written(bench: Workbench) -> None:
    data = pa.table(
        {
            "u": pa.array([2**64 - 1], pa.uint64()),
            "d": pa.array(["x"]).dictionary_encode(),
            "naive": pa.array([dt.datetime(2020, 1, 1, 1)], pa.timestamp("ms")),
            "zoned": pa.array([dt.datetime(2020, 1, 1, 1)], pa.timestamp("us", "Europe/Berlin")),
            "nested": [[{"a": 1, "b": [None, "x"]}]],
            "raw": pa.array([b"\x00\xff"], pa.large_binary()),
        }
    )
    bench.run(WriteSpec("error"), data)
    row = bench.engine.scan(bench.lake.snapshot(bench.ref), ReadSpec()).toArrow()
    assert row.schema.field("naive").type == pa.timestamp("us")
    assert row.schema.field("zoned").type == pa.timestamp("us", "UTC")
    values = row.to_pylist()[0]
    assert int(values["u"]) == 2**64 - 1 and values["d"] == "x" and values["raw"] == b"\x00\xff"
    assert values["nested"] == [{"a": 1, "b": [None, "x"]}]
    assert values["zoned"] == dt.datetime(2020, 1, 1, 1, tzinfo=dt.UTC)


# -- sessions


@needs_spark
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif("DUCKRUN_TEST_SPARK_REMOTE" in os.environ, reason="is that run")
def test_all_of_this_holds_on_spark_connect_in_a_process_with_no_classic_session() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "spark and not slow", __file__],
        capture_output=True, text=True, env={**os.environ, "DUCKRUN_TEST_SPARK_REMOTE": "local[2]"},
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]


@needs_spark
def test_a_process_has_one_session_without_a_metastore(spark: Any) -> None:
    assert spark_session() is spark
    assert spark_session(**SPARK_AT) is spark
    with pytest.raises(InvalidConfig, match=r"asked for at local\[7\].*session at local\[2\]"):
        spark_session(master="local[7]")
    assert spark.conf.get("spark.sql.catalogImplementation") == "in-memory"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert not [name for name in ("spark-warehouse", "metastore_db", "derby.log") if Path(name).exists()]


def test_master_and_remote_together_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="not both"):
        spark_session(master="local[2]", remote="sc://here")


def run_python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**os.environ, **env}
    )


ASK = "from duckrun.engines.spark.process.session import spark_session as s\nimport time\nt = time.time()\ntry:\n    s({})\nexcept Exception as e:\n    print(type(e).__name__, e)\nassert time.time() - t < 30"


def test_importing_the_engine_does_not_import_pyspark() -> None:
    done = run_python(
        "import duckrun.engines.spark.engine, sys; print('pyspark' in sys.modules, 'delta' in sys.modules)"
    )
    assert done.stdout.split() == ["False", "False"], done.stderr


@pytest.mark.parametrize("address", ["master='spark://127.0.0.1:1'", "remote='sc://127.0.0.1:1/;token=x'"])
def test_an_unreachable_address_is_named_within_30_seconds(address: str) -> None:
    done = run_python(ASK.format(address))
    assert done.stdout.startswith("InvalidConfig Spark at ") and "127.0.0.1:1" in done.stdout, done.stderr
    assert "cannot be reached" in done.stdout


def test_a_missing_java_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    done = run_python(ASK.format(""), JAVA_HOME=str(tmp_path))
    for part in ("InvalidConfig Spark needs Java 17 or 21", str(tmp_path), "apt-get", "brew", "winget"):
        assert part in done.stdout, done.stderr


def test_an_old_java_is_named_with_its_version(tmp_path: Path) -> None:
    launcher = tmp_path / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    launcher.chmod(0o755)
    done = run_python(ASK.format(""), JAVA_HOME=str(tmp_path))
    assert "is Java 11, which is too old" in done.stdout, done.stderr


def test_a_missing_pyspark_names_the_extra() -> None:
    done = run_python("import sys\nsys.modules['pyspark'] = None\n" + ASK.format(""))
    assert "duckrun-dagster[spark]" in done.stdout, done.stderr


def test_the_java_of_this_machine_is_found() -> None:
    version = java_version()
    assert version is None or version >= 8


def test_spark_code_uses_sql_and_dataframes_only() -> None:
    """So that classic sessions and Spark Connect are one code."""
    import duckrun.engines.spark

    banned = {"_jvm", "_jsparkSession", "_jdf", "sparkContext", "rdd", "DeltaTable", "_sc"}
    files = sorted(Path(duckrun.engines.spark.__path__[0]).rglob("*.py"))
    assert len(files) > 15
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        used |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
        assert not used & banned, file.name
