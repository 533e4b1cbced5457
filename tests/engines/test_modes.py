"""Each write mode and each schema mode on both engines: what it leaves, what it counts, and what it refuses."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pyarrow as pa
import pytest

from duckrun.errors import (
    CommitConflict,
    InvalidConfig,
    RowsOutsidePartition,
    SchemaMismatch,
)
from duckrun.values.rows import (
    AppTransaction,
    DeleteInsertSpec,
    MergeSpec,
    ReadSpec,
    WriteSpec,
)
from tests.lake import ORDERS, OneTable, nth

pytestmark = pytest.mark.formats


@pytest.mark.lacks_format("ducklake", InvalidConfig, "properties of Delta are refused")
def test_a_new_table_has_its_partitions_properties_description_and_comments(bench: OneTable) -> None:
    spec = WriteSpec(
        "error", partition_by=("day",), table_properties={"delta.appendOnly": "false", "duckrun.team": "me"},
        description="all orders", app=AppTransaction("create", 0),
    )  # fmt: skip
    commit = bench.run(spec, ORDERS)
    snapshot = bench.snapshot()
    assert (commit.version, commit.rows_inserted, commit.engine) == (nth(0), 2, bench.session.engine_name)
    assert snapshot.partition_columns == ("day",)
    assert snapshot.properties == {"delta.appendOnly": "false", "duckrun.team": "me"}
    assert snapshot.description == "all orders"
    assert bench.run(spec, ORDERS).replayed


def test_a_new_table_has_the_comments_of_its_columns(bench: OneTable) -> None:
    bench.run(WriteSpec("error", column_comments={"id": "the key"}), ORDERS)
    assert (bench.snapshot().schema.field("id").metadata or {}).get(b"comment") == b"the key"
    bench.run(WriteSpec("overwrite", column_comments={"ID": "the key", "v": "euros"}), ORDERS)
    assert (bench.snapshot().schema.field("v").metadata or {}).get(b"comment") == b"euros"
    with pytest.raises(SchemaMismatch, match=r"sales\.orders.*'other'"):
        bench.run(WriteSpec("overwrite", column_comments={"other": "none"}), ORDERS)
    assert bench.version == nth(1)


def test_mode_error_refuses_a_table_that_exists(orders: OneTable) -> None:
    with pytest.raises(CommitConflict, match="sales.orders exists already"):
        orders.run(WriteSpec("error"), ORDERS)
    assert orders.version == nth(0)


def test_mode_ignore_leaves_a_table_that_exists(orders: OneTable) -> None:
    commit = orders.run(WriteSpec("ignore"), [{"id": 9, "day": "z", "v": 0.0}])
    assert (commit.version, commit.writer, orders.version) == (nth(0), "none", nth(0))


def test_append_adds_rows_in_the_tables_types(orders: OneTable) -> None:
    narrow = pa.table({"v": pa.array([1], pa.int32()), "DAY": ["a"], "id": pa.array([3], pa.int16())})
    commit = orders.run(WriteSpec("append"), narrow)
    assert (commit.version, commit.rows_inserted, commit.rows_deleted) == (nth(1), 1, 0)
    assert orders.rows() == [(1, "a", 10.0), (2, "b", 20.0), (3, "a", 1.0)]


def test_overwrite_takes_a_new_schema_and_new_partitions(orders: OneTable) -> None:
    orders.run(WriteSpec("overwrite", partition_by=("kind",)), [{"name": "x", "kind": 1}])
    assert orders.rows() == [("x", 1)]
    assert orders.snapshot().partition_columns == ("kind",)
    orders.run(WriteSpec("overwrite"), [{"name": "y", "kind": 2}])
    assert orders.snapshot().partition_columns == ("kind",)


def test_replace_without_predicate_replaces_exactly_the_partitions_of_the_source(orders: OneTable) -> None:
    commit = orders.run(WriteSpec("replace"), [{"id": 7, "day": "b", "v": 7.0}])
    assert commit.version == nth(1)
    # Spark's entry in the log does not say how many rows went with the partitions.
    assert commit.rows_deleted == (None if orders.session.engine_name == "spark" else 1)
    assert orders.rows() == [(1, "a", 10.0), (7, "b", 7.0)]


def test_replace_without_predicate_needs_partitions(bench: OneTable) -> None:
    bench.run(WriteSpec("error"), ORDERS)
    with pytest.raises(InvalidConfig, match="has no partitions"):
        bench.run(WriteSpec("replace"), ORDERS)
    assert bench.version == nth(0)


def test_replace_by_predicate_replaces_the_rows_that_satisfy_it(orders: OneTable) -> None:
    orders.run(WriteSpec("append"), [{"id": 3, "day": "b", "v": math.nan}])
    commit = orders.run(WriteSpec("replace", predicate="v >= 15"), [{"id": 4, "day": "a", "v": 99.0}])
    assert (commit.rows_inserted, commit.rows_deleted) == (1, 2)
    assert orders.rows() == [(1, "a", 10.0), (4, "a", 99.0)]


def test_replace_takes_between_over_a_partition_column(bench: OneTable) -> None:
    days = [{"id": i, "day": dt.date(2023, 1, i)} for i in (1, 2, 3)]
    bench.run(WriteSpec("error", partition_by=("day",)), days)
    year = "day between date '2023-01-01' and date '2023-01-02'"
    bench.run(WriteSpec("replace", predicate=year), [{"id": 9, "day": dt.date(2023, 1, 2)}])
    assert bench.rows("id") == [(3,), (9,)]


@pytest.mark.parametrize("v", [1.0, None])
def test_rows_outside_what_is_replaced_are_refused_before_the_commit(orders: OneTable, v: float | None) -> None:
    data = pa.table({"id": [4], "day": ["a"], "v": pa.array([v], pa.float64())})
    with pytest.raises(RowsOutsidePartition, match=r"sales\.orders.*(1 rows lie|a row lies) outside .*v >= 15"):
        orders.run(WriteSpec("replace", predicate="v >= 15"), data)
    assert orders.version == nth(0)


def test_safeappend_is_fenced_to_the_version_that_was_read(orders: OneTable) -> None:
    assert orders.run(WriteSpec("safeappend", read_version=nth(0)), [{"id": 3, "day": "c", "v": 1.0}]).version == nth(1)
    with pytest.raises(CommitConflict, match=f"computed from version {nth(0)}"):
        orders.run(WriteSpec("safeappend", read_version=nth(0)), [{"id": 4, "day": "c", "v": 1.0}])
    assert orders.version == nth(1)


def test_sort_by_and_file_size_are_kept_within_files(bench: OneTable) -> None:
    rows = [{"id": i, "day": "ab"[i % 2], "v": float(-i)} for i in range(20)]
    bench.run(WriteSpec("error", partition_by=("day",), sort_by=("v",)), rows)
    frame = bench.session.scan(bench.name, ReadSpec(predicate="day = 'a'")).toArrow()
    assert frame["v"].to_pylist() == sorted(frame["v"].to_pylist())
    assert bench.run(WriteSpec("append", target_file_size=64 << 20), rows).rows_inserted == 20


@pytest.mark.parametrize("spec", [WriteSpec("append"), WriteSpec("replace"), MergeSpec(("id",))], ids=lambda s: s.mode)
def test_a_source_without_rows_changes_no_row(orders: OneTable, spec: Any) -> None:
    empty = pa.Table.from_pylist(ORDERS).slice(0, 0)
    assert orders.run(spec, empty).rows_inserted == 0
    assert len(orders.rows()) == 2


# -- schema


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([{"id": 1, "day": "a"}], "missing in the data: v"),
        ([{"id": 1, "day": "a", "v": 1.0, "w": 2}], "not in the table: w"),
        (
            [{"id": "x", "day": "a", "v": 1.0}],
            "(?i)id is bigint in the table and (string|varchar) in the data|column id cannot hold the value x as bigint",
        ),
    ],
)
@pytest.mark.parametrize("mode", ["append", "replace", "merge", "delete+insert"])
def test_rows_that_do_not_fit_leave_the_table_at_its_version(
    orders: OneTable, rows: list[dict[str, Any]], told: str, mode: str
) -> None:
    specs = {"merge": MergeSpec(("id",)), "delete+insert": DeleteInsertSpec(("id",))}
    with pytest.raises(SchemaMismatch, match=told) as raised:
        orders.run(specs.get(mode) or WriteSpec(mode), rows)  # type: ignore[arg-type]
    assert "sales.orders" in str(raised.value)
    assert orders.version == nth(0)


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
def test_append_new_columns_adds_them_and_fills_what_is_missing(orders: OneTable, spec: Any) -> None:
    orders.run(spec, [{"id": 3, "day": "c", "w": "new"}])
    assert orders.rows("id", "day", "v", "w") == [(1, "a", 10.0, None), (2, "b", 20.0, None), (3, "c", None, "new")]
    assert orders.version == nth(1)


def test_a_merge_that_adds_a_column_leaves_missing_ones_as_they_are(orders: OneTable) -> None:
    orders.run(MergeSpec(("id",), schema_mode="append_new_columns"), [{"id": 1, "day": "a", "w": 5}])
    assert orders.rows("id", "v", "w") == [(1, 10.0, 5), (2, 20.0, None)]
    orders.run(MergeSpec(("id",), schema_mode="append_new_columns"), [{"id": 2, "day": "b"}, {"id": 3, "day": "c"}])
    assert orders.rows("id", "v", "w") == [(1, 10.0, 5), (2, 20.0, None), (3, None, None)]


def test_sync_all_columns_also_takes_columns_away_in_one_commit(orders: OneTable) -> None:
    orders.run(WriteSpec("append", schema_mode="sync_all_columns"), [{"id": 3, "day": "c", "w": "new"}])
    assert orders.version == nth(1)
    assert sorted(orders.snapshot().schema.names) == ["day", "id", "w"]
    assert orders.rows("id", "w") == [(1, None), (2, None), (3, "new")]


def test_a_partition_column_missing_from_the_data_is_named(bench: OneTable) -> None:
    with pytest.raises(SchemaMismatch, match=r"sales\.orders.*month"):
        bench.run(WriteSpec("overwrite", partition_by=("month",)), ORDERS)
    assert bench.version is None


@pytest.mark.only_format("delta", "a DuckLake tells an empty string from NULL")
def test_an_empty_string_as_partition_value_is_refused(orders: OneTable) -> None:
    with pytest.raises(SchemaMismatch, match="partition column day holds an empty string"):
        orders.run(WriteSpec("append"), [{"id": 3, "day": "", "v": 1.0}])
    assert orders.version == nth(0)


def test_a_value_too_large_for_its_column_is_an_error_and_not_another_value(bench: OneTable) -> None:
    bench.run(WriteSpec("error"), pa.table({"id": pa.array([1], pa.int32())}))
    with pytest.raises(
        SchemaMismatch, match=r"(?i)sales\.orders.*column id cannot hold the value 1099511627776 as int"
    ):
        bench.run(WriteSpec("append"), pa.table({"id": pa.array([2**40], pa.int64())}))
    assert bench.version == nth(0)


@pytest.mark.only_format("delta", "a DuckLake has TIME")
def test_a_type_that_delta_does_not_have_is_named_with_its_column(bench: OneTable) -> None:
    with pytest.raises(SchemaMismatch, match="column 'at' has the type (time64|TIME, )"):
        bench.run(WriteSpec("error"), pa.table({"at": pa.array([dt.time(1)], pa.time64("us"))}))


def test_nan_long_strings_and_sub_millisecond_times_are_found_by_predicates(bench: OneTable) -> None:
    at = dt.datetime(2020, 1, 1, 0, 0, 0, 123456)
    data = pa.table(
        {"id": [1, 2, 3], "f": [1.0, math.nan, None], "s": ["a", "x" * 200 + "z", "b"], "t": [None, at, None]}
    )
    bench.run(WriteSpec("error"), data)
    snapshot = bench.snapshot()
    for predicate in ("isnan(f)", "f > 1e300", f"s = '{'x' * 200}z'", "t = TIMESTAMP '2020-01-01 00:00:00.123456'"):
        found = bench.session.scan(bench.name, ReadSpec(columns=("id",), predicate=predicate)).collect()
        assert found == [{"id": 2}], predicate
    assert snapshot.schema.field("t").type == pa.timestamp("us")


@pytest.mark.only_format("delta", "a DuckLake has more types")
def test_types_come_back_as_they_were_written(bench: OneTable) -> None:
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
    row = bench.session.scan(bench.name).toArrow()
    assert row.schema.field("naive").type == pa.timestamp("us")
    assert row.schema.field("zoned").type == pa.timestamp("us", "UTC")
    values = row.to_pylist()[0]
    assert int(values["u"]) == 2**64 - 1 and values["d"] == "x" and values["raw"] == b"\x00\xff"
    assert values["nested"] == [{"a": 1, "b": [None, "x"]}]
    assert values["zoned"] == dt.datetime(2020, 1, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize("value", ["'x'", "cast(1e300 as double)"])
def test_a_value_of_an_insert_that_cannot_be_cast_is_an_error_of_ours(orders: OneTable, value: str) -> None:
    with pytest.raises(SchemaMismatch, match="sales.orders"):
        orders.session.sql(f"insert into sales.orders values ({value}, 'a', 1.0)")
    assert orders.version == nth(0)
