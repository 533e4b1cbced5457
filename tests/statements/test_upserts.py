"""INSERT … ON CONFLICT, compared with DuckDB's own statement on a native table that has the primary key."""

from __future__ import annotations

import duckdb
import pytest
from deltalake import write_deltalake

import duckrun
from duckrun import AppTransaction, DuplicateSourceKeys, InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.session import Session
from tests.lake import nth, rows_of

pytestmark = pytest.mark.formats

BEFORE = "insert into \"it's é\" values (1, 'a', 1), (2, 'b', 2)"
UPSERTS = [
    "insert into t values (1, 'x', 3), (3, 'y', 4) on conflict (id) do update set v = excluded.v",
    "insert into t values (7, 'm', 4), (7, 'n', 4), (1, 'z', 0) on conflict (id) do nothing",
    "insert into t (id, v) values (1, 'z'), (9, 'k') on conflict (id) do update set v = excluded.v, q = excluded.q",
    "insert into t values (1, 'x', 3), (2, 'y', 0) on conflict (id) do update set v = v || excluded.v, q = q + 1 where q < 2",
    "insert into t as o values (1, 'x', 3) on conflict (id) do update set v = 'w' where o.q < 5 and excluded.q = 3",
    "with a as (select 1 as id, 'w' as v, 5 as q) insert into t select * from a on conflict (id) do update "
    "set (v, q) = (excluded.v, excluded.q + 1)",
    "insert into t by name select 8 as q, 2 as id on conflict (id) do update set q = excluded.q",
    "insert into t (select id + 1 as id, v, q from t where id < 3) on conflict (id) do nothing",
    "insert into t values ('1', 5, '7') on conflict (id) do update set v = excluded.v, q = excluded.q",
    "insert into t select * from t where false on conflict (id) do nothing",
    "insert into t values (2, 'x', 3) on conflict (id) do update set id = 5",
]


@pytest.fixture
def odd(session: Session) -> Session:
    session.sql(f'create table "it\'s é" (id bigint, v varchar, q int); {BEFORE}')
    return session


@pytest.mark.drawn(3)
@pytest.mark.parametrize("text", UPSERTS)
def test_an_upsert_leaves_the_rows_that_duckdb_would(odd: Session, text: str) -> None:
    text = text.replace("into t ", 'into "it\'s é" ').replace("from t ", 'from "it\'s é" ')
    native = duckdb.connect()
    native.execute(f'create table "it\'s é" (id bigint primary key, v varchar, q int); {BEFORE}; {text}')
    expected = sorted(native.execute('from "it\'s é"').fetchall(), key=repr)
    version = odd.table("it's é").snapshot().version
    odd.sql(text)
    assert rows_of(odd.sql('select * from "it\'s é"')) == expected
    assert odd.table("it's é").snapshot().version <= version + 1


OF_ANOTHER_TYPE = [
    "select '007', 'x', 3 on conflict (id) do update set v = excluded.id",
    "select '0002' as id, 'x', 3 on conflict (id) do update set v = excluded.id, q = length(excluded.id)",
    "select '7' as id, 'x', '003' as q on conflict (id) do update set v = excluded.q where length(excluded.q) = 3",
    "select 1, 41, 3 on conflict (id) do update set v = excluded.v + 1, q = excluded.q",
    "(values ('007', 5, 3), ('1', 5, 3)) on conflict (id) do update set v = excluded.id",
]


@pytest.mark.drawn(2)
@pytest.mark.parametrize("rows", OF_ANOTHER_TYPE)
def test_excluded_is_the_row_of_the_query_with_its_own_types(odd: Session, rows: str) -> None:
    native = duckdb.connect()
    text = f'insert into "it\'s é" {rows}'
    seven = "insert into \"it's é\" values (7, 'g', 7)"
    native.execute(f'create table "it\'s é" (id bigint primary key, v varchar, q int); {BEFORE}; {seven}; {text}')
    odd.sql(f"{seven}; {text}")
    assert rows_of(odd.sql('select * from "it\'s é"')) == sorted(native.execute('from "it\'s é"').fetchall(), key=repr)


