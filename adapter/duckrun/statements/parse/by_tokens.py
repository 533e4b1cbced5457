"""Table names of a query that sqlglot cannot parse, found by tokens.

DuckDB runs the text unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import Token, exp
from sqlglot.tokens import TokenType

from duckrun.sql.pieces import read_from, unread
from duckrun.statements.parse.tokens import StatementText, is_name, step_of, word_of

_BEGIN = ("SELECT", "FROM", "WITH", "VALUES", "TABLE", "PIVOT", "UNPIVOT", "(")
_END_OF_TABLES = frozenset([
    "SELECT", "WHERE", "GROUP", "HAVING", "WINDOW", "QUALIFY", "ORDER", "LIMIT", "OFFSET", "UNION", "INTERSECT",
    "EXCEPT", "USING", "ON", "SAMPLE", "PIVOT", "UNPIVOT",
])  # fmt: skip
_BEFORE_TABLE = ("FROM", "JOIN", "PIVOT", "UNPIVOT", "TABLE", "DESCRIBE", "SUMMARIZE")
_WITH_FROM_INSIDE = ("EXTRACT", "SUBSTRING", "TRIM", "OVERLAY", "POSITION")
_NO_TABLE = ("SELECT", "VALUES", "LATERAL", "UNNEST", "PIVOT", "UNPIVOT")
_NO_ALIAS = _END_OF_TABLES | frozenset([
    "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "SEMI", "ANTI", "ASOF", "POSITIONAL",
    "TABLESAMPLE", "AT", "LATERAL",
])  # fmt: skip


def query(source: StatementText, why: str) -> exp.Expr | None:
    """Return a tree with only the query's tables; None for a text that is no query.

    Args:
        source: the statement.
        why: the parser's error.
    """
    if source.dialect != "duckdb" or source.head[0] not in _BEGIN:
        return None
    named = _common_names(source)
    tables = [_table(source.tokens, start, end) for start, end in _places(source)]
    tables = [table for table in tables if table.db or table.name.lower() not in named]
    tree = exp.Select(expressions=[exp.Star(), *tables])
    return unread(read_from(tree, source.dialect, source.text, source.tokens), why)


def _common_names(source: StatementText) -> set[str]:
    """Return the names of common table expressions.

    ``name [(columns)] AS [[NOT] MATERIALIZED] (``.
    """
    words = source.words
    names = set[str]()
    for at, word in enumerate(words):
        after = at + 1 + (words[at + 1 : at + 2] == ("NOT",))
        after += words[after : after + 1] == ("MATERIALIZED",)
        if word == "AS" and at and words[after : after + 1] == ("(",):
            name = at - 1
            if words[name] == ")":
                depth = 0
                while name >= 0 and (depth := depth - step_of(source.tokens[name])) > 0:
                    name -= 1
                name -= 1
            names.add(source.tokens[name].text.lower())
    return names


def _places(source: StatementText) -> Iterator[tuple[int, int]]:
    """Yield first and last token of each name in the place of a table.

    Such places are behind FROM and JOIN, and behind a comma after these.
    """
    tokens, words = source.tokens, source.words
    in_tables, opened = [False], [""]
    at = 0
    while at < len(tokens):
        step = step_of(tokens[at])
        before = words[at - 1] if at else ""
        starts = before in _BEFORE_TABLE or (before == "," and in_tables[-1])
        no_clause = before == "FROM" and ((at > 1 and words[at - 2] == "DISTINCT") or opened[-1] in _WITH_FROM_INSIDE)
        if starts and not no_clause and _is_name(tokens[at]):
            end = at
            while end + 2 < len(tokens) and tokens[end + 1].token_type == TokenType.DOT and _is_name(tokens[end + 2]):
                end += 2
            if words[end + 1 : end + 2] != ("(",):
                yield at, end
            in_tables[-1] = True
            at = end + 1
            continue
        if words[at] == "FROM" and (at == 0 or words[at - 1] != "DISTINCT"):
            in_tables[-1] = True
        elif words[at] in _END_OF_TABLES:
            in_tables[-1] = False
        if step > 0:
            in_tables.append(False)
            opened.append(before)
        elif step < 0 and len(in_tables) > 1:
            in_tables.pop()
            opened.pop()
        at += 1


def _is_name(token: Token) -> bool:
    return is_name(token) and word_of(token) not in _NO_TABLE


def _table(tokens: Sequence[Token], start: int, end: int) -> exp.Table:
    parts: list[exp.Identifier] = []
    for token in tokens[start : end + 1 : 2]:
        part = exp.to_identifier(token.text, quoted=token.token_type == TokenType.IDENTIFIER)
        part.meta.update(start=token.start, end=token.end)
        parts.append(part)
    table = exp.Table(**dict(zip(("this", "db", "catalog"), reversed(parts), strict=False)))
    colon = start > 1 and tokens[start - 1].text == ":"
    if colon or may_be_alias(tokens[end + 1 :]):
        table.set("alias", exp.TableAlias(this=exp.to_identifier("named_in_the_text")))
    return table


def may_be_alias(after: Sequence[Token]) -> bool:
    """Return True if the tokens behind a table begin with an alias."""
    return bool(after) and (word_of(after[0]) == "AS" or (_is_name(after[0]) and word_of(after[0]) not in _NO_ALIAS))
