"""Row ids of a table with row tracking: a rewritten or updated row keeps its id.

Source: Delta protocol, Row Tracking (Reader Requirements, Writer Requirements).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb

from duckrun.engines.duckdb.rows.marks import Marks
from duckrun.engines.duckdb.rows.places import Numbered, names_of
from duckrun.engines.duckdb.rows.source import Rows
from duckrun.engines.duckdb.rows.target import rows_of
from duckrun.errors import UnsupportedFeature
from duckrun.formats.logs import LogTables
from duckrun.sql.by_file import with_values
from duckrun.sql.quoting import fresh_name, quote_identifier, quote_literal, quoted_list
from duckrun.values.data_files import literally, place_of
from duckrun.values.frozen import frozen
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot
from duckrun.values.stored import StoredColumn

_BIGINT = "BIGINT"


def carried(logs: LogTables | None, table: Numbered) -> tuple[str, ...]:
    """Columns that identify the old row of a changed one, if its id must be kept."""
    if logs is None or logs.row_id_columns(table.snapshot) is None:
        return ()
    return table.file, table.row


@frozen
class IdColumns:
    """The two columns of a table that tracks its rows: id, and version of the last change."""

    logs: LogTables
    snapshot: Snapshot
    in_files: tuple[str, str]
    """Names in the files."""
    names: tuple[str, str]
    """Names in a SELECT, which no column of the table has."""

    @classmethod
    def of(cls, logs: LogTables, snapshot: Snapshot) -> IdColumns | None:
        """Id columns of a table; None if it does not track its rows.

        Raises:
            UnsupportedFeature: DuckDB cannot number the rows of its files.
        """
        in_files, taken = logs.row_id_columns(snapshot), names_of(snapshot)
        if in_files is None:
            return None
        if "file_row_number" in {name.lower() for name in taken}:
            raise UnsupportedFeature(
                f"Table {snapshot.ref} tracks its rows (delta.enableRowTracking) and has a column file_row_number, by "
                "whose name DuckDB calls the place of a row in its file",
                remedy="Rename the column, or run this with engine: spark",
            )
        names = (fresh_name("__duckrun_row_id", taken), fresh_name("__duckrun_row_version", taken))
        return cls(logs, snapshot, in_files, names)

    @property
    def quoted(self) -> list[str]:
        return list(map(quote_identifier, self.names))

    @property
    def stored(self) -> tuple[StoredColumn, ...]:
        return tuple(map(StoredColumn, self.names, self.in_files))

    @property
    def types(self) -> dict[str, Any]:
        return dict.fromkeys(self.names, duckdb.type(_BIGINT))

    def numbered(self, files: Sequence[ScanFile], scan: str, at: tuple[str, str]) -> str:
        """SELECT of scanned rows with id and version, from the files or the log.

        The scan has the rows' positions (``at``, quoted), and the ids that the files store.
        """
        snapshot = self.snapshot
        taken = {*names_of(snapshot), *self.in_files, *self.names}
        log_columns = tuple(
            quote_identifier(fresh_name(name, taken)) for name in ("__duckrun_first", "__duckrun_since")
        )
        values = {
            place_of(snapshot.ref.location, each): [f"CAST({number} AS {_BIGINT})" for number in numbers]
            for each, numbers in zip(files, self.logs.first_ids(snapshot, files), strict=True)
        }
        lost = f"table {snapshot.ref}: rows whose ids are to be kept lie in a file that its log does not have: "
        source = with_values(f"({scan})", at[0], values, dict.fromkeys(log_columns, _BIGINT), lost)
        (row_id, version), (first, since) = map(quote_identifier, self.in_files), log_columns
        return (
            f"SELECT * EXCLUDE ({row_id}, {version}, {first}, {since}), coalesce({row_id}, {first} + {at[1]}) AS "
            f"{self.quoted[0]}, coalesce({version}, {since}) AS {self.quoted[1]} FROM ({source})"
        )

    def held(self, files: Sequence[ScanFile], at: tuple[str, str], cursor: duckdb.DuckDBPyConnection) -> str:
        """SELECT of position (``at``, quoted) and stored id of the rows of files that store ids.

        Empty if no file stores any.
        """
        if not files:
            return ""
        column, paths = self.in_files[0], [literally(place_of(self.snapshot.ref.location, each)) for each in files]
        files_query = (
            f"SELECT DISTINCT file_name FROM parquet_schema([{', '.join(map(quote_literal, paths))}]) "
            f"WHERE name = {quote_literal(column)}"
        )
        holding = [literally(name) for (name,) in cursor.execute(files_query).fetchall()]
        if not holding:
            return ""
        return (
            f"SELECT {at[0]}, file_row_number AS {at[1]}, {quote_identifier(column)} AS {self.quoted[0]} FROM "
            f"read_parquet([{', '.join(map(quote_literal, holding))}], union_by_name => true, hive_partitioning => "
            f"false, file_row_number => true, filename => {quote_literal(at[0][1:-1])})"
        )


@frozen
class RowIds:
    """How written rows get their ids."""

    names: str
    """The table's columns, quoted."""
    table: Numbered
    anew: str
    """SELECT of the rows of rewritten files, with their positions and ids."""
    ids: IdColumns | None = None
    """None if the table does not track rows, or if all rows are new."""
    known: str = ""
    """SELECT of file, row number and id, for rows of files that store ids; empty if none does."""
    firsts: str = ""
    """First row id of each file with changed rows."""

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
        names = quoted_list(snapshot.schema.names)
        changed = touched if added is not None and added.carried else ()
        ids = IdColumns.of(logs, snapshot) if rewritten_files or changed else None
        if ids is None:
            return cls(names, table, table.of_files(rewritten_files))
        at, anew = (table.file, table.row), ""
        if rewritten_files:
            anew = ids.numbered(rewritten_files, table.of_files(rewritten_files, ids.in_files), at)
        firsts = ", ".join(
            f"({quote_literal(place_of(snapshot.ref.location, each))}, {first})"
            for each, (first, _) in zip(changed, logs.first_ids(snapshot, changed), strict=True)
        )
        return cls(names, table, anew, ids, ids.held(changed, at, table.cursor), firsts)

    @property
    def stored(self) -> tuple[StoredColumn, ...]:
        """Id columns as the files store them."""
        return () if self.ids is None else self.ids.stored

    @property
    def types(self) -> dict[str, Any]:
        """Types of the id columns."""
        return {} if self.ids is None else self.ids.types

    def kept(self, hits: Marks) -> str:
        """SELECT of the unchanged rows of rewritten files, with their ids."""
        chosen = ", ".join([self.names, *map(quote_identifier, self.types)])
        # Columns may have the names of the bitmaps' table, among them rowid.
        return f"SELECT {chosen} FROM (SELECT kept.* FROM {hits.unmarked(f'({self.anew}) AS kept', 'kept')})"

    def added(self, rows: Rows) -> str:
        """SELECT of new and changed rows.

        A changed row keeps its id; its version is the commit's.
        """
        if self.ids is None:
            return f"SELECT {self.names} FROM ({rows.sql})"
        if not rows.carried or not self.firsts:
            nulls = ", ".join(f"CAST(NULL AS {_BIGINT}) AS {name}" for name in self.ids.quoted)
            return f"SELECT {self.names}, {nulls} FROM ({rows.sql})"
        file, row, (row_id, version) = self.table.file, self.table.row, self.ids.quoted
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
) -> tuple[str, dict[str, Any], tuple[StoredColumn, ...]]:
    """SELECT of columns of the rows of some files, together with their row ids.

    Returns:
        The SELECT, the types of the id columns, and how the files store them. All are empty if the
            table does not track rows.
    """
    ids = IdColumns.of(logs, snapshot) if files else None
    if ids is None:
        return "", {}, ()
    taken = names_of(snapshot)
    file, row = fresh_name("__duckrun_file", taken), fresh_name("__duckrun_row", taken)
    scan = rows_of(snapshot, files=files, file=file, row=row, also=ids.in_files)
    numbered = ids.numbered(files, scan, (quote_identifier(file), quote_identifier(row)))
    chosen = ", ".join([*map(quote_identifier, columns), *ids.quoted])
    return f"SELECT {chosen} FROM ({numbered})", ids.types, ids.stored
