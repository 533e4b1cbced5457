"""Repair of wrong column statistics in a DuckLake catalog.

A DuckLake keeps the least and greatest value of each column, per table and per file. DuckDB plans
by the table's bounds. It skips values beyond them and answers min() and max() from them. It also
packs values to sort, group or join into the bytes that the bounds leave.

duckdb 1.5.5 loses the table's bounds in two cases:

- A table's first commit has several files. The first file has only NULL in a column, and the next
file has values.
- A file without bounds is added.

The next commit then takes its own bounds for those of all rows. Rows beyond them are not found, and
a merge of sorted files writes other values. The bounds per file stay true and reveal the error.

If a file is added that lacks a column, the table's statistics leave out its NULL or default. The
catalog has no statistics of the column for that file.

Source: the DuckLake specification 1.0, ducklake_table_column_stats, ducklake_file_column_stats;
https://github.com/duckdb/ducklake/issues/1397, https://github.com/duckdb/ducklake/issues/1411.
"""

from __future__ import annotations

from duckrun.formats.ducklake.catalog.catalog import Catalog, there
from duckrun.sql.quoting import quote_literal

_NUMBER = "regexp_matches(kind, '^(u?int|float|decimal)')"
_INSTANT = "regexp_matches(kind, '^(date|timestamp)')"
_OTHERWISE = {"float32": "FLOAT", "float64": "DOUBLE"}
"""Catalog type names that DuckDB SQL lacks (DuckLake specification 1.0, Data Types)."""


def bounds_sql(catalog: Catalog, at: int | None, table_id: int | None = None) -> str:
    """Return a FROM clause with the columns, and fields of columns, whose bounds the catalog keeps.

    The rows are ``table_id``, ``column_id``, ``kind``, ``missing``, ``by_default`` and ``untrue``.
    ``missing`` is true if a file lacks the column, whose value there is ``by_default``. ``untrue``
    is true if the table's statistics are wrong, or if the next commit could make them wrong.

    Args:
        at: Snapshot whose files are compared; None compares all files of the catalog.
        table_id: Table to check; None for all tables.
    """
    meta, of_table = catalog.meta, "" if table_id is None else f"WHERE table_id = {table_id}"
    live = of_table if at is None else f"{of_table}{' AND' if of_table else 'WHERE'} {there('f', at)}"
    files = f"FROM {meta('ducklake_data_file')} AS f {live}"
    of_files = of_table
    if at is not None:
        of_files = f"{of_table}{' AND' if of_table else 'WHERE'} data_file_id IN (SELECT data_file_id {files})"
    untrue = f"bool_or({_untrue('lowest', 'highest', 'valid')} OR {_NULLS} AND nulls)"
    # A file has statistics of each of its columns, perhaps without values.
    missing = "count(data_file_id) < any_value(files)"
    default = _untrue("by_default", "by_default", "false")
    unlike = f"{missing} AND bool_or(CASE WHEN by_default IS NULL THEN {_NULLS} ELSE {default} END)"
    return (
        f"(SELECT table_id, column_id, any_value(kind) AS kind, {missing} AS missing, any_value(by_default) AS "
        f"by_default, coalesce({untrue}, false) OR coalesce({unlike}, false) AS untrue FROM "
        "(SELECT table_id, column_id, contains_null, contains_nan, min_value AS least, max_value AS most "
        f"FROM {meta('ducklake_table_column_stats')} {of_table}) LEFT JOIN "
        "(SELECT table_id, column_id, max_by(column_type, begin_snapshot) AS kind, any_value(initial_default) AS "
        f"by_default FROM {meta('ducklake_column')} {of_table} GROUP BY ALL) USING (table_id, column_id) LEFT JOIN "
        f"(SELECT table_id, count(*) AS files {files} GROUP BY table_id) USING (table_id) LEFT JOIN "
        "(SELECT table_id, column_id, data_file_id, min_value AS lowest, max_value AS highest, "
        "coalesce(value_count > 0, true) AS valid, coalesce(null_count > 0, false) AS nulls "
        f"FROM {meta('ducklake_file_column_stats')} {of_files}) USING (table_id, column_id) "
        "GROUP BY table_id, column_id)"
    )


_NULLS = "NOT coalesce(CAST(contains_null AS BOOLEAN), true)"
"""SQL that is true if the table's statistics exclude NULL."""


def _untrue(lowest: str, highest: str, valid: str) -> str:
    """SQL that is true if the table's bounds may exclude values from ``lowest`` to ``highest``."""
    return (
        # DuckDB does not use bounds of columns with NaN
        "CASE WHEN coalesce(contains_nan, false) THEN false WHEN least IS NULL AND most IS NULL "
        f"THEN {lowest} IS NOT NULL OR {valid} AND kind NOT IN ('variant', 'geometry') "
        "WHEN least IS NULL OR most IS NULL THEN false "
        f"WHEN {lowest} IS NULL THEN {valid} "
        f"ELSE {_below(lowest, 'least')} OR {_below('most', highest)} END"
    )


