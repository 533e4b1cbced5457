"""Rows with other columns than the table: added, taken away and widened with the write, in one commit, on both engines."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from duckrun import MergeClause, MergeSpec, SchemaMismatch, WriteSpec
from duckrun.errors import InvalidConfig
from duckrun.session import Session
from duckrun.values.rows import DeleteInsertSpec
from duckrun.values.tables import AddCheck, AlterSpec, SetComment, SetNotNull, SetProperties
from tests import lake
from tests.lake import nth, rows_of

pytestmark = pytest.mark.formats(10)

OLD = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "day": ["mon", "mon", "tue"],
        "gone": ["a", "b", "c"],
        "price": pa.array([Decimal("1.5"), Decimal("2.5"), Decimal("3.5")], pa.decimal128(5, 2)),
    }
)
NEW = pa.table(
    {
        "id": pa.array([3, 4], pa.int64()),
        "day": ["tue", "tue"],
        "price": pa.array([Decimal("30.125"), Decimal("40.125")], pa.decimal128(9, 3)),
        "taste": ["sweet", "sour"],
    }
)
SPECS: dict[str, Any] = {
    "append": lambda mode: WriteSpec("append", schema_mode=mode),
    "replace": lambda mode: WriteSpec("replace", predicate="day = 'tue'", schema_mode=mode),
    "replace partitions": lambda mode: WriteSpec("replace", schema_mode=mode),
    "merge": lambda mode: MergeSpec(("id",), schema_mode=mode),
    "staged merge": lambda mode: MergeSpec(("id",), on="source.day = target.day", schema_mode=mode),
    "delete+insert": lambda mode: DeleteInsertSpec(("id",), schema_mode=mode),
}
COLUMNS = {
    "append_new_columns": {"id": pa.int32(), "day": pa.string(), "gone": pa.string(), "price": pa.decimal128(5, 2)},
    "sync_all_columns": {"id": pa.int64(), "day": pa.string(), "price": pa.decimal128(9, 3)},
}

# On Spark what takes columns away is one code for all modes: two of them show it.
CASES = [pytest.param("duckdb", how, mode) for mode in COLUMNS for how in SPECS] + [
    pytest.param("spark", how, mode, marks=pytest.mark.spark)
    for how, mode in (
        ("append", "append_new_columns"),
        ("replace partitions", "sync_all_columns"),
        ("merge", "append_new_columns"),
        ("merge", "sync_all_columns"),
        ("delete+insert", "sync_all_columns"),
    )
]


@pytest.fixture
def old(session: Session) -> Session:
    """A session whose table main.t holds OLD, with a constraint, a comment and a column that is never NULL."""
    session.execute("main.t", WriteSpec("error", partition_by=("day",)), OLD)
    check = [AddCheck("positive", "price > 0")] if lake.FORMAT == "delta" else []
    session.execute("main.t", AlterSpec((SetNotNull("id"), SetComment("what it costs", "price"), *check)))
    return session


def _fitting(mode: str) -> pa.Table:
    """NEW, with prices that fit the type that append_new_columns keeps."""
    if mode == "sync_all_columns":
        return NEW
    price = pa.array([Decimal("30.25"), Decimal("40.25")], pa.decimal128(5, 2))
    return NEW.set_column(2, "price", price)


@pytest.mark.parametrize(("engine", "how", "mode"), CASES)
def test_a_write_takes_the_columns_of_its_rows_in_one_commit(old: Session, how: str, mode: str) -> None:
    commit = old.execute("main.t", SPECS[how](mode), _fitting(mode))
    snapshot = old.table("main.t").snapshot()
    # DuckLake reads wrong rows where a wider type and rows come in one transaction: the type has a snapshot of its own before.
    apart = lake.FORMAT == "ducklake" and mode == "sync_all_columns"
    made = nth(3 if apart else 2)
    assert (commit.version, snapshot.version) == (made, made)
    assert commit.rows_inserted == (1 if "merge" in how else 2)
    assert {f.name: f.type for f in snapshot.schema} == {**COLUMNS[mode], "taste": pa.string()}
    assert not snapshot.schema.field("id").nullable
    assert snapshot.schema.field("price").metadata == {b"comment": b"what it costs"}
    assert snapshot.partition_columns == ("day",)
    kept = 3 if how == "append" else 2
    assert rows_of(old.scan("main.t"), "id", "taste") == sorted(
        [*[(i, None) for i in (1, 2, 3)[:kept]], (3, "sweet"), (4, "sour")], key=repr
    )
    if lake.FORMAT == "delta":
        with pytest.raises(SchemaMismatch, match="positive"):
            old.execute("main.t", WriteSpec("append"), _negative(old))
    assert old.table("main.t").snapshot().version == made


@pytest.mark.parametrize("how", ["overwrite", "append", "merge"])
def test_the_first_column_of_timestamps_without_zone_comes_with_the_write(session: Session, how: str) -> None:
    """A table that is there lacks the feature that such a column needs."""
    session.execute("main.t", WriteSpec("error"), pa.table({"id": [1, 2]}))
    noon = datetime(2026, 1, 1, 12)
    spec = WriteSpec("overwrite") if how == "overwrite" else SPECS[how]("append_new_columns")
    commit = session.execute("main.t", spec, pa.table({"id": [2, 3], "at": [noon, noon]}))
    assert commit.version == session.table("main.t").snapshot().version == nth(1)
    assert session.table("main.t").snapshot().schema.field("at").type == pa.timestamp("us")
    before = {"overwrite": [], "append": [(1, None), (2, None)], "merge": [(1, None)]}[how]
    assert rows_of(session.scan("main.t"), "id", "at") == sorted([*before, (2, noon), (3, noon)], key=repr)


def _negative(session: Session) -> pa.Table:
    """A row that breaks the constraint, in the table's own columns."""
    schema = session.table("main.t").snapshot().schema
    row = {"id": 9, "day": "mon", "gone": None, "price": Decimal("-1"), "taste": None}
    return pa.table({f.name: pa.array([row[f.name]], f.type) for f in schema})


