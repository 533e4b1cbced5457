"""The outline of a statement: its words without the query, the conditions and the values.

The tree of the outline gives the form of the statement. Each part that the outline omits is parsed
by itself. So no part of a text is parsed twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import Token
from sqlglot.tokens import TokenType

from duckrun.statements.parse.parts import query_start
from duckrun.statements.parse.tokens import StatementText, TokenReader, parted_at, word_of

LATER = ("RETURNING", "ORDER BY", "LIMIT")
"""Words that may follow the condition of an UPDATE or DELETE."""


def outline(source: StatementText) -> StatementText:
    """Return the outline of a CREATE … AS, INSERT, UPDATE or DELETE.

    Other statements stay unchanged.
    """
    shorten = _BY_WORD.get(source.head[0])
    return source if shorten is None else shorten(source)


def _create(source: StatementText) -> StatementText:
    at = source.next_outer(0, "AS")
    if at is None or query_start(source.tokens[at - 1 :]) != 2:
        return source
    return _with_one_row(source, at + 1, ())


def _insert(source: StatementText) -> StatementText:
    start = query_start(source.tokens)
    if start == len(source.tokens) or word_of(source.tokens[start - 1]) == "DEFAULT":
        return source
    query = source.between(start)
    for words in (("ON", "CONFLICT"), ("RETURNING",)):
        before, after = parted_at(query, *words)
        if after is not None:
            return _with_one_row(source, start, source.tokens[start + len(before.tokens) :])
    return _with_one_row(source, start, ())


def _with_one_row(source: StatementText, start: int, after: Sequence[Token]) -> StatementText:
    """Replace the query that starts at a token by the shortest one."""
    if start >= len(source.tokens):
        return source
    first = source.tokens[start]
    return source.with_([*source.tokens[:start], *_beside(first, TokenType.SELECT, TokenType.NULL), *after])


def _update(source: StatementText) -> StatementText:
    reader = TokenReader(source)
    reader.until("SET")
    start = reader.at + 1
    if start >= len(source.tokens):
        return source
    reader.until(*LATER)
    one = _beside(source.tokens[start], TokenType.VAR, TokenType.EQ, TokenType.NULL)
    return source.with_([*source.tokens[:start], *one, *reader.left])


def _delete(source: StatementText) -> StatementText:
    reader = TokenReader(source)
    reader.until("USING", "WHERE", *LATER)
    start = reader.at
    if reader.left and word_of(source.tokens[start]) not in LATER:
        reader.until(*LATER)
    return source.with_([*source.tokens[:start], *reader.left])


def _beside(token: Token, *kinds: TokenType) -> list[Token]:
    """Return new tokens of these kinds at the place of another token."""
    return [Token(kind, _TEXTS[kind], token.line, token.col, token.start, token.end) for kind in kinds]


_TEXTS = {TokenType.SELECT: "SELECT", TokenType.NULL: "NULL", TokenType.VAR: "x", TokenType.EQ: "="}
_BY_WORD = {"CREATE": _create, "INSERT": _insert, "UPDATE": _update, "DELETE": _delete}
