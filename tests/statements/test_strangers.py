"""Statements as other people write them, compared with DuckDB's own on native tables."""

from __future__ import annotations

import duckdb
import pytest

from duckrun import UnsupportedFeature
from duckrun.session import Session
from tests.lake import rows_of

TABLES = """
create table t (id bigint, v varchar, q int);
insert into t values (1, 'a', 1), (2, 'b', 2);
create table src as select 2::bigint as id, 'z' as v, 9 as q union all select 3, 'y', 8
"""
BOTH = "select id, v, q from t union all select id, v, q from src"
INSERTS = [
    "insert into t from src where id = 3",
    "insert into t (from src where id = 3)",
    "insert into t (select * from src where id = 3)",
    "insert into t (id, v) (from src select id, v)",
    "insert into t (values (3, 'q', 1), ('4', 5, 6))",
    "insert into t values (3, 'q', 1), (4, true, 7)",
    "insert into t values (3, date '2020-01-01', 1), (4, 3.50, null)",
    "insert into t (v, id) values (1, 3), ('x', '4'), (2.50, 5.0), (default, 6)",
    "insert into t values (3, 1, 1), (4, 1.5, 1)",
    "with a as (select 5 as id) insert into t (from a select id, 'it''s', 2)",
]
CHANGES = [
    "with a as (select 1 as i) update t set v = 'w' where id in (select i from a)",
    "with a as (select 1 as i), b as (select i + 1 as i from a) update t set v = (select max(i) from b) "
    "where exists (select 1 from a where a.i = t.id)",
    "with a as (select 1 as i) update t set q = (with c as (select i + 4 as i from a) select max(i) from c)",
    "with t as (select id + 1 as id from t) delete from src where id in (select id from t)",
    "with recursive a as (select 1 as i union all select i + 1 from a where i < 2) delete from t "
    "where id in (select i from a where i > 1)",
    "with a as (select 1 as i) delete from t where ((select max(i) from a) = id) -- the first",
    "with a as (select 1 as i) delete from t where id = 2",
]
OVER_BOTH_SIDES = [
    "with a as (select 2 as i) delete from t using src s where s.id = t.id and t.id in (select i from a)",
    "with src as (select 1 as id) update t set v = s.v from (select 2 as id, 'k' as v) s where s.id = t.id "
    "and exists (select 1 from src where src.id < t.id)",
    "with src as (select 2 as id, 5 as k) merge into t using src on t.id = src.id "
    "when matched and exists (select 1 from src where k = 5) then update set q = (select max(k) from src)",
    "merge into t using src on t.id = src.id when matched then update set q = (select max(q) from src) + t.q, v = src.v "
    "when not matched then insert (id, q) values (src.id, (select count(*) from t))",
]


def expected(text: str) -> list[tuple[object, ...]]:
    native = duckdb.connect()
    native.execute(TABLES)
    native.execute(text)
    return sorted(native.execute(BOTH).fetchall(), key=repr)


@pytest.mark.drawn(4)
@pytest.mark.parametrize("text", [*INSERTS, *CHANGES])
def test_a_statement_does_what_it_does_in_duckdb(session: Session, text: str) -> None:
    session.sql(TABLES)
    session.sql(text)
    assert rows_of(session.sql(BOTH)) == expected(text)


@pytest.mark.parametrize("text", OVER_BOTH_SIDES)
def test_a_subquery_over_both_sides_knows_the_common_tables(duck: Session, text: str) -> None:
    duck.sql(TABLES)
    duck.sql(text)
    assert rows_of(duck.sql(BOTH)) == expected(text)


@pytest.mark.parametrize("text", OVER_BOTH_SIDES)
@pytest.mark.parametrize("engine", [pytest.param("spark", marks=pytest.mark.spark)])
def test_a_subquery_over_both_sides_is_refused_by_spark(session: Session, text: str) -> None:
    session.sql(TABLES)
    with pytest.raises(UnsupportedFeature, match="put it into the"):
        session.sql(text)
    assert session.table("t").snapshot().version == 1
