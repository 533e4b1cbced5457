"""Tables made with no rows, altered, restored and converted: one commit each.

What needs rows runs on both engines; what the log alone decides is one code for both, and runs on the embedded one.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from duckrun import (
    AppTransaction,
    Commit,
    CommitConflict,
    DuckrunError,
    SchemaMismatch,
    StorageError,
    UnsupportedFeature,
    WriteSpec,
)
from duckrun.errors import InvalidConfig, TableNotFound
from duckrun.session import Session
from duckrun.values.tables import (
    AddCheck,
    AddColumn,
    AlterSpec,
    Change,
    ChangeType,
    ColumnSpec,
    ConvertSpec,
    CreateSpec,
    DropCheck,
    DropColumn,
    DropNotNull,
    RenameColumn,
    RestoreSpec,
    SetComment,
    SetNotNull,
    SetProperties,
    UnsetProperties,
)
from tests import lake
from tests.lake import nth, rows_of

pytestmark = pytest.mark.formats(10)

ORDERS = CreateSpec(
    (
        ColumnSpec("id", "INTEGER", nullable=False, comment="the key"),
        ColumnSpec("day", "VARCHAR"),
        ColumnSpec("at", "TIMESTAMP"),
        ColumnSpec("price", "DECIMAL(5,2)"),
        ColumnSpec("tags", "VARCHAR[]"),
    ),
    partition_by=("day",),
    sort_by=("id",),
    checks={"positive": "price > 0"},
    table_properties={"owner": "us", "delta.logRetentionDuration": "interval 60 days"},
    description="what was bought",
)
ROWS = pa.table(
    {
        "id": pa.array([2, 1, 3], pa.int32()),
        "day": ["mon", "mon", "a b/c"],
        "at": pa.array([None, 0, 1], pa.timestamp("us")),
        "price": pa.array([Decimal("2"), Decimal("1"), Decimal("3")], pa.decimal128(5, 2)),
        "tags": pa.array([["x"], [], None], pa.list_(pa.string())),
    }
)


def _asked() -> CreateSpec:
    """ORDERS, as far as the format has it."""
    return replace(ORDERS, checks={}, table_properties={}) if lake.FORMAT == "ducklake" else ORDERS


def _orders(session: Session) -> Session:
    session.execute("main.orders", _asked())
    session.execute("main.orders", WriteSpec("append"), ROWS)
    return session


@pytest.fixture
def orders(session: Session) -> Session:
    """A session whose table main.orders was made by ORDERS and holds ROWS, at version 1."""
    return _orders(session)


@pytest.fixture
def duck_orders(duck: Session) -> Session:
    """The same on the embedded engine."""
    return _orders(duck)


def alter(session: Session, *changes: Change, **options: Any) -> Any:
    return session.execute("main.orders", AlterSpec(changes, **options))


@pytest.mark.lacks_format("ducklake", InvalidConfig, "a DuckLake keeps no properties of users")
def test_a_table_is_made_as_it_was_asked_for(session: Session) -> None:
    commit = session.execute("main.orders", ORDERS)
    snapshot = session.table("main.orders").snapshot()
    assert (commit.version, commit.mode, commit.engine, commit.rows_inserted) == (
        nth(0),
        "create",
        session.engine_name,
        0,
    )
    assert [(f.name, f.type, f.nullable) for f in snapshot.schema] == [
        ("id", pa.int32(), False),
        ("day", pa.string(), True),
        ("at", pa.timestamp("us"), True),
        ("price", pa.decimal128(5, 2), True),
        ("tags", snapshot.schema.field("tags").type, True),
    ]
    assert snapshot.schema.field("id").metadata == {b"comment": b"the key"}
    assert (snapshot.partition_columns, snapshot.description) == (("day",), "what was bought")
    assert snapshot.properties["owner"] == "us" and snapshot.properties["duckrun.sortBy"] == '["id"]'
    assert session.scan("main.orders").count() == 0


@pytest.mark.only_format("delta", "CHECK constraints")
def test_its_constraints_hold_for_every_write(orders: Session) -> None:
    cheap = ROWS.set_column(3, "price", pa.array([Decimal("-1")] * 3, pa.decimal128(5, 2)))
    unknown = ROWS.set_column(3, "price", pa.array([None] * 3, pa.decimal128(5, 2)))  # NULL breaks a Delta constraint
    keyless = ROWS.set_column(0, "id", pa.array([None] * 3, pa.int32()))
    for rows, says in ((cheap, "positive"), (unknown, "positive"), (keyless, "id")):
        with pytest.raises(SchemaMismatch, match=rf"(?s)main\.orders.*{says}"):
            orders.execute("main.orders", WriteSpec("append"), rows)
    assert orders.table("main.orders").snapshot().version == nth(1)


def test_a_type_is_read_in_the_dialect_of_the_spec(duck: Session) -> None:
    columns = (
        ColumnSpec("a", "TIMESTAMP"),
        ColumnSpec("b", "STRUCT<x: INT, y: ARRAY<STRING>>"),
        ColumnSpec("c", "BIGINT"),
    )
    duck.execute("main.t", CreateSpec(columns, dialect="spark"))
    schema = duck.table("main.t").snapshot().schema
    assert (schema.field("a").type, schema.field("c").type) == (pa.timestamp("us", "UTC"), pa.int64())
    for kind in ("no such type", *(["TIME"] if lake.FORMAT == "delta" else [])):
        with pytest.raises((SchemaMismatch, InvalidConfig), match=r"(?s)main\.u.*'a'"):
            duck.execute("main.u", CreateSpec((ColumnSpec("a", kind),)))
    assert not duck.lake.exists(duck.lake.parse("main.u"))


def test_a_table_that_is_there(duck_orders: Session) -> None:
    with pytest.raises(CommitConflict, match=rf"main\.orders.*version {nth(1)}"):
        duck_orders.execute("main.orders", _asked())
    narrow = CreateSpec((ColumnSpec("n", "BIGINT"),), if_exists="ignore")
    assert (duck_orders.execute("main.orders", narrow).version, duck_orders.scan("main.orders").count()) == (nth(1), 3)
    replaced = duck_orders.execute("main.orders", CreateSpec(narrow.columns, if_exists="replace"))
    snapshot = duck_orders.table("main.orders").snapshot()
    assert (replaced.version, replaced.rows_deleted, snapshot.schema.names) == (nth(2), 3, ["n"])
    assert (snapshot.partition_columns, snapshot.properties) == ((), {})
    assert duck_orders.table("main.orders").toDF(version=nth(1)).count() == 3


@pytest.mark.only_format("delta", "CHECK constraints, and properties")
def test_changes_that_the_log_alone_can_say(orders: Session) -> None:
    commit = alter(
        orders,
        AddColumn(ColumnSpec("n", "BIGINT", comment="new")),
        SetNotNull("day"),
        DropNotNull("id"),
        AddCheck("few", "id < 10"),
        DropCheck("positive"),
        SetProperties({"team": "b"}),
        UnsetProperties(("owner",)),
        SetComment("orders"),
        SetComment("of the week", "day"),
    )
    snapshot = orders.table("main.orders").snapshot()
    assert (commit.version, commit.files_added, commit.files_removed) == (nth(2), 0, 0)
    assert [f.name for f in snapshot.schema if not f.nullable] == ["day"]
    assert snapshot.schema.field("n").metadata == {b"comment": b"new"}
    assert snapshot.properties["delta.constraints.few"] == "id < 10" and snapshot.properties["team"] == "b"
    assert not {"owner", "delta.constraints.positive"} & set(snapshot.properties)
    assert snapshot.description == "orders"
    assert rows_of(orders.scan("main.orders"), "id", "n") == [(1, None), (2, None), (3, None)]


@pytest.mark.only_format("delta", "a DuckLake's columns change by the catalog alone")
def test_changes_that_write_the_table_anew_in_one_commit(orders: Session) -> None:
    commit = alter(
        orders,
        RenameColumn("at", "seen at"),
        DropColumn("tags"),
        ChangeType("id", "BIGINT"),
        ChangeType("price", "DECIMAL(9,4)"),
    )
    snapshot = orders.table("main.orders").snapshot()
    assert (commit.version, snapshot.version, commit.rows_inserted) == (nth(2), 2, 0)
    assert "written anew" in commit.reason and commit.files_added and commit.files_removed
    assert [(f.name, str(f.type), f.nullable) for f in snapshot.schema] == [
        ("id", "int64", False),
        ("day", "string", True),
        ("seen at", "timestamp[us]", True),
        ("price", "decimal128(9, 4)", True),
    ]
    assert snapshot.schema.field("id").metadata == {b"comment": b"the key"}
    assert snapshot.partition_columns == ("day",) and "delta.constraints.positive" in snapshot.properties
    assert rows_of(orders.scan("main.orders"), "id", "day", "price") == [
        (1, "mon", Decimal("1.0000")),
        (2, "mon", Decimal("2.0000")),
        (3, "a b/c", Decimal("3.0000")),
    ]
    assert rows_of(orders.table("main.orders").toDF(version=nth(1)), "id", "tags") == [(1, []), (2, ["x"]), (3, None)]


@pytest.mark.only_format("delta", "what a DuckLake cannot be altered to is in tests/statements")
@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (AddColumn(ColumnSpec("ID", "INT")), SchemaMismatch, "'id'"),
        (AddColumn(ColumnSpec("n", "INT", nullable=False)), SchemaMismatch, "n is to be NOT NULL, and 3 rows"),
        (AddCheck("few", "id < 3"), SchemaMismatch, "few.*1 rows"),
        (AddCheck("known", "at > TIMESTAMP '1900-01-01'"), SchemaMismatch, "known.*1 rows"),
        (AddCheck("odd", "nothing > 1"), InvalidConfig, "nothing, which is no column"),
        (SetNotNull("at"), SchemaMismatch, "at is to be NOT NULL, and 1 rows"),
        (ChangeType("id", "SMALLINT"), SchemaMismatch, "bigint, double, decimal"),
        (DropColumn("price"), InvalidConfig, "positive"),
        (RenameColumn("id", "key"), InvalidConfig, "sort order"),
        (DropColumn("day"), InvalidConfig, "partitioning"),
        (DropColumn("nothing"), SchemaMismatch, "the columns are id, day"),
        (DropCheck("nothing"), InvalidConfig, "positive"),
        (SetProperties({"delta.logRetentionDuration": "long"}), InvalidConfig, "'long'"),
        (SetProperties({"delta.constraints.x": "true"}), InvalidConfig, "constraint"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Change) else "",
)
def test_what_cannot_be_altered_is_said_and_leaves_the_table_as_it_was(
    duck_orders: Session, change: Change, error: type[Exception], says: str
) -> None:
    files = sorted(p for p in Path(duck_orders.lake.root).rglob("*.parquet"))
    with pytest.raises(error, match=rf"(?s)main\.orders.*{says}"):
        alter(duck_orders, SetComment("half"), change)
    snapshot = duck_orders.table("main.orders").snapshot()
    assert (snapshot.version, snapshot.description) == (nth(1), "what was bought")
    assert sorted(p for p in Path(duck_orders.lake.root).rglob("*.parquet")) == files


@pytest.mark.only_format("delta", "CHECK constraints")
def test_rows_that_break_what_is_asked_are_counted(orders: Session) -> None:
    for change, says in ((AddCheck("few", "id < 3"), "few.*1 rows"), (SetNotNull("at"), "NOT NULL, and 1 rows")):
        with pytest.raises(SchemaMismatch, match=rf"(?s)main\.orders.*{says}"):
            alter(orders, SetComment("half"), change)
    assert orders.table("main.orders").snapshot().version == nth(1)


def test_an_alteration_that_changes_nothing_makes_no_commit(duck_orders: Session) -> None:
    owner = [SetProperties({"owner": "us"})] if lake.FORMAT == "delta" else []
    commit = alter(duck_orders, SetNotNull("id"), *owner, ChangeType("id", "INTEGER"))
    assert (commit.version, commit.writer) == (nth(1), "none")


def test_an_alteration_happens_once(duck_orders: Session) -> None:
    add = AddColumn(ColumnSpec("n", "BIGINT"))
    first = alter(duck_orders, add, app=AppTransaction("alter/orders"))
    again = alter(duck_orders, add, app=AppTransaction("alter/orders"))
    assert (first.version, again.version, again.replayed) == (nth(2), nth(2), True)


def test_a_table_that_is_not_there_has_near_names(duck_orders: Session) -> None:
    with pytest.raises(TableNotFound, match=r"main\.orders"):
        duck_orders.execute("main.order", AlterSpec((DropColumn("id"),)))


def test_a_version_or_a_time_comes_back(duck_orders: Session) -> None:
    alter(duck_orders, DropColumn("tags"))
    assert duck_orders.execute("main.orders", RestoreSpec(version=nth(1))).version == nth(3)
    assert duck_orders.table("main.orders").snapshot().schema.names == ROWS.column_names
    moment = duck_orders.table("main.orders").history()[-1]["timestamp"]
    when = datetime.fromtimestamp(moment / 1000, UTC).isoformat()
    assert duck_orders.execute("main.orders", RestoreSpec(timestamp=when)).version == nth(4)
    assert duck_orders.scan("main.orders").count() == 0


@pytest.mark.lacks_format("ducklake", UnsupportedFeature, "files are adopted, or copied")
def test_a_folder_of_parquet_becomes_a_table_as_it_is(duck: Session, root: Path) -> None:
    folder = root / "main" / "files"
    for day in ("2026-01-01", "2026-01-02"):
        (folder / f"day={day}").mkdir(parents=True)
        pq.write_table(pa.table({"n": [1, 2], "x": [float("nan"), 1.0]}), folder / f"day={day}" / "some.parquet")
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*.parquet")}
    with pytest.raises(InvalidConfig, match=r"(?s)main\.files.*day="):
        duck.execute("main.files", ConvertSpec())
    commit = duck.execute("main.files", ConvertSpec((ColumnSpec("day", "DATE"),)))
    assert (commit.version, commit.files_added, commit.mode) == (nth(0), 2, "convert")
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*.parquet")} == before
    assert str(duck.table("main.files").snapshot().schema.field("day").type) == "date32[day]"
    assert duck.scan("main.files").count() == 4
    with pytest.raises(CommitConflict, match=r"main\.files"):
        duck.execute("main.files", ConvertSpec((ColumnSpec("day", "DATE"),)))


@pytest.mark.lacks_format("ducklake", UnsupportedFeature, "files are adopted, or copied")
def test_a_folder_with_other_files_does_not_become_a_table(duck: Session, root: Path) -> None:
    folder = root / "main" / "files"
    folder.mkdir(parents=True)
    with pytest.raises(StorageError, match=r"main\.files.*no Parquet file"):
        duck.execute("main.files", ConvertSpec())
    pq.write_table(pa.table({"n": [1]}), folder / "a.parquet")
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match=r"main\.files.*notes\.txt"):
        duck.execute("main.files", ConvertSpec())
    assert sorted(p.name for p in folder.iterdir()) == ["a.parquet", "notes.txt"]


@pytest.mark.spark
def test_what_one_engine_made_and_altered_the_other_reads_and_alters(duck: Session, spark: Any) -> None:
    import duckrun

    duck.execute("main.orders", ORDERS)
    with duckrun.connect(duck.lake.root, engine="spark", spark=spark) as other:
        other.execute("main.orders", WriteSpec("append"), ROWS)
        alter(other, RenameColumn("at", "seen"), ChangeType("id", "BIGINT"))
        alter(duck, DropColumn("tags"), AddColumn(ColumnSpec("n", "BIGINT")))
        assert rows_of(other.scan("main.orders")) == rows_of(duck.scan("main.orders"))
        assert (
            other.scan("main.orders").columns == duck.scan("main.orders").columns == ["id", "day", "seen", "price", "n"]
        )


@pytest.mark.spark
def test_a_table_with_column_mapping_is_altered_by_both_engines(duck: Session, spark: Any) -> None:
    import duckrun

    duck.execute("main.orders", CreateSpec((ColumnSpec("id", "INT"), ColumnSpec("old", "INT"))))
    mapped = SetProperties({"delta.columnMapping.mode": "name"})
    with duckrun.connect(duck.lake.root, engine="spark", spark=spark) as other:
        assert "Spark's own statement" in alter(other, mapped).reason
        other.execute(
            "main.orders",
            WriteSpec("append"),
            pa.table({"id": pa.array([1], pa.int32()), "old": pa.array([2], pa.int32())}),
        )
        files = other.table("main.orders").snapshot().files()
        assert alter(other, RenameColumn("old", "new")).files_added == 0
        assert other.table("main.orders").snapshot().files() == files
        assert rows_of(other.scan("main.orders"), "new") == [(2,)]
        assert alter(duck, RenameColumn("new", "a b")).files_added == 0
        assert rows_of(duck.scan("main.orders"), "a b") == rows_of(other.scan("main.orders"), "a b") == [(2,)]
        assert alter(duck, DropColumn("a b")).files_added == 0
        assert rows_of(duck.scan("main.orders")) == rows_of(other.scan("main.orders")) == [(1,)]
        assert duck.table("main.orders").snapshot().files() == files


_COMPUTED = {
    "a default": ("id int, qty int default 3", 3),
    "a generated column": ("id int not null, g int generated always as (id * 2)", 14),
    "an identity column": ("id int, n bigint generated always as identity (start with 5)", 5),
}


@pytest.mark.only_format("delta", "it has computed columns")
@pytest.mark.parametrize("before", ["another table", "the same table"])
@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
@pytest.mark.parametrize("what", _COMPUTED)
def test_a_table_with_rows_is_replaced_by_one_with_computed_columns(
    session: Session, what: str, dialect: str, before: str
) -> None:
    columns, value = _COMPUTED[what]
    session.sql(
        "create table main.t as select 1 as a, 'x' as b"
        if before != "the same table"
        else f"create table main.t ({columns})"
    )
    session.sql(
        "insert into main.t values (2, 'y')" if before != "the same table" else "insert into main.t (id) values (1)"
    )
    commit = session.sql(f"create or replace table main.t ({columns})", dialect=dialect)
    assert isinstance(commit, Commit) and (commit.version, session.table("main.t").toDF().count()) == (nth(2), 0)
    session.sql("insert into main.t (id) values (7)")
    assert rows_of(session.scan("main.t")) == [(7, value)]
    assert session.table("main.t").toDF(version=nth(1)).count() == (1 if before == "the same table" else 2)


@pytest.mark.only_format("delta", "it has computed columns")
def test_a_replacement_that_fails_leaves_the_table(session: Session) -> None:
    session.sql("create table main.t as select 1 as a")
    with pytest.raises(DuckrunError):
        session.sql("create or replace table main.t (id int, g int generated always as (nothing * 2))")
    assert (session.table("main.t").snapshot().version, rows_of(session.scan("main.t"))) == (nth(0), [(1,)])


@pytest.mark.spark
@pytest.mark.only_format("delta", "it is about Spark's own statement")
@pytest.mark.parametrize("columns", ["id int, q int", "id int, qty int"])
def test_a_clustered_table_is_replaced_without_its_rows(root: Path, spark: Any, columns: str) -> None:
    import duckrun

    with duckrun.connect(root, engine="spark", spark=spark) as session:
        session.sql(
            "create table main.t (id int, qty int) cluster by (id); insert into main.t values (1, 2)", dialect="spark"
        )
        commit = session.sql(f"create or replace table main.t ({columns}) cluster by (id)", dialect="spark")
        assert isinstance(commit, Commit) and (commit.version, rows_of(session.scan("main.t"))) == (nth(2), [])
        assert not [table for table in spark.catalog.listTables() if table.name.startswith("__duckrun_")]
