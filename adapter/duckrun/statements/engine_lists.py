"""DuckDB's catalog functions, such as ``duckdb_tables()``, with the tables of the lakes.

DuckDB itself would list the tables of its memory only. The lakes' rows are those of
``information_schema``.
"""

from __future__ import annotations

from collections.abc import Callable

from duckrun.errors import UnsupportedFeature
from duckrun.lake.lake import INFORMATION
from duckrun.libraries import exp

_PLACE = "table_catalog AS database_name, table_schema AS schema_name"
_TEMPORARY = "table_catalog = 'temp' AS temporary"
_QUERIES = {
    "duckdb_tables": f"SELECT {_PLACE}, table_name, TABLE_COMMENT AS comment, false AS internal, {_TEMPORARY} FROM "
    f"{{tables}} AS listed "
    "WHERE table_type <> 'VIEW'",
    "duckdb_views": f"SELECT {_PLACE}, table_name AS view_name, TABLE_COMMENT AS comment, view_definition AS sql, "
    f"false AS internal, {_TEMPORARY} "
    "FROM {tables} AS listed LEFT JOIN {views} AS written USING (table_catalog, table_schema, table_name) WHERE "
    "table_type = 'VIEW'",
    "duckdb_columns": f"SELECT {_PLACE}, table_name, column_name, ordinal_position AS column_index, COLUMN_COMMENT "
    "AS comment, "
    "column_default, is_nullable = 'YES' AS is_nullable, data_type, numeric_precision, numeric_precision_radix, "
    "numeric_scale, false AS internal FROM {columns} AS listed",
    "duckdb_schemas": "SELECT catalog_name AS database_name, schema_name, schema_name = 'main' AS internal FROM "
    "{schemata} AS listed",
}
_OWN = "internal AND database_name IN ('system', 'temp')"
LISTS = tuple(_QUERIES)
_VIEWS = ("tables", "columns", "views", "schemata")


def list_sql(name: str, view: Callable[[str], str]) -> str:
    """Return SQL of one of the LISTS with the rows of the lakes alone.

    Args:
        name: the name of the list.
        view: returns SQL of a table of information_schema by its name.
    """
    query = _QUERIES[name]
    return query.format(**{each: view(each) for each in _VIEWS if f"{{{each}}}" in query})


def list_in(table: exp.Table) -> str | None:
    """Return the name of the list that a call gives; None for another function."""
    call = table.this
    name = call.name.lower() if isinstance(call, exp.Anonymous) and not call.expressions and not table.db else ""
    return name if name in _QUERIES else None


def list_rows(name: str, view: Callable[[str], str]) -> exp.Expr:
    """Return a list with DuckDB's columns and internal rows, and with the rows of the lakes."""
    return exp.Subquery(this=exp.var(f"SELECT * FROM {name}() WHERE {_OWN} UNION ALL BY NAME ({list_sql(name, view)})"))


def refuse_list(table: exp.Table, what: str) -> None:
    """Raise UnsupportedFeature for a view or macro of the lake that reads a list.

    Each session has its own list.
    """
    name = list_in(table)
    if name is not None:
        raise UnsupportedFeature(
            f"{what} reads {name}(), which each session has of its own; ask it, or {INFORMATION}, or CREATE TEMP VIEW."
        )
