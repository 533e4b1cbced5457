"""How often the text of a statement is tokenized, parsed and bound, by the kind of the statement."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from sqlglot.dialects.dialect import Dialect

from duckrun.session import Session
from duckrun.sql.collector import trees_collected
from duckrun.sql.names import paths_of
from duckrun.values.expressions import refuse_no_expression

MARK = "48151"
"""A number that each statement has at one place."""
READ_ONCE = {"tokens": 1, "trees": 1}
STATEMENTS: dict[str, tuple[str, dict[str, int]]] = {
    "select": (f"select a + {MARK} as x from main.t", READ_ONCE | {"parsed by DuckDB": 1, "bound": 1}),
    "explain": (f"explain select a + {MARK} from main.t", {"tokens": 2, "trees": 1, "run": 1}),
    "create as": (f"create table main.u as select a + {MARK} as a from main.t", READ_ONCE
                  | {"parsed by DuckDB": 1, "bound": 1, "run": 1}),
    "view": (f"create view main.v as select a + {MARK} as a from main.t", READ_ONCE
             | {"parsed by DuckDB": 1, "bound": 1}),
    "temp view": (f"create temp view v as select a + {MARK} as a from main.t", READ_ONCE
                  | {"parsed by DuckDB": 1, "bound": 1}),
    "temp table": (f"create temp table u as select a + {MARK} as a from main.t", READ_ONCE
                   | {"parsed by DuckDB": 1, "bound": 1, "run": 1}),
    "insert": (f"insert into main.t select a + {MARK} from main.t", READ_ONCE
               | {"parsed by DuckDB": 2, "bound": 2, "run": 1}),  # for the number of its columns, and as it is written
    "update": (f"update main.t set a = a + {MARK} where a > 1", READ_ONCE | {"parsed by DuckDB": 1, "run": 1}),
    "update in brackets": (f"update main.t set a = (a + {MARK})", READ_ONCE | {"parsed by DuckDB": 2, "run": 1}),
    "delete": (f"delete from main.t where a < {MARK}", READ_ONCE | {"parsed by DuckDB": 1, "run": 1}),
    "merge": (
        f"merge into main.t using (select 1 as a) s on t.a = s.a when matched then update set a = s.a + {MARK}",
        {"tokens": 2, "trees": 2, "parsed by DuckDB": 1, "run": 1},  # a merge needs the columns of its expressions
    ),
}  # fmt: skip


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Counts of the reads of a text with MARK."""
    counts = Counter[str]()

    def watch(owner: Any, name: str, what: str) -> None:
        act = getattr(owner, name)

        def watched(this: Any, text: Any, *rest: Any, **more: Any) -> Any:
            counts[what] += MARK in (text.query if isinstance(text, duckdb.Statement) else text)
            return act(this, text, *rest, **more)

        monkeypatch.setattr(owner, name, watched)

    watch(duckdb.DuckDBPyConnection, "extract_statements", "parsed by DuckDB")
    watch(duckdb.DuckDBPyConnection, "sql", "bound")
    watch(duckdb.DuckDBPyConnection, "execute", "run")
    watch(Dialect, "tokenize", "tokens")
    parser_of = Dialect.parser

    class Parser:
        def __init__(self, parser: Any) -> None:
            self._parser = parser

        def parse(self, tokens: Any, *rest: Any) -> Any:
            counts["trees"] += any(token.text == MARK for token in tokens)
            return self._parser.parse(tokens, *rest)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._parser, name)

    monkeypatch.setattr(Dialect, "parser", lambda self, **options: Parser(parser_of(self, **options)))
    yield counts


@pytest.mark.parametrize(("text", "expected"), STATEMENTS.values(), ids=STATEMENTS)
def test_each_kind_of_statement_reads_its_text_a_fixed_number_of_times(
    duck: Session, reads: Counter[str], text: str, expected: dict[str, int]
) -> None:
    duck.sql("create table main.t as select unnest([1, 2, 700]) as a")
    reads.clear()
    duck.sql(text)
    assert +reads == expected


def test_rows_of_a_select_are_bound_once_more_when_they_are_read(duck: Session, reads: Counter[str]) -> None:
    rows = duck.sql(f"select {MARK} as x")
    reads.clear()
    assert rows.toArrow().to_pylist() == [{"x": int(MARK)}]
    assert +reads == {"run": 1}


def test_a_change_of_rows_reads_its_predicate_again_only_beside_another_writer(
    duck: Session, reads: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from duckrun.engines.duckdb.writers import staged

    duck.sql("create table main.t as select unnest([1, 2, 700]) as a")
    location = duck.ref("main.t").location
    go_on_top = staged.may_go_on_top
    asked: list[tuple[Any, ...]] = []

    def counted(*what: Any) -> bool:
        asked.append(what)
        return go_on_top(*what)

    monkeypatch.setattr(staged, "may_go_on_top", counted)
    stage = staged.stage

    def staged_beside(*what: Any, **more: Any) -> Any:
        monkeypatch.setattr(staged, "stage", stage)
        write_deltalake(location, pa.table({"a": pa.array([900], pa.int32())}), mode="append")
        return stage(*what, **more)

    monkeypatch.setattr(staged, "stage", staged_beside)
    reads.clear()
    duck.sql(f"update main.t set a = 3 where a = 700 or a = {MARK}")
    assert len(asked) == 1
    assert reads["tokens"] == 3  # for subqueries, and for ranges to compare with the files of the other
    assert sorted(row["a"] for row in duck.sql("select a from main.t").toArrow().to_pylist()) == [1, 2, 3, 900]


@pytest.mark.parametrize(
    "text",
    ["1, 2", "select 1", "a order by b", "a as integer", "a; b", "a /* b", "'a", "a := 1", "a) or (b", "a AND", "a b"],
)
def test_a_text_that_is_not_one_expression_is_refused(text: str) -> None:
    from duckrun.errors import InvalidConfig

    with pytest.raises(InvalidConfig, match="not one expression"):
        refuse_no_expression(text, "duckdb", "where")


@pytest.mark.parametrize(
    "text", ["a", "a -- b", "[1, 2]", "case when a then b end", "(a) or (b)", "a is null", "x -> x"]
)
def test_one_expression_is_accepted(text: str) -> None:
    refuse_no_expression(text, "duckdb", "where")


def test_the_columns_of_an_expression_cannot_be_changed_by_a_caller() -> None:
    with pytest.raises(AttributeError):
        paths_of("a + b").clear()
    assert paths_of("a + b") == {("a",), ("b",)}


@pytest.mark.parametrize("threshold", [700, 0, 500_000])
def test_the_collector_has_its_threshold_again_after_long_texts(threshold: int) -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(threshold, *before[1:])
        with trees_collected():
            with trees_collected():
                inner = gc.get_threshold()[0]
            assert gc.get_threshold()[0] == inner == (200_000 if threshold == 700 else threshold)
        assert gc.get_threshold() == (threshold, *before[1:])
    finally:
        gc.set_threshold(*before)


def test_a_long_text_leaves_no_tree_behind(duck: Session) -> None:
    from sqlglot import exp

    duck.sql("create table main.t as select unnest([1, 2, 700]) as a")
    gc.collect()
    before = sum(isinstance(each, exp.Column) for each in gc.get_objects())
    for number in range(3):
        duck.sql(f"update main.t set a = {number} where {' or '.join(f'a = {i}' for i in range(500))}")
    gc.disable()
    try:
        assert sum(isinstance(each, exp.Column) for each in gc.get_objects()) - before < 100
    finally:
        gc.enable()