def _below(one: str, other: str) -> str:
    """SQL that is true if one bound may be below another of the same column.

    It is also true if that is unknown.
    """
    # DOUBLE may round two bounds to one value. Different texts then count as possibly below.
    number = f"TRY_CAST({one} AS DOUBLE) <= TRY_CAST({other} AS DOUBLE) AND {one} <> {other}"
    # Texts of dates sort like the dates only if both years have four digits.
    four_digits = "'^[0-9]{4}-'"
    years = f"regexp_matches({one}, {four_digits}) AND regexp_matches({other}, {four_digits})"
    instant = f"CASE WHEN {years} THEN {one} < {other} ELSE {one} <> {other} END"
    return f"coalesce(CASE WHEN {_NUMBER} THEN {number} WHEN {_INSTANT} THEN {instant} ELSE {one} < {other} END, true)"


def unbucketed_sql(catalog: Catalog, at: int | None, table_id: int) -> str:
    """Return a FROM clause with the ``column_id`` of columns that some files have in no bucket.

    ``ALTER TABLE … SET PARTITIONED BY (bucket(n, column))`` does not rewrite older files. DuckDB
    looks for a value only in the files of its bucket, and misses the rows of older files (1.5.5).
    No filter that reaches DuckLake may therefore name such a column.

    Source: https://github.com/duckdb/ducklake/issues/1414.

    Args:
        at: Snapshot whose files and partitions are compared; None compares all of the catalog.
    """
    meta, of_table = catalog.meta, f"WHERE table_id = {table_id}"
    valid = "" if at is None else f" AND {there('e', at)}"
    keys = (
        f"(SELECT partition_id FROM {meta('ducklake_partition_info')} AS e {of_table}{valid}) JOIN "
        f"(SELECT partition_id, column_id, transform FROM {meta('ducklake_partition_column')} {of_table}) "
        "USING (partition_id)"
    )
    files = f"SELECT DISTINCT partition_id AS actual FROM {meta('ducklake_data_file')} AS e {of_table}{valid}"
    return (
        f"(SELECT DISTINCT column_id FROM {keys} JOIN ({files}) ON actual IS DISTINCT FROM partition_id "
        "WHERE transform LIKE 'bucket%')"
    )


def mend(catalog: Catalog, table_id: int | None = None) -> bool:
    """Replace wrong column statistics of a table, or of all tables (None), by those of its files.

    The caller holds the lock. Bounds become NULL if rows in the catalog, or in a file without
    bounds, make them unknown.

    Returns:
        True if some statistics were wrong.

    Raises:
        StorageError: The catalog cannot be changed.
    """
    columns = (
        f"SELECT table_id, column_id, kind, {_NUMBER} OR {_INSTANT} AS ordered, missing, by_default, {_NUMBER} OR "
        f"kind = 'varchar' AS plain FROM {bounds_sql(catalog, None, table_id)} WHERE untrue"
    )
    wrong = catalog.ask(columns)
    for table, column, kind, ordered, missing, default, plain in wrong:
        place = f"WHERE table_id = {table} AND column_id = {column}"
        order = _OTHERWISE.get(kind, kind) if ordered else "VARCHAR"
        files = (
            f"SELECT min_value, max_value, value_count, null_count FROM {catalog.meta('ducklake_file_column_stats')}"
        )
        files = f"{files} {place}"
        if missing:
            # Bounds of other types need not have the text of a default.
            value = "NULL" if default is None or not plain else quote_literal(default)
            count = int(default is not None)
            files = f"{files} UNION ALL SELECT {value}, {value}, {count}, {1 - count}"
        least, most, unknown, nulls = catalog.ask(
            f"SELECT min_by(min_value, CAST(min_value AS {order})), max_by(max_value, CAST(max_value AS {order})), "
            "bool_or(min_value IS NULL AND coalesce(value_count > 0, true)) "
            f"OR EXISTS (FROM {catalog.meta('ducklake_inlined_data_tables')} WHERE table_id = {table}), "
            f"coalesce(bool_or(null_count > 0), false) FROM ({files})"
        )[0]
        bounds = ("NULL", "NULL") if unknown or least is None else (quote_literal(least), quote_literal(most))
        with catalog.errors("bounds of columns"):
            catalog.cursor().execute(
                f"UPDATE {catalog.meta('ducklake_table_column_stats')} SET min_value = {bounds[0]}, max_value = "
                f"{bounds[1]}{', contains_null = true' if nulls else ''} {place}"
            )
    return bool(wrong)
