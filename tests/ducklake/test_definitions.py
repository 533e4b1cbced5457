"""What tables of a DuckLake are, said in SQL: partitions, order, fields of structs, NOT NULL, defaults; read again by plain DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import duckrun
from duckrun import DuckrunError, InvalidConfig, SchemaMismatch, Session, TableNotFound, UnsupportedFeature
from tests.ducklake.plain import attached

pytestmark = pytest.mark.drawn(3)  # most of them make several commits of a DuckLake, a tenth of a second each


def rows(session: Session, query: str, dialect: str = "duckdb") -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in session.sql(query, dialect=dialect).collect()]


def newest(session: Session) -> int:
    return int(session.snapshots(1)[0]["snapshot_id"])


def layout(session: Session, name: str) -> tuple[list[str], list[str]]:
    detail = session.table(name).detail()
    return detail["partitionColumns"], detail["sortColumns"]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A lake whose table nothing may change."""
    with duckrun.connect(tmp_path_factory.mktemp("held"), format="ducklake") as session:
        session.sql(
            "create table t (id int, item varchar, big bigint, s struct(a int, b varchar), one struct(a int), l struct(a int)[]); "
            "insert into t (item) values (null)"
        )
        yield session


KEYS = "year(at), month(at), day(at), hour(at), bucket(16, id), kind"


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
def test_partitions_by_transforms_are_said_in_both_dialects(lake: Session, root: Path, dialect: str) -> None:
    said = KEYS if dialect == "duckdb" else KEYS.replace("year(", "years(").replace("hour(", "hours(")
    lake.sql(f"create table t (id int, kind string, at timestamp) partitioned by ({said})", dialect=dialect)
    lake.sql(f"create table u partitioned by ({said}) as select * from t", dialect=dialect)
    lake.sql(
        "insert into t select range, 'k' || range % 2, timestamp '2024-01-31 23:00:00' + interval (range) hour from range(4)"
    )
    for name in ("t", "u"):
        assert layout(lake, name)[0] == KEYS.split(", ")[:4] + ["bucket(16, id)", "kind"]
    with attached(root) as plain:
        files = plain.execute("select data_file from ducklake_list_files('lake', 't')").fetchall()
        assert any("/year=2024/month=2/day=1/hour=0/" in file for (file,) in files)
        assert plain.execute("select count(*) from lake.t where \"at\" >= '2024-02-01'").fetchall() == [(3,)]


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
def test_partitions_and_order_change_and_end_by_alter(lake: Session, root: Path, dialect: str) -> None:
    lake.sql("create table t (\"my id\" int, at date, kind varchar); insert into t values (1, date '2024-01-01', 'a')")
    quoted = '"my id"' if dialect == "duckdb" else "`my id`"
    for words, partitions, order in (
        (f"set partitioned by (bucket(4, {quoted}), month(at))", ["bucket(4, my id)", "month(at)"], []),
        ("set sorted by (kind, at asc)", ["bucket(4, my id)", "month(at)"], ["kind", "at"]),
        ("set partitioned by (kind)", ["kind"], ["kind", "at"]),
        ("reset partitioned by", [], ["kind", "at"]),
        ("reset sorted by", [], []),
    ):
        lake.sql(f"alter table t {words}", dialect=dialect)
        assert layout(lake, "t") == (partitions, order)
    made = newest(lake)
    lake.sql(
        "alter table if exists t reset sorted by; alter table if exists none set partitioned by (x)", dialect=dialect
    )
    assert newest(lake) == made  # nothing is left to change
    lake.sql("alter table t set sorted by (KIND); alter table t set partitioned by (year(AT))", dialect=dialect)
    lake.sql("insert into t values (2, date '2025-01-01', 'b')")
    with attached(root) as plain:
        files = plain.execute("select data_file from ducklake_list_files('lake', 't')").fetchall()
        assert sum("/year=2025/" in file for (file,) in files) == 1 and len(files) == 2
        assert plain.execute(
            "select expression from __ducklake_metadata_lake.ducklake_sort_expression order by sort_id desc"
        ).fetchone() == ("kind",)


def test_partitions_and_order_follow_a_column_that_is_renamed(lake: Session, root: Path) -> None:
    lake.sql("create table t (id int, at date) partitioned by (year(at), id) sorted by (at)")
    lake.sql("alter table t rename column at to day; alter table t rename column id to number")
    lake.sql("insert into t values (1, date '2024-01-01')")
    assert layout(lake, "t") == (["year(day)", "number"], ["day"])
    with attached(root) as plain:
        assert plain.execute("from lake.t").fetchall()[0][0] == 1