def test_a_key_that_is_no_value_of_its_column_updates_no_other_row(odd: Session) -> None:
    with pytest.raises(SchemaMismatch, match=r"column id cannot hold the value 2[.]4"):
        odd.sql("insert into \"it's é\" select 2.4 as id, 'x', 3 on conflict (id) do update set q = excluded.id")


def test_rows_with_a_null_key_conflict_with_none(session: Session) -> None:
    session.sql("create table t (id int, v varchar); insert into t values (null, 'a')")
    session.sql("insert into t values (null, 'b'), (null, 'c'), (1, 'd'), (1, 'e') on conflict (id) do nothing")
    session.sql("insert into t values (null, 'f') on conflict (id) do update set v = excluded.v")
    assert rows_of(session.sql("select v from t where id is null")) == [("a",), ("b",), ("c",), ("f",)]
    assert rows_of(session.sql("select v from t where id = 1")) == [("d",)]


def test_a_key_twice_in_the_source_of_an_update_is_an_error(odd: Session) -> None:
    version = odd.table("it's é").snapshot().version
    with pytest.raises(DuplicateSourceKeys, match="more than once"):
        odd.sql("insert into \"it's é\" values (1, 'x', 1), (1, 'y', 1) on conflict (id) do update set v = excluded.v")
    assert odd.table("it's é").snapshot().version == version


@pytest.mark.parametrize(
    "text",
    [
        "insert or replace into t values (1, 'x')",
        "insert or ignore into t values (1, 'x')",
        "insert into t values (1, 'x') on conflict do nothing",
        "insert into t values (1, 'x') on conflict do update set v = excluded.v",
    ],
)
def test_without_keys_the_statement_that_names_them_is_shown(duck: Session, text: str) -> None:
    duck.sql("create table t as select 1 as id, 'a' as v")
    with pytest.raises(UnsupportedFeature, match=r"no primary key.*ON CONFLICT \(columns\)"):
        duck.sql(f"delete from t; {text}")
    assert rows_of(duck.sql("select * from t")) == [(1, "a")]


def test_what_is_wrong_with_a_conflict_is_said(duck: Session) -> None:
    duck.sql("create table t as select 1 as id, 'a' as v")
    for text, words in (
        ("(nope) do nothing", "has no column nope"),
        ("(id) do update set nope = 1", "no column 'nope' to set"),
        ("(id) do update set v = excluded.nope", "excluded has no column nope"),
        ("(id) do update set v = 'x', v = 'y'", "set twice"),
        ("(id) do update set", "expected"),
        ("(id) do delete", "near .delete"),
    ):
        with pytest.raises(InvalidConfig, match=words):
            duck.sql(f"insert into t values (1, 'x') on conflict {text}")
    assert duck.table("t").snapshot().version == nth(0)


def test_an_upsert_that_is_sent_again_is_done_once(session: Session) -> None:
    session.sql("create table t as select 1 as id, 1 as n")
    text = "insert into t values (1, 5), (2, 5) on conflict (id) do update set n = t.n + excluded.n"
    first = session.sql(text, app=AppTransaction("nightly", 1))
    again = session.sql(text, app=AppTransaction("nightly", 1))
    assert (again.replayed, again.version) == (True, first.version)
    assert rows_of(session.sql("select * from t")) == [(1, 6), (2, 5)]


@pytest.mark.only_format("delta", "the other is deltalake")
def test_a_row_that_another_inserted_meanwhile_is_met(duck: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    duck.sql("create table t as select 1 as id, 1 as n")
    execute = Session.execute

    def raced(self: Session, *args: object, **options: object) -> object:
        monkeypatch.undo()
        rows = duckdb.sql("select 2::integer as id, 7::integer as n").to_arrow_table()
        write_deltalake(duck.lake.parse("t").location, rows, mode="append")
        return execute(self, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Session, "execute", raced)
    duck.sql("insert into t values (2, 5) on conflict (id) do update set n = t.n + excluded.n")
    with duckrun.connect(duck.lake.root) as other:
        assert rows_of(other.sql("select * from t")) == [(1, 1), (2, 12)]
