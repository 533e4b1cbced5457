"""Validation of SQL expressions from callers: predicates, conditions and values.

Each text must be exactly one expression. A clause behind it (LIMIT, UNION, a second statement)
would change the meaning of the larger statement around it.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from duckrun.errors import InvalidConfig

if TYPE_CHECKING:
    import duckdb


def refuse_no_expression(text: Any, dialect: str, what: str) -> None:
    """Raise InvalidConfig for a text that is not exactly one expression; None passes.

    >>> refuse_no_expression("id = 1 or note = ')'", "duckdb", "predicate")
    >>> refuse_no_expression("id = 1 limit 1", "duckdb", "predicate")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    duckrun.errors.InvalidConfig: predicate is 'id = 1 limit 1', which is not one expression ...
    """
    if text is None:
        return
    if not isinstance(text, str):
        raise InvalidConfig(f"{what} is {text!r}, a {type(text).__name__}; give SQL as text.")
    if not text.strip():
        raise InvalidConfig(f"{what} is empty: leave it out (None) if there is none, or write the condition.")
    if not (_is_balanced(text) if dialect == "spark" else _is_expression(text)):
        raise InvalidConfig(
            f"{what} is {text!r}, which is not one expression of {dialect} SQL: give a condition or a "
            "value with no clause behind it."
        )


@cache
def _parser() -> duckdb.DuckDBPyConnection:
    import duckdb

    return duckdb.connect(config={"threads": 1})


@lru_cache(maxsize=1024)
def _is_expression(text: str) -> bool:
    """True if DuckDB's parser reads the text as an expression."""
    import duckdb

    try:
        with _parser().cursor() as parser:
            # CAST takes exactly one expression. A text without a closing bracket cannot end it.
            probes = [f"SELECT CAST({text}\n AS INTEGER)"]
            if ")" in text:
                # In parentheses no clause may follow; without them, the text must not close one.
                probes = [f"SELECT 1 FROM t WHERE {part}" for part in (text, f"({text}\n)")]
            return all(len(parser.extract_statements(probe)) == 1 for probe in probes)
    except duckdb.ParserException:
        return False


def _is_balanced(text: str) -> bool:
    """True if Spark SQL text is one statement with balanced parentheses. Spark parses the rest."""
    import sqlglot
    from sqlglot import TokenType
    from sqlglot.errors import SqlglotError

    try:
        tokens = sqlglot.tokenize(text, read="spark")
    except SqlglotError:
        return False
    depth = 0
    for token in tokens:
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth < 0 or token.token_type == TokenType.SEMICOLON:
            return False
    return bool(tokens) and depth == 0
