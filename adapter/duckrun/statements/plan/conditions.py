"""Parts of a condition: those joined by AND, and the sides of an equality, each with its text."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from duckrun.sql.pieces import dialect_of
from duckrun.sql.written import written
from duckrun.statements.parse.tokens import StatementText, parted


def conjuncts(tree: exp.Expr | None) -> list[exp.Expr]:
    """Return the conditions joined by AND, each with its own part of the text."""
    if tree is None:
        return []
    bare = tree.unnest() if isinstance(tree, exp.Paren) else tree
    if not isinstance(bare, exp.And):
        return [tree]
    source = _source_of(tree)
    if source is None:
        return [part for side in (bare.left, bare.right) for part in conjuncts(side)]
    parts = _and_parts(source)
    if len(parts) < 2 or _have_outer(parts, *_LOOSER):
        return [tree]
    return [condition for part in parts for condition in conjuncts(part.parse())]


def equality(tree: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
    """Return both sides of an equality, each with its own part of the text.

    None for another condition.
    """
    bare = tree.unnest() if isinstance(tree, exp.Paren) else tree
    if not isinstance(bare, exp.EQ):
        return None
    source = _source_of(tree)
    if source is None:
        return bare.left, bare.right
    parts = parted(source, "=", "==")
    if len(parts) != 2 or _have_outer(parts, *_LOOSER, *_BESIDE_EQUAL):
        return None
    left, right = (part.parse() for part in parts)
    return left, right


_LOOSER = ("OR", "->")
_BESIDE_EQUAL = (
    "AND", "NOT", "IS", "IN", "LIKE", "ILIKE", "GLOB", "SIMILAR", "BETWEEN", "<", ">", "<=", ">=", "<>", "!=",
)  # fmt: skip


def _source_of(tree: exp.Expr) -> StatementText | None:
    """Return the text of an unchanged piece, without brackets around it."""
    text, dialect = written(tree), dialect_of(tree)
    if text is None or dialect is None:
        return None
    source = StatementText.of(text, dialect)
    while isinstance(tree, exp.Paren):
        source, tree = source.with_(source.tokens[1:-1]), tree.this
    return source


def _and_parts(source: StatementText) -> list[StatementText]:
    """Return the parts between ANDs; the AND of BETWEEN is no separator."""
    parts: list[StatementText] = []
    start, is_between = 0, False
    at = source.next_outer(0, "AND", "BETWEEN")
    while at is not None:
        is_and = source.says(("AND",), at)
        if is_and and not is_between:
            parts.append(source.between(start, at))
            start = at + 1
        is_between = not is_and
        at = source.next_outer(at + 1, "AND", "BETWEEN")
    return [*parts, source.between(start)]


def _have_outer(parts: Sequence[StatementText], *words: str) -> bool:
    """Return True if some part has one of these words outside of all brackets."""
    return any(part.next_outer(0, *words) is not None for part in parts)
