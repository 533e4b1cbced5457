"""Rows of this process as a query of constants, which every engine can read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp


def constant_rows(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]], dialect: str) -> exp.Subquery:
    """Return rows as a subquery of constants, to stand for a table in a query.

    Each column is one JSON list. DuckDB takes 0.6 s to bind a VALUES list of 15,000 rows.

    Args:
        columns: DuckDB types of all columns, by name. A column that a row lacks is NULL.
        rows: texts, whole numbers, booleans and NULL.
        dialect: the dialect of the query.

    >>> columns = {"n": "INTEGER", "x": "VARCHAR"}
    >>> rows = constant_rows(columns, [{"n": 1}, {"n": 2}], "duckdb")
    >>> print(rows.sql("duckdb"))  # doctest: +NORMALIZE_WHITESPACE
    (SELECT "n", CAST(NULL AS TEXT) AS "x"
     FROM (SELECT UNNEST(from_json('[1,2]', '["INTEGER"]')) AS "n"))
    """
    # Most columns of most rows are NULL.
    present = {name for row in rows for name, value in row.items() if value is not None}
    filled = [name for name in columns if name in present] or [next(iter(columns))]
    names = {name: exp.to_identifier(name, quoted=True).sql(dialect) for name in columns}
    types = {kind: exp.DataType.build(kind, dialect="duckdb").sql(dialect) for kind in columns.values()}
    lists = [_list([row.get(name) for row in rows], columns[name], types[columns[name]], dialect) for name in filled]
    quoted = [names[name] for name in filled]
    if dialect == "duckdb":
        unnested = ", ".join(f"UNNEST({each}) AS {name}" for each, name in zip(lists, quoted, strict=True))
    else:
        unnested = f"inline(arrays_zip({', '.join(lists)})) AS ({', '.join(quoted)})"
    listed = (
        names[name] if name in filled else f"CAST(NULL AS {types[kind]}) AS {names[name]}"
        for name, kind in columns.items()
    )
    return exp.Subquery(this=exp.var(f"SELECT {', '.join(listed)} FROM (SELECT {unnested})"))


def _list(values: Sequence[Any], kind: str, spelled: str, dialect: str) -> str:
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    form = json.dumps([kind]) if dialect == "duckdb" else f"array<{spelled}>"
    return f"from_json({', '.join(exp.Literal.string(each).sql(dialect) for each in (text, form))})"
