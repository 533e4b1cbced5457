"""Row ids of a table with row tracking: a rewritten or updated row keeps its id.

Source: Delta protocol, Row Tracking (Reader Requirements, Writer Requirements).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from duckrun.engines.duckdb.rows.places import Numbered, names_of
from duckrun.engines.duckdb.rows.source import Rows
from duckrun.engines.duckdb.rows.target import rows_of
from duckrun.errors import UnsupportedFeature
from duckrun.formats.logs import LogTables
from duckrun.sql.by_file import with_values
from duckrun.sql.quoting import fresh_name, quote_identifier, quote_literal
from duckrun.values.data_files import literally, place_of
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot
from duckrun.values.stored import StoredColumn

_BIGINT = "BIGINT"


def carried(logs: LogTables | None, table: Numbered) -> tuple[str, ...]:
    """Columns that identify the old row of a changed one, if its id must be kept."""
    if logs is None or logs.row_id_columns(table.snapshot) is None:
        return ()
    return table.file, table.row


@dataclass(frozen=True)
class RowIds:
    """How written rows get their ids."""

    names: str
    """The table's columns, quoted."""
    columns: tuple[str, ...] = ()
    """Names in a SELECT of a row's id and of the version that added or changed it.

    Empty if the table does not track rows, or if all rows are new.
    """
    stored: tuple[StoredColumn, ...] = ()
    types: dict[str, Any] = field(default_factory=dict)
    known: str = ""
    """SELECT of file, row number and id, for rows of files that store ids; empty if none does."""
    anew: str = ""
    """SELECT of the rows of rewritten files, with their positions and ids."""
    firsts: str = ""
    """First row id of each file with changed rows."""
    table: Numbered | None = None

    @classmethod
    def of(
        cls,
        logs: LogTables,
        table: Numbered,
        rewritten_files: Sequence[ScanFile],
        touched: Sequence[ScanFile],
        added: Rows | None,
    ) -> RowIds:
        """Row ids for rows of rewritten files, and for added rows that come from touched files."""
        snapshot = table.snapshot
        names = ", ".join(quote_identifier(c) for c in snapshot.schema.names)
        in_files = logs.row_id_columns(snapshot)
        changed = touched if added is not None and added.carried else ()
        if in_files is None or not (rewritten_files or changed):
            return cls(names, anew=table.of_files(rewritten_files), table=table)
        refuse_unnumbered(snapshot)
        ids, at = _names(snapshot), (table.file, table.row)
        numbered_rows = (
            _numbered(logs, snapshot, rewritten_files, table.of_files(rewritten_files, in_files), at, ids)
            if rewritten_files
            else ("")
        )
        firsts = ", ".join(
            f"({quote_literal(place_of(snapshot.ref.location, each))}, {first})"
            for each, (first, _) in zip(changed, logs.first_ids(snapshot, changed), strict=True)
        )
        return cls(
            names,
            columns=tuple(map(quote_identifier, ids)),
            stored=tuple(StoredColumn(name, stored_name) for name, stored_name in zip(ids, in_files, strict=True)),
            types=dict.fromkeys(ids, duckdb.type(_BIGINT)),
            known=_held(snapshot, changed, in_files[0], at, ids[0], table.cursor),
            anew=numbered_rows,
            firsts=firsts,
            table=table,
        )

    def kept(self, changes: str) -> str:
        """SELECT of the unchanged rows of rewritten files, with their ids."""
        assert self.table is not None
        chosen = ", ".join([self.names, *self.columns])
        return (
            f"SELECT {chosen} FROM ({self.anew}) AS kept ANTI JOIN {changes} AS hit ON {self.table.same('kept', 'hit')}"
        )

    def added(self, rows: Rows) -> str:
        """SELECT of new and changed rows.

        A changed row keeps its id; its version is the commit's.
        """
        if not self.columns or self.table is None:
            return f"SELECT {self.names} FROM ({rows.sql})"
        if not rows.carried or not self.firsts:
            nulls = ", ".join(f"CAST(NULL AS {_BIGINT}) AS {name}" for name in self.columns)
            return f"SELECT {self.names}, {nulls} FROM ({rows.sql})"
        file, row, (row_id, version) = self.table.file, self.table.row, self.columns
        joined_rows = (
            f"({rows.sql}) AS rows LEFT JOIN (VALUES {self.firsts}) AS said(place, first) ON rows.{file} = said.place"
        )
        known = f"said.first + rows.{row}"
        if self.known:
            joined_rows += f" LEFT JOIN ({self.known}) AS held ON rows.{file} = held.{file} AND rows.{row} = held.{row}"
            known = f"coalesce(held.{row_id}, {known})"
        numbered = f"SELECT rows.*, {known} AS {row_id} FROM {joined_rows}"
        return f"SELECT {self.names}, {row_id}, CAST(NULL AS {_BIGINT}) AS {version} FROM ({numbered})"


