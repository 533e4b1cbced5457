"""Statements as other people write them, compared with DuckDB's own on native tables."""

from __future__ import annotations

import duckdb
import pytest

from duckrun import DuckrunError, UnsupportedFeature
from duckrun.session import Session
from tests.lake import nth, rows_of

pytestmark = pytest.mark.formats

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
_INTO = "merge into t using src on t.id = src.id "
_OTHER = "merge into t using (select 8 as q, 2 as id union all select 7, 5) src on t.id = src.id "
MERGES = [
    _INTO + "when matched then update when not matched then insert",
    _INTO + "when matched then do nothing",
    _INTO + "when not matched then do nothing when matched then delete",
    _INTO + "when not matched then insert by position",
    _INTO + "when matched and t.q < 0 then error 'no' when not matched then insert",
    _INTO
    + "when matched and src.q > 100 then do nothing when matched then update set v = case when t.q > 1 then 'y' end",
    _OTHER + "when matched then update by name when not matched then insert by name",
    "merge into t using src using (id) when not matched then insert values (src.id, default, 4)",
]
FAILING = [
    (_INTO + "when matched then error", "a row met WHEN MATCHED THEN ERROR"),
    (_INTO + "when matched then error 'no' || t.id", "WHEN MATCHED THEN ERROR: no2"),
    (_INTO + "when not matched by source then error 'gone'", "WHEN NOT MATCHED BY SOURCE THEN ERROR: gone"),
    (_INTO + "when matched then delete when not matched then error src.id", "WHEN NOT MATCHED THEN ERROR: 3"),
    (_OTHER + "when matched then update", r"it has 2 \(q, id\) for the table's 3 \(id, v, q\)"),
    (_OTHER.replace("as q", "as z") + "when matched then update by name", "the table has no z"),
    (_INTO + "when not matched by source then update", "no source row"),
    (_INTO + "when matched then insert", "MERGE … WHEN MATCHED THEN insert"),
    (_INTO + "when matched then delete returning *", "MERGE … RETURNING"),
]
OVER_BOTH_SIDES = [
    "with a as (select 2 as i) delete from t using src s where s.id = t.id and t.id in (select i from a)",
    "with src as (select 1 as id) update t set v = s.v from (select 2 as id, 'k' as v) s where s.id = t.id "
    "and exists (select 1 from src where src.id < t.id)",
    "with src as (select 2 as id, 5 as k) merge into t using src on t.id = src.id "
    "when matched and exists (select 1 from src where k = 5) then update set q = (select max(k) from src)",
    _INTO + "when matched and (select true) then update",
    "merge into t using src on t.id = src.id when matched then update set q = (select max(q) from src) + t.q, v = src.v "
    "when not matched then insert (id, q) values (src.id, (select count(*) from t))",
]


def expected(text: str) -> list[tuple[object, ...]]:
    native = duckdb.connect()
    native.execute(TABLES)
    native.execute(text)
    return sorted(native.execute(BOTH).fetchall(), key=repr)


@pytest.mark.drawn(4)
@pytest.mark.parametrize("text", [*INSERTS, *CHANGES, *MERGES])
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
    assert session.table("t").snapshot().version == nth(1)


@pytest.mark.drawn(3)
@pytest.mark.parametrize(("text", "words"), FAILING)
def test_a_merge_that_fails_leaves_the_table_as_it_was(session: Session, text: str, words: str) -> None:
    session.sql(TABLES)
    with pytest.raises(DuckrunError, match=words):
        session.sql(text)
    assert session.table("t").snapshot().version == nth(1)


@pytest.mark.parametrize("action", ["set *; insert *", "by name; insert by name"])
def test_schema_evolution_adds_what_the_source_has_more(session: Session, action: str) -> None:
    session.sql(TABLES)
    update, insert = action.split("; ")
    session.sql(
        "merge with schema evolution into t using (select *, true as sold from src) s on t.id = s.id "
        f"when matched then update {update} when not matched then {insert}"
    )
    assert rows_of(session.sql("select id, v, sold from t")) == [(1, "a", None), (2, "z", True), (3, "y", True)]
    assert len(session.table("t").history()) == 3
