"""The ids of a table's rows where it tracks them: a row that is written anew, or updated, has the one that it had.

Source: Delta protocol, Row Tracking (Reader Requirements, Writer Requirements).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import duckdb

from duckrun.engines.duckdb.places import Numbered, names_of
from duckrun.engines.duckdb.source import Rows
from duckrun.engines.duckdb.target import rows_of
from duckrun.errors import UnsupportedFeature
from duckrun.formats.format import Format
from duckrun.sql.names import fresh_name, quote_identifier, quote_literal
from duckrun.values.data_files import literally, place
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot
from duckrun.values.stored import StoredColumn

if TYPE_CHECKING:
    from duckrun.engines.duckdb.write import Job

_BIGINT = "BIGINT"


def carried(job: Job, table: Numbered) -> tuple[str, ...]:
    """The columns that say which row a changed one was, where its id has to go along."""
    if job.form.transacts or job.form.row_id_columns(table.snapshot) is None:
        return ()
    return table.file, table.row


@dataclass(frozen=True)
class RowIds:
    """How rows that are written get their ids. ``columns`` are the names, in a SELECT, of a row's id and of the version at which it
    came or changed; none where the table does not track its rows, or where all of these are new.
    """

    names: str
    """The table's columns, quoted."""
    columns: tuple[str, ...] = ()
    stored: tuple[StoredColumn, ...] = ()
    known: str = ""
    """SELECT of the file, the number and the ids of rows that are there."""
    table: Numbered | None = None
    types: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, job: Job, table: Numbered, anew: Sequence[ScanFile], touched: Sequence[ScanFile], added: Rows | None
    ) -> RowIds:
        """For rows of the files ``anew``, and for ``added`` ones that were rows of the files ``touched``."""
        snapshot = table.snapshot
        names = ", ".join(quote_identifier(c) for c in snapshot.schema.names)
        in_files = None if job.form.transacts else job.form.row_id_columns(snapshot)
        changed = added is not None and bool(added.carried)
        if in_files is None or not (anew or changed):
            return cls(names)
        refuse_unnumbered(snapshot)
        files = {file.path: file for file in (*anew, *(touched if changed else ()))}
        ids = _names(snapshot)
        known = known_ids(job.form, snapshot, list(files.values()), (table.file, table.row), ids)
        stored = tuple(StoredColumn(name, held) for name, held in zip(ids, in_files, strict=True))
        columns = tuple(map(quote_identifier, ids))
        return cls(names, columns, stored, known, table, dict.fromkeys(ids, duckdb.type(_BIGINT)))

    def kept(self, sql: str) -> str:
        """SELECT of rows that stay as they are, with their ids; ``sql`` has their places too."""
        if not self.columns or self.table is None:
            return f"SELECT {self.names} FROM ({sql})"
        return f"SELECT {self.names}, {', '.join(self.columns)} FROM ({self._joined(sql)})"

    def added(self, rows: Rows) -> str:
        """SELECT of rows that come, or change: those have the ids that they had, and no version but that of the commit."""
        if not self.columns or self.table is None:
            return f"SELECT {self.names} FROM ({rows.sql})"
        if not rows.carried:
            nulls = ", ".join(f"CAST(NULL AS {_BIGINT}) AS {name}" for name in self.columns)
            return f"SELECT {self.names}, {nulls} FROM ({rows.sql})"
        row_id, version = self.columns
        joined = self._joined(rows.sql, "LEFT JOIN")
        return f"SELECT {self.names}, {row_id}, CAST(NULL AS {_BIGINT}) AS {version} FROM ({joined})"

    def _joined(self, sql: str, how: str = "JOIN") -> str:
        assert self.table is not None
        file, row = self.table.file, self.table.row
        ids = ", ".join(f"known.{name}" for name in self.columns)
        same = f"rows.{file} = known.{file} AND rows.{row} = known.{row}"
        return f"SELECT rows.*, {ids} FROM ({sql}) AS rows {how} ({self.known}) AS known ON {same}"


