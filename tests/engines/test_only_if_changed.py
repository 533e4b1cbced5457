"""Merges that leave equal rows as they are, on both engines and formats: counts, versions, files and rows."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from duckrun import MergeClause, MergeSpec, Session, WriteSpec
from tests import lake
from tests.lake import ORDERS, OneTable, nth

pytestmark = pytest.mark.formats

UPSERT = MergeSpec(("id",), only_if_changed=True)
NAN = math.nan
PART = pa.struct([("n", pa.int64()), ("t", pa.string())])
COLUMNS: dict[str, tuple[pa.DataType, list[Any], list[tuple[Any, Any]]]] = {
    "d": (pa.float64(), [1.5, NAN, None], [(1.5, 1.25), (1.5, NAN), (NAN, None), (None, 0.0)]),
    "f": (pa.float32(), [NAN, 0.5], [(0.5, 0.25)]),
    "t": (pa.string(), ["", "a", None], [("", None), ("a", "A"), ("a", "a ")]),
    "b": (pa.binary(), [b"\0", None], [(b"\0", b"")]),
    "k": (pa.bool_(), [True, None], [(None, False)]),
    "m": (pa.decimal128(9, 2), [Decimal("1.10"), None], [(Decimal("1.10"), Decimal("1.11"))]),
    "w": (pa.timestamp("us", "UTC"), [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)], [(dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None)]),
    "l": (pa.list_(pa.float64()), [[NAN, None], [], None], [([], None), ([1.0, 2.0], [2.0, 1.0]), ([None], [])]),
    "s": (PART, [{"n": 1, "t": None}, {"n": None, "t": None}, None], [({"n": None, "t": None}, None), ({"n": 1, "t": "a"}, {"n": 1, "t": "b"})]),
    "e": (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", 2)], [], None], [([("a", 1)], [("a", 2)]), ([], None)]),
}  # fmt: skip
"""Type of a column, values that equal themselves, and pairs of values that differ."""


def test_rows_that_are_equal_make_no_version_and_no_file(orders: OneTable) -> None:
    commit = orders.run(UPSERT, ORDERS)
    assert (commit.version, orders.version) == (nth(0), nth(0))
    assert (commit.rows_inserted, commit.rows_updated, commit.rows_deleted) == (0, 0, 0)
    assert (commit.files_added, commit.files_removed) == (0, 0)


def test_only_the_rows_that_differ_are_updated(orders: OneTable) -> None:
    commit = orders.run(UPSERT, [ORDERS[0], {**ORDERS[1], "v": 21.0}, {"id": 3, "day": "c", "v": 30.0}])
    assert (commit.rows_inserted, commit.rows_updated, commit.rows_deleted) == (1, 1, 0)
    assert orders.rows() == [(1, "a", 10.0), (2, "b", 21.0), (3, "c", 30.0)]
    assert orders.version == nth(1)


def test_every_row_is_updated_without_the_word(orders: OneTable) -> None:
    assert orders.run(MergeSpec(("id",)), ORDERS).rows_updated == 2
    assert orders.version == nth(1)


def _table(rows: list[tuple[str, Any]]) -> pa.Table:
    """One row for each column and value; the other columns are NULL."""
    columns = {"id": pa.array(range(len(rows)), pa.int64())}
    columns |= {
        name: pa.array([value if column == name else None for column, value in rows], kind)
        for name, (kind, _, _) in COLUMNS.items()
    }
    return pa.table(columns)


def test_a_value_of_each_type_equals_itself_and_differs_from_another(bench: OneTable) -> None:
    same = [(name, value) for name, (_, values, _) in COLUMNS.items() for value in values]
    pairs = [(name, *pair) for name, (_, _, pairs) in COLUMNS.items() for pair in pairs]
    bench.run(WriteSpec("error"), _table([*same, *((name, old) for name, old, _ in pairs)]))
    start = bench.version
    assert bench.run(UPSERT, _table([*same, *((name, old) for name, old, _ in pairs)])).rows_updated == 0
    assert bench.version == start
    after = _table([*same, *((name, new) for name, _, new in pairs)])
    assert bench.run(UPSERT, after).rows_updated == len(pairs)
    names = [name for name in COLUMNS if name != "e"]
    assert repr(bench.rows("id", *names)) == repr(lake.rows_of(after, "id", *names))  # NaN is not NaN in a list
    maps = bench.rows("id", "e")
    assert [(key, None if value is None else sorted(value)) for key, value in maps] == lake.rows_of(after, "id", "e")


def test_zeros_of_either_sign_are_equal_also_inside_of_lists(bench: OneTable) -> None:
    def rows(zero: float) -> pa.Table:
        return pa.table({"id": [1], "d": [zero], "l": pa.array([[zero]])})

    bench.run(WriteSpec("error"), rows(0.0))
    assert bench.run(UPSERT, rows(-0.0)).rows_updated == 0


def test_maps_are_equal_in_any_order_of_their_entries(bench: OneTable) -> None:
    def rows(*entries: tuple[str, int]) -> pa.Table:
        kind = pa.map_(pa.string(), pa.int64())
        return pa.table(
            {"id": [1], "e": pa.array([list(entries)], kind), "l": pa.array([[list(entries)]], pa.list_(kind))}
        )

    bench.run(WriteSpec("error"), rows(("a", 1), ("b", 2)))
    assert bench.run(UPSERT, rows(("b", 2), ("a", 1))).rows_updated == 0
    assert bench.run(UPSERT, rows(("b", 1), ("a", 2))).rows_updated == 1


def test_values_are_compared_in_the_type_of_the_table(orders: OneTable) -> None:
    text = pa.table({"id": ["1", "2"], "day": ["a", "b"], "v": ["10", "20.5"]})
    assert orders.run(UPSERT, text).rows_updated == 1
    assert orders.rows() == [(1, "a", 10.0), (2, "b", 20.5)]


def test_only_the_columns_that_the_update_sets_are_compared(orders: OneTable) -> None:
    chosen = MergeSpec(("id",), (MergeClause("matched_update", columns=("v",)),), only_if_changed=True)
    assert orders.run(chosen, [{**row, "day": "other"} for row in ORDERS]).rows_updated == 0
    assert orders.run(chosen, [{"id": 1, "day": "other", "v": 1.0}]).rows_updated == 1
    assert orders.rows() == [(1, "a", 1.0), (2, "b", 20.0)]


def test_columns_that_the_source_lacks_are_not_compared(orders: OneTable) -> None:
    lacks = MergeSpec(("id",), (MergeClause("matched_update", set={"v": "source.v"}),), only_if_changed=True)
    assert orders.run(lacks, [{"id": 1, "v": 10.0}, {"id": 2, "v": 2.0}]).rows_updated == 1
    assert orders.rows() == [(1, "a", 10.0), (2, "b", 2.0)]


def test_an_expression_is_compared_by_its_value(orders: OneTable) -> None:
    most = {"v": "greatest(target.v, source.v)"}
    spec = MergeSpec(("id",), (MergeClause("matched_update", set=most),), only_if_changed=True)
    assert orders.run(spec, [{**row, "v": 15.0} for row in ORDERS]).rows_updated == 1
    assert orders.rows() == [(1, "a", 15.0), (2, "b", 20.0)]


def test_an_update_that_changes_nothing_still_decides(orders: OneTable) -> None:
    clauses = (
        MergeClause("matched_update", "source.v >= 10"),
        MergeClause("matched_delete"),
        MergeClause("not_matched_insert"),
    )
    rows = [ORDERS[0], {**ORDERS[1], "v": 5.0}]
    commit = orders.run(MergeSpec(("id",), clauses, only_if_changed=True), rows)
    assert (commit.rows_updated, commit.rows_deleted) == (0, 1)
    assert orders.rows() == [(1, "a", 10.0)]


def test_rows_without_a_match_are_updated_only_if_that_changes_them(orders: OneTable) -> None:
    clauses = (MergeClause("matched_update"), MergeClause("not_matched_by_source_update", set={"v": "0.0"}))
    spec = MergeSpec(("id",), clauses, only_if_changed=True)
    assert orders.run(spec, ORDERS[:1]).rows_updated == 1
    assert orders.rows() == [(1, "a", 10.0), (2, "b", 0.0)]
    version = orders.version
    assert orders.run(spec, ORDERS[:1]).rows_updated == 0
    assert orders.version == version


def test_each_row_of_a_repeated_key_is_compared(bench: OneTable) -> None:
    bench.run(WriteSpec("error"), [{"id": 1, "v": 1}, {"id": 1, "v": 2}, {"id": 2, "v": 2}])
    commit = bench.run(UPSERT, [{"id": 1, "v": 2}, {"id": 2, "v": 2}])
    assert (commit.rows_updated, commit.rows_inserted) == (1, 0)
    assert bench.rows() == [(1, 2), (1, 2), (2, 2)]


def test_the_part_that_is_written_bounds_the_comparison(orders: OneTable) -> None:
    spec = MergeSpec(("id",), within="day = 'a'", only_if_changed=True)
    assert orders.run(spec, ORDERS[:1]).version == nth(0)
    assert orders.run(spec, [{**ORDERS[0], "v": 11.0}]).rows_updated == 1
    assert orders.rows() == [(1, "a", 11.0), (2, "b", 20.0)]


def test_a_new_column_changes_the_rows_that_have_a_value_of_it(orders: OneTable) -> None:
    spec = MergeSpec(("id",), schema_mode="append_new_columns", only_if_changed=True)
    assert orders.run(spec, [{**ORDERS[0], "n": None}, {**ORDERS[1], "n": 2}]).rows_updated == 1
    assert orders.rows() == [(1, "a", 10.0, None), (2, "b", 20.0, 2)]


def test_a_merge_of_a_new_table_inserts(bench: OneTable) -> None:
    assert bench.run(UPSERT, ORDERS).rows_inserted == 2
    assert bench.run(UPSERT, ORDERS).rows_updated == 0


def test_variants_count_as_changed_unless_both_are_null(session: Session) -> None:
    session.sql("create table t (id int, x variant)", dialect="spark" if lake.FORMAT == "delta" else "duckdb")
    session.sql("insert into t values (1, cast(1 as variant)), (2, null)")
    source = session.sql("select 1 as id, cast(1 as variant) as x union all select 2, null union all select 3, null")
    assert session.execute("t", UPSERT, source).rows_updated == 1


def test_the_builder_of_a_merge_has_the_same_word(session: Session) -> None:
    session.sql("create table t as select range as id, 'a' as v from range(3)")
    table = session.table("t").alias("t")
    version = table.snapshot().version
    source = session.sql("select range as id, case when range = 1 then 'b' else 'a' end as v from range(4)")
    merge = table.merge(source.alias("s"), "t.id = s.id").onlyIfChanged()
    commit = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert (commit.rows_inserted, commit.rows_updated, commit.version) == (1, 1, version + 1)
    again = table.merge(source.alias("s"), "t.id = s.id").onlyIfChanged()
    assert again.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute().version == version + 1


@pytest.mark.only_format("delta", "a DuckLake has its changes from the catalog")
def test_a_change_feed_has_the_changed_rows_alone(orders: OneTable) -> None:
    orders.session.sql(
        "alter table sales.orders set tblproperties ('delta.enableChangeDataFeed' = 'true')", dialect="spark"
    )
    orders.run(UPSERT, [ORDERS[0], {**ORDERS[1], "v": 21.0}])
    version = orders.version
    assert version is not None
    feed = orders.session.table("sales.orders").changes("full_delta", from_version=version - 1, to_version=version)
    assert {(row["id"], row["v"]) for row in feed.collect()} == {(2, 20.0), (2, 21.0)}


@pytest.mark.only_format("delta", "delta_rs writes Delta alone")
@pytest.mark.parametrize("writer", ["staged", "delta_rs"])
@pytest.mark.parametrize("merge_mode", ["copy_on_write", "auto"])
def test_each_writer_leaves_equal_rows(duck: Session, writer: Any, merge_mode: Any) -> None:
    table = OneTable(duck, "sales.orders")
    table.run(WriteSpec("error"), ORDERS)
    spec = MergeSpec(("id",), only_if_changed=True, writer=writer, merge_mode=merge_mode)
    assert table.run(spec, ORDERS).version == 0
    commit = table.run(spec, [ORDERS[0], {**ORDERS[1], "v": 21.0}])
    assert (commit.rows_updated, commit.writer) == (1, writer)
    assert table.rows() == [(1, "a", 10.0), (2, "b", 21.0)]
