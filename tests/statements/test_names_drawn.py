"""Statements drawn by a seed over tables that share their names do what they do in plain DuckDB, on either format.

A fixed number of statements each day, and 25 seconds in the long suite. Each run prints its seed (DUCKRUN_TEST_SEED); a failure shows the statement.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import duckdb
import pytest

import duckrun
from duckrun import DuckrunError
from duckrun.session import Session
from tests.drawing import everything, seed
from tests.statements.names_drawn import COLUMNS, Drawn, setup

SCHEMAS = ("create schema a", "create schema b", "create schema other.a")
LENIENT = re.compile(r'Ambiguous reference to table "\w+" \(use: .*(?<=[ (])\.\w')
"""DuckDB compares a schema with the empty one of a derived table too: ``a.t.id`` is ambiguous beside ``(…) t``."""


OURS = re.compile(r"two columns have the name|of another lake|Unimplemented type for cast")
"""What this library refuses and DuckDB does not: a table with two columns of one name, a view over two lakes.

DuckDB reports a cast that it lacks, of a number to a struct, when a row reaches it: another plan may read no row.
"""
SHADOWED = re.compile(r"\bt\.t\.\w+")
"""In a subquery over a table with a struct column t, DuckDB finds the field of an outer table's t. This library raises its binder error."""
SAME_ALIAS = re.compile(r"\b(\w+) AS \1\b")
"""A generated name has ``FROM t AS t`` as ``FROM t`` if the query has both."""

FULL = re.compile(r"\b(FROM|JOIN) (?:memory\.)?(?:main\.)?(?=\w)")
"""A generated name has ``JOIN memory.main.b`` as ``JOIN b`` if the query reads the table by both names."""


class Native:
    """The tables in two databases of DuckDB's own."""

    def __init__(self) -> None:
        self.open()

    def open(self) -> None:
        """Begin with a new instance: an internal error has ended the old one."""
        self._connection = duckdb.connect()
        for statement in ("attach ':memory:' as other", *SCHEMAS, *map(setup, COLUMNS)):
            self._connection.execute(statement)

    def execute(self, statement: str) -> duckdb.DuckDBPyConnection:
        return self._connection.execute(statement)


MADE = ("drop table if exists made", "drop view if exists seen")
INTERNAL = (duckdb.InternalException, duckdb.FatalException)
"""Faults of DuckDB's planner: three in 58,000 queries with duckdb 1.5.5, which this library passes on as StorageError."""


