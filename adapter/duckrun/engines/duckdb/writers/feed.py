"""Change data files: the images of changed rows, for a commit that rewrites files or updates rows.

Readers derive the changes of appends, removed files and deletion vectors from the commit itself, so
these commits have no change data files. A commit that has any must list all its changes in them.
Source: Delta protocol, Add CDC File, Change Data Files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import duckdb

from duckrun.engines.data_files import file_properties
from duckrun.engines.duckdb.rows.fitted import types_of
from duckrun.engines.duckdb.rows.source import Rows
from duckrun.engines.duckdb.writers import staged
from duckrun.engines.duckdb.writers.table_writer import RowChanges
from duckrun.errors import SchemaMismatch
from duckrun.formats.logs import LogTables
from duckrun.sql.quoting import quote_identifier, quoted_list
from duckrun.values.changes import CHANGE_TYPE
from duckrun.values.rows import RowSpec, ScanFile, StagedFile
from duckrun.values.snapshot import Snapshot


def feed_files(logs: LogTables, spec: RowSpec, rows: RowChanges, touched: Sequence[ScanFile]) -> tuple[StagedFile, ...]:
    """Write the images of the rows that a commit changes.

    Args:
        logs: Logs of the format.
        spec: Spec of the write.
        rows: The changed rows and their images.
        touched: Files that contain these rows.

    Raises:
        SchemaMismatch: The table has a column of the same name as the feed's change type.
    """
    table, snapshot, cursor = rows.table, rows.table.snapshot, rows.table.cursor
    kinds = types_of(snapshot)
    names = quoted_list(kinds)
    change_type = quote_identifier(CHANGE_TYPE)
    selects = []
    if touched:
        hit = (
            f"SELECT DISTINCT {table.file}, {table.row}, {rows.old} AS {change_type} FROM {rows.changes} WHERE "
            f"{table.row} IS NOT NULL"
        )
        old = quoted_list(kinds, "old")
        joined = f"({table.of_files(touched)}) AS old JOIN ({hit}) AS hit ON {table.same('old', 'hit')}"
        selects.append(f"SELECT {old}, hit.{change_type} FROM {joined}")
    selects += [f"SELECT {names}, '{kind}' AS {change_type} FROM ({new.sql})" for kind, new in rows.new()]
    if not selects:
        return ()
    properties = file_properties(spec, snapshot.properties)
    return _written(logs, snapshot, cursor, " UNION ALL ".join(selects), logs.files_folder(snapshot.ref), properties)


def net_feed(logs: LogTables, snapshot: Snapshot, rows: Rows) -> tuple[StagedFile, ...]:
    """Write rows with their change types, for a commit of a branch's net change to main.

    Args:
        logs: Logs of the format.
        snapshot: The table after the change.
        rows: The rows and their change types.

    Raises:
        SchemaMismatch: The table has a column of the same name as the feed's change type.
    """
    names = quoted_list([*types_of(snapshot), CHANGE_TYPE])
    return _written(logs, snapshot, rows.cursor, f"SELECT {names} FROM ({rows.sql})", "", snapshot.properties)


def _written(
    logs: LogTables,
    snapshot: Snapshot,
    cursor: duckdb.DuckDBPyConnection,
    sql: str,
    folder: str,
    properties: Mapping[str, str],
) -> tuple[StagedFile, ...]:
    """Write the rows of a SELECT as files of the feed, below a folder of the table's."""
    kinds = types_of(snapshot)
    if twins := [name for name in kinds if name.lower() == CHANGE_TYPE]:
        raise SchemaMismatch(
            f"Table {snapshot.ref} keeps a change feed, which has a column {CHANGE_TYPE}, and so has the table "
            f"({twins[0]}): its changes cannot be told",
            remedy="Rename the column, or turn the feed off (delta.enableChangeDataFeed)",
        )
    rows = Rows(cursor, sql, {**kinds, CHANGE_TYPE: cursor.sql("SELECT ''").types[0]})
    folder = "/".join(filter(None, (folder, logs.feed_folder)))
    stored, columns = logs.stored_columns(snapshot.schema), snapshot.partition_columns
    files = staged.stage_in(folder, rows, snapshot.ref, columns, properties=properties, stored=stored)
    return tuple(replace(file, figures={}) for file in files if file.rows != 0)
