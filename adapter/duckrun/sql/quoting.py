"""Quoting of names and values in SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import count


def quote_identifier(*parts: str) -> str:
    """Return a qualified name, each part in double quotes (DuckDB, DataFusion).

    >>> print(quote_identifier("sales", 'odd "name'))
    "sales"."odd ""name"
    """
    return ".".join(['"' + part.replace('"', '""') + '"' for part in parts])


def quote_literal(value: str) -> str:
    """Return a string literal in standard SQL.

    >>> print(quote_literal("it's"))
    'it''s'
    """
    return "'" + value.replace("'", "''") + "'"


def with_values(sql: str, values: Iterable[str | int]) -> str:
    """Return a statement with literals for ``?``, or for ``$1``, ``$2``, ….

    DuckDB imports pandas to bind a value, which takes a third of a second per process.

    >>> print(with_values('SELECT "a?" FROM t WHERE b = ? AND c > ?', ["it's", 3]))
    SELECT "a?" FROM t WHERE b = 'it''s' AND c > 3
    """
    literals = list(values)
    places = count()

    def literal(match: re.Match[str]) -> str:
        if match[0][0] in "'\"":
            return match[0]
        value = literals[next(places) if match[0] == "?" else int(match[0][1:]) - 1]
        return str(value) if isinstance(value, int) else quote_literal(value)

    return re.sub(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\?|\$\d+""", literal, sql)


def fresh_name(wanted: str, taken: Iterable[str]) -> str:
    """Return a name that no column has, in any case: the wanted one, or it with a number.

    >>> fresh_name("n", ["N", "n_1", "x"])
    'n_2'
    """
    used = {name.lower() for name in taken}
    names = (wanted if number == 0 else f"{wanted}_{number}" for number in count())
    return next(name for name in names if name.lower() not in used)
