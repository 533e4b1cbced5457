"""SQL text to statements: what sqlglot has a syntax tree for, from the tree; the rest from its tokens.

Everything is read, and what is not supported refused by its name, before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from sqlglot import exp

from duckrun.errors import DuckrunError, InvalidConfig
from duckrun.sql.names import DIALECTS
from duckrun.statements.parse import by_tokens, from_ddl, from_dml, from_macro, from_merge, from_tokens
from duckrun.statements.parse.outline import outline
from duckrun.statements.parse.parameters import Params, filled, marks_of, with_texts
from duckrun.statements.parse.parts import named, unsupported
from duckrun.statements.parse.prepared import executed, nothing_prepared, prepared_by
from duckrun.statements.parse.tokens import StatementText, TokenReader, split
from duckrun.statements.reading import parts_of
from duckrun.statements.values import (
    Deallocate,
    Delete,
    Describe,
    Explain,
    Insert,
    Prepare,
    Query,
    Statement,
    Update,
)


class Expands(Protocol):
    """The macros that statements may call."""

    def expand(self, source: StatementText) -> StatementText: ...
    def read(self, statement: Statement) -> None: ...


def parse(
    text: str,
    dialect: str = "duckdb",
    params: Params | None = None,
    prepared: Mapping[str, StatementText] = MappingProxyType({}),
    macros: Expands | None = None,
    *,
    abridge: bool = False,
) -> list[Statement]:
    """The statements of a text, in order, each EXECUTE as what was ``prepared`` under its name, and calls of ``macros`` as what they stand for. Raises InvalidConfig and UnsupportedFeature, which name the statement by its
    number where there are several.
    """
    if dialect not in DIALECTS:
        raise InvalidConfig(f"Unknown SQL dialect {dialect!r}; the dialects are {', '.join(DIALECTS)}.")
    sources = filled(split(text, dialect, abridge=abridge), params)
    if not sources:
        raise InvalidConfig("This text holds no statement.")
    statements: list[Statement] = []
    known = dict(prepared)
    for number, source in enumerate(sources, 1):
        with numbered(number, len(sources)):
            if source.head[0] == "EXECUTE":
                source = executed(source, known)
            if macros is not None and not from_macro.is_macro(source):
                source = macros.expand(source)
            read = _statements(source)
            for statement in read:
                if macros is not None:
                    macros.read(statement)
                if isinstance(statement, Prepare):
                    known[statement.name] = statement.source
                elif isinstance(statement, Deallocate) and known.pop(statement.name, None) is None:
                    raise nothing_prepared(statement.name, known)
            statements += read
    return statements


@contextmanager
def numbered(number: int, count: int) -> Iterator[None]:
    """Name a statement in its errors, by its number, where there are several."""
    try:
        yield
    except DuckrunError as error:
        if count == 1:
            raise
        raise type(error)(f"Statement {number} of {count}: {error}") from error


def _statements(source: StatementText) -> list[Statement]:
    if source.head[0] == "EXPLAIN":
        return [_explain(TokenReader(source))]
    if source.head[0] == "PREPARE":
        return [_prepare(source)]
    statement = from_tokens.read(source)
    if statement is not None:
        return [statement]
    sorted_by: tuple[str, ...] = ()
    whole = source
    if source.head[0] == "CREATE":
        source, sorted_by = from_tokens.without_sorted_by(source)
    if source.head[0] == "INSERT":
        source = from_tokens.without_by_position(source)
    if source.head[0] in ("INSERT", "WITH"):
        source = from_tokens.without_brackets(source)
    if from_merge.is_merge(source):
        return [from_merge.merge(source)]
    tree = _tree(outline(source))
    if isinstance(tree, exp.Command):
        raise unsupported(named(source))
    if isinstance(tree, exp.Create):
        return [from_ddl.create(tree, source, sorted_by)]
    for kind, read in _BY_TREE.items():
        if isinstance(tree, kind):
            return [
                replace(s, whole=whole) if isinstance(s, Insert | Update | Delete) else s for s in read(tree, source)
            ]
    if isinstance(tree, exp.Query | exp.Describe | exp.Summarize | exp.Values | exp.Pivot):
        return [_query(tree)]
    raise unsupported(named(source))


def _tree(source: StatementText) -> exp.Expr:
    try:
        return source.parse()
    except InvalidConfig as error:
        tree = by_tokens.query(source, str(error))
        if tree is None:
            raise
        return tree


def _prepare(source: StatementText) -> Statement:
    """A statement to be carried out later. It is read now with NULL for its parameters, so that what is wrong is said now."""
    name, body = prepared_by(source)
    if body.head[0] in ("PREPARE", "EXECUTE", "DEALLOCATE"):
        raise unsupported(f"PREPARE of {body.head[0]}")
    _statements(with_texts(body, marks_of(body), lambda mark: "NULL"))
    return Prepare(name, body)


def _explain(reader: TokenReader) -> Statement:
    reader.expect("EXPLAIN")
    analyze = reader.accept("ANALYZE")
    if not analyze:
        reader.accept("EXTENDED")
    statements = _statements(reader.until())
    if len(statements) != 1 or not isinstance(statements[0], Query):
        raise unsupported("EXPLAIN of anything but a query")
    return Explain(statements[0].tree, analyze)


def _query(tree: exp.Expr) -> Statement:
    if isinstance(tree, exp.Select) and tree.args.get("into"):
        raise unsupported("SELECT … INTO")
    if isinstance(tree, exp.Describe) and isinstance(tree.this, exp.Table):
        return Describe(parts_of(tree.this), "columns")
    return Query(tree)


_BY_TREE: dict[type[exp.Expr], Callable[[exp.Expr, StatementText], list[Statement]]] = {
    exp.Insert: from_dml.insert,
    exp.Update: from_dml.update,
    exp.Delete: from_dml.delete,
    exp.TruncateTable: from_dml.truncate,
    exp.Drop: from_ddl.drop,
    exp.Alter: from_ddl.alter,
}