FIELDS = "struct(a integer, b varchar)"


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        (FIELDS, "s", "{'a': 1, 'b': 'x'}"),
        (f"{FIELDS}[]", "s.element", "[{'a': 1, 'b': 'x'}]"),
        (f"map(varchar, {FIELDS})", "s.value", "map {'k': {'a': 1, 'b': 'x'}}"),
        (f'struct("In ner" {FIELDS}[])', 's."in NER".element', "{'In ner': [{'a': 1, 'b': 'x'}]}"),
    ],
)
def test_fields_of_structs_are_added_dropped_renamed_and_widened(
    lake: Session, root: Path, kind: str, path: str, value: str
) -> None:
    lake.sql(f"create table t (id int, s {kind}); insert into t values (1, {value})")
    first = newest(lake)
    lake.sql(f"alter table t add column {path}.c date; alter table t rename column {path}.a to number")
    lake.sql(f"alter table t alter column {path}.number set data type bigint; alter table t drop column {path}.b")
    text = rows(lake, "select s::varchar from t")[0][0]
    assert isinstance(text, str) and "'number': 1, 'c': NULL" in text and "'b'" not in text
    changed = (
        kind.replace(FIELDS, 'STRUCT("number" BIGINT, c DATE)')
        .upper()
        .replace("IN NER", "In ner")
        .replace('"NUMBER"', '"number"')
    )
    with attached(root) as plain:
        assert plain.execute("select s from lake.t").fetchall()[0][0] is not None
        shown = plain.execute("select column_type from (describe lake.t) where column_name = 's'").fetchall()[0][0]
        assert shown.replace('"', "").lower() == changed.replace('"', "").lower()
        assert plain.execute(f"select s::varchar from lake.t at (version => {first})").fetchall()[0][0].count("x") == 1
    assert rows(lake, f"select s = {value} from t at (version => {first})") == [(True,)]
    lake.sql(f"alter table t add column {path}.b integer")  # another one of that name
    assert rows(lake, "select count(*) from t where s::varchar like '%x%'") == [(0,)]


def test_a_table_whose_fields_changed_is_restored_and_says_what_changed(lake: Session) -> None:
    lake.sql("create table t (id int, s struct(a int, b varchar), l struct(x int)[])")
    lake.sql("insert into t values (1, {'a': 1, 'b': 'u'}, [{'x': 1}]), (2, NULL, NULL)")
    then, was = newest(lake), rows(lake, "from t order by id")
    lake.sql(
        "alter table t rename column s.a to n; alter table t drop column s.b; alter table t alter column s.n type bigint"
    )
    lake.sql(
        "alter table t add column l.element.y int; insert into t values (3, {'n': 30000000000}, [{'x': 1, 'y': 2}])"
    )
    changes = lake.table("t").changes("min_delta", from_version=then, key="id").toArrow()
    assert changes.column("s").to_pylist() == [{"n": 30000000000}]
    lake.table("t").restoreToVersion(then)
    assert rows(lake, "from t order by id") == was
    assert lake.table("t").snapshot().sql_types == {
        "id": "INTEGER",
        "s": "STRUCT(a INTEGER, b VARCHAR)",
        "l": "STRUCT(x INTEGER)[]",
    }


def test_fields_are_named_in_sparks_dialect_too(lake: Session) -> None:
    lake.sql("create table t (s struct<a: int>)", dialect="spark")
    lake.sql("alter table t add columns (s.b string, extra array<struct<x: int>>)", dialect="spark")
    lake.sql("alter table t alter column s.a type bigint", dialect="spark")
    lake.sql("alter table t add column extra.element.y double", dialect="spark")
    lake.sql("alter table t drop columns (s.b)", dialect="spark")
    assert lake.table("t").snapshot().sql_types == {"s": "STRUCT(a BIGINT)", "extra": "STRUCT(x INTEGER, y DOUBLE)[]"}


