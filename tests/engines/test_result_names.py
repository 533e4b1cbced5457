"""Two result columns of one name: no table takes them, positions do, and a result shows both; none is lost without a word."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest

import duckrun
from duckrun import SchemaMismatch, WriteSpec
from duckrun.session import Session
from tests.lake import nth, rows_of

pytestmark = pytest.mark.formats

QUERIES = (
    "select 1 as a, 2 as a",
    "select 1 as a, 2 as b, 3 as a, 4 as a",
    "select * from (select 1 as a) x, (select 2 as a, 3 as a_1) y",
)
WRITES = {
    "create table as": lambda s, query: s.sql(f"create table main.t as {query}"),
    "saveAsTable": lambda s, query: s.sql(query).write.saveAsTable("main.t"),
    "SQL": lambda s, query: s.execute("main.t", WriteSpec("error"), duckrun.SQL(query, "duckdb")),
    "Frame": lambda s, query: s.execute("main.t", WriteSpec("error"), s.sql(query)),
}  # fmt: skip


@pytest.mark.parametrize("way", WRITES)
def test_a_new_table_has_each_name_once_or_there_is_none(session: Session, way: str) -> None:
    for query in QUERIES:
        with pytest.raises(SchemaMismatch, match=r"main\.t.*'a'"):
            WRITES[way](session, query)
    assert session.tables() == []


@pytest.mark.parametrize("way", WRITES)
def test_names_that_differ_in_case_only_are_refused(session: Session, way: str) -> None:
    with pytest.raises(SchemaMismatch, match=r"main\.t.*case only"):
        WRITES[way](session, 'select 1 as a, 2 as "A"')
    assert session.tables() == []


def test_rows_go_into_a_table_by_position_whatever_their_names_are(session: Session) -> None:
    session.execute(
        "main.t", WriteSpec("error"), pa.table({"x": pa.array([], pa.int32()), "y": pa.array([], pa.int32())})
    )
    session.sql("insert into main.t select 1 as a, 2 as a")
    session.sql("select 3 as a, 4 as a").write.insertInto("main.t")
    session.sql('select 5 as a, 6 as "A"').write.insertInto("main.t")
    assert sorted(rows_of(session.scan("main.t"))) == [(1, 2), (3, 4), (5, 6)]


def test_an_append_by_name_refuses_a_name_that_is_there_twice(session: Session) -> None:
    session.execute("main.t", WriteSpec("error"), pa.table({"a": pa.array([], pa.int32())}))
    for query in ("select 1 as a, 2 as a", 'select 1 as a, 2 as "A"'):
        for mode in ("append", "overwrite") if session.engine.name == "spark" else ("append",):
            with pytest.raises(SchemaMismatch, match=r"main\.t"):
                session.execute("main.t", WriteSpec(mode), session.sql(query))
    assert session.lake.snapshot(session.lake.parse("main.t")).version == nth(0)


def test_a_name_for_a_result_holds_both_columns(duck: Session) -> None:
    duck.register("twice", duck.sql("select 1 as a, 2 as a"))
    assert duck.sql("select * from twice").collect() == [{"a": 1, "a_1": 2}]
    assert duck.sql("select 1 as a, 2 as a").collect() == [{"a": 1, "a_1": 2}]
    duck.sql("create temp table kept as select 1 as a, 2 as a")
    assert duck.sql("select a_1 from kept").collect() == [{"a_1": 2}]


UNNAMED = [
    "select (select max(x) from t), x + 1, exists(select 1 from t) from t",
    'select (select max(a.x) from t a, "odd t" b where a.x = b.x), (select max(x) from main.t as u)',
    "select * from (select (select max(x) from t) from t)",
    "with q as (select (select max(x) from t)) from q",
    "select x in (select x from t) from t",
    "select (select max(x) from v)",
    'select x, (select sum(x) from t z where z.x = t.x) from t join "odd t" o using (x)',
    "select (select count(*) from (select * from t) q), array(select x from t)",
]


@pytest.mark.parametrize("query", UNNAMED)
def test_an_expression_over_a_table_has_the_name_that_duckdb_gives_it(duck: Session, query: str) -> None:
    plain = duckdb.connect()
    for run in (duck.sql, plain.execute):
        run("create table t as select 1 as x")
        run('create table "odd t" as select 1 as x')
        run("create view v as select x from t")
    assert duck.sql(query).columns == plain.sql(query).columns
    duck.sql(f"create table made as {query}")
    assert duck.scan("main.made").columns == plain.sql(query).columns


GENERATED = [
    'select "max(a.t.id)" from (select max(a.t.id) from a.t)',
    'with c as (select max(a.t.id) from a.t), d as (select "max(a.t.id)" + 1 from c) from d',
    'select "(SELECT max(id) FROM a.t)" from (select (select max(id) from a.t))',
    'select "max(a.t.id)" from (select max(a.t.id) from a.t union all select max(b.t.id) from b.t) order by 1',
    "from (select max(a.t.id) from a.t union by name select max(b.t.id), max(a.t.id) from a.t, b.t)",
    'select * exclude ("max(memory.a.t.id)") from (select max(memory.a.t.id), 1 as one from memory.a.t)',
    'select a.t.id, s."max(b.t.id)" from a.t, lateral (select max(b.t.id) from b.t where b.t.id <= a.t.id) s',
    'from (pivot (select max(a.t.id), a.t.x from a.t group by all) on x using max("max(a.t.id)"))',
    'select "CAST(max(a.t.id) AS ""DATE"")" from (select max(a.t.id)::date from a.t where false)',
    "from (select a.t.id is not distinct from 1, (a.t.id), a.t.x q, r: a.t.id + 1, count(*) over () from a.t)",
    "from (select distinct on (a.t.id > 1) a.t.id + 1 from a.t order by a.t.id)",
    "from (select a.t.id::decimal(10, 2), (a.t.id * interval 1 day)::varchar, list_transform([1], lambda i: i + a.t.id) from a.t)",
    'select exists (select 1 from (select max(a.t.id) from a.t) where "max(a.t.id)" > 1), (select max(a.t.id) from a.t)',
    'select "max(a.t.id)", "(SELECT min(id) FROM a.t)" from seen',
    'select "max(a.t.id)", "count_star()" from passing',
]
"""Queries that name a column of an inner query by its expression, which holds the schema of a table."""
CHANGES = [
    'update b.t set y = s."max(a.t.x)" from (select max(a.t.x), max(a.t.id) from a.t) s where s."max(a.t.id)" = b.t.id',
    'delete from b.t where id in (select "min(a.t.id)" + 1 from (select min(a.t.id) from a.t))',
    'merge into b.t using (select max(a.t.id), min(a.t.x) from a.t) s on b.t.id = s."max(a.t.id)" when matched then '
    'update set y = s."min(a.t.x)"',
    "insert into b.t by name select * from (select a.t.id, max(a.t.x) as y from a.t group by all)",
    'create table b.made as select "max(a.t.id)" + 1, s.* from (select max(a.t.id), (select min(id) from a.t) from a.t) s',
]


@pytest.fixture
def both(duck: Session) -> tuple[Session, duckdb.DuckDBPyConnection]:
    plain = duckdb.connect()
    for run in (duck.sql, plain.execute):
        run("create schema a")
        run("create schema b")
        run("create table a.t as select i as id, 'a' || i as x from range(1, 4) r(i)")
        run("create table b.t as select i as id, 'b' || i as y from range(2, 5) r(i)")
        run("create view seen as select max(a.t.id), (select min(id) from a.t) from a.t")
        run("create temp view passing as select max(a.t.id), count(*) from a.t")
    return duck, plain


def test_an_outer_query_names_a_column_of_an_inner_one_as_duckdb_does(
    both: tuple[Session, duckdb.DuckDBPyConnection],
) -> None:
    for query in GENERATED:
        ours, theirs = both[0].sql(query), both[1].sql(query)
        assert ours.columns == theirs.columns, query
        assert sorted(map(str, rows_of(ours))) == sorted(map(str, theirs.fetchall())), query


def test_a_change_names_a_column_of_its_source_as_duckdb_does(both: tuple[Session, duckdb.DuckDBPyConnection]) -> None:
    for change in CHANGES:
        for run in (both[0].sql, both[1].execute):
            run(change)
        for table in ("b.t", *(["b.made"] if "made" in change else [])):
            ours, theirs = both[0].sql(f"from {table}"), both[1].sql(f"from {table}")
            assert (ours.columns, sorted(rows_of(ours))) == (theirs.columns, sorted(theirs.fetchall())), change


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("update t set x = 9 where v in (select v from given)", [(1, "a"), (9, "b")]),
        ("update t set x = (select count(*) from given) + 5 where v = 'a'", [(2, "b"), (6, "a")]),
        ("delete from t where v in (select v from given)", [(1, "a")]),
    ],
)
def test_a_change_of_rows_reads_values_of_the_session(duck: Session, statement: str, expected: list[Any]) -> None:
    duck.sql("create table t as select 1 as x, 'a' as v union all select 2, 'b'")
    duck.register("given", pa.table({"v": ["b"]}))
    duck.sql(statement)
    assert sorted(rows_of(duck.scan("t"))) == expected
