"""information_schema: what DuckDB's own views of these names say of the same tables, on both engines."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from duckrun import InvalidConfig, MergeSpec, TableNotFound, UnsupportedFeature, WriteSpec
from duckrun.lake.lake import ViewDefinition
from duckrun.session import Session
from tests.lake import rows_of

pytestmark = pytest.mark.formats

COLUMNS = (
    "id integer not null, b decimal(12,3), c varchar, d double, e float, f smallint, g tinyint, h boolean, i timestamptz, "
    'j integer[], k struct(x integer, "y-z" varchar), l bigint, m date, n blob, o map(varchar, integer), p timestamp'
)
VIEWS = ("tables", "columns", "views", "schemata")
ASKED = {
    "columns": "table_schema, table_name, column_name, ordinal_position, column_default, is_nullable, data_type, numeric_precision, "
    "numeric_precision_radix, numeric_scale, COLUMN_COMMENT as said",
    "tables": "table_schema, table_name, table_type, is_insertable_into, is_typed, commit_action, TABLE_COMMENT as said",
    "views": "table_schema, table_name, check_option, is_updatable, is_insertable_into",
    "schemata": "schema_name",
}


def test_tables_views_and_columns_are_described_as_plain_duckdb_describes_them(session: Session) -> None:
    made = [
        "create schema sales",
        f"create table sales.orders ({COLUMNS})",
        'create table main."it\'s é" as select 1 as "a\\b", \'x\' as "c\'"',
        "comment on table sales.orders is 'why it''s there'",
        "comment on column sales.orders.b is 'a \\ b'",
    ]
    view = "create view sales.cheap as select id, b, c as d from sales.orders where b < 3"
    with duckdb.connect() as plain:
        for statement in (*made, view):
            plain.execute(statement)
        session.sql("; ".join((*made, view)))
        for name in VIEWS:
            catalog = "catalog_name" if name == "schemata" else "table_catalog"
            own = f"select {ASKED[name]} from information_schema.{name} where {catalog} = 'memory'"
            wanted = plain.sql(own).to_arrow_table()
            found = session.sql(f"select {ASKED[name]} from information_schema.{name}")
            assert rows_of(found) == rows_of(wanted), name
            whole = session.sql(f"select * from information_schema.{name}")
            described = plain.sql(f"describe select * from information_schema.{name}").fetchall()
            assert whole.columns == [column for column, *_ in described]
            if session.engine_name == "duckdb":
                assert [str(kind) for kind in whole.native.types] == [kind for _, kind, *_ in described]
    joined = session.sql(
        "select t.table_name, count(*) as n from information_schema.tables t join lake.information_schema.columns c "
        "using (table_schema, table_name) where t.table_type = 'BASE TABLE' and c.table_name in (select table_name from "
        "information_schema.tables) group by t.table_name"
    )
    assert rows_of(joined) == [("it's é", 2), ("orders", 16)]
    assert {(s, n) for s, n, _ in rows_of(session.sql("show tables"))} == set(
        rows_of(session.sql("select table_schema, table_name from information_schema.tables"))
    )


FUNCTIONS = {
    "duckdb_tables": "schema_name, table_name, comment, temporary",
    "duckdb_views": "schema_name, view_name, temporary",
    "duckdb_columns": "schema_name, table_name, column_name, column_index, is_nullable, data_type, numeric_precision, numeric_scale, comment",
    "duckdb_schemas": "schema_name",
}


def test_functions_of_duckdb_list_what_the_lake_has(duck: Session, tmp_path: Path) -> None:
    made = [
        "create schema sales",
        f"create table sales.orders ({COLUMNS})",
        "create table t as select 1 as id",
        "create view sales.cheap as select id, b from sales.orders",
        "comment on table sales.orders is 'why'",
    ]
    duck.sql("; ".join(made))
    with duckdb.connect() as plain:
        plain.execute("; ".join(made))
        for name, columns in FUNCTIONS.items():
            only = "where not internal and database_name not in ('system', 'temp')"
            wanted = plain.sql(f"select {columns} from {name}() {only}").to_arrow_table()
            assert rows_of(duck.sql(f"select {columns} from {name}() {only}")) == rows_of(wanted), name
            assert duck.sql(f"from {name}()").columns == plain.sql(f"from {name}()").columns
            internal = f"select count(*) from {name}() where internal and database_name in ('system', 'temp')"
            assert rows_of(duck.sql(internal)) == plain.sql(internal).fetchall(), name
    duck.sql("create temp table kept as select 'x' as w; create temp view seen as select 1 as n")
    temporary = "select {} from {}() where temporary and not internal order by 1"
    assert rows_of(duck.sql(temporary.format("table_name", "duckdb_tables"))) == [("kept",)]
    assert rows_of(duck.sql(temporary.format("view_name", "duckdb_views"))) == [("seen",)]
    joined = (
        "select t.schema_name, count(*) as n from duckdb_tables() as t join duckdb_columns() as c using (database_name, schema_name, table_name) "
        "where t.database_name = 'lake' and t.table_name in (select table_name from duckdb_tables()) group by all"
    )
    assert rows_of(duck.sql(joined)) == [("main", 1), ("sales", 16)]
    duck.attach(tmp_path / "other", name="ref", format=duck.lake.format.name)
    duck.sql("create table ref.far as select 2 as n; create table listed as select table_name from duckdb_tables()")
    assert rows_of(duck.sql("from listed")) == [("far",), ("kept",), ("orders",), ("t",)]


@pytest.mark.only_format("delta", "the other lake is deltalake's")
def test_what_is_listed_is_what_this_session_sees_and_nothing_of_the_engine(duck: Session, tmp_path: Path) -> None:
    duck.sql(
        "create table main.t as select 1 as n; create temp view seen as select n + 1.5 as m from t; create schema empty"
    )
    duck.sql("create temp table kept as select 'x' as w; select * from t join seen on true").toArrow()
    duck.register("given", duck.sql("select true as yes").toArrow())
    write_deltalake(tmp_path / "other" / "main" / "far", duck.sql("select 2 as n").toArrow())
    duck.attach(tmp_path / "other", name="ref")
    places = rows_of(
        duck.sql("select table_catalog, table_schema, table_name, table_type from information_schema.tables")
    )
    assert places == [
        ("lake", "main", "t", "BASE TABLE"), ("ref", "main", "far", "BASE TABLE"), ("temp", "main", "given", "VIEW"),
        ("temp", "main", "kept", "LOCAL TEMPORARY"), ("temp", "main", "seen", "VIEW"),
    ]  # fmt: skip
    types = rows_of(duck.sql("select table_name, column_name, data_type from Information_Schema.COLUMNS"))
    assert types == [
        ("far", "n", "INTEGER"), ("given", "yes", "BOOLEAN"), ("kept", "w", "VARCHAR"), ("seen", "m", "DECIMAL(12,1)"),
        ("t", "n", "INTEGER"),
    ]  # fmt: skip
    assert rows_of(duck.sql("select table_name from ref.information_schema.tables")) == [("far",)]
    assert rows_of(duck.sql("select table_catalog, table_name from memory.information_schema.tables")) == [
        ("memory", "t")
    ]
    assert rows_of(duck.sql("select catalog_name, schema_name from information_schema.schemata")) == [
        ("lake", "empty"), ("lake", "main"), ("ref", "main"),
    ]  # fmt: skip
    listed = duck.sql("select table_name from lake.information_schema.tables")
    duck.sql("create table u as select table_name from information_schema.tables where table_catalog = 'lake'")
    assert rows_of(listed) == rows_of(duck.sql("from u")) == [("t",)]  # a frame is what was there when it was asked for
    counted = duck.sql("select (select count(*) from lake.information_schema.tables), 1 as n")
    assert counted.columns == ['(SELECT count_star() FROM lake.information_schema."tables")', "n"]
    duck.lake.put_definition(duck.lake.parse("main.lost"), ViewDefinition("select * from gone", reads=("main.gone",)))
    duck.lake.put_definition(duck.lake.parse("main.bare"), ViewDefinition("select n from t", reads=("main.t",)))
    of_views = "select table_name, column_name from information_schema.columns where table_name in ('lost', 'bare')"
    assert rows_of(duck.sql(of_views)) == [("bare", "n")]


@pytest.mark.parametrize(
    ("statement", "kind", "said"),
    [
        ("select * from information_schema.tabels", TableNotFound, "Did you mean 'tables'.*schemata"),
        ("select * from information_schema.tables at (version => 1)", InvalidConfig, "a list of what is there"),
        ("create view v as select * from information_schema.tables", UnsupportedFeature, "View main.v reads"),
        ("create view v as select * from duckdb_tables()", UnsupportedFeature, "View main.v reads duckdb_tables"),
        ("create table information_schema.t as select 1 as n", InvalidConfig, "is computed, and is not written"),
        ("delete from lake.information_schema.tables", InvalidConfig, "is computed, and is not written"),
        ("drop table information_schema.tables", InvalidConfig, "is computed, and is not written"),
        ("create view information_schema.v as select 1 as n", InvalidConfig, "is computed, and is not written"),
    ],
)
def test_what_it_does_not_take_is_said(duck: Session, statement: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        duck.sql(statement)
    assert duck.tables() == [] and not Path(duck.lake.root, "information_schema").exists()


def test_no_write_makes_a_schema_of_its_name(duck: Session) -> None:
    """SQL would read the lists in its place, and the rows could not be read again."""
    rows = pa.table({"n": [1]})
    duck.execute("t", WriteSpec("append"), rows)
    for write in (
        lambda: duck.execute("Information_Schema.t", WriteSpec("append"), rows),
        lambda: duck.execute("information_schema.t", MergeSpec(keys=("n",)), rows),
        lambda: duck.sql("alter table t rename to information_schema.t"),
    ):
        # A DuckLake renames within a schema only.
        with pytest.raises(
            (InvalidConfig, UnsupportedFeature), match="is computed, and is not written|within a schema"
        ):
            write()
    assert [*map(str, duck.tables())] == ["main.t"] and duck.lake.schemas() == ["main"]
