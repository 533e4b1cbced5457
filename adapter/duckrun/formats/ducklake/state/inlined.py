"""Rows and deletes of a table that lie in the catalog instead of in files.

DuckLake creates the tables for them on first use. Source: the DuckLake specification 1.0, Data
Inlining.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb

from duckrun.formats.ducklake.catalog.catalog import Catalog
from duckrun.formats.ducklake.state.state import TableState
from duckrun.sql.quoting import quote_literal


def inlined_tables(ask: Callable[[str], list[tuple[Any, ...]]], meta: Callable[[str], str], table_id: int) -> list[str]:
    """Return the names of a table's inlined tables."""
    rows = ask(f"SELECT table_name FROM {meta('ducklake_inlined_data_tables')} WHERE table_id = {table_id}")
    return [name for (name,) in rows]


def inlined_rows(catalog: Catalog, state: TableState, epoch: int | str, tables: list[str]) -> str:
    """Return a FROM clause for the inlined rows of a version."""
    # DuckLake reports the inlined table's name as the file name of its rows. The filter keeps it
    # from opening any data file.
    names = ", ".join(map(quote_literal, tables))
    return f"{catalog.rows(epoch, state.schema, state.name, state.version)} WHERE filename IN ({names})"


def if_there(cursor: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    """Query a table that DuckLake creates on first use; empty if it does not exist."""
    try:
        return cursor.execute(sql).fetchall()
    except duckdb.CatalogException:
        return []
