"""SQL that DuckDB itself wrote for views and macros, adapted to what sqlglot can parse."""

from __future__ import annotations

from sqlglot.tokens import TokenType

from duckrun.sql.dialects import tokens_in


def with_plain_lambdas(sql: str) -> str:
    """Return DuckDB's text with ``lambda x: …`` for ``(lambda x: …)``.

    DuckDB writes the brackets around an argument; sqlglot cannot parse them.

    >>> with_plain_lambdas("list_transform(l, (lambda x: (x + 1)))")
    'list_transform(l, lambda x: (x + 1))'
    """
    tokens = tokens_in(sql, "duckdb")
    gone: set[int] = set()
    open_: list[tuple[int, bool]] = []
    for at, token in enumerate(tokens):
        if token.token_type == TokenType.L_PAREN:
            is_lambda = at + 1 < len(tokens) and tokens[at + 1].text.lower() == "lambda"
            open_.append((token.start, is_lambda and at > 0 and tokens[at - 1].text in ("(", ",")))
        elif token.token_type == TokenType.R_PAREN and open_:
            start, is_lambda = open_.pop()
            gone |= {start, token.start} if is_lambda else set()
    return "".join(letter for at, letter in enumerate(sql) if at not in gone)
