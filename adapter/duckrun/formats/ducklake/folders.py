"""Where in the data folder of a lake the files of a table lie, and whether its catalog knows some of them."""

from __future__ import annotations

import re
from pathlib import Path

from duckrun.formats.ducklake.catalog import Catalog
from duckrun.formats.ducklake.state import TableState
from duckrun.sql.names import quote_literal
from duckrun.storage.trouble import is_full
from duckrun.values.snapshot import TableRef


def table_folder(catalog: Catalog, table_id: int, epoch: int = 0) -> str:
    """The folder of a table, which it keeps under any name, with a slash behind it."""
    return str(catalog.ask(folder_sql(catalog, table_id, epoch))[0][0])


def folder_sql(catalog: Catalog, table_id: int, epoch: int | str = 0) -> str:
    """The query for it, which gives one row."""
    data = quote_literal(catalog.data_path)
    return (
        "SELECT CASE WHEN NOT t.path_is_relative THEN t.path WHEN NOT s.path_is_relative THEN s.path || t.path "
        f"ELSE {data} || s.path || t.path END FROM {catalog.meta('ducklake_table', epoch)} AS t "
        f"JOIN {catalog.meta('ducklake_schema', epoch)} AS s USING (schema_id) WHERE t.table_id = {table_id} ORDER BY t.begin_snapshot DESC LIMIT 1"
    )


def folder_for(catalog: Catalog, ref: TableRef, state: TableState | None) -> str:
    """The folder in which new files of a table are to be written, also of one that is not there yet."""
    if state is not None:
        return table_folder(catalog, state.id)
    return f"{catalog.data_path}{ref.schema}/{ref.name}/"


def knows_files_of(catalog: Catalog, folder: str) -> bool:
    """True if some data file of the lake lies in a folder, whose name no other folder has."""
    name = quote_literal(f"{folder.rstrip('/').rpartition('/')[2]}/")
    found = catalog.ask(f"SELECT 1 FROM {catalog.meta('ducklake_data_file')} WHERE contains(path, {name}) LIMIT 1")
    return bool(found)


_HALF = re.compile(r'Could not write[^"\n]*"([^"]+\.parquet)"')
"""The file in what DuckDB says of one that it could not write to its end."""


def remove_half_written(catalog: Catalog, error: BaseException) -> None:
    """Remove the file that a disk without room has left half written on a local path: it would keep the disk full."""
    found = _HALF.search(str(error)) if is_full(error) and catalog.storage.is_local else None
    if found is not None and found[1].startswith(catalog.data_path):
        Path(found[1]).unlink(missing_ok=True)
