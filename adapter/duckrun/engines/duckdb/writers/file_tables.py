"""Writer of tables that are folders of files: it stages data files, and one commit shows them.

DuckDB writes the files. If the spec asks for it, delta_rs does full writes, appends and merges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import duckdb

from duckrun.engines.data_files import file_properties
from duckrun.engines.duckdb.rows.computed import numbers_of
from duckrun.engines.duckdb.rows.fitted import differs, fitted, types_of
from duckrun.engines.duckdb.rows.marks import marked, rows_by_file
from duckrun.engines.duckdb.rows.places import Numbered, computed, counted, numbered
from duckrun.engines.duckdb.rows.pruning import whole_files
from duckrun.engines.duckdb.rows.reads import EVERYTHING, NOTHING, Read
from duckrun.engines.duckdb.rows.row_ids import RowIds
from duckrun.engines.duckdb.rows.source import Rows, schema_of_types
from duckrun.engines.duckdb.rows.streams import Streams
from duckrun.engines.duckdb.rows.target import definition_of, written_anew
from duckrun.engines.duckdb.writers import by_delta_rs, staged
from duckrun.engines.duckdb.writers.delta_rs import DeltaRs
from duckrun.engines.duckdb.writers.feed import feed_files
from duckrun.engines.duckdb.writers.table_writer import REPLACED, RowChanges, WholeRows, WriteRows
from duckrun.engines.tables import REWRITTEN
from duckrun.errors import CommitConflict, LostRows
from duckrun.formats.commits import Marked, NewCommit
from duckrun.formats.definitions import TableDefinition
from duckrun.formats.format import logs_of
from duckrun.libraries import pa
from duckrun.run.memory import Arbiter
from duckrun.run.transaction import Transaction
from duckrun.sql.char_types import is_padded
from duckrun.values.computed import NumberedBy
from duckrun.values.partition_values import partition_columns, partition_key
from duckrun.values.rows import Commit, MemoryShares, RowSpec, ScanFile, StagedFile, WriteSpec, counted_rows
from duckrun.values.snapshot import Snapshot
from duckrun.values.tables import order_of

if TYPE_CHECKING:
    from pyroaring import BitMap64

_SHARE = 0.25
"""Share of a file's rows above which merge_mode auto rewrites the file.