def test_not_null_and_defaults_are_set_and_end(lake: Session, root: Path) -> None:
    lake.sql("create table t (id int, item varchar); insert into t values (1, 'fig')")
    lake.sql("alter table t alter column id set not null; alter table t add column n int default 3")
    lake.sql("alter table t alter column item set default 'none'")
    lake.sql("insert into t (id) values (2)")
    assert rows(lake, "from t order by id") == [(1, "fig", 3), (2, "none", 3)]
    with pytest.raises(DuckrunError, match="main.t"):
        lake.sql("insert into t values (NULL, 'x', 1)")
    lake.sql("alter table t alter column id drop not null; alter table t alter column item drop default")
    lake.sql("insert into t (n) values (9)")
    with attached(root) as plain:
        assert plain.execute("from lake.t where n = 9").fetchall() == [(None, None, 9)]


def test_tables_columns_and_views_have_comments(lake: Session, root: Path) -> None:
    lake.sql("create table t (id int comment 'its number', item varchar); comment on table t is 'what is sold'")
    lake.sql("create view v comment 'cheap ones' as select id from t; create view w as select id from t")
    lake.sql("comment on view w is 'it''s all'; comment on column t.item is 'as sold'; comment on column t.id is null")
    shown = "select table_name, TABLE_COMMENT from information_schema.tables where table_schema = 'main' order by 1"
    assert rows(lake, shown) == [("t", "what is sold"), ("v", "cheap ones"), ("w", "it's all")]
    with attached(root) as plain:
        assert plain.execute(
            "select view_name, comment from duckdb_views() where database_name = 'lake' order by 1"
        ).fetchall() == [("v", "cheap ones"), ("w", "it's all")]
        assert plain.execute(
            "select column_name, comment from duckdb_columns() where database_name = 'lake' and table_name = 't'"
        ).fetchall() == [("id", None), ("item", "as sold")]
        assert plain.execute("from lake.w").fetchall() == []
    made = newest(lake)
    lake.sql("comment on view w is 'it''s all'")
    assert newest(lake) == made
    lake.sql("comment on view v is null; comment on table t is null")
    assert rows(lake, shown) == [("t", None), ("v", None), ("w", "it's all")]
    with pytest.raises(InvalidConfig, match="is a table: COMMENT ON TABLE"):
        lake.sql("comment on view t is 'x'")
    with pytest.raises(TableNotFound, match=r"no view main\.vv"):
        lake.sql("comment on view vv is 'x'")


def test_not_null_that_ducklake_does_not_keep_is_refused(lake: Session) -> None:
    lake.sql(
        "create table t (id int); create table u as select 1 as id; alter table u add column n int; update u set n = 1"
    )
    made = newest(lake)
    for statement in (
        "alter table t alter column id set not null",  # it has had no rows
        "alter table u alter column n set not null",  # it came later
    ):
        with pytest.raises(InvalidConfig, match="CREATE OR REPLACE TABLE. Nothing was written"):
            lake.sql(statement)
    with pytest.raises(InvalidConfig, match="has NULL values"):
        lake.sql("begin; insert into u values (NULL, 2); alter table u alter column id set not null; commit")
    assert newest(lake) == made
    lake.sql("create or replace table u (id int not null, n int not null); insert into u values (1, 1)")
    with pytest.raises(DuckrunError):
        lake.sql("insert into u values (2, NULL)")


