"""DuckLake implementation of Format: the catalog is a SQL database, and each commit is a snapshot.

A table's version is the last snapshot that changed it. Any snapshot of the lake is a valid version
of each table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import duckdb
import pyarrow as pa

from duckrun.errors import TableNotFound, UnsupportedFeature, VersionNotReadable
from duckrun.formats.commits import CommitRecord, NewCommit
from duckrun.formats.ducklake.catalog.catalog import Catalog
from duckrun.formats.ducklake.commits.commits import Commits
from duckrun.formats.ducklake.commits.restore import added_rows, restore, untouched
from duckrun.formats.ducklake.commits.transactor import Transactor
from duckrun.formats.ducklake.definition.defining import Defining
from duckrun.formats.ducklake.state.applied import Applied
from duckrun.formats.ducklake.state.figures import column_figures
from duckrun.formats.ducklake.state.inlined import inlined_tables
from duckrun.formats.ducklake.state.lake_files import Footers, Reading
from duckrun.formats.ducklake.state.records import Records
from duckrun.formats.ducklake.state.state import States, TableState, state_of
from duckrun.formats.ducklake.whole import DuckLakeAsWhole
from duckrun.formats.pruning import without_bounds
from duckrun.sql.names import transpile
from duckrun.sql.quoting import quote_identifier, quote_literal, select_list
from duckrun.storage.storage import Storage
from duckrun.values.changes import CommitChange
from duckrun.values.choices import WriterName
from duckrun.values.columns import defaults_in
from duckrun.values.computed import ComputedColumn
from duckrun.values.cursors import Counter
from duckrun.values.files import Files, ListedFiles
from duckrun.values.lake_files import IN_CATALOG, LakeFiles
from duckrun.values.lake_format import DUCKLAKE, LakeFormat
from duckrun.values.rows import AppTransaction, Commit, ScanFile
from duckrun.values.snapshot import ReadAs, Snapshot, TableRef


class DuckLakeFormat(Defining):
    """DuckLake tables of one lake.

    Features of Delta raise UnsupportedFeature, with DuckLake's equivalent in the message.
    """

    name: str = DUCKLAKE
    writer: WriterName = "ducklake"
    native_types = True
    logs = None

    def __init__(self, storage: Storage, form: LakeFormat | None = None, *, read_only: bool = False) -> None:
        self.storage = storage
        self.catalog = self.lent = Catalog(storage, form or LakeFormat(DUCKLAKE), read_only=read_only)
        self.states = States(self.catalog)
        self.applied = Applied(self.catalog, self.states)
        self.records = Records(self.catalog, self.states, self.applied)
        self.transactor = Transactor(self.catalog, self.states)
        self.commits = Commits(self.transactor)
        self.transactions = DuckLakeAsWhole(self.commits, self.records, self.snapshot, self.of_state)
        self.footers = Footers()

    # -- DuckDB instances

    @property
    def extensions(self) -> tuple[str, ...]:
        return self.catalog.extensions

    def lend(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.catalog.lend(connection)

    def locked(self, ref: TableRef) -> AbstractContextManager[None]:
        return self.transactor.locked()

    # -- tables and their versions

    def exists(self, ref: TableRef) -> bool:
        return self.transactor.exists(ref)

    def snapshot(self, ref: TableRef, version: int | None = None, timestamp: str | None = None) -> Snapshot:
        # Changes of the open transaction have the version that its commit would get.
        work = self.transactor.together
        if work is not None and timestamp is None and version in (None, work.base + 1):
            live = self._live(ref)
            if live is not None:
                return live
        if timestamp is not None:
            version = self.states.at_time(timestamp, ref)
        elif version is not None:
            self.states.check(version, ref)
        state = self.states.find(ref, version)
        if state is None:
            now = None if version is None else self.states.find(ref)
            if now is not None and now.begun > (version or 0):
                raise VersionNotReadable(
                    f"Table {ref} was made by snapshot {now.begun} of its lake; version {version} is older than that."
                )
            if now is not None and version is not None:  # The table had another name then.
                return self.of_state(ref, self.states.again(now, version))
            raise TableNotFound(f"There is no table {ref}.")
        return self.of_state(ref, state)

    def of_state(self, ref: TableRef, state: TableState, *, live: bool = False) -> Snapshot:
        """Build the snapshot of a table's state.

        Args:
            live: The state is that of an open transaction.
        """
        definition = state.definition
        return Snapshot(
            ref=ref,
            version=state.version,
            table_id=state.uuid,
            begun=state.begun,
            schema=definition.schema,
            partition_columns=definition.partition_columns,
            keyed_by=tuple(str(key) for key in definition.partition_by),
            properties=dict(definition.properties),
            description=definition.description,
            sql_types=definition.sql_types,
            format_state=replace(state, at=-1) if live else state,
            shared=None if live else (self.storage.root, state.at),
            list_files=self._files,
            find_other=partial(self.snapshot, ref),
            find_matching=without_bounds,
            list_beside=self.records.in_catalog,
            make_scan_sql=self.scan_sql,
            find_parts=self._parts,
            find_figures=partial(column_figures, self.catalog),
            find_computed=self.computing,
        )

    def _live(self, ref: TableRef) -> Snapshot | None:
        """Return a table as the open multi-table transaction sees it."""
        work = self.transactor.together
        assert work is not None
        key = (ref.schema.lower(), ref.name.lower())
        if not self.exists(ref):
            return None
        if key not in work.touched:
            state = self.states.find(ref, work.base)
            return None if state is None else self.of_state(ref, state, live=True)
        return self.of_state(ref, work.touched[key], live=True)

    def begin(self, ref: TableRef) -> Snapshot | None:
        if self.transactor.together is not None:
            return self._live(ref)
        state = self.states.begun(ref)
        return None if state is None else self.of_state(ref, state)

    def scan_sql(self, snapshot: Snapshot, read: ReadAs) -> str:
        assert not read.also, "what tells rows apart in the files of a DuckLake is its catalog's alone"
        state = state_of(snapshot)
        if state is None:  # The scan was planned in another process.
            snapshot_now = self.snapshot(snapshot.ref, snapshot.version)
            state = state_of(snapshot_now)
            self.records.refuse_moved(snapshot_now, read.files or ())
        epoch = state.epoch if state.at == -1 else self.states.epoch_now(state)
        self.catalog.ensure(epoch)
        columns = [select_list(state.columns())]
        # A row id is unique in the whole table, so the file is not needed to identify a row.
        columns += [f"'' AS {quote_identifier(read.file)}"] if read.file is not None else []
        columns += [f"rowid AS {quote_identifier(read.row)}"] if read.row is not None else []
        work = self.transactor.together
        if state.at == -1 and work is not None:
            source = quote_identifier(work.alias, state.schema, state.name)
        else:
            source = self.catalog.rows(epoch, state.schema, state.name, state.version)
        where = ""
        if read.files is not None:
            if twins := [name for name in state.definition.names if name.lower() == "filename"]:
                raise UnsupportedFeature(
                    f"Table {snapshot.ref} has a column {twins[0]}, the name by which DuckLake tells its files "
                    "apart, so that no single files of it can be "
                    "read: read it whole, or rename the column."
                )
            names = [each.path for each in read.files if each.path != IN_CATALOG]
            if len(names) < len(read.files):
                names += inlined_tables(self.catalog.ask, self.catalog.meta, state.id)
            where = f" WHERE filename IN ({', '.join(map(quote_literal, names or ['']))})"
        return f"(SELECT {', '.join(columns)} FROM {source}{where})"

    def _files(self, snapshot: Snapshot) -> Files:
        return ListedFiles(
            snapshot.ref.location,
            lambda: self.records.files(snapshot),
            lambda: self.records.weight(state_of(snapshot)),
        )

    def _parts(self, snapshot: Snapshot) -> LakeFiles:
        return Reading(self.catalog, self.footers, snapshot).read()

    # -- history

    def history(self, ref: TableRef, limit: int | None = None) -> list[dict[str, Any]]:
        return self.records.history(ref, self._state(ref), limit)

    def _state(self, ref: TableRef) -> TableState:
        return state_of(self.snapshot(ref))

    def detail(self, ref: TableRef) -> dict[str, Any]:
        snapshot = self.snapshot(ref)
        files = snapshot.files()
        return {
            "format": self.name,
            "id": snapshot.table_id,
            "name": str(ref),
            "description": snapshot.description,
            "location": self.catalog.data_path,
            "catalog": str(self.catalog.address),
            "version": snapshot.version,
            "createdAt": self.records.time_of(state_of(snapshot).begun),
            "partitionColumns": [str(key) for key in state_of(snapshot).definition.partition_by],
            "sortColumns": list(state_of(snapshot).definition.sort_by),
            "numFiles": len(files),
            "sizeInBytes": sum(file.size for file in files),
            "properties": snapshot.properties,
            "minReaderVersion": None,
            "minWriterVersion": None,
            "tableFeatures": [],
        }

    def record(self, ref: TableRef, version: int) -> CommitRecord | None:
        return self.records.record(ref, self._state(ref), version)

    def records_back(self, ref: TableRef, newest: int) -> Iterator[CommitRecord]:
        state = self._state(ref)
        for version in reversed(self.records.versions(state, up_to=newest)):
            record = self.records.record(ref, state, version)
            if record is not None:
                yield record

    def records_after(self, ref: TableRef, version: int) -> list[CommitRecord]:
        state = self._state(ref)
        records = [self.records.record(ref, state, each) for each in self.records.versions(state, after=version)]
        return [record for record in records if record is not None]

    def tells_since(self, ref: TableRef, version: int, newest: int, commits: Sequence[CommitRecord]) -> bool:
        """True if the commits are all changes of a table since a version."""
        return self.records.oldest() <= version + 1 or version == newest

    def commits_between(self, ref: TableRef, after: int, to: int) -> list[CommitChange]:
        """See Format.

        Changes of the open multi-table transaction are one more commit at the end.
        """
        state, work = self._state(ref), self.transactor.together
        changes = self.records.commits_between(ref, state, after, to)
        if work is not None and state.at == -1 and after < state.version <= to and state.version > work.base:
            changes.append(CommitChange(state.version, None, "TRANSACTION", (), redefines=True))
        return changes

    def row_count(self, snapshot: Snapshot) -> int | None:
        return self.records.row_count(snapshot)

    def computing(self, schema: pa.Schema) -> dict[str, ComputedColumn]:
        """See Format.

        DuckLake fills defaults of an INSERT; the rows of a merge need them earlier.
        """
        return {name: ComputedColumn(name, default=default) for name, default in defaults_in(schema).items()}

    def in_duckdb(self, expression: str, schema: pa.Schema) -> str | None:
        return transpile(expression, "spark", "duckdb")

    # -- exactly once

    def find_commit(self, ref: TableRef, app: AppTransaction, newest: Snapshot | None = None) -> Commit | None:
        state = self.states.find(ref) if newest is None else state_of(newest)
        return None if state is None else self.applied.find_commit(ref, state, app, self.transactor.together)

    def counter(self, ref: TableRef, consumer: str, newest: Snapshot | None = None) -> Counter:
        state = self.states.find(ref) if newest is None else state_of(newest)
        return Counter() if state is None else self.applied.counter(ref, state, consumer, self.transactor.together)

    def log_retention(self, snapshot: Snapshot) -> float:
        return float("inf")  # Snapshots expire only on request.

    def fingerprint(self, ref: TableRef, version: int) -> str | None:
        return self.records.fingerprint(version)

    # -- commits

    def commit(self, ref: TableRef, snapshot: Snapshot | None, new: NewCommit, *, over: Snapshot | None = None) -> int:
        return self.commits.commit(ref, snapshot, new)

    def committed(self, before: Snapshot | None, ref: TableRef, version: int) -> Snapshot | None:
        if self.transactor.together is not None:
            return self._live(ref)
        known = self.states.known(ref)
        snapshot = self.snapshot(ref) if known is None else self.of_state(ref, known)
        return snapshot if snapshot.version == version else None

    def untouched(self, snapshot: Snapshot, records: Sequence[CommitRecord]) -> Sequence[ScanFile] | None:
        return untouched(self.catalog, snapshot, records)

    def added_rows(self, snapshot: Snapshot, record: CommitRecord) -> str | None:
        return added_rows(snapshot, record)

    def restore(self, snapshot: Snapshot, version: int, note: dict[str, Any], app: AppTransaction | None) -> int:
        return restore(self.commits, snapshot, version, note, app)

    def rename(self, ref: TableRef, new: TableRef) -> None:
        self.commits.rename(ref, new, self._state(ref))

    def drop(self, ref: TableRef, *, force: bool = False) -> None:
        self.commits.drop(ref)