Measured on a file of 6 million rows and six columns. A deletion vector for a quarter of the rows
takes a third of the CPU time of a rewrite (1.4 and 4.5 seconds). Each full read then takes 1.4
times as long (1.1 at a tenth, 1.7 at three fifths). About seventeen reads use up the saving.
"""


class FileTableWriter:
    """Writer of tables with a log each, whose commits add and remove files."""

    updates_from_changes = False

    def __init__(self, spec: RowSpec, transaction: Transaction, arbiter: Arbiter, duckdb_limit: int) -> None:
        self.spec = spec
        self.transaction = transaction
        self.form = transaction.lake.format
        self.logs = logs_of(self.form)
        self.delta_rs = DeltaRs(spec, transaction, self.logs, arbiter, duckdb_limit)
        self.streams = Streams(
            f"Table {transaction.ref} was changed by another writer while this {spec.mode} ran: it has other columns, "
            "partitions or constraints now"
        )
        self._staged: dict[tuple[str, ...], tuple[StagedFile, ...]] = {}

    @property
    def shares(self) -> MemoryShares:
        """Memory that the write may use."""
        return self.delta_rs.shares

    def attempt(
        self, rows: Rows | None, cursor: duckdb.DuckDBPyConnection, snapshot: Snapshot | None, write: WriteRows
    ) -> Commit:
        """Run one attempt, a second time without delta_rs if that lacks memory."""
        return self.delta_rs.attempt(partial(write, rows, snapshot))

    def check(self, snapshot: Snapshot) -> None:
        """Raise InvalidConfig or UnsupportedFeature if the existing table cannot be written."""
        if not self.transaction.is_anew:
            self.delta_rs.writes(lambda: by_delta_rs.why_not_mode(self.spec))
        self.logs.refuse_unknown_features(snapshot)

    def write_all(self, whole: WholeRows, snapshot: Snapshot | None) -> Commit:
        """Create a table, or replace all files of one."""
        spec, stored, ref, cursor = whole.spec, whole.stored, self.transaction.ref, whole.rows.cursor
        partition_by = partition_columns(whole.partition_by, list(stored))
        schema = schema_of_types(stored, cursor)
        is_redefined = snapshot is not None and (
            differs(stored, snapshot) or partition_by != snapshot.partition_columns
        )
        reason = self._why_own_definition(spec, schema, partition_by, snapshot, anew=is_redefined)
        definition = self.definition(spec, schema, partition_by, snapshot, stored) if reason else None
        rows = fitted(
            ref,
            whole.rows,
            whole.filled,
            partition_by,
            spec=spec,
            snapshot=snapshot,
            definition=definition,
            computed=whole.computed,
        )
        if self.delta_rs.writes(
            lambda: reason or by_delta_rs.why_not_write(self.logs, ref, rows, snapshot, whole=True)
        ):
            return self.delta_rs.write(snapshot, self.streams.kept(rows), spec, partition_by, redefines=is_redefined)
        if definition is None and (
            snapshot is None or is_redefined or spec.table_properties or spec.description is not None
        ):
            definition = self.definition(spec, schema, partition_by, snapshot, stored)
        files = self._stage(rows, partition_by, definition or snapshot)
        if snapshot is not None and (numbers := numbers_of(rows.numbered, counted_rows(files))):
            definition = self.logs.with_numbers(snapshot, definition, numbers)
        return self.swap_all(spec, files, snapshot, definition, "whole rows")

    def definition(
        self,
        spec: WriteSpec,
        schema: pa.Schema,
        partition_by: Sequence[str],
        snapshot: Snapshot | None,
        stored: Mapping[str, str] | None = None,
    ) -> TableDefinition:
        """Definition of a table after an overwrite by this spec."""
        return self.form.overwritten(spec, self.form.fields_of(schema, stored), partition_by, snapshot)

    def swap_all(
        self,
        spec: WriteSpec,
        files: Sequence[StagedFile],
        snapshot: Snapshot | None,
        definition: TableDefinition | None,
        reason: str,
    ) -> Commit:
        """Commit staged files in place of all files of the table."""
        # Each pass over a snapshot's files decodes them again.
        gone = () if snapshot is None else tuple(snapshot.files())
        rows = (counted_rows(files), 0, counted_rows(gone))
        anew = definition is not None and spec.redefine
        new = NewCommit(spec, definition, files, gone, rows, "staged", reason, anew=anew)
        return staged.commit(self.transaction, snapshot, new, lambda: EVERYTHING)

    def append(self, rows: Rows, snapshot: Snapshot) -> Commit:
        """Add files, or rewrite the table if its columns are dropped or change type."""
        taken = self.transaction.taken_back
        if written_anew(snapshot):
            self.delta_rs.writes(lambda: "columns of the table go or change their type, so all of its rows are written")
            if taken is not None and taken.by_rows:
                raise CommitConflict(
                    f"append to table {self.transaction.ref}: rows that an earlier attempt of the same work "
                    "appended would have to go in the same commit, which is not possible, as the table's columns "
                    "go or change their type with it",
                    remedy="restore the table, then start a new run",
                )
            return self._append_anew(rows, snapshot)
        if self.delta_rs.writes(
            lambda: by_delta_rs.why_not_write(self.logs, self.transaction.ref, rows, snapshot, whole=False)
        ):
            self.delta_rs.go_ahead(snapshot, rows)
            assert isinstance(self.spec, WriteSpec), "an append"
            return self.delta_rs.write(snapshot, self.streams.kept(rows), self.spec)
        files = self._stage(rows, snapshot.partition_columns, snapshot)
        return self.add(files, snapshot, "rows are added", rows.numbered)

    def _append_anew(self, rows: Rows, snapshot: Snapshot) -> Commit:
        with numbered(snapshot, rows.cursor) as table:
            none = f"SELECT {table.file}, {table.row} FROM ({table.sql}) WHERE false"
            with computed(rows.cursor, none) as changes:
                rows = self.streams.kept(rows)
                new = self.rewrite(
                    RowChanges(table, changes, lambda: rows, REWRITTEN, (None, 0, 0), new=lambda: [("insert", rows)])
                )
        return self.commit(snapshot, new, lambda: EVERYTHING)

    def add(
        self,
        files: Sequence[StagedFile],
        snapshot: Snapshot,
        reason: str,
        numbering: Mapping[str, NumberedBy] = MappingProxyType({}),
    ) -> Commit:
        """Commit staged files beside the table's files, and remove those of an earlier attempt.

        Args:
            files: Staged files.
            snapshot: The table.
            reason: Text for the commit.
            numbering: Identity columns that number the rows of the files.
        """
        taken = self.transaction.taken_back
        gone = () if taken is None else taken.files
        rows = (counted_rows(files), 0, counted_rows(gone))
        definition = self._definition_after(snapshot, numbers_of(numbering, rows[0]))
        reason = f"{reason}; those of an earlier attempt go" if gone else reason
        new = NewCommit(self.spec, definition, files, gone, rows, "staged", reason, blind=taken is None)
        return staged.commit(self.transaction, snapshot, new, lambda: NOTHING, fence=self.spec.read_version)

    def swap_files(
        self, snapshot: Snapshot, rows: Rows | None, predicate: str | None, cursor: duckdb.DuckDBPyConnection
    ) -> NewCommit | None:
        """Replace files whose rows all go, by partition values alone.

        Returns:
            None if rows must be found first; see ``rewrite()``.
        """
        if rows is None:
            gone = whole_files(snapshot, cursor, predicate)
            if gone is None or self.transaction.returning is not None:
                return None
            rows_gone, count = (0, 0, counted_rows(gone)), len(snapshot.files())
            definition = definition_of(snapshot)
            return NewCommit(self.spec, definition, (), gone, rows_gone, "staged", "whole files go", pruned=count)
        columns = snapshot.partition_columns
        # The log has CHAR(n) partition values without padding.
        if written_anew(snapshot) or any(is_padded(snapshot.schema.field(name)) for name in columns):
            return None
        gone = [] if predicate is None else whole_files(snapshot, cursor, predicate)
        if gone is None:
            return None
        files = self._stage(rows, columns, snapshot)
        if predicate is None:
            present = {partition_key(f.partition_values, snapshot.schema, columns) for f in files}
            gone = [
                f for f in snapshot.files() if partition_key(f.partition_values, snapshot.schema, columns) in present
            ]
        counts = (counted_rows(files), 0, counted_rows(gone))
        numbers = numbers_of(rows.numbered, counts[0])
        definition = self._definition_after(snapshot, numbers)
        return NewCommit(self.spec, definition, files, gone, counts, "staged", REPLACED, pruned=len(snapshot.files()))

    def rewrite(self, rows: RowChanges) -> NewCommit:
        """Build a commit that deletes some rows and adds others.

        A file is removed if all its rows are deleted. Else a deletion vector marks them, or the
        file is rewritten.
        """
        table, changes, added, reason = rows.table, rows.changes, rows.added(), rows.reason
        snapshot, cursor, numbers = table.snapshot, table.cursor, rows.numbers
        places = rows_by_file(table, changes)
        taken = _files_of(table, places)
        anew, marks, gone = self._parted(table, taken)
        inside = table.of_files(anew)
        ids = RowIds.of(self.logs, table, anew, [file for file, _ in taken], added)
        with ExitStack() as stack:
            selects = []
            if anew:
                rewritten = {file.path for file in anew}
                hits = {
                    place: rows for place, (file, rows) in zip(places, taken, strict=True) if file.path in rewritten
                }
                selects.append(ids.kept(stack.enter_context(marked(table, hits))))
            if added is not None:
                selects.append(ids.added(added))
            one_shot = added is not None and added.one_shot
            types = {**types_of(snapshot), **ids.types}
            written_rows = Rows(cursor, " UNION ALL ".join(selects), types, one_shot, order_of(snapshot))
            files = self._stage_beside(written_rows, snapshot, ids) if selects else ()
        inserted, updated, deleted = rows.counts
        if added is not None and added.numbered:
            numbers = numbers_of(added.numbered, counted(cursor, f"({added.sql})"))
        if inserted is None:
            left = counted(cursor, f"({inside})") - sum(len(places) for f, places in taken if f in anew) if anew else 0
            written = counted_rows(files)
            inserted = None if written is None else written - left
        if written_anew(snapshot) and reason != REWRITTEN:
            reason = f"{reason}; {REWRITTEN}"
        elif taken:
            numbers_done = {"marked in deletion vectors": len(marks), "written anew": len(anew), "removed": len(gone)}
            done = (f"{n} file{'s' * (n > 1)} {what}" for what, n in numbers_done.items() if n)
            reason = f"{reason}: {', '.join(done)}"
        deleted = sum(len(places) for _, places in taken) if deleted is None else deleted
        definition, counts = self._definition_after(snapshot, numbers), (inserted, updated, deleted)
        if marks:
            definition = self.logs.marking(snapshot, definition)
        new = NewCommit(self.spec, definition, files, [*anew, *gone], counts, "staged", reason, marks=marks)
        if snapshot.has_feed and (anew or updated):
            new = replace(new, feed=feed_files(self.logs, self.spec, rows, [file for file, _ in taken]))
        return new if table.opened is None else replace(new, pruned=max(len(snapshot.files()) - table.opened, 0))

    def commit(self, snapshot: Snapshot, new: NewCommit, read: Callable[[], Read]) -> Commit:
        """Commit staged files, unless nothing changes."""
        empty = not new.adds and not new.removes and not new.marks and new.definition is None
        if empty and self.transaction.taken_back is None:
            return self.transaction.nothing(snapshot, "no row was concerned")
        return staged.commit(self.transaction, snapshot, new, read, fence=self.spec.read_version)

    def _stage(
        self, rows: Rows, partition_by: Sequence[str], table: TableDefinition | Snapshot | None
    ) -> tuple[StagedFile, ...]:
        """Stage rows as files by the properties of the spec and the table.

        The files of a stream are staged once and reused by every attempt.
        """
        key = (rows.sql, *partition_by)
        if key not in self._staged:
            self.streams.take(rows)
            self._staged[key] = staged.stage_in(
                self.logs.files_folder(self.transaction.ref),
                rows,
                self.transaction.ref,
                partition_by,
                properties=file_properties(self.spec, {} if table is None else table.properties),
                partitions=staged.partitions_of(table),
                stored=() if table is None else self.logs.stored_columns(table.schema),
            )
        return self._staged[key] if rows.one_shot else self._staged.pop(key)

    def _stage_beside(self, rows: Rows, snapshot: Snapshot, ids: RowIds) -> tuple[StagedFile, ...]:
        """Stage rows with their ids as new files of a table."""
        return staged.stage_in(
            self.logs.files_folder(snapshot.ref),
            rows,
            snapshot.ref,
            snapshot.partition_columns,
            properties=file_properties(self.spec, snapshot.properties),
            stored=(*self.logs.stored_columns(snapshot.schema), *ids.stored),
        )

    def _definition_after(
        self, snapshot: Snapshot, numbers: Mapping[str, int] = MappingProxyType({})
    ) -> TableDefinition | None:
        """Definition to commit together with written rows; None if it stays the same."""
        changed = definition_of(snapshot)
        return self.logs.with_numbers(snapshot, changed, numbers) if numbers else changed

    def _parted(
        self, table: Numbered, taken: Sequence[tuple[ScanFile, BitMap64]]
    ) -> tuple[list[ScanFile], list[Marked], list[ScanFile]]:
        """Files to rewrite, rows to mark in deletion vectors, and files without remaining rows."""
        if written_anew(table.snapshot):
            return list(table.snapshot.files()), [], []
        to_rewrite, marks, gone = [], [], []
        by_share = self.spec.merge_mode == "auto"
        marking = table.in_file and (
            self.logs.marks_rows(table.snapshot) if by_share else self.spec.merge_mode == "deletion_vectors"
        )
        for file, rows in taken:
            if table.in_file and len(rows) == file.live_rows:
                gone.append(file)
            elif not marking or file.rows is None or (by_share and len(rows) > _SHARE * file.rows):
                to_rewrite.append(file)
            else:
                marks.append(Marked(file, rows))
        return to_rewrite, marks, gone

    def _why_own_definition(
        self, spec: WriteSpec, schema: pa.Schema, partition_by: Sequence[str], snapshot: Snapshot | None, *, anew: bool
    ) -> str | None:
        """Part of an overwrite's definition that delta_rs cannot write; None if it can write all.

        ``anew`` is True if an existing table gets other columns or partitions.
        """
        if spec.merge_mode == "deletion_vectors":
            return "it writes no deletion vectors (merge_mode)"
        if spec.redefine:
            return "it gives a table that is there no other definition"
        if spec.constraints:
            return "it writes no constraints"
        if spec.sort_by:
            return "it stores no sort order (sort_by)"
        if spec.cluster_by or (spec.cluster_by is not None and snapshot is not None):
            return "it writes no clustering (cluster_by)"
        if foreign_properties := sorted(name for name in spec.table_properties if not name.startswith("delta.")):
            return f"it writes none of the properties {', '.join(foreign_properties)}"
        if snapshot is not None and (reason := self._why_not_in_place(spec, schema, snapshot, anew)) is not None:
            return reason
        if features := self.logs.asked_features(spec.table_properties):
            return f"it does not turn on {', '.join(features)}"
        if _comments_anew(spec, schema.names, snapshot):
            return "it writes no comments of columns (column_comments)"
        return by_delta_rs.why_misspelt(schema, partition_by)

    def _why_not_in_place(self, spec: WriteSpec, schema: pa.Schema, snapshot: Snapshot, anew: bool) -> str | None:
        """Part of an existing table's definition that delta_rs would lose; None if nothing."""
        if spec.table_properties:
            return "it drops the other properties of a table that is there, where it is given some"
        if spec.description not in (None, snapshot.description):
            return "it drops the description of a table that is there, where it is given another one"
        if not {path[0].lower() for path in snapshot.cluster_by} <= {name.lower() for name in schema.names}:
            return "the columns that the table is clustered by go"
        commented = {field.name.lower() for field in snapshot.schema if (field.metadata or {}).get(b"comment")}
        if anew and not commented.isdisjoint(name.lower() for name in schema.names):
            return "it drops the comments of columns where a table gets other columns or partitions"
        if self.logs.constrained_anew(snapshot, spec):
            return "it keeps no defaults, constraints and computed columns"
        return None


def _files_of(table: Numbered, rows: Mapping[str, BitMap64]) -> list[tuple[ScanFile, BitMap64]]:
    """Files with rows to delete, each with the numbers of these rows."""
    files = table.snapshot.files().at(rows)
    if strangers := rows.keys() - files:
        raise LostRows(
            f"Table {table.snapshot.ref}: rows were read from {min(strangers)}, which is no file of its log, so "
            "that they could not be taken out",
            remedy="Run this with engine: spark, and report it",
        )
    return [(files[place], numbers) for place, numbers in rows.items()]


def _comments_anew(spec: WriteSpec, columns: Sequence[str], snapshot: Snapshot | None) -> bool:
    """True if the spec's column comments differ from the table's."""
    if snapshot is None or not spec.column_comments or snapshot.schema.names != columns:
        return bool(spec.column_comments)
    present = {f.name.lower(): (f.metadata or {}).get(b"comment", b"").decode() for f in snapshot.schema}
    return any(present.get(name.lower()) != comment for name, comment in spec.column_comments.items())
