"""Long and deep statements: they give DuckDB's rows, and the work grows with the length of the text, never with its square."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import duckdb
import pytest

from duckrun.session import Session
from duckrun.sql.dialects import text_in, tree_in
from duckrun.statements.parse.parsing import parse
from tests.lake import rows_of


def _chain(form: str, by: str) -> Callable[[int], str]:
    return lambda count: by.join(form.format(i=i) for i in range(count))


def _common(count: int) -> str:
    more = "".join(f", c{i} as (select a from c{i - 1})" for i in range(1, count))
    return f"with c0 as (select a from main.t){more} select * from c{count - 1}"


LONG: dict[str, Callable[[int], str]] = {
    "union": _chain("select a, {i} as b, 'm{i}' as c from main.t", " union all "),
    "or": lambda n: f"select a from main.t where {_chain('a = {i}', ' or ')(n)}",
    "and": lambda n: f"select a from main.t where {_chain('a <> {i}', ' and ')(n)}",
    "case": lambda n: f"select case {_chain('when a = {i} then {i}', ' ')(n)} end as x from main.t",
    "columns": lambda n: f"select {_chain('a + {i} as c{i}', ', ')(n)} from main.t",
    "values": lambda n: f"select * from (values {_chain(chr(40) + '{i}, {i}.5, null' + chr(41), ', ')(n)}) v(a, b, c)",
    "in": lambda n: f"select a from main.t where a in ({_chain('{i}', ', ')(n)})",
    "list": lambda n: f"select [{_chain('{i}', ', ')(n)}] as l",
    "ctes": _common,
}
STATEMENTS = {
    "select": "{}",
    "create as": "create or replace table main.made as {}",
    "view": "create or replace view main.seen as {}",
    "temp view": "create or replace temp view brief as {}",
    "insert": "insert into main.made {}",
    "explain": "explain {}",
    "prepare": "prepare p as {}",
}


def _calls(act: Callable[[], Any]) -> int:
    """The number of Python calls that an act makes."""
    count = 0

    def see(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(see)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
@pytest.mark.parametrize("query", LONG.values(), ids=LONG)
def test_reading_a_statement_twice_as_long_takes_twice_the_calls(query: Callable[[int], str], statement: str) -> None:
    parse("select 1")  # what is imported once
    short, long = (_calls(lambda n=n: parse(statement.format(query(n)))) for n in (120, 240))
    assert long < 2.5 * short


def test_the_words_of_a_statement_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from duckrun.statements.parse import tokens

    read = []
    word_of = tokens.word_of
    monkeypatch.setattr(tokens, "word_of", lambda token: read.append(token) or word_of(token))
    text = f"create table main.t as {LONG['union'](100)}"
    parse(text)
    assert len(read) < 4 * len(tokens.tokens_of(text, "duckdb"))


DEEP = {
    "union": LONG["union"](340),
    "or": LONG["or"](1000),
    "and": LONG["and"](1000),
    "case": LONG["case"](500),
    "concat": f"select {_chain('a::varchar', ' || ')(150)} as x from main.t",
    "sum": f"select {_chain('a', ' + ')(150)} as x from main.t",
    "nested case": f"select {'case when a = 1 then 2 else ' * 40}a{' end' * 40} as x from main.t",
    "brackets": f"select {'(' * 40}a{')' * 40} as x from main.t",
    "lists": f"select {'[' * 12}1{']' * 12} as x from main.t",
    "subqueries": f"select * from {'(select * from ' * 40}main.t{')' * 40}",
    "ctes": LONG["ctes"](120),
    "in": LONG["in"](5000),
    "values": LONG["values"](2000),
}


@pytest.fixture
def table(duck: Session) -> Session:
    duck.sql("create table main.t as select unnest([1, 2, 700]) as a")
    return duck


def _native(query: str) -> list[tuple[Any, ...]]:
    connection = duckdb.connect()
    connection.sql("create table main.t as select unnest([1, 2, 700]) as a")
    return connection.sql(query).fetchall()


@pytest.mark.parametrize("query", DEEP.values(), ids=DEEP)
def test_deep_and_long_queries_give_duckdbs_rows_in_select_create_insert_and_view(table: Session, query: str) -> None:
    expected = sorted(map(repr, _native(query)))
    assert sorted(map(repr, rows_of(table.sql(query)))) == expected
    table.sql(f"create table main.made as {query}")
    table.sql(f"insert into main.made {query}")
    assert sorted(map(repr, rows_of(table.sql("select * from main.made")))) == sorted(2 * expected)
    table.sql(f"create view main.seen as {query}")
    assert sorted(map(repr, rows_of(table.sql("select * from main.seen")))) == expected


def test_each_table_of_a_long_query_is_looked_up_once(table: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    scans = []
    pinned = table.engine.pinned
    monkeypatch.setattr(table.engine, "pinned", lambda snapshot: scans.append(snapshot) or pinned(snapshot))
    assert len(rows_of(table.sql(LONG["union"](100)))) == 300
    assert len(scans) == 1


_CHAINS = {**DEEP, "brackets of or": f"select {'(a = 1 or ' * 30}true{')' * 30} as x from main.t"}
del _CHAINS["lists"]


@pytest.mark.parametrize("query", _CHAINS.values(), ids=_CHAINS)
def test_deep_and_long_queries_are_translated_for_spark(query: str) -> None:
    assert text_in(tree_in(query, "duckdb"), "spark")
