"""Edits of a text, and places in its tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlglot import Token
from sqlglot.tokens import TokenType

Edit = tuple[int, int, str]
"""First and last character of a range, and its new text. An insertion ends before its start."""
OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)


def edited(text: str, edits: Iterable[Edit], start: int = 0, stop: int | None = None) -> str:
    """Return a text, or a part of it, with some ranges replaced.

    Args:
        text: the text.
        edits: the edits in the order of the text. One inside of a replaced range is ignored.
        start: first character of the part.
        stop: the character behind the part.

    >>> edited("select a, b from t", [(7, 7, "x"), (10, 10, "y"), (18, 17, " where x")])
    'select x, y from t where x'
    """
    pieces: list[str] = []
    at = start
    for first, last, new in edits:
        if first >= at:
            pieces += [text[at:first], new]
            at = last + 1
    return "".join([*pieces, text[at:stop]])


def closing(tokens: Sequence[Token], opening: int) -> int:
    """Return the index of the token that closes a bracket; the last token if none does."""
    depth = 0
    for at in range(opening, len(tokens)):
        depth += step(tokens[at])
        if depth == 0:
            return at
    return len(tokens) - 1


def step(token: Token) -> int:
    """Return the change of the depth of brackets at a token."""
    return (token.token_type in OPENING) - (token.token_type in CLOSING)
