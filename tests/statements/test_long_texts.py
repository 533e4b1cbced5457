"""Long and deep statements: they give DuckDB's rows, and the work grows with the length of the text, never with its square."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from random import Random
from types import FrameType
from typing import Any

import duckdb
import pytest
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import TokenType

import duckrun
from duckrun.session import Session
from duckrun.sql.abridged import abridged
from duckrun.sql.dialects import text_in, tokens_in, tree_in
from duckrun.sql.names import read_tokens
from duckrun.sql.plain_names import dotted_names
from duckrun.statements.parse.parsing import parse
from duckrun.statements.parse.tokens import split
from duckrun.statements.plan import spliced
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
}


def _calls(act: Callable[[], Any]) -> int:
    """The number of Python calls that an act makes; a collection of garbage in between would add those of earlier tests."""
    count, is_enabled = 0, gc.isenabled()

    def see(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()
    sys.setprofile(see)
    try:
        act()
    finally:
        sys.setprofile(None)
        if is_enabled:
            gc.enable()
    return count


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
@pytest.mark.parametrize("query", LONG.values(), ids=LONG)
def test_reading_a_statement_twice_as_long_takes_twice_the_calls(query: Callable[[int], str], statement: str) -> None:
    parse("select 1")  # what is imported once
    short, long = (_calls(lambda n=n: parse(statement.format(query(n)))) for n in (60, 120))
    assert long < 2.5 * short


def test_of_a_long_query_only_the_words_are_read_that_say_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from duckrun.statements.parse import from_ddl, from_tokens, tokens

    read = []
    word_of = tokens.word_of
    for module in (from_ddl, from_tokens, tokens):
        monkeypatch.setattr(module, "word_of", lambda token: read.append(token) or word_of(token))
    for statement in ("select", "create as", "view"):
        parse(STATEMENTS[statement].format(LONG["columns"](500)))
    assert len(read) < 300


def test_of_a_long_update_only_the_words_outside_of_its_values_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from duckrun.statements.parse import outline, tokens

    read = []
    word_of = tokens.word_of
    for module in (outline, tokens):
        monkeypatch.setattr(module, "word_of", lambda token: read.append(token) or word_of(token))
    parse(f"update main.t set a = case {_chain('when a = {i} then {i}', ' ')(500)} else a end where a > 1")
    assert len(read) < 300


def test_names_that_a_text_repeats_are_given_once_in_each_spelling() -> None:
    text = f"select {_chain('t.a + {i} % 2', ', ')(1000)}, T.a, b from main.t"
    assert dotted_names(text) == (("select",), ("t", "a"), ("T", "a"), ("b",), ("from",), ("main", "t"))
    assert dotted_names(text) is dotted_names(text)


def test_the_tree_of_a_query_is_walked_once(table: Session) -> None:
    """Each walk more is a few calls for each of the columns."""
    table.sql("select a from main.t")
    few, many = (_calls(lambda n=n: table.sql(LONG["columns"](n))) for n in (100, 1100))
    assert (many - few) / 1000 < 18  # it was 22


def test_long_values_are_bound_once_before_they_are_written(table: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    from duckrun.engines.duckdb.rows import source
    from duckrun.engines.duckdb.rows.frame import DuckDBFrame

    bound = []
    init, select = DuckDBFrame.__init__, source.select
    monkeypatch.setattr(
        DuckDBFrame, "__init__", lambda self, *args, **more: bound.append(1) or init(self, *args, **more)
    )
    monkeypatch.setattr(source, "select", lambda *args, **more: bound.append(1) or select(*args, **more))
    table.sql("create table main.v (a integer, b double)")
    table.sql(f"insert into main.v values {_chain('({i}, {i}.5)', ', ')(200)}")
    assert len(bound) == 1
    table.sql("create table main.w as select a + 1 as a from main.v")
    assert len(bound) == 2
    assert rows_of(table.sql("select count(*), sum(b) from main.v")) == [(200, 20_000.0)]


def test_the_names_of_an_insert_are_looked_up_once(table: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    from duckrun.statements import reading

    table.sql("create table main.more (a bigint, b varchar, c double)")
    looked: list[str] = []
    replace = reading.replace_tables

    def counting(tree: exp.Expr, *arguments: Any, **options: Any) -> exp.Expr:
        looked.extend(each.name for each in tree.find_all(exp.Table))
        return replace(tree, *arguments, **options)

    monkeypatch.setattr(reading, "replace_tables", counting)
    table.sql("insert into main.more (c, a) with x as (select a from main.t) select count(*), a from x group by a")
    assert looked.count("t") == 1
    expected = [(row[0], None, 1.0) for row in rows_of(table.sql("select a from main.t order by a"))]
    assert rows_of(table.sql("select a, b, c from main.more order by a")) == expected


def test_a_frame_that_is_kept_is_written_as_its_names_mean_then(table: Session) -> None:
    table.sql("select 1 as n").createOrReplaceTempView("named")
    frame = table.sql("select * from named")
    table.sql("select 'two' as word").createOrReplaceTempView("named")
    frame.write.saveAsTable("main.words")
    assert rows_of(table.sql("select word from main.words")) == [("two",)]


@pytest.mark.parametrize("is_enabled", [True, False])
def test_reading_a_long_text_leaves_the_garbage_collector_as_it_was(is_enabled: bool) -> None:
    before = gc.isenabled()
    (gc.enable if is_enabled else gc.disable)()
    try:
        tree_in(LONG["columns"](1000), "duckdb")
        assert gc.isenabled() is is_enabled
        with pytest.raises(SqlglotError):
            tree_in(LONG["columns"](1000) + " where (", "duckdb")
        assert gc.isenabled() is is_enabled
    finally:
        (gc.enable if before else gc.disable)()


_CELLS = [
    "1", "-1", "- 7", "0.5", "-12.25", "123456789012345", "1234567890123456", "12345678901234.5", "1e5", ".5", "1.", "1_000",
    "'x'", "'it''s'", "''", "'a' 'b'", "E'x'", "NULL", "null", "true", "FALSE", "nulls", "truex", "default", "(1)", "1 + 1",
    "date '2026-01-01'", "0x1F", "'x'::text", "/* c */ 1", "$$x$$",
]  # fmt: skip
_KINDS = ["INTEGER", "DECIMAL(18,3)", "DOUBLE", "VARCHAR", "BOOLEAN", "DATE"]


def _outcome(text: str) -> list[tuple[object, ...]] | str:
    try:
        return [tuple(map(repr, row)) for row in duckdb.connect().sql(text).fetchall()]
    except duckdb.Error as error:
        return type(error).__name__


@pytest.mark.parametrize("seed", range(3))
def test_values_of_one_kind_are_cast_by_columns_as_they_are_by_cells(seed: int) -> None:
    random = Random(seed)
    uniform = 0
    for _ in range(100):
        types = random.choices(_KINDS, k=random.randint(1, 3))
        cells = [random.choices(_CELLS, k=random.randint(1, 3)) for _ in types]
        rows = [[random.choice(each) for each in cells] for _ in range(random.randint(1, 100))]
        text = "VALUES " + random.choice([", ", ",", " ,\n "]).join(f"({', '.join(row)})" for row in rows)
        assert not spliced.have_types(text + random.choice([",", ", 1", " x"]), types, "duckdb")
        if not spliced.have_types(text, types, "duckdb"):
            continue
        uniform += 1
        whole = ", ".join(f"c{at}::{kind}" for at, kind in enumerate(types))
        each = ", ".join(f"({', '.join(f'({v})::{k}' for v, k in zip(row, types, strict=True))})" for row in rows)
        names = ", ".join(f"c{at}" for at in range(len(types)))
        assert _outcome(f"select {whole} from ({text}) v({names})") == _outcome(f"values {each}")
    assert uniform > 5


def test_the_text_of_values_tells_that_its_columns_have_one_kind() -> None:
    types = ["INTEGER", "DOUBLE", "VARCHAR"]
    plain = f"VALUES {_chain('({i}, {i}.5, null)', ', ')(300)}"
    assert spliced.have_types(plain, types, "duckdb")
    assert spliced.have_types(plain, types, "spark")
    assert spliced.have_types(plain.replace("null", "'x'", 1), types, "duckdb")
    assert spliced.have_types(plain[:-5] + "'x')", types, "duckdb")  # the type of the column tells the kind
    assert not spliced.have_types(plain[:-5] + "1)", types, "duckdb")
    assert not spliced.have_types(plain, ["INTEGER", "VARCHAR", "VARCHAR"], "duckdb")
    for cell, dialects in (
        (r"'it\'s'", {"spark"}),
        ('"x"', {"spark"}),
        (r"'\'", {"duckdb"}),
        ("'it''s'", {"duckdb", "spark"}),
    ):
        text = f"VALUES (1, 0.5, {cell}), (2, 2.5, {cell})"
        assert {each for each in ("duckdb", "spark") if spliced.have_types(text, types, each)} == dialects


_TYPED = "(cast('{i}' as TEXT), cast(NULL as text), cast(True as boolean), {i})"


def test_casts_of_constants_to_their_own_type_are_constants() -> None:
    text, types = f"VALUES {_chain(_TYPED, ', ')(300)}", ["VARCHAR", "DATE", "BOOLEAN", "INTEGER"]
    assert spliced.have_types(text, types, "duckdb")
    for other in ("cast('7' as date)", "cast(7 as text)", "cast(True as text)", "cast(a as text)", "upper('7')"):
        assert not spliced.have_types(text.replace("cast('7' as TEXT)", other), types, "duckdb")


def test_the_words_of_a_statement_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from duckrun.statements.parse import tokens

    read = []
    word_of = tokens.word_of
    monkeypatch.setattr(tokens, "word_of", lambda token: read.append(token) or word_of(token))
    text = f"create table main.t as {LONG['union'](100)}"
    parse(text)
    assert len(read) < 4 * len(read_tokens(text, "duckdb"))


CHANGES = {
    "create as": "create or replace table main.made as {}",
    "view": "create or replace view main.seen as {}",
    "insert": "insert into main.made {}",
    "update": "update main.t set a = ({}) where a > 1",
    "delete": "delete from main.t where a in ({})",
}


@pytest.mark.parametrize("statement", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
def test_each_part_of_a_statement_becomes_a_tree_once(
    statement: str, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from duckrun.sql import names

    read = []
    tree_of = names.tree_of
    monkeypatch.setattr(names, "tree_of", lambda parts, *rest: read.append(len(parts)) or tree_of(parts, *rest))
    text = statement.format(LONG["case"](100))
    parse(text, dialect)
    assert sum(read) < 1.1 * len(read_tokens(text, dialect))


@pytest.mark.parametrize(
    "change",
    [
        f"update main.t set a = case {_chain('when a = {i} then {i} + 1', ' ')(300)} else a end where a < 800",
        f"update main.t as x set a = 3 where {_chain('x.a = {i}', ' or ')(300)}",
        f"delete from main.t where {_chain('a = {i}', ' or ')(600)}",
        f"delete from main.t where a in (select a from main.t where {_chain('a = {i}', ' or ')(300)})",
        f"insert into main.t (a) select a + 1 from main.t where {_chain('t.a <> {i} + 10', ' and ')(300)} returning a",
        "with more as (select 700 as a) delete from main.t using more where t.a = more.a",
    ],
    ids=["update", "update by or", "delete", "delete by subquery", "insert", "with"],
)
def test_long_changes_do_what_duckdb_does(table: Session, change: str) -> None:
    native = duckdb.connect()
    native.sql("create table main.t as select unnest([1, 2, 700]) as a")
    table.sql(change)
    if not change.startswith("with"):
        native.execute(change)
    else:
        native.execute("delete from main.t where a = 700")
    assert rows_of(table.sql("select a from main.t")) == sorted(native.sql("select a from main.t").fetchall(), key=repr)


CLIMBED: dict[str, Callable[[int], str]] = {
    "delete": lambda n: f"delete from main.t where {_chain('a = 9{i}', ' or ')(n)}",
    "delete by subquery": lambda n: (
        f"delete from main.t where a in (select x.a from main.t x where {_chain('x.a = 9{i}', ' or ')(n)})"
    ),
    "update": lambda n: f"update main.t set a = {_chain('a', ' + 0 * ')(9)} where {_chain('t.a = 9{i}', ' or ')(n)}",
    "merge": lambda n: (
        f"merge into main.t using (select 9 as b) s on t.a = s.b when matched and ({_chain('t.a = 9{i}', ' or ')(n)}) then delete"
    ),
    "qualified columns": lambda n: f"select a from main.t where {_chain('main.t.a = 9{i}', ' or ')(n)}",
    "one common table": lambda n: (
        f"with c as (select a from main.t) {_chain('select a from c', ' union all ')(n // 2)}"
    ),
    "common tables": LONG["ctes"],
}


@pytest.mark.parametrize("text", CLIMBED.values(), ids=CLIMBED)
def test_a_statement_twice_as_long_takes_twice_the_calls_to_carry_out(
    table: Session, text: Callable[[int], str]
) -> None:
    table.sql(text(10))  # what is imported once
    short, long = (_calls(lambda n=n: table.sql(text(n))) for n in (250, 500))
    assert long < 2.5 * short


@pytest.mark.parametrize("brackets", ["{}", "({})"], ids=["bare", "in brackets"])
def test_a_temporary_table_takes_the_whole_text_of_a_change(table: Session, brackets: str) -> None:
    table.sql("create temp table brief as select a from main.t")
    table.sql(f"insert into brief {brackets.format('values (4), (5)')}")
    table.sql("insert into brief by position select a * 10 from main.t where a < 2")
    table.sql(f"update brief set a = a + 1 where {_chain('a = {i}', ' or ')(5)}")
    table.sql("delete from brief where a in (select a from main.t where a > 100)")
    assert rows_of(table.sql("select a from brief")) == [(10,), (2,), (3,), (5,), (5,)]


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
    monkeypatch.setattr(
        table.engine, "pinned", lambda snapshot, where: scans.append(snapshot) or pinned(snapshot, where)
    )
    assert len(rows_of(table.sql(LONG["union"](100)))) == 300
    assert len(scans) == 1


LISTS = {
    "whole": "({i}, 'v{i}', {i})",
    "negative": "(-{i}, '-{i}', -{i}.5)",
    "decimals": "({i}, null, {i}.25)",
    "mixed": "({i}, {i}, '{i}')",
    "texts": "('{i}', '$?;(', '{i}.5')",
    "nulls": "(null, null, null)",
    "booleans": "({i}, true, false)",
    "large": "({i}, '9{i}', 12345678901234567{i})",
    "exponents": "({i}, 1.50, {i}e2)",
    "expressions": "({i} + 1, lower('A{i}'), {i} * 2)",
    "defaults": "(default, 'x', {i})",
    "casts": "({i}, cast('it''s ({i}' as TEXT), cast('{i}' as varchar))",
    "casts of nulls": "('{i}', cast(NULL as text), CAST( null AS STRING ))",
    "casts to booleans": "({i}, cast(True as boolean), cast(false as bool))",
    "casts in some rows": "(cast('{i}' as text), null, '{i}'), ('{i}', 'x', cast(null as text))",
    "casts to other types": "({i}, cast('2026-01-01' as date), cast('{i}' as integer))",
}


TYPES = ("bigint, b varchar, c double", "integer, b varchar, c decimal(30, 3)", "double, b varchar, c varchar")


@pytest.mark.parametrize("form", LISTS.values(), ids=LISTS)
def test_many_rows_of_values_become_what_duckdb_makes_of_them(duck: Session, form: str) -> None:
    native = duckdb.connect()
    rows = _chain(form, ", ")(120)
    for table, types in enumerate(TYPES):
        for text in (
            f"create table main.v{table} (a {types})",
            f"insert into main.v{table} values {rows}",
            f"insert into main.v{table} values {rows}, (7, 'seven', 7), (8.5, '8', 8.5)",
            f"insert into main.v{table} (c, a) select c, a from (values {rows.replace('default', '0')}) r(a, b, c)",
        ):
            native.execute(text)
            duck.sql(text)
        query = f"select a, b, c from main.v{table} order by all"
        assert sorted(map(repr, rows_of(duck.sql(query)))) == sorted(map(repr, native.sql(query).fetchall())), types


def test_long_lists_hold_all_of_their_constants_wherever_they_stand(duck: Session) -> None:
    native = duckdb.connect()
    numbers, texts = _chain("{i}", ", ")(150), _chain("'{i}'", ", ")(150)
    for text in (
        f"create table main.l (a integer, l integer[] default [{numbers}], check (a in ({numbers})))",
        f"create table main.m as select unnest([{numbers}]) as a, [{texts}] as t",
        f"insert into main.l select a, [{numbers}] from main.m where a in ({numbers}) and a::varchar not in ({texts}, 'x')",
        "insert into main.l (a) values (3), (149)",
        f"update main.m set t = [{texts}, 'more'] where a in ({numbers}) and a > 100",
        f"delete from main.m where a in ({_chain('{i}', ', ')(60)}) or a::varchar in ({texts.replace('149', '0')})",
    ):
        native.execute(text)
        if "default [" in text:  # a default of a list is not one that both engines compute alike
            text = text.replace(f" default [{numbers}]", "")
        duck.sql(text)
    for query in (
        "select a from main.l order by a",
        "select a, t from main.m order by a",
        f"select len([{numbers}]) as n, 149 in ({numbers}) as i",
    ):
        assert sorted(map(repr, rows_of(duck.sql(query)))) == sorted(map(repr, native.sql(query).fetchall()))
    with pytest.raises(duckrun.SchemaMismatch, match="breaks the constraint"):
        duck.sql("insert into main.l (a) values (150)")
    duck.sql(f"create view main.seen as select a in ({numbers}) as i from main.m")
    duck.sql(f"create temp view brief as select a in ({texts}) as i from (select a::varchar as a from main.m)")
    assert {row for name in ("main.seen", "brief") for row in rows_of(duck.sql(f"select i from {name}"))} == {(True,)}
    counted = duck.sql(f"select count(*) as n from main.l where a in ({numbers}) and a > $1", params=[100])
    assert rows_of(counted) == native.sql("select count(*) from main.l where a > 100").fetchall()


_ITEMS, _ROWS = _chain("{i}", ", ")(150), _chain("({i}, 'it''s {i}')", ",\n")(150)
HAZARDS = {
    "text": f"select 'values {_ROWS.replace(chr(39), '')}' as x, 'in ({_ITEMS})' as y",
    "name": f'select 1 as "in ({_ITEMS})"',
    "comment": f"select 1 as x /* in ({_ITEMS}) */, 2 as y -- 3 in ({_ITEMS})",
    "dollars": f"select $$ in ({_ITEMS}) $$ as x, $t$ values {_ROWS} $t$ as y",
    "escapes": f"select E'it\\'s in ({_ITEMS})' as x, '\\' as y, 7 in ({_ITEMS}) as z",
    "expression at the end": f"select 151 in ({_ITEMS}, 150 + 1) as x, 7 in ({_ITEMS}) and 8 in ({_ITEMS}, -9, .5, 1e3, null) as y",
    "rows of a common table": f"with v(a, b) as (values {_ROWS}, (1 + 1, 'x')) select count(*) as n, max(b) as b from v where a in ({_ITEMS})",
    "rows at the end": f"values {_ROWS}",
    "comment between rows": f"select count(*) as n, max(a) as a from (values {_ROWS}, -- values (1, 'no')\n{_ROWS}) v(a, b)",
    "lists": f"select [[{_ITEMS}], [{_ITEMS}, 7]] as x, [{_ITEMS}][3] as y, {{'a': [{_ITEMS}]}} as z",
    "typed": f"select count(*) as n from (values {_ROWS}) v(a, b) where date '2026-01-01' + a in (date '2026-01-02', {_chain('date ' + chr(39) + '2026-02-01' + chr(39), ', ')(60)})",
}


@pytest.mark.parametrize("query", HAZARDS.values(), ids=HAZARDS)
def test_constants_are_left_out_of_the_tokens_alone(table: Session, query: str) -> None:
    """The tokens that are left stand where they stood, the others are constants, and the rows are DuckDB's."""
    short, _ = abridged(query, "duckdb")
    whole, left = (
        [(t.start, t.end, t.token_type, t.text) for t in tokens_in(each, "duckdb")] for each in (query, short)
    )
    assert set(left) <= set(whole)
    assert left[-1] == whole[-1]
    assert not any(text.isidentifier() for *_, kind, text in set(whole) - set(left) if kind != TokenType.STRING)
    expected = sorted(map(repr, _native(query)))
    assert sorted(map(repr, rows_of(table.sql(query)))) == expected
    table.sql(f"create table main.made as select * from ({query}\n) r")
    table.sql(f"insert into main.made select * from ({query}\n) r")
    assert sorted(map(repr, rows_of(table.sql("select * from main.made")))) == sorted(2 * expected)


