"""Quoting of names and values in SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import count


def quote_identifier(*parts: str) -> str:
    """Return a qualified name, each part in double quotes (DuckDB, DataFusion).

    >>> print(quote_identifier("sales", 'odd "name'))
    "sales"."odd ""name"
    """
    return ".".join(['"' + part.replace('"', '""') + '"' for part in parts])


def quoted_names(names: Iterable[str], of: str = "") -> dict[str, str]:
    """Return column -> its name in double quotes, behind the alias ``of`` if there is one.

    >>> quoted_names(["id"], of="target")
    {'id': 'target."id"'}
    """
    # One call for all columns: a wide table has hundreds, in several lists of each statement.
    before = f'{of}."' if of else '"'
    return {name: before + name.replace('"', '""') + '"' for name in names}


def quoted_list(names: Iterable[str], of: str = "") -> str:
    """Return a list of columns in SQL, each behind the alias ``of`` if there is one.

    >>> print(quoted_list(["id", "n"]))
    "id", "n"
    """
    listed = list(names)
    quoted = quoted_names(listed, of)
    return ", ".join([quoted[name] for name in listed])


def select_list(values: Mapping[str, str]) -> str:
    """Return the SELECT list of a mapping of column to expression.

    >>> print(select_list({"id": "source.k", "n": "1"}))
    source.k AS "id", 1 AS "n"
    """
    return ", ".join([f"{values[name]} AS {quoted}" for name, quoted in quoted_names(values).items()])


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
    name, number = wanted, 0
    while name.lower() in used:
        number += 1
        name = f"{wanted}_{number}"
    return name
