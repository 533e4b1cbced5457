"""SQL text to statements: from syntax trees where sqlglot can parse them, else from tokens.

All statements are parsed, and unsupported ones refused by name, before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Protocol

from sqlglot import exp

from duckrun.errors import DuckrunError, InvalidConfig
from duckrun.libraries import collector_paused
from duckrun.sql.names import DIALECTS
from duckrun.statements.parse import by_tokens, from_ddl, from_dml, from_macro, from_merge, from_tokens
from duckrun.statements.parse.outline import outline
from duckrun.statements.parse.parameters import Params, filled
from duckrun.statements.parse.parts import named, unsupported
from duckrun.statements.parse.tokens import StatementText, TokenReader, split
from duckrun.statements.values import (
    Delete,
    Describe,
    Explain,
    Insert,
    Query,
    Statement,
    Update,
    parts_of,
)
from duckrun.values.nearest import nearest


class Expands(Protocol):
    """The macros that statements may call."""

    def expand(self, source: StatementText) -> StatementText: ...
    def read(self, statement: Statement) -> None: ...


def parse(
    text: str,
    dialect: str = "duckdb",
    params: Params | None = None,
    macros: Expands | None = None,
    *,
    abridge: bool = False,
) -> list[Statement]:
    """Return the statements of a text, in order, with macro calls expanded.

    Args:
        text: one or more statements.
        dialect: the dialect of the text.
        params: values of the parameters in the text.
        macros: the macros that the statements may call.
        abridge: True if trees may omit long runs of constants.

    Raises:
        InvalidConfig: for a text that cannot be parsed. Errors name a statement by number if there
            are several.
        UnsupportedFeature: for an unsupported statement.
    """
    if dialect not in DIALECTS:
        raise InvalidConfig(f"Unknown SQL dialect {dialect!r}; the dialects are {', '.join(DIALECTS)}.")
    with collector_paused() if len(text) > LONG else nullcontext():
        return _parsed(text, dialect, params, macros, abridge)


LONG = 4000
"""Minimum length of a long text, in characters."""


def _parsed(text: str, dialect: str, params: Params | None, macros: Expands | None, abridge: bool) -> list[Statement]:
    sources = split(text, dialect, abridge=abridge)
    if not sources:
        raise InvalidConfig("This text holds no statement.")
    for number, source in enumerate(sources, 1):
        if source.head[0] in _PREPARED:
            with numbered(number, len(sources)):
                raise unsupported(source.head[0])
    sources = filled(sources, params)
    statements: list[Statement] = []
    for number, source in enumerate(sources, 1):
        with numbered(number, len(sources)):
            if macros is not None and not from_macro.is_macro(source):
                source = macros.expand(source)
            read = _statements(source)
            for statement in read:
                if macros is not None:
                    macros.read(statement)
            statements += read
    return statements


@contextmanager
def numbered(number: int, count: int) -> Iterator[None]:
    """Add the number of a statement to its errors, if there are several statements."""
    try:
        yield
    except DuckrunError as error:
        if count == 1:
            raise
        error.name(f"Statement {number} of {count}")
        raise


def _statements(source: StatementText) -> list[Statement]:
    if source.head[0] == "EXPLAIN":
        return [_explain(TokenReader(source))]
    statement = from_tokens.read(source)
    if statement is not None:
        return [statement]
    sorted_by: tuple[str, ...] = ()
    whole = source
    if source.head[0] == "CREATE":
        source, sorted_by = from_tokens.without_sorted_by(source)
    source = from_tokens.plain_insert(source)
    if from_merge.is_merge(source):
        return [from_merge.merge(source)]
    tree = _tree(outline(source))
    if isinstance(tree, exp.Create):
        return [from_ddl.create(tree, source, sorted_by)]
    for kind, read in _BY_TREE.items():
        if isinstance(tree, kind):
            return [
                replace(s, whole=whole) if isinstance(s, Insert | Update | Delete) else s for s in read(tree, source)
            ]
    if isinstance(tree, exp.Query | exp.Describe | exp.Summarize | exp.Values | exp.Pivot):
        return [_query(tree)]
    _refuse_misspelled(source)
    raise unsupported(named(source))


def _refuse_misspelled(source: StatementText) -> None:
    """Raise InvalidConfig if the first words of a text are nearly those of a statement."""
    verb, *rest = [word for word in source.head if word not in ("OR", "REPLACE", "TEMP", "TEMPORARY")]
    about_kind = verb in ("CREATE", "DROP", "ALTER") and bool(rest)
    word, known = (rest[0], _KINDS) if about_kind else (verb, _VERBS)
    near = nearest(word, known, cutoff=0.75)
    if near and word not in known:
        before = f"{verb} " if about_kind else ""
        raise InvalidConfig(f"{before}{word} begins no statement of SQL. Did you mean {before}{near[0]}?")


def _tree(source: StatementText) -> exp.Expr:
    try:
        return source.parse()
    except InvalidConfig as error:
        tree = by_tokens.query(source, str(error))
        if tree is None:
            _refuse_misspelled(source)
            raise
        return tree


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


_VERBS = (
    "SELECT", "FROM", "WITH", "VALUES", "INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "CREATE", "DROP", "ALTER",
    "DESCRIBE", "SHOW", "SUMMARIZE", "EXPLAIN", "PIVOT", "UNPIVOT", "OPTIMIZE", "VACUUM", "RESTORE", "COMMENT",
    "CONVERT",
)  # fmt: skip
_KINDS = ("TABLE", "VIEW", "SCHEMA", "MACRO")
_PREPARED = ("PREPARE", "EXECUTE", "DEALLOCATE")
_BY_TREE: dict[type[exp.Expr], Callable[[exp.Expr, StatementText], list[Statement]]] = {
    exp.Insert: from_dml.insert,
    exp.Update: from_dml.update,
    exp.Delete: from_dml.delete,
    exp.TruncateTable: from_dml.truncate,
    exp.Drop: from_ddl.drop,
    exp.Alter: from_ddl.alter,
}
