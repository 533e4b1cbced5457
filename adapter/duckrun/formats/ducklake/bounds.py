"""The least and greatest values that a DuckLake keeps of each column, of the whole table and of each file, where those of the table are not true.

DuckDB plans by the bounds of the table: it looks for nothing beyond them, reads min() and max() off them, and packs what it sorts, groups or joins into
the bytes that they leave. duckdb 1.5.5 loses them where a table's first commit is of several files, the first of which has nothing but NULL of a column
while the next has values, and where a file comes without bounds. The commit after that takes its own for those of all rows: rows beyond are not found,
and a merge of sorted files writes other values. The bounds of files stay true, and show it.

Source: the DuckLake specification 1.0, ducklake_table_column_stats, ducklake_file_column_stats; upstream issues 1397 and 1411.
"""

from __future__ import annotations

from duckrun.formats.ducklake.catalog import Catalog, there
from duckrun.sql.names import quote_literal

_NUMBER = "regexp_matches(kind, '^(u?int|float|decimal)')"
_INSTANT = "regexp_matches(kind, '^(date|timestamp)')"
_OTHERWISE = {"float32": "FLOAT", "float64": "DOUBLE"}
"""The catalog's names of types that DuckDB's SQL does not know. Source: the DuckLake specification 1.0, Data Types."""


def bounds_sql(catalog: Catalog, at: int | None, table_id: int | None = None) -> str:
    """The columns, or fields of columns, that a table had when its first rows came, in SQL behind FROM: ``table_id``, ``column_id``, ``kind``, and ``untrue``
    where what is kept of the table is not true of the files that are there at a snapshot (None: of all that the catalog has), or where the next commit
    could make it so.
    """
    meta, own = catalog.meta, "" if table_id is None else f"WHERE table_id = {table_id}"
    files = ""
    if at is not None:
        live = f"FROM {meta('ducklake_data_file')} AS f {own}{' AND' if own else 'WHERE'} {there('f', at)}"
        files = f"{' AND' if own else 'WHERE'} data_file_id IN (SELECT data_file_id {live})"
    untrue = (
        "CASE WHEN coalesce(contains_nan, false) THEN false "  # of these DuckDB asks no bounds
        "WHEN least IS NULL AND most IS NULL THEN lowest IS NOT NULL OR valid AND kind NOT IN ('variant', 'geometry') "
        "WHEN least IS NULL OR most IS NULL THEN false "
        "WHEN lowest IS NULL THEN valid "
        f"ELSE {_below('lowest', 'least')} OR {_below('most', 'highest')} END"
    )
    return (
        f"(SELECT table_id, column_id, any_value(kind) AS kind, coalesce(bool_or({untrue}), false) AS untrue FROM "
        f"(SELECT table_id, column_id, contains_nan, min_value AS least, max_value AS most FROM {meta('ducklake_table_column_stats')} {own}) LEFT JOIN "
        f"(SELECT table_id, column_id, max_by(column_type, begin_snapshot) AS kind FROM {meta('ducklake_column')} {own} GROUP BY ALL) USING (table_id, column_id) LEFT JOIN "
        "(SELECT table_id, column_id, min_value AS lowest, max_value AS highest, coalesce(value_count > 0, true) AS valid "
        f"FROM {meta('ducklake_file_column_stats')} {own}{files}) USING (table_id, column_id) GROUP BY table_id, column_id)"
    )


def _below(one: str, other: str) -> str:
    """Whether a bound may be below another one of the same column: true where that is not certain."""
    number = f"TRY_CAST({one} AS DOUBLE) <= TRY_CAST({other} AS DOUBLE) AND {one} <> {other}"
    four_digits = "'^[0-9]{4}-'"
    years = f"regexp_matches({one}, {four_digits}) AND regexp_matches({other}, {four_digits})"
    instant = f"CASE WHEN {years} THEN {one} < {other} ELSE {one} <> {other} END"
    return f"coalesce(CASE WHEN {_NUMBER} THEN {number} WHEN {_INSTANT} THEN {instant} ELSE {one} < {other} END, true)"


def mend(catalog: Catalog, table_id: int | None = None) -> bool:
    """Give a table, or all (None), the bounds of its files where those that are kept of it are not true; whether there were any. To be called under
    the lock. Bounds that nobody knows, of rows in the catalog or in a file without, are none. Raises StorageError.
    """
    columns = f"SELECT table_id, column_id, kind, {_NUMBER} OR {_INSTANT} AS ordered FROM {bounds_sql(catalog, None, table_id)} WHERE untrue"
    found = catalog.ask(columns)
    for table, column, kind, ordered in found:
        place = f"WHERE table_id = {table} AND column_id = {column}"
        order = _OTHERWISE.get(kind, kind) if ordered else "VARCHAR"
        least, most, unknown = catalog.ask(
            f"SELECT min_by(min_value, CAST(min_value AS {order})), max_by(max_value, CAST(max_value AS {order})), "
            f"bool_or(min_value IS NULL AND coalesce(value_count > 0, true)) OR EXISTS (FROM {catalog.meta('ducklake_inlined_data_tables')} WHERE table_id = {table}) "
            f"FROM {catalog.meta('ducklake_file_column_stats')} {place}"
        )[0]
        bounds = ("NULL", "NULL") if unknown or least is None else (quote_literal(least), quote_literal(most))
        with catalog.errors("bounds of columns"):
            catalog.cursor().execute(
                f"UPDATE {catalog.meta('ducklake_table_column_stats')} SET min_value = {bounds[0]}, max_value = {bounds[1]} {place}"
            )
    return bool(found)
