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
from duckrun.sql.by_file import with_values
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
    types: dict[str, Any] = field(default_factory=dict)
    known: str = ""
    """SELECT of the file, the number and the id of rows of files that hold ids; empty where none does."""
    anew: str = ""
    """SELECT of the rows of files that are written anew, their places and their ids."""
    firsts: str = ""
    """The first id of each file with rows that change."""
    table: Numbered | None = None

    @classmethod
    def of(
        cls, job: Job, table: Numbered, anew: Sequence[ScanFile], touched: Sequence[ScanFile], added: Rows | None
    ) -> RowIds:
        """For rows of the files ``anew``, and for ``added`` ones that were rows of the files ``touched``."""
        snapshot, form = table.snapshot, job.form
        names = ", ".join(quote_identifier(c) for c in snapshot.schema.names)
        in_files = None if form.transacts else form.row_id_columns(snapshot)
        changed = touched if added is not None and added.carried else ()
        if in_files is None or not (anew or changed):
            return cls(names, anew=table.of_files(anew), table=table)
        refuse_unnumbered(snapshot)
        ids, at = _names(snapshot), (table.file, table.row)
        numbered = _numbered(form, snapshot, anew, table.of_files(anew, in_files), at, ids) if anew else ""
        firsts = ", ".join(
            f"({quote_literal(place(snapshot.ref, each))}, {first})"
            for each, (first, _) in zip(changed, form.first_ids(snapshot, changed), strict=True)
        )
        return cls(
            names,
            columns=tuple(map(quote_identifier, ids)),
            stored=tuple(StoredColumn(name, held) for name, held in zip(ids, in_files, strict=True)),
            types=dict.fromkeys(ids, duckdb.type(_BIGINT)),
            known=_held(snapshot, changed, in_files[0], at, ids[0], table.cursor),
            anew=numbered,
            firsts=firsts,
            table=table,
        )

    def kept(self, changes: str) -> str:
        """SELECT of the rows of files that are written anew but those among some changes, with their ids."""
        assert self.table is not None
        same = " AND ".join(f"kept.{name} = hit.{name}" for name in (self.table.file, self.table.row))
        chosen = ", ".join([self.names, *self.columns])
        return f"SELECT {chosen} FROM ({self.anew}) AS kept ANTI JOIN {changes} AS hit ON {same}"

    def added(self, rows: Rows) -> str:
        """SELECT of rows that come, or change: those have the ids that they had, and no version but that of the commit."""
        if not self.columns or self.table is None:
            return f"SELECT {self.names} FROM ({rows.sql})"
        if not rows.carried or not self.firsts:
            nulls = ", ".join(f"CAST(NULL AS {_BIGINT}) AS {name}" for name in self.columns)
            return f"SELECT {self.names}, {nulls} FROM ({rows.sql})"
        file, row, (row_id, version) = self.table.file, self.table.row, self.columns
        found = (
            f"({rows.sql}) AS rows LEFT JOIN (VALUES {self.firsts}) AS said(place, first) ON rows.{file} = said.place"
        )
        known = f"said.first + rows.{row}"
        if self.known:
            found += f" LEFT JOIN ({self.known}) AS held ON rows.{file} = held.{file} AND rows.{row} = held.{row}"
            known = f"coalesce(held.{row_id}, {known})"
        numbered = f"SELECT rows.*, {known} AS {row_id} FROM {found}"
        return f"SELECT {self.names}, {row_id}, CAST(NULL AS {_BIGINT}) AS {version} FROM ({numbered})"


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
    scan = rows_of(snapshot, cursor, files=files, file=file, row=row, also=in_files)
    numbered = _numbered(form, snapshot, files, scan, (quote_identifier(file), quote_identifier(row)), ids)
    chosen = ", ".join(map(quote_identifier, [*columns, *ids]))
    stored = tuple(StoredColumn(name, held) for name, held in zip(ids, in_files, strict=True))
    return f"SELECT {chosen} FROM ({numbered})", dict.fromkeys(ids, duckdb.type(_BIGINT)), stored


def _numbered(
    form: Format, snapshot: Snapshot, files: Sequence[ScanFile], scan: str, at: tuple[str, str], ids: tuple[str, str]
) -> str:
    """SELECT of the rows of a scan of some files, in which are their places (``at``, quoted) and what the files hold of ids, with the id
    and the version of each row (``ids``).
    """
    in_files = form.row_id_columns(snapshot)
    assert in_files is not None, "the table tracks its rows"
    taken = {*names_of(snapshot), *in_files, *ids}
    said = tuple(quote_identifier(fresh_name(name, taken)) for name in ("__duckrun_first", "__duckrun_since"))
    values = {
        place(snapshot.ref, each): [f"CAST({number} AS {_BIGINT})" for number in numbers]
        for each, numbers in zip(files, form.first_ids(snapshot, files), strict=True)
    }
    lost = f"table {snapshot.ref}: rows whose ids are to be kept lie in a file that its log does not have: "
    source = with_values(f"({scan})", at[0], values, dict.fromkeys(said, _BIGINT), lost)
    (row_id, version), (first, since) = map(quote_identifier, in_files), said
    return (
        f"SELECT * EXCLUDE ({row_id}, {version}, {first}, {since}), coalesce({row_id}, {first} + {at[1]}) AS {quote_identifier(ids[0])}, "
        f"coalesce({version}, {since}) AS {quote_identifier(ids[1])} FROM ({source})"
    )


def _held(
    snapshot: Snapshot,
    files: Sequence[ScanFile],
    column: str,
    at: tuple[str, str],
    row_id: str,
    cursor: duckdb.DuckDBPyConnection,
) -> str:
    """SELECT of the place of each row (``at``, quoted) of those of some files that hold ids, and of what they hold; empty where none does."""
    if not files:
        return ""
    places = ", ".join(quote_literal(literally(place(snapshot.ref, each))) for each in files)
    asked = f"SELECT DISTINCT file_name FROM parquet_schema([{places}]) WHERE name = {quote_literal(column)}"
    holding = [literally(name) for (name,) in cursor.execute(asked).fetchall()]
    if not holding:
        return ""
    read = (
        f"read_parquet([{', '.join(map(quote_literal, holding))}], union_by_name => true, hive_partitioning => false, "
        f"file_row_number => true, filename => {quote_literal(at[0][1:-1])})"
    )
    return f"SELECT {at[0]}, file_row_number AS {at[1]}, {quote_identifier(column)} AS {quote_identifier(row_id)} FROM {read}"


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