def with_ids(
    form: Format,
    snapshot: Snapshot,
    files: Sequence[ScanFile],
    columns: Sequence[str],
    cursor: duckdb.DuckDBPyConnection,
) -> tuple[str, dict[str, Any], tuple[StoredColumn, ...]]:
    """SELECT of some columns of the rows of some files, and of their ids; the types of these, and how files have them. Nothing of
    each where the table does not track its rows.
    """
    in_files = form.row_id_columns(snapshot)
    if in_files is None or not files:
        return "", {}, ()
    refuse_unnumbered(snapshot)
    ids, taken = _names(snapshot), names_of(snapshot)
    file, row = fresh_name("__duckrun_file", taken), fresh_name("__duckrun_row", taken)
    at = quote_identifier(file), quote_identifier(row)
    source = f"({rows_of(snapshot, cursor, files=files, file=file, row=row)})"
    known = known_ids(form, snapshot, files, at, ids)
    same = " AND ".join(f"rows.{name} = known.{name}" for name in at)
    chosen = ", ".join(
        [*(f"rows.{quote_identifier(c)}" for c in columns), *(f"known.{quote_identifier(c)}" for c in ids)]
    )
    sql = f"SELECT {chosen} FROM {source} AS rows JOIN ({known}) AS known ON {same}"
    stored = tuple(StoredColumn(name, held) for name, held in zip(ids, in_files, strict=True))
    return sql, dict.fromkeys(ids, duckdb.type(_BIGINT)), stored


def known_ids(
    form: Format, snapshot: Snapshot, files: Sequence[ScanFile], at: tuple[str, str], ids: tuple[str, str]
) -> str:
    """SELECT of the place of each row of some files (``at``, quoted), its id and its version (``ids``)."""
    in_files = form.row_id_columns(snapshot)
    assert in_files is not None, "the table tracks its rows"
    row_id, version = map(quote_identifier, in_files)
    file, row = at
    values = ", ".join(
        f"({quote_literal(place(snapshot.ref, each))}, {first}, {when})"
        for each, (first, when) in zip(files, form.first_ids(snapshot, files), strict=True)
    )
    places = ", ".join(quote_literal(literally(place(snapshot.ref, each))) for each in files)
    none = f"SELECT CAST(NULL AS {_BIGINT}) AS {row_id}, CAST(NULL AS {_BIGINT}) AS {version} WHERE false"
    read = (
        f"read_parquet([{places}], union_by_name => true, hive_partitioning => false, file_row_number => true, "
        f"filename => {quote_literal('duckrun_place')})"
    )
    return (
        f"SELECT held.duckrun_place AS {file}, held.file_row_number AS {row}, "
        f"coalesce(held.{row_id}, said.first + held.file_row_number) AS {quote_identifier(ids[0])}, "
        f"coalesce(held.{version}, said.version) AS {quote_identifier(ids[1])} "
        f"FROM ({none} UNION ALL BY NAME SELECT * FROM {read}) AS held "
        f"JOIN (VALUES {values}) AS said(place, first, version) ON held.duckrun_place = said.place"
    )


def _names(snapshot: Snapshot) -> tuple[str, str]:
    taken = names_of(snapshot)
    return fresh_name("__duckrun_row_id", taken), fresh_name("__duckrun_row_version", taken)


def refuse_unnumbered(snapshot: Snapshot) -> None:
    """Raise UnsupportedFeature for a table in whose files DuckDB does not number the rows."""
    if "file_row_number" in {name.lower() for name in names_of(snapshot)}:
        raise UnsupportedFeature(
            f"Table {snapshot.ref} tracks its rows (delta.enableRowTracking) and has a column file_row_number, by whose name "
            "DuckDB calls the place of a row in its file. Nothing was written. Rename the column, or run this with engine: spark."
        )