@pytest.fixture
def pair(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[tuple[Session, Native]]:
    """The same tables in two lakes and in two databases of DuckDB's own."""
    with duckrun.connect(tmp_path / "own", format=request.param) as session:
        session.attach(tmp_path / "other", "other", format=request.param)
        for statement in (*SCHEMAS, *map(setup, COLUMNS)):
            session.sql(statement)
        yield session, Native()


def _answer(run: Any) -> tuple[list[str], list[Any]] | Exception:
    """Names of columns and rows in one order, or the error."""
    try:
        result = run()
        if isinstance(result, duckdb.DuckDBPyConnection):
            rows = result.fetchall()
            return _names(column[0] for column in result.description or ()), sorted(rows, key=repr)
        table = result.toArrow()
        return _names(table.schema.names), sorted(
            zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr
        )
    except (DuckrunError, duckdb.Error) as error:
        return error


def _names(columns: Iterable[str]) -> list[str]:
    return [FULL.sub(r"\1 ", SAME_ALIAS.sub(r"\1", column)) for column in columns]


def _check(statement: str, ours: Any, expected: Any) -> str:
    """What the two did alike. Fails if they did not."""
    if isinstance(expected, Exception):
        assert isinstance(ours, Exception) or LENIENT.search(str(expected)), f"DuckDB refuses {statement}: {expected}"
        return "refused"
    if isinstance(ours, Exception):
        is_shadowed = SHADOWED.search(statement) and re.search(
            "Binder Error: (Referenced table|Cannot extract)", str(ours)
        )
        if is_shadowed or OURS.search(str(ours)):
            return "refused by us"
    assert not isinstance(ours, Exception), f"{statement}: {ours}"
    assert ours == expected, statement
    return "same"


def _queries(session: Session, native: Native, seconds: float, least: int) -> Counter[str]:
    drawn, counts, end = Drawn(Random(seed())), Counter[str](), time.monotonic() + seconds
    while counts.total() < least or time.monotonic() < end:
        query = drawn.query()
        expected = _answer(lambda query=query: native.execute(query))
        if isinstance(expected, INTERNAL):
            counts["DuckDB failed"] += 1
            native.open()
            continue
        counts[_check(query, _answer(lambda query=query: session.sql(query)), expected)] += 1
    return counts


def _changes(session: Session, native: Native, seconds: float, least: int) -> Counter[str]:
    """Change tables; after each change the table, and every few changes all of them, hold the same rows."""

    def again(*tables: str) -> None:
        for statement in map(setup, tables):
            session.sql(statement)
            native.execute(statement)

    drawn, counts, end = Drawn(Random(seed())), Counter[str](), time.monotonic() + seconds
    while counts.total() < least or time.monotonic() < end:
        change, table = drawn.change()
        expected, ours = _answer(lambda change=change, table=table: _native_change(native, change, table)), None
        try:
            session.sql(change)
        except (DuckrunError, duckdb.Error) as error:
            ours = error
        if isinstance(expected, INTERNAL):
            counts["DuckDB failed"] += 1
            native.open()
            for made in MADE:
                session.sql(made)
            again(*COLUMNS)
            continue
        kind = _check(change, ours, expected if isinstance(expected, Exception) else None)
        counts[kind] += 1
        if kind == "refused" and ours is None or kind == "refused by us":
            for made in MADE:
                session.sql(made)
                native.execute(made)
            again(*([table] if table in COLUMNS else []))
        elif kind == "same":
            rows = f"from {table}"
            _check(
                f"{change}; {rows}",
                _answer(lambda rows=rows: session.sql(rows)),
                _answer(lambda rows=rows: native.execute(rows)),
            )
            is_unique = "set id" not in change and not change.startswith("insert")  # else a later source has rows twice
            again(*([table] if table in COLUMNS and (not is_unique or counts.total() % 3 == 0) else []))
    return counts


def _native_change(native: Native, change: str, table: str) -> duckdb.DuckDBPyConnection:
    """Change a table of DuckDB's own. It takes ON CONFLICT where an index says that the keys are unique."""
    if "on conflict" not in change:
        return native.execute(change)
    native.execute(f"create unique index keys on {table} (id)")
    try:
        return native.execute(change)
    finally:
        native.execute(f"drop index {table.rpartition('.')[0]}.keys")


@pytest.mark.parametrize("pair", ["delta", pytest.param("ducklake", marks=pytest.mark.drawn(2))], indirect=True)
def test_changes(pair: tuple[Session, Native]) -> None:
    counts = _changes(*pair, seconds=0, least=30)
    assert counts["same"] > counts["refused"], counts


@pytest.mark.differential
@pytest.mark.parametrize("pair", ["delta", "ducklake"], indirect=True)
def test_more_changes(pair: tuple[Session, Native]) -> None:
    counts = _changes(*pair, seconds=300 if everything() else 7, least=60)
    assert counts["same"] > counts["refused"], counts


@pytest.mark.parametrize("pair", ["delta", pytest.param("ducklake", marks=pytest.mark.drawn(2))], indirect=True)
def test_queries(pair: tuple[Session, Native]) -> None:
    counts = _queries(*pair, seconds=0, least=80)
    assert 2 * counts["same"] > counts["refused"], counts


@pytest.mark.differential
@pytest.mark.parametrize("pair", ["delta", "ducklake"], indirect=True)
def test_more_queries(pair: tuple[Session, Native]) -> None:
    counts = _queries(*pair, seconds=300 if everything() else 7, least=100)
    assert 2 * counts["same"] > counts["refused"], counts
