"""Rules for rows in the catalog, without which DuckLake would damage them (duckdb 1.5.5)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import duckdb

from duckrun.errors import UnsupportedFeature
from duckrun.formats.ducklake.catalog.catalog import INLINE_LIMIT, Catalog, set_option
from duckrun.formats.ducklake.commits.work import Work
from duckrun.formats.ducklake.state.inlined import inlined_tables
from duckrun.values.snapshot import TableRef

log = logging.getLogger(__name__)


def keep_out_of_older_rows(catalog: Catalog, work: Work, ref: TableRef, table_id: int) -> None:
    """Send new rows of a table to files if its inlined rows have an older schema.

    Columns that changed while ``inline_rows`` was 0 lead to that. DuckLake would store new rows
    beside the old ones. With more or fewer columns the commit fails. After a widening, neither a
    read nor a flush works any more (duckdb 1.5.5).

    Raises:
        UnsupportedFeature: The change happens within a multi-table transaction.
    """
    meta = catalog.meta
    rows = catalog.ask(
        f"SELECT (SELECT max(schema_version) FROM {meta('ducklake_inlined_data_tables')} "
        f"WHERE table_id = {table_id}) < "
        f"(SELECT max(schema_version) FROM {meta('ducklake_schema_versions')} WHERE table_id = {table_id}), "
        f"(SELECT count(*) FROM {meta('ducklake_metadata')} WHERE scope = 'table' AND scope_id = {table_id} "
        f"AND key = '{INLINE_LIMIT}' AND value = '0')"
    )
    older, settled = rows[0]
    if not older or (settled and work.is_shared):  # Its attachment is newer than the option.
        return
    if work.is_shared:
        raise UnsupportedFeature(
            f"Table {ref}: its columns changed while inline_rows was 0, and rows of before lie in the catalog: "
            f"call set_inline_rows(0, '{ref}') in front of the transaction"
        )
    for alias in dict.fromkeys((catalog.alias(), work.alias)):
        with catalog.errors(f"table {ref}"):
            set_option(work.cursor.cursor(), alias, INLINE_LIMIT, 0, ref.schema, ref.name)
    if not settled:
        log.warning("table %s: its columns changed while inline_rows was 0; its rows lie in files from now on", ref)


_SAFE = {
    "boolean", "tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger", "ubigint", "decimal",
}  # fmt: skip
"""Types whose values survive in a struct of an inlined row."""


def refuse_nested_in_the_catalog(
    catalog: Catalog, ref: TableRef, table_id: int | None, types: Mapping[str, str]
) -> None:
    """Raise UnsupportedFeature if nested values of inlined rows would not survive.

    SQLite and PostgreSQL hold them as text. DuckLake stores fields of structs as texts of casts
    (``CAST('2020-01-01' AS DATE)``), and does not escape strings in maps, or in lists of lists.
    Then no row of the table can be read any more, or a value changes.
    https://github.com/duckdb/ducklake/issues/1435
    """
    if catalog.address.kind == "duckdb":
        return
    nested = {name: kind for name, kind in types.items() if kind.endswith(("]", ")"))}
    unsafe = [name for name, kind in nested.items() if _is_unsafe(duckdb.type(kind))]
    if unsafe and _may_lie_in_catalog(catalog, ref, table_id):
        raise UnsupportedFeature(
            f"Table {ref}: {', '.join(unsafe)} has a nested type that DuckLake does not give back of rows in the "
            "catalog (a struct with strings, dates, times, floats, BLOB, UUID, …; strings in a map, or in a list of "
            "lists): have its rows in files, by inline_rows: 0 or, once the table is created, "
            f"set_inline_rows(0, '{ref}')"
        )


def refuse_system_columns(catalog: Catalog, ref: TableRef, table_id: int | None, names: Iterable[str]) -> None:
    """Raise UnsupportedFeature if inlined rows would need a reserved column name of PostgreSQL.

    Source: PostgreSQL's documentation, System Columns.
    """
    taken = [name for name in names if name.lower() in _SYSTEM_COLUMNS]
    if taken and catalog.address.kind == "postgres" and _may_lie_in_catalog(catalog, ref, table_id):
        raise UnsupportedFeature(
            f"Table {ref}: {', '.join(taken)} is a system column of PostgreSQL, where rows of the table would "
            "lie: use another name, or have the rows in files, by inline_rows: 0"
        )


_SYSTEM_COLUMNS = {"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"}


def _may_lie_in_catalog(catalog: Catalog, ref: TableRef, table_id: int | None) -> bool:
    """True if small inserts are inlined, by the option of the table, schema, lake or session."""
    schema = f"SELECT schema_id FROM {catalog.meta('ducklake_schema')} WHERE schema_name = ? AND end_snapshot IS NULL"
    limits = dict(
        catalog.ask(
            f"SELECT coalesce(scope, 'lake'), max(value::BIGINT) FROM {catalog.meta('ducklake_metadata')} "
            f"WHERE key = '{INLINE_LIMIT}' "
            f"AND (scope IS NULL OR scope = 'table' AND scope_id = {-1 if table_id is None else table_id} "
            f"OR scope = 'schema' AND scope_id IN ({schema})) GROUP BY ALL",
            [ref.schema],
        )
    )
    order = ("table", "schema", "lake")
    return bool(next((limits[scope] for scope in order if scope in limits), catalog.inline_rows))


def _is_unsafe(kind: Any, around: tuple[str, ...] = ()) -> bool:
    """True if values of a type do not survive inside of the types ``around``, outermost first."""
    if kind.id == "struct" and any("'" in name or "\\" in name for name, _ in kind.children):
        return True
    if kind.id in ("struct", "list", "map", "array"):
        parts = [each for _, each in kind.children if hasattr(each, "id")]
        return any(_is_unsafe(each, (*around, kind.id)) for each in parts)
    if str(kind) in ("VARCHAR", "JSON"):
        return around not in ((), ("list",))
    return "struct" in around and kind.id not in _SAFE


def lie_in_catalog(catalog: Catalog, table_id: int) -> bool:
    """True if the table has inlined rows."""
    tables = inlined_tables(catalog.ask, catalog.meta, table_id)
    return any(catalog.ask(f"SELECT 1 FROM {catalog.meta(name)} LIMIT 1") for name in tables)
