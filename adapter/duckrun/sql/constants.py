"""Rows of this process as a query of constants, which any engine reads at any time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp

LISTED = "__duckrun_listed"
"""What the constants are called in the text of a query."""


def constant_rows(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]], dialect: str) -> exp.Subquery:
    """Rows of texts, whole numbers, booleans and NULL, as it may stand for a table in a query of a dialect. ``columns`` are all of
    them with their types in DuckDB's words; one that a row does not have is NULL.

    >>> print(constant_rows({"n": "INTEGER", "x": "VARCHAR"}, [{"n": 1}, {"n": 2}], "duckdb").sql("duckdb"))
    (SELECT CAST("n" AS INT) AS "n", CAST(NULL AS TEXT) AS "x" FROM (VALUES (1), (2)) AS __duckrun_listed("n") WHERE TRUE)
    """
    given = [name for name in columns if any(row.get(name) is not None for row in rows)] or [next(iter(columns))]
    names = {name: exp.to_identifier(name, quoted=True).sql(dialect) for name in columns}
    types = {kind: exp.DataType.build(kind, dialect="duckdb").sql(dialect) for kind in columns.values()}
    listed = ", ".join(
        f"CAST({names[name] if name in given else 'NULL'} AS {types[kind]}) AS {names[name]}"
        for name, kind in columns.items()
    )
    values = ", ".join(f"({', '.join(_constant(row.get(name), dialect) for name in given)})" for row in rows or [{}])
    text = (
        f"SELECT {listed} FROM (VALUES {values}) AS {LISTED}({', '.join(names[name] for name in given)}) "
        f"WHERE {'TRUE' if rows else 'FALSE'}"
    )
    return exp.Subquery(this=exp.var(text))


def _constant(value: Any, dialect: str) -> str:
    return exp.convert(value).sql(dialect)
