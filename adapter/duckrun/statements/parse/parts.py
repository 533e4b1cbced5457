"""Shared helpers for syntax trees of statements, and errors that name an unsupported part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import takewhile

from sqlglot import Token, exp
from sqlglot.tokens import TokenType

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.sql.names import read_tokens
from duckrun.sql.pieces import loose, read_from
from duckrun.statements.parse.tokens import StatementText, step_of, word_of
from duckrun.statements.values import parts_of


def unsupported(what: str) -> UnsupportedFeature:
    """Return the error for a statement or clause that sql() lacks, with an alternative."""
    advice = next((f" {instead}" for words, instead in _INSTEAD.items() if re.search(words, what)), "")
    return UnsupportedFeature(
        f"{what} is not supported by sql(). Nothing was run;{advice or ' docs/sql.md lists what is.'}"
    )


_INSTEAD = {
    r"\b(PRIMARY KEY|UNIQUE)\b": "no table format here enforces keys: write by MERGE or INSERT … ON CONFLICT (keys), "
    "in dbt by unique_key, "
    "and have a dbt test or an asset check find duplicates.",
    r"\b(REFERENCES?|FOREIGN KEY)\b": "no table format here enforces them: have a dbt relationships test or an asset "
    "check find what is lost.",
    r"\bCOLLATE\b": "no table format here keeps a collation: leave it out, and compare and sort by lower(…) or "
    "upper(…).",
    r"\bLOCATION\b": "a table lies in its lake, by schema and name: leave it out, or connect to, or attach, a lake "
    "with the root that it is to lie in.",
    r"(?i)^(create|alter|drop) sequence\b": "write uuid() as the key, or (select max(id) from t) + row_number() over "
    "().",
    r"(?i)^(create|drop) (macro|function)\b": "lakes of format ducklake keep macros, made in DuckDB's dialect; "
    "elsewhere put the expression into a CREATE TEMP VIEW, or into a dbt macro.",
    r"(?i)^(prepare|execute|deallocate)\b": "pass values beside the text: sql(text, params=[…] or {…}).",
    r"(?i)^(begin|start|commit|rollback|abort|end|savepoint|release)\b": "each statement is one commit of one table; "
    "what belongs "
    "together is one MERGE, or one CREATE OR REPLACE TABLE … AS. A lake of format ducklake has BEGIN, COMMIT and "
    "ROLLBACK, without more words.",
}


def named(source: StatementText) -> str:
    """Return the first words of a statement, for a message.

    They end before the first literal or bracket, so that the message repeats no secret.
    """
    begins = list(
        takewhile(lambda token: token.text.replace(".", "").isidentifier() or token.text == ".", source.tokens[:6])
    )
    if not begins or len(begins) == 1:
        return " ".join(word for word in source.words[:2] if word.isidentifier()) or "This text"
    text = source.with_(begins).written
    return text if len(begins) == len(source.tokens) else f"{text} …"


_BEGIN_ROWS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "PIVOT", "UNPIVOT", "DESCRIBE", "SUMMARIZE")


def query_of(tree: exp.Expr | None, what: str) -> exp.Query:
    """Return the rows that a statement writes as a query, also for VALUES and table names."""
    if isinstance(tree, exp.Values | exp.Pivot | exp.Describe | exp.Summarize):
        return exp.select("*").from_(exp.Subquery(this=tree))
    if isinstance(tree, exp.Table):
        return exp.select("*").from_(tree)
    if not isinstance(tree, exp.Query):
        raise unsupported(f"{what} without a query")
    return tree


def query_start(tokens: Sequence[Token]) -> int:
    """Return the index of the token that begins the query of an INSERT or CREATE … AS."""
    depth = 0
    for at, token in enumerate(tokens):
        if depth == 0 and at > 1 and _begins_rows(tokens[at:]):
            into_table = token.token_type == TokenType.TABLE and tokens[at - 1].text.upper() in ("INTO", "OVERWRITE")
            if not into_table:
                return at
        depth += step_of(token)
    return len(tokens)


def _begins_rows(tokens: Sequence[Token]) -> bool:
    inside = next((token for token in tokens if token.token_type != TokenType.L_PAREN), None)
    return inside is not None and word_of(inside) in _BEGIN_ROWS


def with_ctes(query: exp.Query, outer: exp.With | None) -> exp.Query:
    """Return a query under the WITH of its statement."""
    if outer is None:
        return query
    whole = exp.select("*").from_(exp.Subquery(this=query.copy()))
    whole.set("with_", outer.copy())
    return whole


def ctes_of(source: StatementText) -> exp.With:
    """Return the WITH of a text that contains nothing else."""
    with_: exp.With = _between(source, "", "SELECT 1").args["with_"]
    return read_from(with_, source.dialect, source.text, source.tokens)  # type: ignore[return-value]


def from_items(source: StatementText) -> exp.Expr:
    """Return the first item of a FROM clause's text; it holds the others as its joins."""
    select = _between(source, "SELECT * FROM", "")
    first: exp.Expr = select.args["from_"].this
    known = set(select.args) - {"expressions", "from_", "joins", "laterals", "kind", "hint", "distinct", "limit"}
    other = next((key for key in known if select.args[key]), None)
    if other is not None:
        raise unsupported(f"{other.upper().strip('_')} after the tables of a FROM; put it into a subquery; it")
    for key in ("joins", "laterals"):
        if select.args.get(key):
            first.set(key, [*(first.args.get(key) or ()), *select.args[key]])
    return read_from(first, source.dialect, source.text, source.tokens)


