"""Names that DuckDB generates for unnamed expressions, for queries whose tables are replaced.

DuckDB names ``max(a.t.id)`` by its own text, and an outer query may use that name. Replacing
``a.t`` changes the name, so the text gets the original one as an alias. DuckDB's parser tells the
name.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from functools import cache, lru_cache

from sqlglot import Token
from sqlglot.tokens import TokenType

from duckrun.sql.duckdb_itself import answer, item_in, parts_in
from duckrun.sql.edits import CLOSING, OPENING, closing, step

_ENDS = (
    TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.WINDOW, TokenType.QUALIFY,
    TokenType.USING, TokenType.ORDER_BY, TokenType.LIMIT, TokenType.OFFSET, TokenType.FETCH, TokenType.UNION,
    TokenType.EXCEPT, TokenType.INTERSECT, TokenType.SELECT, TokenType.SEMICOLON, TokenType.INTO,
    TokenType.RETURNING, TokenType.ON,
)  # fmt: skip
"""Tokens that may follow a SELECT list."""
_SPELLED = re.compile(r"\b(\w*char|character varying|bit|numeric|decimal|dec|interval)\b", re.IGNORECASE)
"""Types whose length the parser's tree may omit, and INTERVAL, which consists of other casts."""


def names_behind(
    text: str, tokens: Sequence[Token], changes: Sequence[int], *, outermost: bool
) -> Iterator[tuple[int, str]]:
    """Yield the generated names that changes of a text would alter.

    Args:
        text: a DuckDB query, or a text with queries in it.
        tokens: the tokens of the text.
        changes: offsets of the replaced names, in ascending order.
        outermost: True if another query uses the names of the outermost query too.

    Yields:
        The offset of the expression's last character, and its name; the alias goes behind it.
    """
    if not changes or not tokens:
        return
    if not outermost and tokens[0].token_type == TokenType.SELECT and text.lower().count("select") == 1:
        return
    kinds = [token.token_type for token in tokens]
    if kinds.count(TokenType.SELECT) == 1 == kinds.count(TokenType.FROM):
        before = kinds[: kinds.index(TokenType.FROM)]
        is_outside = all(before.count(a) == before.count(b) for a, b in zip(OPENING, CLOSING, strict=True))
        if is_outside and TokenType.SELECT in before and tokens[len(before)].start < changes[0]:
            return  # all changes are behind the only SELECT list
    for start, end in select_items(tokens, 0 if outermost else 1):
        at = bisect_left(changes, start)
        if at < len(changes) and changes[at] <= end and (name := generated_name(text[start : end + 1])) is not None:
            yield end, name


def select_items(
    tokens: Sequence[Token], least: int = 0, kinds: Collection[TokenType] = (TokenType.SELECT,)
) -> Iterator[tuple[int, int]]:
    """Yield first and last character of each item of the SELECT lists of a text.

    Args:
        tokens: the tokens of the text.
        least: minimum number of brackets around a list.
        kinds: the tokens that begin a list.
    """
    depth = 0
    for at, token in enumerate(tokens):
        depth += step(token)
        if token.token_type in kinds and depth >= least:
            yield from _listed(tokens, _first(tokens, at + 1))


def _first(tokens: Sequence[Token], at: int) -> int:
    """Return the index of the token behind ``ALL``, ``DISTINCT`` or ``DISTINCT ON (…)``."""
    while at < len(tokens) and tokens[at].token_type in (TokenType.ALL, TokenType.DISTINCT):
        at += 1
    if at == len(tokens) or tokens[at].token_type != TokenType.ON:
        return at
    return closing(tokens, at + 1) + 1


def _listed(tokens: Sequence[Token], at: int) -> Iterator[tuple[int, int]]:
    depth, first = 0, at
    while at < len(tokens):
        kind = tokens[at].token_type
        if depth == 0 and (kind in CLOSING or kind == TokenType.COMMA or _ends(tokens, at)):
            if at > first:
                yield tokens[first].start, tokens[at - 1].end
            if kind != TokenType.COMMA:
                return
            first = at + 1
        depth += step(tokens[at])
        at += 1
    if at > first:
        yield tokens[first].start, tokens[at - 1].end


def _ends(tokens: Sequence[Token], at: int) -> bool:
    """Return True for a word behind a SELECT list; FROM in ``IS DISTINCT FROM`` is not."""
    is_within = tokens[at].token_type == TokenType.FROM and tokens[at - 1].token_type == TokenType.DISTINCT
    return tokens[at].token_type in _ENDS and not is_within


@lru_cache(maxsize=1024)
def generated_name(expression: str) -> str | None:
    """Return the name that DuckDB generates for an expression of a SELECT list.

    None for an expression with a name, for several columns, and if the parser does not tell.

    >>> generated_name("a.t.id+1"), generated_name("max(a.t.id)::date")
    ('(a.t.id + 1)', 'CAST(max(a.t.id) AS "DATE")')
    >>> generated_name("max(a.t.id) n"), generated_name("columns(*)"), generated_name("a.t.id")
    (None, None, None)
    """
    parsed = item_in(expression)
    if parsed is None or parsed[0]["alias"] or parsed[0]["class"] == "COLUMN_REF":
        return None
    item, statement = parsed
    if item["class"] == "FUNCTION" and item["function_name"].lower() == "unnest":
        return None  # unnest() of a struct gives several columns
    name = str(answer("SELECT json_deserialize_sql($1::json)", statement)[0][0]).removeprefix("SELECT ")
    for part in parts_in(item):
        if part.get("class") in ("STAR", "LAMBDA"):  # DuckDB's JSON loses the spelling of a lambda
            return None
        if part.get("class") == "CAST":
            kind = part["cast_type"]
            if kind["type_info"] is not None or _SPELLED.search(expression):
                return None
            name = name.replace(f" AS {kind['id']})", f" AS {_shown_type(kind['id'])})")
    return name


@cache
def _shown_type(kind: str) -> str:
    """Return a type as generated names show it."""
    [(name,)] = answer(f"SELECT column_name FROM (DESCRIBE SELECT CAST(NULL AS {kind}))")
    return str(name).removeprefix("CAST(NULL AS ")[:-1]
