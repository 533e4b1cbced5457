"""Parts of a statement with words added to their text: the WITH of the statement in its subqueries, a type at each of VALUES."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from sqlglot import Token, exp

from duckrun.errors import UnsupportedFeature
from duckrun.sql.names import transpile
from duckrun.sql.written import dialect_of, written
from duckrun.statements.parse.tokens import StatementText, parted, step_of, tokens_of, word_of
from duckrun.statements.plan.defaults import DEFAULT

_BEGIN = ("SELECT", "WITH", "FROM", "VALUES", "TABLE")
_Edit = tuple[int, int, str]
"""What is written from one place of a text to another, in their order."""
Tree = TypeVar("Tree", exp.Expr, exp.Expr | None)


def under(with_: exp.With | None, tree: Tree) -> Tree:
    """An expression whose subqueries know the common tables of the statement that it is a part of."""
    if with_ is None or tree is None or tree.find(exp.Query) is None:
        return tree
    head, text, dialect = written(with_), written(tree), dialect_of(tree)
    if head is None or text is None or dialect is None:
        raise UnsupportedFeature("WITH before a change whose subqueries were not written; put it into the subquery.")
    names = {cte.alias.lower() for cte in with_.expressions}
    tokens, added = tokens_of(text, dialect), list[_Edit]()
    at = 0
    while at + 1 < len(tokens):
        if tokens[at].text != "(" or word_of(tokens[at + 1]) not in _BEGIN:
            at += 1
            continue
        end = _closing(tokens, at)
        if any(token.text.lower() in names for token in tokens[at:end]):
            nested = word_of(tokens[at + 1]) == "WITH"
            after, before = tokens[at].end + 1, tokens[end].start
            added.append((after, after, f"{head} SELECT * FROM (" if nested else f"{head} "))
            added.append((before, before, ")" if nested else ""))
        at = end
    return _read(_spliced(text, added), dialect)


def with_types(
    query: exp.Query, columns: Sequence[str], types: Mapping[str, str], engine: str, defaults: Mapping[str, str]
) -> exp.Query:
    """The rows of VALUES, each value cast to the column that it goes into: two rows may differ. Any other query as it is.

    ``types`` are in the engine's SQL, ``defaults`` what DEFAULT means, where it is not NULL, in Spark's.
    """
    values = query.find(exp.Values)
    text = None if values is None else written(values)
    if values is None or text is None or (len(values.expressions) < 2 and not defaults):
        return query
    dialect = dialect_of(values) or "duckdb"
    added = list[_Edit]()
    for row in parted(StatementText(text, dialect, tuple(tokens_of(text, dialect)[1:])), ","):
        inside = row.with_(row.tokens[1:-1])
        parts = parted(inside, ",")
        if len(parts) != len(columns) or not all(part.tokens for part in parts):
            return query
        for value, column in zip(parts, columns, strict=True):
            start, end = value.tokens[0].start, value.tokens[-1].end + 1
            given = text[start:end]
            if value.words == (DEFAULT,):
                given = transpile(defaults.get(column, "NULL"), "spark", dialect)
            kind = exp.DataType.build(types[column], dialect=engine).sql(dialect=dialect)
            added.append((start, end, f"CAST({given} AS {kind})"))
    new = query.copy()
    found = new.find(exp.Values)
    assert found is not None
    found.replace(_read(_spliced(text, added), dialect))
    return new


def _closing(tokens: Sequence[Token], opening: int) -> int:
    depth = 0
    for at in range(opening, len(tokens)):
        depth += step_of(tokens[at])
        if depth == 0:
            return at
    return len(tokens) - 1


def _spliced(text: str, edits: Sequence[_Edit]) -> str:
    parts, at = [], 0
    for start, end, words in edits:
        parts += [text[at:start], words]
        at = end
    return "".join([*parts, text[at:]])


def _read(text: str, dialect: str) -> exp.Expr:
    return StatementText(text, dialect, tuple(tokens_of(text, dialect))).parse()