@pytest.mark.only_format("delta", "CHECK constraints")
@pytest.mark.parametrize("how", ["append", "staged merge"])
def test_rows_that_break_a_constraint_leave_the_columns_as_they_were(old: Session, how: str) -> None:
    bad = NEW.set_column(2, "price", pa.array([Decimal("-1"), Decimal("-2")], pa.decimal128(9, 3)))
    with pytest.raises(SchemaMismatch, match=r"(?s)main\.t.*positive"):
        old.execute("main.t", SPECS[how]("sync_all_columns"), bad)
    snapshot = old.table("main.t").snapshot()
    assert (snapshot.version, snapshot.schema.names) == (nth(1), OLD.column_names)


def test_a_column_that_the_table_rests_on_is_not_taken_away(old: Session) -> None:
    for column, used in (*([("price", "positive")] if lake.FORMAT == "delta" else []), ("day", "partitioning")):
        with pytest.raises(InvalidConfig, match=rf"(?s)main\.t.*{column}.*{used}"):
            old.execute("main.t", WriteSpec("append", schema_mode="sync_all_columns"), NEW.drop_columns([column]))
    assert old.table("main.t").snapshot().version == nth(1)


def test_a_type_that_holds_less_is_refused(old: Session) -> None:
    text = NEW.set_column(0, "id", pa.array(["3", "4"]))
    with pytest.raises(SchemaMismatch, match=r"(?s)main\.t.*id is"):
        old.execute("main.t", WriteSpec("append", schema_mode="sync_all_columns"), text)
    assert old.table("main.t").snapshot().version == nth(1)


def test_every_write_sorts_as_the_table_says(session: Session) -> None:
    rows = pa.table({"id": [3, 1, 2], "v": ["c", "a", "b"]})
    session.execute("main.sorted", WriteSpec("error"), rows)
    session.execute("main.sorted", AlterSpec((SetProperties({"duckrun.sortBy": '["id"]'}),)))
    session.execute("main.sorted", WriteSpec("overwrite"), rows)
    assert session.scan("main.sorted").toArrow()["id"].to_pylist() == [1, 2, 3]
    if (
        session.engine_name == "duckdb" and lake.FORMAT == "delta"
    ):  # Spark's MERGE writes as it likes; a DuckLake's adds files
        upsert = MergeSpec(("id",), (MergeClause("matched_update"), MergeClause("not_matched_insert")))
        commit = session.execute("main.sorted", upsert, pa.table({"id": [0, 2], "v": ["n", "m"]}))
        assert commit.writer == "staged"
        assert session.scan("main.sorted").toArrow()["id"].to_pylist() == [0, 1, 2, 3]