@pytest.mark.parametrize(
    "text",
    [
        f"insert into main.t values {_ROWS}",
        f"insert into main.t values {_chain(_TYPED, ', ')(150)}",
        f"create or replace table main.t as select * from (values {_ROWS}) v(a, b)",
        f'create view "main"."s" (a, b) as values {_ROWS}',
        f"-- a comment\ndelete from main.t where a in ({_ITEMS}) or b = 3",
        f"merge into main.t using (values {_ROWS}) s(a, b) on t.a = s.a when matched then delete",
        f"select 1; update main.t set a = 1 where a not in ({_ITEMS})",
        f"explain select [{_ITEMS}]",
    ],
    ids=["insert", "insert of casts", "create as", "view", "delete", "merge", "two statements", "explain"],
)
def test_long_runs_of_constants_become_no_tokens(text: str) -> None:
    assert sum(len(each.tokens) for each in split(text, "duckdb", abridge=True)) < 60


def test_constants_of_a_definition_are_kept() -> None:
    for text in (
        f"create table main.t (a integer check (a in ({_ITEMS})))",
        f"create table main.t (a integer default 1, l integer[] default [{_ITEMS}])",
        f"alter table main.t add constraint c check (a in ({_ITEMS}))",
    ):
        assert abridged(text, "duckdb") == (text, ())