def with_ids(
    logs: LogTables,
    snapshot: Snapshot,
    files: Sequence[ScanFile],
    columns: Sequence[str],
    cursor: duckdb.DuckDBPyConnection,
) -> tuple[str, dict[str, Any], tuple[StoredColumn, ...]]:
    """SELECT of columns of the rows of some files, together with their row ids.

    Returns:
        The SELECT, the types of the id columns, and how the files store them. All are empty if the
            table does not track rows.
    """
    in_files = logs.row_id_columns(snapshot)
    if in_files is None or not files:
        return "", {}, ()
    refuse_unnumbered(snapshot)
    ids, taken = _names(snapshot), names_of(snapshot)
    file, row = fresh_name("__duckrun_file", taken), fresh_name("__duckrun_row", taken)
    scan = rows_of(snapshot, cursor, files=files, file=file, row=row, also=in_files)
    numbered = _numbered(logs, snapshot, files, scan, (quote_identifier(file), quote_identifier(row)), ids)
    chosen = ", ".join(map(quote_identifier, [*columns, *ids]))
    stored = tuple(StoredColumn(name, stored_name) for name, stored_name in zip(ids, in_files, strict=True))
    return f"SELECT {chosen} FROM ({numbered})", dict.fromkeys(ids, duckdb.type(_BIGINT)), stored


def _numbered(
    logs: LogTables, snapshot: Snapshot, files: Sequence[ScanFile], scan: str, at: tuple[str, str], ids: tuple[str, str]
) -> str:
    """SELECT of scanned rows with id and version (``ids``), from the files or the log.

    The scan has the rows' positions (``at``, quoted), and the ids that the files store.
    """
    in_files = logs.row_id_columns(snapshot)
    assert in_files is not None, "the table tracks its rows"
    taken = {*names_of(snapshot), *in_files, *ids}
    log_columns = tuple(quote_identifier(fresh_name(name, taken)) for name in ("__duckrun_first", "__duckrun_since"))
    values = {
        place_of(snapshot.ref.location, each): [f"CAST({number} AS {_BIGINT})" for number in numbers]
        for each, numbers in zip(files, logs.first_ids(snapshot, files), strict=True)
    }
    lost = f"table {snapshot.ref}: rows whose ids are to be kept lie in a file that its log does not have: "
    source = with_values(f"({scan})", at[0], values, dict.fromkeys(log_columns, _BIGINT), lost)
    (row_id, version), (first, since) = map(quote_identifier, in_files), log_columns
    return (
        f"SELECT * EXCLUDE ({row_id}, {version}, {first}, {since}), coalesce({row_id}, {first} + {at[1]}) AS "
        f"{quote_identifier(ids[0])}, coalesce({version}, {since}) AS {quote_identifier(ids[1])} FROM ({source})"
    )


def _held(
    snapshot: Snapshot,
    files: Sequence[ScanFile],
    column: str,
    at: tuple[str, str],
    row_id: str,
    cursor: duckdb.DuckDBPyConnection,
) -> str:
    """SELECT of position (``at``, quoted) and stored id of the rows of files that store ids.

    Empty if no file stores any.
    """
    if not files:
        return ""
    places = ", ".join(quote_literal(literally(place_of(snapshot.ref.location, each))) for each in files)
    files_query = f"SELECT DISTINCT file_name FROM parquet_schema([{places}]) WHERE name = {quote_literal(column)}"
    holding = [literally(name) for (name,) in cursor.execute(files_query).fetchall()]
    if not holding:
        return ""
    read = (
        f"read_parquet([{', '.join(map(quote_literal, holding))}], union_by_name => true, hive_partitioning => false, "
        f"file_row_number => true, filename => {quote_literal(at[0][1:-1])})"
    )
    return (
        f"SELECT {at[0]}, file_row_number AS {at[1]}, {quote_identifier(column)} AS {quote_identifier(row_id)} FROM "
        f"{read}"
    )


def _names(snapshot: Snapshot) -> tuple[str, str]:
    taken = names_of(snapshot)
    return fresh_name("__duckrun_row_id", taken), fresh_name("__duckrun_row_version", taken)


def refuse_unnumbered(snapshot: Snapshot) -> None:
    """Raise UnsupportedFeature if a column's name keeps DuckDB from numbering a file's rows."""
    if "file_row_number" in {name.lower() for name in names_of(snapshot)}:
        raise UnsupportedFeature(
            f"Table {snapshot.ref} tracks its rows (delta.enableRowTracking) and has a column file_row_number, by "
            "whose name DuckDB calls the place of a row in its file",
            remedy="Rename the column, or run this with engine: spark",
        )
