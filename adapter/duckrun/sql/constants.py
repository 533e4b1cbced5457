"""Rows of this process as a query of constants, which every engine can read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp

LISTED = "__duckrun_listed"
"""Alias of the VALUES list in the query."""
_SPECIAL = re.compile(r"[^\w .,()-]")
"""Characters that a dialect may escape in a text."""


def constant_rows(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]], dialect: str) -> exp.Subquery:
    """Return rows as a subquery of constants, to stand for a table in a query.

    Args:
        columns: DuckDB types of all columns, by name. A column that a row lacks is NULL.
        rows: texts, whole numbers, booleans and NULL.
        dialect: the dialect of the query.

    >>> columns = {"n": "INTEGER", "x": "VARCHAR"}
    >>> rows = constant_rows(columns, [{"n": 1}, {"n": 2}], "duckdb")
    >>> print(rows.sql("duckdb"))  # doctest: +NORMALIZE_WHITESPACE
    (SELECT CAST("n" AS INT) AS "n", CAST(NULL AS TEXT) AS "x"
     FROM (VALUES (1), (2)) AS __duckrun_listed("n") WHERE TRUE)
    """
    filled = [name for name in columns if any(row.get(name) is not None for row in rows)] or [next(iter(columns))]
    names = {name: exp.to_identifier(name, quoted=True).sql(dialect) for name in columns}
    types = {kind: exp.DataType.build(kind, dialect="duckdb").sql(dialect) for kind in columns.values()}
    listed = ", ".join(
        f"CAST({names[name] if name in filled else 'NULL'} AS {types[kind]}) AS {names[name]}"
        for name, kind in columns.items()
    )
    values = ", ".join(f"({', '.join(_constant(row.get(name), dialect) for name in filled)})" for row in rows or [{}])
    text = (
        f"SELECT {listed} FROM (VALUES {values}) AS {LISTED}({', '.join(names[name] for name in filled)}) "
        f"WHERE {'TRUE' if rows else 'FALSE'}"
    )
    return exp.Subquery(this=exp.var(text))


def _constant(value: Any, dialect: str) -> str:
    # sqlglot takes 70 µs for a constant, and a lake of 3,000 tables has 100,000 of them.
    if isinstance(value, str) and not _SPECIAL.search(value):
        return f"'{value}'"
    if type(value) is int:
        return str(value)
    return "NULL" if value is None else exp.convert(value).sql(dialect)
