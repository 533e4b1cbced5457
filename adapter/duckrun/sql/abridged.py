"""Tokens without long runs of constants, of which a syntax tree needs none: they stay in the text that it was read from.

A parser takes some microseconds for each constant, and each copy of its tree some more, where DuckDB takes a fraction of one.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import Token
from sqlglot.tokens import TokenType

_LONG = 50
"""Constants, or rows of them, from which on a run is left out."""
_CONSTANTS = (TokenType.NUMBER, TokenType.STRING, TokenType.NULL, TokenType.TRUE, TokenType.FALSE)
_CLOSING = {TokenType.L_PAREN: TokenType.R_PAREN, TokenType.L_BRACKET: TokenType.R_BRACKET}


def abridged(tokens: Sequence[Token]) -> Sequence[Token]:
    """The tokens with one constant for a long ``IN (…)`` or ``[…]`` of constants, and two rows for those of a long VALUES. What stands
    before the query of a CREATE stays, and all of an ALTER: they define a table.
    """
    at = _first(tokens)
    if len(tokens) - at < 2 * _LONG:
        return tokens
    short = list(tokens[:at])
    while at < len(tokens):
        token = tokens[at]
        short.append(token)
        at += 1
        if token.token_type == TokenType.VALUES:
            at = _rows(tokens, at, short)
        elif token.token_type == TokenType.L_BRACKET or (
            token.token_type == TokenType.L_PAREN and at > 1 and tokens[at - 2].token_type == TokenType.IN
        ):
            end = end_of_constants(tokens, at)
            closes = end < len(tokens) and tokens[end].token_type == _CLOSING[token.token_type]
            if closes and end - at > 2 * _LONG:
                short.append(tokens[end - 1])
                at = end
    return short


def _first(tokens: Sequence[Token]) -> int:
    """The token from which on constants may be left out."""
    word = tokens[0].text.upper() if tokens else ""
    if word == "ALTER":
        return len(tokens)
    if word != "CREATE":
        return 0
    depth = 0
    for at, token in enumerate(tokens):
        if depth == 0 and token.token_type == TokenType.ALIAS:
            return at
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
    return len(tokens)


def _rows(tokens: Sequence[Token], start: int, short: list[Token]) -> int:
    """Take two of the rows of constants that follow VALUES into ``short``, if they are many; the first token that is not read."""
    count, at, second = 0, start, start
    while at < len(tokens) and tokens[at].token_type == TokenType.L_PAREN:
        end = end_of_constants(tokens, at + 1)
        if end == len(tokens) or tokens[end].token_type != TokenType.R_PAREN:
            break
        count += 1
        at = end + 1
        second = at if count <= 2 else second
        if at == len(tokens) or tokens[at].token_type != TokenType.COMMA:
            break
        at += 1
    if count <= _LONG:
        return start
    is_next_row = tokens[at - 1].token_type == TokenType.COMMA
    short.extend(tokens[start:second])
    return at - is_next_row


def end_of_constants(tokens: Sequence[Token], at: int) -> int:
    """The first token behind a list of constants that begins at one; that one, if none does."""
    start = at
    while at < len(tokens):
        if tokens[at].token_type == TokenType.DASH and at + 1 < len(tokens):
            at += tokens[at + 1].token_type == TokenType.NUMBER
        if tokens[at].token_type not in _CONSTANTS:
            return start
        at += 1
        if at == len(tokens) or tokens[at].token_type != TokenType.COMMA:
            return at
        at += 1
    return start