def select_list(source: StatementText) -> exp.Select:
    """Return the tree of a SELECT list's text."""
    select = _between(source, "SELECT", "")
    if any(select.args[key] for key in set(select.args) - {"expressions"}):
        raise unsupported(f"{source.written} as a list of columns")
    return select


def _between(source: StatementText, before: str, after: str) -> exp.Select:
    """Return the tree of a text's part, with words around it that the text lacks."""
    tokens = [*_outside(before, source.dialect), *source.tokens, *_outside(after, source.dialect)]
    select = loose(source.with_(tokens).parse())
    if not isinstance(select, exp.Select):
        raise unsupported(f"{source.written} here")
    return select


@cache
def _outside(words: str, dialect: str) -> tuple[Token, ...]:
    """Return the tokens of fixed words, which have no place in a text."""
    return tuple(Token(t.token_type, t.text, t.line, t.col, -2, -2) for t in read_tokens(words, dialect))


def refuse(tree: exp.Expr, what: str, *names: str) -> None:
    """Raise UnsupportedFeature for a clause in the tree that we do not support."""
    for name in names:
        if tree.args.get(name):
            raise unsupported(f"{what} … {_AS_WRITTEN.get(name) or name.upper().strip('_').replace('_', ' ')}")


_AS_WRITTEN = {
    "tables": "of several tables",
    "materialized": "of a MATERIALIZED VIEW",
}
"""SQL words for sqlglot's argument names, where these differ."""


def words_of(node: exp.Expr) -> str:
    """Return a node's class as SQL: PRIMARY KEY for PrimaryKeyColumnConstraint."""
    if isinstance(node, exp.Constraint) and node.expressions:
        node = node.expressions[0]
    name = type(node).__name__
    for suffix in ("Constraint", "Column", "Property"):
        name = name.removesuffix(suffix)
    name = _KINDS.get(name, name)
    return "".join(f" {letter}" if letter.isupper() else letter for letter in name).strip().upper()


_KINDS = {
    "GeneratedAsIdentity": "Generated",
    "Computed": "Generated",
    "Reference": "References",
}


def target_of(table: exp.Expr, what: str) -> tuple[str, ...]:
    """Return the name of the table that a statement changes."""
    if not isinstance(table, exp.Table) or not table.name or table.args.get("joins"):
        raise unsupported(f"{what} of anything but a table")
    if table.args.get("when") or table.args.get("version"):
        raise InvalidConfig(f"{what} of an old version of {table.name}: only the newest version can be changed.")
    return parts_of(table)
