"""Folders of tables in the data folder of a lake."""

from __future__ import annotations

import re
from pathlib import Path

from duckrun.formats.ducklake.catalog.catalog import Catalog
from duckrun.sql.quoting import quote_literal
from duckrun.storage.trouble import is_full


def table_folder(catalog: Catalog, table_id: int) -> str:
    """Return the folder of a table, with a slash at the end. A rename does not change it."""
    return str(catalog.ask(folder_sql(catalog, table_id))[0][0])


def folder_sql(catalog: Catalog, table_id: int, epoch: int | str = 0) -> str:
    """Return the query for the folder of a table, which yields one row."""
    data = quote_literal(catalog.data_path)
    return (
        "SELECT CASE WHEN NOT t.path_is_relative THEN t.path WHEN NOT s.path_is_relative THEN s.path || t.path "
        f"ELSE {data} || s.path || t.path END FROM {catalog.meta('ducklake_table', epoch)} AS t "
        f"JOIN {catalog.meta('ducklake_schema', epoch)} AS s USING (schema_id) WHERE t.table_id = {table_id} "
        "ORDER BY t.begin_snapshot DESC LIMIT 1"
    )


_HALF = re.compile(r'Could not write[^"\n]*"([^"]+\.parquet)"')
"""Pattern for the file in DuckDB's error about an incomplete write."""


def remove_half_written(catalog: Catalog, error: BaseException) -> None:
    """Remove the incomplete local file of a write that failed on a full disk.

    It would keep the disk full.
    """
    match = _HALF.search(str(error)) if is_full(error) and catalog.storage.is_local else None
    if match is not None and match[1].startswith(catalog.data_path):
        Path(match[1]).unlink(missing_ok=True)
