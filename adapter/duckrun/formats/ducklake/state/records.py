"""History in the catalog: snapshots, commits of a table, and their files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from duckrun.errors import StorageError, UnsupportedFeature, VersionNotReadable
from duckrun.formats.commits import ROW_COUNTS, CommitRecord, FileChange
from duckrun.formats.ducklake.catalog.catalog import Catalog, there
from duckrun.formats.ducklake.state.applied import Applied
from duckrun.formats.ducklake.state.figures import counts_whole
from duckrun.formats.ducklake.state.inlined import inlined_rows, inlined_tables
from duckrun.formats.ducklake.state.state import States, TableState, kinds_of, state_of, touches
from duckrun.formats.ducklake.state.stored import DEFINITION, EVERY, LAYOUT, ROWS, touching
from duckrun.formats.ducklake.state.tenures import Tenures
from duckrun.formats.transactions import CommitFiles
from duckrun.sql.quoting import quote_literal
from duckrun.values.changes import CommitChange
from duckrun.values.lake_files import IN_CATALOG
from duckrun.values.rows import ScanFile, counted_rows
from duckrun.values.snapshot import Snapshot, TableRef

ALL = "*"
"""Table name in the note of a snapshot that concerns every changed table."""
UPKEEP = ("flush", "optimize", "rewrite")
"""Modes in notes of commits that change no row."""


class _Entry(NamedTuple):
    """Snapshot of the lake, by the names that users see."""

    snapshot_id: int
    timestamp: int
    schema_version: int
    changes: str | None
    author: str | None
    commit_message: str | None
    commit_extra_info: str | None


class Records:
    """History of one lake's tables."""

    def __init__(self, catalog: Catalog, states: States, applied: Applied) -> None:
        self.catalog, self.states, self.applied = catalog, states, applied

    # -- snapshots

    def oldest(self) -> int:
        """Return the oldest unexpired snapshot."""
        rows = self.catalog.ask(f"SELECT min(snapshot_id) FROM {self.catalog.meta('ducklake_snapshot')}")
        return int(rows[0][0]) if rows and rows[0][0] is not None else 0

    def time_of(self, snapshot: int) -> datetime | None:
        """Return the time of a snapshot; None if it has expired."""
        rows = self.catalog.ask(
            f"SELECT snapshot_time::TIMESTAMPTZ FROM {self.catalog.meta('ducklake_snapshot')} "
            f"WHERE snapshot_id = {snapshot}"
        )
        return rows[0][0] if rows else None

    def versions(self, state: TableState, *, after: int = -1, up_to: int | None = None) -> list[int]:
        """Return the snapshots that changed a table, oldest first, without expired ones."""
        limit = "" if up_to is None else f" AND snapshot_id <= {up_to}"
        rows = self.catalog.ask(
            f"SELECT snapshot_id FROM {self.catalog.meta('ducklake_snapshot_changes')} "
            f"WHERE snapshot_id > {after}{limit} AND "
            # ``changes_made`` names a created table by its name, not by its id.
            f"(snapshot_id = {state.begun} OR {touching(EVERY, state.id)}) ORDER BY 1"
        )
        return [int(number) for (number,) in rows]

    def _entries(self, where: str, limit: int | None = None) -> list[_Entry]:
        """Return the snapshots of a condition, newest first."""
        meta = self.catalog.meta
        rows = self.catalog.ask(
            "SELECT snapshot_id, epoch_ms(snapshot_time::TIMESTAMPTZ), schema_version, changes_made, author, "
            f"commit_message, commit_extra_info FROM {meta('ducklake_snapshot')} LEFT JOIN "
            f"{meta('ducklake_snapshot_changes')} USING (snapshot_id) WHERE {where} ORDER BY 1 DESC"
            + ("" if limit is None else f" LIMIT {int(limit)}")
        )
        return [_Entry(*row) for row in rows]

    def _entry(self, snapshot: int) -> _Entry | None:
        return next(iter(self._entries(f"snapshot_id = {snapshot}")), None)

    def snapshots(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Snapshots of the lake, newest first."""
        return [entry._asdict() for entry in self._entries("true", limit)]

    def history(self, ref: TableRef, state: TableState, limit: int | None) -> list[dict[str, Any]]:
        """Return the commits of a table, newest first. See Format."""
        versions = ", ".join(map(str, self.versions(state))) or "NULL"
        commits = []
        for entry in self._entries(f"snapshot_id IN ({versions})", limit):
            note = note_of(entry.commit_extra_info, ref)
            commits.append(
                {
                    "version": entry.snapshot_id,
                    "timestamp": entry.timestamp,
                    "operation": _operation(entry.changes, state, entry.snapshot_id, note),
                    "operationParameters": {},
                    "engineInfo": entry.author,
                    "message": entry.commit_message,
                    **({"duckrun": note} if note else {}),
                }
            )
        return commits

    def record(self, ref: TableRef, state: TableState, version: int) -> CommitRecord | None:
        """Return the changes of one commit; None if the snapshot did not change the table."""
        entry = self._entry(version)
        note = {} if entry is None else note_of(entry.commit_extra_info, ref)
        # A write of this library without changed rows has a note, and maybe an application
        # transaction.
        if entry is None or not (version == state.begun or touches(entry.changes, state.id) or note):
            return None
        rows_change = _changes_rows(entry.changes, state, note)
        in_catalog = touches(entry.changes, state.id, ("inlined_insert", "inlined_delete"))
        added, removed = self._files_of(state, version, rows_change, in_catalog)
        return CommitRecord(
            version=version,
            operation=_operation(entry.changes, state, version, note),
            added=added,
            removed=removed,
            transactions=self.applied.transactions(ref, version),
            changes_metadata=version == state.begun or touches(entry.changes, state.id, DEFINITION),
            rows=tuple(map(note.get, ROW_COUNTS)),  # type: ignore[arg-type]
            timestamp=entry.timestamp,
            note=note,
        )

    def _files_of(
        self, state: TableState, version: int, rows_change: bool, in_catalog: bool
    ) -> tuple[tuple[FileChange, ...], tuple[FileChange, ...]]:
        meta, partitions = self.catalog.meta, self._partition_values(state)
        rows = self.catalog.ask(
            f"SELECT data_file_id, path, file_size_bytes, begin_snapshot FROM {meta('ducklake_data_file')} "
            f"WHERE table_id = {state.id} "
            f"AND (begin_snapshot = {version} OR end_snapshot = {version})"
        )
        added: list[FileChange] = []
        removed: list[FileChange] = []
        for file, path, size, begun in rows:
            (added if begun == version else removed).append(FileChange(path, size, partitions.get(file), rows_change))
        if rows_change and partitions:
            marked = self.catalog.ask(
                f"SELECT f.data_file_id, f.path, f.file_size_bytes FROM {meta('ducklake_delete_file')} AS d "
                f"JOIN {meta('ducklake_data_file')} AS f "
                f"USING (data_file_id) WHERE d.table_id = {state.id} AND d.begin_snapshot = {version}"
            )
            removed += [FileChange(path, size, partitions.get(file), True) for file, path, size in marked]
        if rows_change and (in_catalog or (not added and not removed)):
            # The commit changed rows, but no data file shows it.
            removed.append(FileChange("(rows in the catalog or in delete files)", 0, None, True))
        return tuple(added), tuple(removed)

    def files(self, snapshot: Snapshot) -> Iterator[ScanFile]:
        """Yield the data files of a version."""
        state = state_of(snapshot)
        if state.at == -1:
            return
        meta, at = self.catalog.meta, state.version
        # For rows or deletes of several snapshots, the count at an older snapshot is unknown.
        newest = f"(SELECT max(snapshot_id) FROM {meta('ducklake_snapshot')})"
        several = (
            f"f.partial_max > {state.at} OR bool_or(coalesce(d.partial_max, {newest}) > {state.at} AND "
            "d.data_file_id IS NOT NULL)"
        )
        folder = quote_literal(self.catalog.table_folder(state.id))
        listed = self.catalog.ask(
            f"SELECT CASE WHEN f.path_is_relative THEN {folder} || f.path ELSE f.path END, f.file_size_bytes, "
            f"f.data_file_id, CASE WHEN {several} THEN NULL ELSE f.record_count END, "
            "count(d.data_file_id) > 0, coalesce(sum(d.delete_count), 0) "
            f"FROM {meta('ducklake_data_file')} AS f LEFT JOIN "
            f"(SELECT * FROM {meta('ducklake_delete_file')} AS d WHERE {there('d', at)}) AS d "
            f"ON d.data_file_id = f.data_file_id WHERE f.table_id = {state.id} AND {there('f', at)} "
            "GROUP BY f.data_file_id, f.path, f.path_is_relative, f.file_size_bytes, f.record_count, f.partial_max "
            "ORDER BY f.data_file_id"
        )
        partitions = self._partition_values(state)
        for path, size, file, count, marked, gone in listed:
            yield ScanFile(path, size or 0, partitions.get(file, {}), count, marked, int(gone))

    def weight(self, state: TableState) -> tuple[int, int]:
        """Return the number and total bytes of a version's data files."""
        if state.at == -1:
            return 0, 0
        return self._weighed(f"{there('f', state.version)} AND f.table_id = {state.id}")

    def in_catalog(self, snapshot: Snapshot) -> list[ScanFile]:
        """Return the inlined rows of a version as one more file; empty if there are none.

        Raises:
            UnsupportedFeature: The version belongs to an open transaction.
        """
        state = state_of(snapshot)
        if state.at == -1:
            raise UnsupportedFeature(
                f"Table {snapshot.ref} is written within a transaction, whose rows nobody else can read yet: "
                "read it by the transaction, or plan a scan once "
                "it is committed."
            )
        tables = inlined_tables(self.catalog.ask, self.catalog.meta, state.id)
        if not tables:
            return []
        rows = inlined_rows(self.catalog, state, self.states.epoch_now(state), tables)
        count = self._count(snapshot, rows)
        return [ScanFile(IN_CATALOG, 0, rows=count)] if count else []

    def _count(self, snapshot: Snapshot, source: str) -> int:
        """Return the number of rows of a FROM clause of a table's SQL."""
        with self.catalog.errors(f"table {snapshot.ref}"):
            return int(self.catalog.cursor().execute(f"SELECT count(*) FROM {source}").fetchall()[0][0])

    def refuse_moved(self, snapshot: Snapshot, files: Sequence[ScanFile]) -> None:
        """Raise StorageError if maintenance has moved the rows of some files to others.

        A scan of the listed files would miss these rows.
        """
        now = {file.path: file.rows for file in (*self.files(snapshot), *self.in_catalog(snapshot))}
        known = {file.path: file.rows for file in files if file.rows is not None and now.get(file.path) is not None}
        if any(file.path not in now for file in files) or any(rows != now[path] for path, rows in known.items()):
            raise StorageError(
                f"Table {snapshot.ref}: files of version {snapshot.version} were flushed, merged or rewritten since "
                "this scan of them was planned, and its "
                "rows lie in others now: plan it again, by snapshot().scan()."
            )

    def _partition_values(self, state: TableState) -> dict[int | None, dict[str, str | None]]:
        """Data file id -> values of the columns that partition the table."""
        columns = {state.column_ids[name]: name for name in state.definition.partition_columns}
        if not columns:
            return {}
        meta = self.catalog.meta
        rows = self.catalog.ask(
            f"SELECT f.data_file_id, p.column_id, v.partition_value FROM {meta('ducklake_data_file')} AS f "
            f"JOIN {meta('ducklake_file_partition_value')} AS v ON v.table_id = f.table_id "
            "AND v.data_file_id = f.data_file_id "
            f"JOIN {meta('ducklake_partition_column')} AS p ON p.table_id = f.table_id "
            "AND p.partition_id = f.partition_id AND p.partition_key_index = v.partition_key_index "
            f"WHERE f.table_id = {state.id} AND p.transform = 'identity'"
        )
        values: dict[int | None, dict[str, str | None]] = {}
        for file, column, value in rows:
            if column in columns:
                values.setdefault(file, {})[columns[column]] = value
        return values

    def row_count(self, snapshot: Snapshot) -> int | None:
        """Return the number of rows of a version, with inlined rows."""
        state = state_of(snapshot)
        inlined = inlined_tables(self.catalog.ask, self.catalog.meta, state.id)
        if not inlined and counts_whole(self.catalog, state):
            return counted_rows(snapshot.files())
        return self._count(snapshot, snapshot.scan_sql())

    def figures(self, state: TableState | None) -> tuple[int, int]:
        """Return the number and total bytes of the current data files of a table.

        Without a table, they are those of the lake.
        """
        of = "" if state is None else f" AND f.table_id = {state.id}"
        return self._weighed(f"{there('f', None)}{of}")

    def _weighed(self, where: str) -> tuple[int, int]:
        files = self.catalog.meta("ducklake_data_file")
        rows = self.catalog.ask(f"SELECT count(*), coalesce(sum(f.file_size_bytes), 0) FROM {files} AS f WHERE {where}")
        return (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0)

    def commit_files(self, state: TableState, at: int) -> CommitFiles | None:
        """Return what the commit of a version did to a table's files, if the catalog still knows.

        Returns:
            None for a version of an open transaction.
        """
        if state.at < 0:
            return None
        meta = self.catalog.meta
        of = f"WHERE table_id = {state.id} AND"
        [(added, size, removed, marked)] = self.catalog.ask(
            f"SELECT count(*) FILTER (begin_snapshot = {at}), coalesce(sum(file_size_bytes) FILTER (begin_snapshot = "
            f"{at}), 0), count(*) FILTER (end_snapshot = {at}), "
            f"(SELECT count(*) FROM {meta('ducklake_delete_file')} {of} begin_snapshot = {at}) "
            f"FROM {meta('ducklake_data_file')} {of} (begin_snapshot = {at} OR end_snapshot = {at})"
        )
        return CommitFiles(int(added), int(removed), int(marked), int(size))

    def commits_between(self, ref: TableRef, state: TableState, after: int, to: int) -> list[CommitChange]:
        """Return the commits in (after, to] to the tables that the name of a state stood for.

        Raises:
            VersionNotReadable: Snapshots of the range have expired.
        """
        tenures, oldest = Tenures.of(self.states, state), self.oldest()
        if tenures.at(after) is not None and after < oldest:
            raise VersionNotReadable(
                f"Table {ref}: snapshot {after} of its lake has expired, so that nobody knows what changed since; "
                "the oldest from_version that "
                f"works is {oldest}."
            )
        turns = {*tenures.turns(after, to)}
        entries = self._entries(
            f"snapshot_id > {after} AND snapshot_id <= {to} AND ({touching(EVERY, *tenures.numbers)} "
            f"OR snapshot_id IN ({', '.join(map(str, turns)) or 'NULL'}))"
        )
        commits = []
        for version, at, _, changes, *_, extra in reversed(entries):
            tenure = tenures.at(version)
            number = -1 if tenure is None else tenure.number
            if version not in turns and not touches(changes, number):
                continue
            of = replace(state, id=number, begun=version if version in turns else -1)
            operation = "DROP TABLE" if tenure is None else _operation(changes, of, version, note_of(extra, ref))
            moves = version not in turns and not touches(changes, number, ROWS)
            redefines = version in turns or touches(changes, number, DEFINITION)
            commits.append(CommitChange(version, at, operation, (), moves=moves, redefines=redefines))
        return commits

    def fingerprint(self, version: int) -> str | None:
        """Return a value that tells a snapshot from another of its number."""
        entry = self._entry(version)
        if entry is None:
            return None
        identity = json.dumps([entry.snapshot_id, entry.timestamp, entry.changes], default=str)
        return hashlib.sha256(identity.encode()).hexdigest()


def note_of(extra: str | None, ref: TableRef) -> dict[str, Any]:
    """Return this library's note about a table in a snapshot.

    It is empty for commits of other programs.
    """
    try:
        notes = json.loads(extra) if extra else []
    except ValueError:
        return {}
    listed = notes if isinstance(notes, list) else []
    name = f"{ref.schema}.{ref.name}"
    return next((note for note in listed if isinstance(note, dict) and note.get("table") in (name, ALL)), {})


def _changes_rows(changes: str | None, state: TableState, note: dict[str, Any]) -> bool:
    """True if a snapshot changed rows of a table.

    A flush records inlined deletes once more, so its deletes do not count.
    """
    kinds = kinds_of(changes, state.id)
    if "inline_flush" in kinds and kinds.isdisjoint({"inserted_into_table", "inlined_insert", "inlined_delete"}):
        return False
    return bool(kinds & set(ROWS)) and note.get("mode") not in UPKEEP


_CREATES = {"error": "CREATE TABLE AS SELECT", "ignore": "CREATE TABLE AS SELECT", "create": "CREATE TABLE"}
"""Mode of a write that creates a table -> operation in the history."""


def _operation(changes: str | None, state: TableState, version: int, note: dict[str, Any]) -> str:
    if note.get("mode"):
        return _CREATES.get(note["mode"], str(note["mode"]).upper())
    if version == state.begun:
        return "CREATE TABLE"
    kinds = kinds_of(changes, state.id)
    if kinds & {"altered_table"} and not kinds & set(ROWS):
        return "ALTER TABLE"
    if kinds & set(LAYOUT) and not kinds & set(ROWS):
        return "OPTIMIZE"
    if kinds.isdisjoint({"inserted_into_table", "inlined_insert"}):
        return "DELETE"
    return "INSERT" if kinds.isdisjoint({"deleted_from_table", "inlined_delete"}) else "UPDATE"