@pytest.mark.parametrize(
    ("statement", "error", "said"),
    [
        ("create table e (id int) partitioned by (truncate(3, id))", InvalidConfig, r"truncate\(\) is none of .* transforms, which are year, month"),
        ("alter table t set partitioned by (truncate(3, id))", InvalidConfig, r"truncate\(\) is none of"),
        ("alter table t set partitioned by (month(item))", InvalidConfig, "item is VARCHAR, which has no month"),
        ("create table e partitioned by (year(id)) as select 1 as id", InvalidConfig, "id is INTEGER, which has no year"),
        ("alter table t set partitioned by (bucket(0, id))", InvalidConfig, "is no bucket"),
        ("alter table t set partitioned by (bucket(id))", InvalidConfig, "is no bucket; write bucket"),
        ("alter table t set partitioned by (nothing)", InvalidConfig, "which is no column; there are id"),
        ("alter table t set partitioned by (id + 1)", UnsupportedFeature, "anything but names of columns and transforms"),
        ("alter table t set partitioned by (id, id)", InvalidConfig, "twice"),
        ("alter table t set sorted by (nothing)", SchemaMismatch, "no column 'nothing'"),
        ("alter table t set sorted by (id desc)", UnsupportedFeature, "ascending"),
        ("alter table t alter column big type integer", SchemaMismatch, "DuckLake only widens types"),
        ("alter table t alter column s.a type smallint", SchemaMismatch, "column s.a cannot become SMALLINT: DuckLake only widens"),
        ("alter table t alter column s type struct(a smallint, b varchar)", SchemaMismatch, "only widens"),
        ("alter table t alter column s.a set not null", UnsupportedFeature, "a field of a struct has a type and nothing else"),
        ("alter table t add column s.c int default 3", UnsupportedFeature, "with DEFAULT"),
        ("alter table t add column s.A int", SchemaMismatch, "there is a column 'a' already"),
        ("alter table t drop column s.none", SchemaMismatch, "no field 'none' in s; the fields are a, b"),
        ("alter table t drop column one.a", InvalidConfig, "last field of its struct: drop the column"),
        ("alter table t add column l.c int", SchemaMismatch, "l is a list.*named by l.element"),
        ("alter table t rename column id.x to y", SchemaMismatch, "id is INTEGER, which has no fields"),
        ("alter table t drop column if exists s.a", UnsupportedFeature, "IF EXISTS of a field"),
        ("alter table t add column n int not null default 3", SchemaMismatch, "overwrite the table with a SELECT"),
        ("alter table t alter column item set not null", InvalidConfig, "item"),
        ("alter table t add constraint c check (id > 0)", UnsupportedFeature, "no CHECK constraints.*asset|check the rows"),
        ("create table e (id int primary key)", UnsupportedFeature, "enforces keys: write by MERGE"),
        ("create table e (id int unique)", UnsupportedFeature, "enforces keys"),
        ("create table e (id int references t (id))", UnsupportedFeature, "relationships test"),
        ("create table e (id int, twice int generated always as (id * 2))", UnsupportedFeature, "generated column, which DuckLake does not have"),
        ("alter table t cluster by (id)", UnsupportedFeature, "a DuckLake table has sort_by"),
        ("create table e cluster by (id) as select 1 as id", UnsupportedFeature, "sort_by"),
        ("optimize t zorder by (id)", UnsupportedFeature, "no z-order"),
        ("vacuum t", UnsupportedFeature, r"expire snapshots of its lake \(expire\), then cleanup"),
        ("alter table t set tblproperties ('delta.appendOnly' = 'true')", InvalidConfig, "property of Delta tables.*leave it out"),
        ("create table e (x varchar collate nocase)", DuckrunError, "collat|COLLAT"),
        ("create table e (x bit)", SchemaMismatch, "cannot store"),
        ("create table e (x union(a int, b varchar))", DuckrunError, "cannot store|no type"),
        ("create table e (x struct(y integer[3]))", SchemaMismatch, "x.y.* cannot store; use a list"),
    ],
)  # fmt: skip
def test_what_no_table_can_be_is_refused_before_anything_is_written(
    held: Session, statement: str, error: type[Exception], said: str
) -> None:
    before, tables = newest(held), held.tables()
    with pytest.raises(error, match=said):
        held.sql(statement)
    assert (newest(held), held.tables()) == (before, tables)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            "create table e (id int, at date) partitioned by (year(at))",
            r"year\(at\) is a partition transform.*add a column with that value",
        ),
        ("create table e partitioned by (bucket(4, id)) as select 1 as id", "partition transform"),
        ("alter table t set partitioned by (id)", "CREATE OR REPLACE TABLE … PARTITIONED BY"),
        ("alter table t reset partitioned by", "CREATE OR REPLACE TABLE"),
        ("alter table t drop column s.a", r"'delta\.columnMapping\.mode'"),
        ("alter table t add column n int default 3", r"Add the column, then give it a default \(ALTER COLUMN"),
    ],
)
def test_words_of_ducklake_are_refused_on_a_delta_lake(tmp_path: Path, statement: str, said: str) -> None:
    with duckrun.connect(tmp_path) as delta:
        delta.sql("create table t as select 1 as id, {'a': 1, 'b': 2} as s")
        with pytest.raises(UnsupportedFeature, match=said):
            delta.sql(statement)
        assert delta.tables() == ["main.t"] and delta.table("t").snapshot().version == 0
        delta.sql("create view seen as select id from t; comment on view seen is 'the ids'")
        assert delta.lake.find("main", "seen")[1].comment == "the ids"  # type: ignore[union-attr]
        delta.sql("drop view seen; alter table t set sorted by (id)")  # Delta's tables have it too
        assert delta.table("t").snapshot().properties["duckrun.sortBy"] == '["id"]'
        delta.sql("alter table t reset sorted by")
        assert "duckrun.sortBy" not in delta.table("t").snapshot().properties
