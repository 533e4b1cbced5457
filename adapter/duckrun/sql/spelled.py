"""SQL that DuckDB itself wrote for views and macros, adapted to what sqlglot can parse."""

from __future__ import annotations

from sqlglot import Token
from sqlglot.tokens import TokenType

from duckrun.sql.dialects import tokens_in
from duckrun.sql.edits import closing, edited


def with_plain_lambdas(sql: str) -> str:
    """Return DuckDB's text with ``lambda x: …`` for ``(lambda x: …)``.

    DuckDB writes the brackets around an argument; sqlglot cannot parse them.

    >>> with_plain_lambdas("list_transform(l, (lambda x: (x + 1)))")
    'list_transform(l, lambda x: (x + 1))'
    """
    tokens = tokens_in(sql, "duckdb")
    brackets: list[Token] = []
    for at, (before, token, after) in enumerate(zip(tokens, tokens[1:], tokens[2:], strict=False), 1):
        if token.token_type == TokenType.L_PAREN and after.text.lower() == "lambda" and before.text in ("(", ","):
            brackets += [token, tokens[closing(tokens, at)]]
    return edited(sql, sorted((bracket.start, bracket.end, "") for bracket in brackets))