def test_a_long_text_for_the_other_engine_is_read_whole(session: Session) -> None:
    rows = _chain("({i}, 'v{i}')", ", ")(120)
    for dialect in ("duckdb", "spark"):
        query = (
            f"select count(*) as n, max(b) as b from (values {rows}) as r(a, b) where a in ({_chain('{i}', ', ')(110)})"
        )
        assert rows_of(session.sql(query, dialect=dialect)) == [(110, "v99")]


_CHAINS = {**DEEP, "brackets of or": f"select {'(a = 1 or ' * 30}true{')' * 30} as x from main.t"}
del _CHAINS["lists"]


@pytest.mark.parametrize("query", _CHAINS.values(), ids=_CHAINS)
def test_deep_and_long_queries_are_translated_for_spark(query: str) -> None:
    assert text_in(tree_in(query, "duckdb"), "spark")


@pytest.mark.parametrize("item", ["1, ", "  -  1.5 ,\n  ", "'a' ,  ", "null , ", "cast( 'a'  as  text ) , "])
@pytest.mark.parametrize("count", [5, 28, 29, 200])
def test_a_run_of_constants_that_ends_early_is_given_up_in_one_look(item: str, count: int) -> None:
    """Blanks that two parts of a pattern may take double the work with each constant: 28 of them took minutes."""
    in_list = f"select 1 in ({item * count}x) or 2 in ({item * count}y)"
    in_rows = f"insert into t values {f'({item * 2}1) , ' * count} (x)"
    assert abridged(in_list, "duckdb") == (in_list, ())
    assert len(abridged(in_rows, "duckdb")[0]) == len(in_rows)
