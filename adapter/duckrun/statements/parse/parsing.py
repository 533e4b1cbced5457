"""SQL text to statements: what sqlglot has a syntax tree for, from the tree; the rest from its tokens.

Everything is read, and what is not supported refused by its name, before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlglot import exp

from duckrun.errors import DuckrunError, InvalidConfig
from duckrun.sql.names import DIALECTS
from duckrun.statements.parse import by_tokens, from_ddl, from_dml, from_tokens
from duckrun.statements.parse.parts import named, unsupported
from duckrun.statements.parse.tokens import StatementText, TokenReader, split
from duckrun.statements.reading import parts_of
from duckrun.statements.values import Describe, Explain, Query, Statement


def parse(text: str, dialect: str = "duckdb") -> list[Statement]:
    """The statements of a text, in order. Raises InvalidConfig and UnsupportedFeature, which name the statement by its
    number where there are several.
    """
    if dialect not in DIALECTS:
        raise InvalidConfig(f"Unknown SQL dialect {dialect!r}; the dialects are {', '.join(DIALECTS)}.")
    sources = split(text, dialect)
    if not sources:
        raise InvalidConfig("This text holds no statement.")
    statements: list[Statement] = []
    for number, source in enumerate(sources, 1):
        with numbered(number, len(sources)):
            statements += _statements(source)
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
    if source.words[0] == "EXPLAIN":
        return [_explain(TokenReader(source))]
    statement = from_tokens.read(source)
    if statement is not None:
        return [statement]
    sorted_by: tuple[str, ...] = ()
    if source.words[0] == "CREATE":
        source, sorted_by = from_tokens.without_sorted_by(source)
    if source.words[0] == "INSERT":
        source = from_tokens.without_by_position(source)
    tree = _tree(source)
    if isinstance(tree, exp.Command):
        raise unsupported(named(source))
    if isinstance(tree, exp.Create):
        return [from_ddl.create(tree, source, sorted_by)]
    for kind, read in _BY_TREE.items():
        if isinstance(tree, kind):
            return read(tree, source)
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
    exp.Merge: from_dml.merge,
    exp.TruncateTable: from_dml.truncate,
    exp.Drop: from_ddl.drop,
    exp.Alter: from_ddl.alter,
}
