"""Edits of the paths in DuckDB queries that read files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from sqlglot import Token, exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import TokenType

from duckrun.sql.dialects import tokens_in, tree_in
from duckrun.sql.edits import Edit, edited
from duckrun.sql.file_paths import ENDINGS, FILE_READERS
from duckrun.sql.quoting import quote_identifier, quote_literal

_BEFORE_TABLES = (TokenType.FROM, TokenType.JOIN, TokenType.COMMA)
_ENDING = re.compile(r"\.(csv|tsv|parquet|json|jsonl|ndjson)(\.gz|\.zst)?$", re.IGNORECASE)


def with_edited_paths(sql: str) -> str:
    """See with_absolute_paths(), for a query in DuckDB's dialect that may have such a path."""
    try:
        return edited(sql, sorted([*_named(sql), *_arguments(tokens_in(sql, "duckdb"))]))
    except SqlglotError:  # DuckDB reads more than sqlglot does
        return sql


def _named(sql: str) -> Iterator[Edit]:
    """Yield the edits for files that FROM names directly."""
    for table in tree_in(sql, "duckdb").find_all(exp.Table):
        name = table.this
        ending = _ENDING.search(table.name) if isinstance(name, exp.Identifier) and not table.db else None
        if ending is None or "start" not in name.meta:
            continue
        reader = f"read_{ENDINGS[ending[1].lower()]}({quote_literal(_absolute(table.name))})"
        called = PurePosixPath(table.name).name.split(".")[0]
        new = reader if table.alias else f"{reader} AS {quote_identifier(called)}"
        yield name.meta["start"], name.meta["end"], new


def _arguments(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yield the edits for path literals among the arguments of file functions."""
    for i, token in enumerate(tokens[:-2]):
        if FILE_READERS.fullmatch(token.text) is None or tokens[i + 1].token_type != TokenType.L_PAREN:
            continue
        if token.text.lower() == "glob" and (not i or tokens[i - 1].token_type not in _BEFORE_TABLES):
            continue  # x GLOB (…), the operator
        several = tokens[i + 2].token_type == TokenType.L_BRACKET
        for part in tokens[i + 3 if several else i + 2 :]:
            if part.token_type == TokenType.STRING:
                yield part.start, part.end, quote_literal(_absolute(part.text))
            elif part.token_type != TokenType.COMMA:
                break
            if not several:
                break


def _absolute(path: str) -> str:
    return path if "://" in path or path.startswith("~") else os.path.abspath(path)
