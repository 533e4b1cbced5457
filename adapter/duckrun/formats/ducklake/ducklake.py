"""DuckLake tables of one lake, as Format says: the catalog is a SQL database, and each commit a snapshot of the whole lake.

A table's version is the last snapshot that changed it, and any snapshot of the lake is a version of each table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NoReturn

import duckdb
import pyarrow as pa

from duckrun.errors import (
    TableNotFound,
    UnsupportedFeature,
    VersionNotReadable,
)
from duckrun.formats.commits import CommitRecord
from duckrun.formats.ducklake import instead
from duckrun.formats.ducklake.applied import Applied
from duckrun.formats.ducklake.catalog import APPLIED, Catalog
from duckrun.formats.ducklake.commits import Commits
from duckrun.formats.ducklake.defining import Defining
from duckrun.formats.ducklake.figures import column_figures
from duckrun.formats.ducklake.lake_files import IN_CATALOG, Footers, LakeFiles, lake_files
from duckrun.formats.ducklake.macros import Macros
from duckrun.formats.ducklake.records import Records
from duckrun.formats.ducklake.restore import restore
from duckrun.formats.ducklake.state import HIDDEN, States, TableState
from duckrun.formats.ducklake.state_reader import DuckLakeStates
from duckrun.formats.ducklake.tenures import Tenures
from duckrun.formats.ducklake.views import Views
from duckrun.formats.ducklake.whole import DuckLakeAsWhole
from duckrun.formats.ducklake.work import Work
from duckrun.formats.format import Attach
from duckrun.formats.pruning import without_bounds
from duckrun.sql.names import quote_identifier, quote_literal, transpile
from duckrun.storage.storage import Storage
from duckrun.values.changes import CommitChange
from duckrun.values.columns import defaults_in
from duckrun.values.computed import ComputedColumn
from duckrun.values.cursors import Counter
from duckrun.values.files import AskedFiles, Files
from duckrun.values.lake_format import DUCKLAKE, LakeFormat
from duckrun.values.rows import AppTransaction, Commit, ScanFile
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.stored import StoredColumn


class DuckLakeFormat(Commits, Defining):
    """DuckLake tables of one lake. What is Delta's own says so (UnsupportedFeature), with the DuckLake word for it."""

    name: str = DUCKLAKE
    feed_folder = "_change_data"
    transacts = True
    native_types = True
    logs = None

    def __init__(self, storage: Storage, form: LakeFormat | None = None, *, read_only: bool = False) -> None:
        self.storage = storage
        self.read_only = read_only
        self.catalog = Catalog(storage, form or LakeFormat(DUCKLAKE), read_only=read_only)
        self.states = States(self.catalog)
        self.applied = Applied(self.catalog, self.states)
        self.records = Records(self.catalog, self.states, self.applied)
        self.views = Views(self)
        self.macros = Macros(self)
        self.whole = DuckLakeAsWhole(self)
        self.footers = Footers()
        self.together: Work | None = None
        """The transaction over several tables that is open, if any."""
        self._prepared = False

    # -- DuckDB instances

    @property
    def extensions(self) -> tuple[str, ...]:
        return self.catalog.extensions

    @property
    def lent(self) -> Catalog:
        return self.catalog

    def lend(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.catalog.lend(connection)

    def locked(self, ref: TableRef) -> AbstractContextManager[None]:
        return self._within() if self.together is not None else self.catalog.locked()

    @contextmanager
    def _within(self) -> Iterator[None]:
        """The lock that an open transaction over several tables holds, or takes now."""
        if self.together is not None:
            self.together.will_write()
        yield

    # -- tables and their versions

    def exists(self, ref: TableRef) -> bool:
        if self.together is not None:
            return self._live(ref) is not None
        return self.states.exists(ref)

    def schemas(self) -> list[str]:
        """The schemas of the lake now, as the open transaction over several tables sees them."""
        work = self.together
        if work is None:
            return self.states.schemas()
        listed = "SELECT schema_name FROM duckdb_schemas() WHERE database_name = ? ORDER BY 1"
        return [name for (name,) in work.ask(listed, [work.alias]) if name != HIDDEN]

    def names(self, kind: Literal["table", "view"], schema: str) -> list[str]:
        """The tables or views of a schema now, as the open transaction over several tables sees them."""
        work = self.together
        if work is None:
            return self.states.names(kind, schema)
        listed = f"SELECT {kind}_name FROM duckdb_{kind}s() WHERE database_name = ? AND schema_name = ? ORDER BY 1"
        return [name for (name,) in work.ask(listed, [work.alias, schema])]

    def refuse_other_files(self, ref: TableRef) -> None:
        """The catalog says which files are a table's."""

    def latest_version(self, ref: TableRef) -> int | None:
        found = self.states.find(ref)
        return None if found is None else found.version

    def snapshot(self, ref: TableRef, version: int | None = None, timestamp: str | None = None) -> Snapshot:
        if self.together is not None and timestamp is None and version in (None, self.together.base + 1):
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
            if now is not None and version is not None:  # it had another name then
                return self.of_state(ref, self.states.again(now, version))
            raise TableNotFound(f"There is no table {ref}.")
        return self.of_state(ref, state)

    def of_state(self, ref: TableRef, state: TableState, *, live: bool = False) -> Snapshot:
        """The snapshot of what the catalog says of a table."""
        made = state.definition
        return Snapshot(
            ref=ref,
            version=state.version,
            table_id=state.uuid,
            schema=made.schema,
            partition_columns=made.partition_columns,
            keyed_by=tuple(str(key) for key in made.partition_by),
            properties=dict(made.properties),
            description=made.description,
            sql_types=made.sql_types,
            own=replace(state, at=-1) if live else state,
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
        """A table as the open transaction over several sees it."""
        work = self.together
        assert work is not None
        key = (ref.schema.lower(), ref.name.lower())
        there = "SELECT 1 FROM duckdb_tables() WHERE database_name = ? AND schema_name = ? AND table_name = ?"
        if not work.ask(there, [work.alias, ref.schema, ref.name]):
            return None
        if key not in work.touched:
            state = self.states.find(ref, work.base)
            return None if state is None else self.of_state(ref, state, live=True)
        return self.of_state(ref, work.touched[key], live=True)

    def begin(self, ref: TableRef) -> Snapshot | None:
        if self.together is not None:
            return self._live(ref)
        state = self.states.begun(ref)
        return None if state is None else self.of_state(ref, state)

    def handle(self, ref: TableRef, version: int | None = None) -> NoReturn:
        raise UnsupportedFeature(
            f"Table {ref} is a DuckLake table; deltalake opens Delta tables. Read it by a session."
        )

    def arrow_dataset(self, snapshot: Snapshot) -> NoReturn:
        raise UnsupportedFeature(
            f"Table {snapshot.ref} is a DuckLake table, whose files alone are not its rows: read it as a pyarrow Table or a RecordBatchReader."
        )

    def scan_sql(
        self,
        snapshot: Snapshot,
        *,
        files: Sequence[ScanFile] | None = None,
        file: str | None = None,
        row: str | None = None,
        attach: Attach | None = None,
        named: bool = False,
        also: Sequence[str] = (),
    ) -> str:
        assert not also, "what tells rows apart in the files of a DuckLake is its catalog's alone"
        state = snapshot.own
        if state is None:  # of a scan from another process
            found = self.snapshot(snapshot.ref, snapshot.version)
            state = found.own
            self.records.refuse_moved(found, files or ())
        epoch = state.epoch if state.at == -1 else self.states.epoch_now(state)
        self.catalog.ensure(epoch)
        columns = [f"{state.column(name)} AS {quote_identifier(name)}" for name in state.definition.names]
        columns += [f"'' AS {quote_identifier(file)}"] if file is not None else []
        columns += [f"rowid AS {quote_identifier(row)}"] if row is not None else []
        alias = self.together.alias if state.at == -1 and self.together is not None else self.catalog.alias(epoch)
        source = quote_identifier(alias, state.schema, state.name)
        source += "" if state.at == -1 else f" AT (VERSION => {state.version})"
        where = ""
        if files is not None:
            if twins := [name for name in state.definition.names if name.lower() == "filename"]:
                raise UnsupportedFeature(
                    f"Table {snapshot.ref} has a column {twins[0]}, the name by which DuckLake tells its files apart, so that no single files of it can be "
                    "read: read it whole, or rename the column."
                )
            names = [each.path for each in files if each.path != IN_CATALOG]
            names += self.records.names_in_catalog(state) if len(names) < len(files) else []
            where = f" WHERE filename IN ({', '.join(map(quote_literal, names or ['']))})"
        return f"(SELECT {', '.join(columns)} FROM {source}{where})"

    def file_bounds(self, snapshot: Snapshot, column: str) -> pa.Table | None:
        return None  # DuckLake prunes its files itself

    def _files(self, snapshot: Snapshot) -> Files:
        return AskedFiles(
            snapshot.ref.location, lambda: self.records.files(snapshot), lambda: self.records.weight(snapshot.own)
        )

    def _parts(self, snapshot: Snapshot) -> LakeFiles:
        return lake_files(self.catalog, self.footers, snapshot)

    # -- history

    def history(self, ref: TableRef, limit: int | None = None) -> list[dict[str, Any]]:
        return self.records.history(ref, self._state(ref), limit)

    def _state(self, ref: TableRef) -> TableState:
        return self.snapshot(ref).own

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
            "createdAt": self.records.time_of(snapshot.own.begun),
            "partitionColumns": [str(key) for key in snapshot.own.definition.partition_by],
            "sortColumns": list(snapshot.own.definition.sort_by),
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
            found = self.records.record(ref, state, version)
            if found is not None:
                yield found

    def records_after(self, ref: TableRef, version: int) -> list[CommitRecord]:
        state = self._state(ref)
        found = [self.records.record(ref, state, each) for each in self.records.versions(state, after=version)]
        return [record for record in found if record is not None]

    def check_landed(self, snapshot: Snapshot | None, version: int | None, commit_id: str) -> None:
        """Nothing: a transaction of the catalog knows a table by its id."""

    def caught_up(self, snapshot: Snapshot) -> None:
        """None: a snapshot of the catalog is found by one query."""

    def tells_since(self, ref: TableRef, version: int, newest: int, commits: Sequence[CommitRecord]) -> bool:
        """Whether those commits are all that changed a table since a version."""
        return self.records.oldest() <= version + 1 or version == newest

    def commits_between(self, ref: TableRef, after: int, to: int) -> list[CommitChange]:
        """See Format: those of the open transaction over several tables are one more, behind all others."""
        state, work = self._state(ref), self.together
        found = self.records.commits_between(ref, state, Tenures.of(self.catalog, state), after, to)
        if work is not None and state.at == -1 and after < state.version <= to and state.version > work.base:
            found.append(CommitChange(state.version, None, "TRANSACTION", (), redefines=True))
        return found

    @property
    def state_reader(self) -> DuckLakeStates:
        return DuckLakeStates(self)

    def state_change(self, before: Snapshot | None, after: Snapshot) -> CommitChange:
        return CommitChange(after.version, None, "state", ())

    def vector_rows(self, ref: TableRef, vectors: Any) -> dict[Any, Any]:
        return {}

    def row_count(self, snapshot: Snapshot) -> int | None:
        return self.records.row_count(snapshot)

    def missing_files(self, ref: TableRef, files: Sequence[ScanFile]) -> list[ScanFile]:
        return []

    def stored_columns(self, schema: pa.Schema) -> tuple[StoredColumn, ...]:
        return ()  # DuckLake writes its files

    def computing(self, schema: pa.Schema) -> dict[str, ComputedColumn]:
        """See Format. DuckLake fills a default in where an INSERT does not name the column; the rows of a merge have them before."""
        return {name: ComputedColumn(name, default=default) for name, default in defaults_in(schema).items()}

    def in_duckdb(self, expression: str, schema: pa.Schema) -> str | None:
        return transpile(expression, "spark", "duckdb")

    def with_numbers(self, snapshot: Snapshot, definition: Any, marks: Mapping[str, int]) -> NoReturn:
        raise AssertionError("a table of DuckLake has no identity column")

    def first_ids(self, snapshot: Snapshot, files: Sequence[ScanFile]) -> NoReturn:
        raise AssertionError("DuckLake itself keeps the ids of rows")

    def unclustered(self, snapshot: Snapshot, files: Sequence[ScanFile]) -> Iterator[ScanFile]:
        return iter(())

    def row_id_columns(self, snapshot: Snapshot) -> tuple[str, str] | None:
        return ("rowid", "snapshot_id")

    def has_feed(self, snapshot: Snapshot) -> bool:
        return False  # the catalog tells what changed

    # -- exactly once

    def app_version(self, ref: TableRef, app_id: str) -> int | None:
        if self.together is not None:
            live = self._live(ref)
            return None if live is None else self.applied.newest(ref, live.own, app_id, self.together)
        return self.applied.newest(ref, self.states.find(ref), app_id)

    def find_commit(self, ref: TableRef, app: AppTransaction, newest: Snapshot | None = None) -> Commit | None:
        state = self.states.find(ref) if newest is None else newest.own
        return None if state is None else self.applied.find_commit(ref, state, app, self.together)

    def counter(self, ref: TableRef, consumer: str, newest: Snapshot | None = None) -> Counter:
        state = self.states.find(ref) if newest is None else newest.own
        return Counter() if state is None else self.applied.counter(ref, state, consumer, self.together)

    def log_retention(self, snapshot: Snapshot) -> float:
        return float("inf")  # snapshots expire when somebody asks for it

    def fingerprint(self, ref: TableRef, version: int) -> str | None:
        return self.records.fingerprint(version)

    # -- commits (see commits.py)

    def committed(self, before: Snapshot | None, ref: TableRef, version: int) -> Snapshot | None:
        if self.together is not None:
            return self._live(ref)
        known = self.states.known(ref)
        found = self.snapshot(ref) if known is None else self.of_state(ref, known)
        return found if found.version == version else None

    made_by = staticmethod(instead.made_by)
    untouched = instead.untouched
    added_rows = instead.added_rows
    taken_back = instead.taken_back

    def restore(self, snapshot: Snapshot, version: int, note: dict[str, Any], app: AppTransaction | None) -> int:
        return restore(self, snapshot, version, note, app)

    def convert(self, ref: TableRef, spec: Any, note: dict[str, Any], app: AppTransaction | None) -> NoReturn:
        raise UnsupportedFeature(
            f"{ref.location} cannot be converted in place to a DuckLake table: CREATE TABLE … AS SELECT * FROM read_parquet(…)."
        )

    def rename(self, ref: TableRef, new: TableRef) -> None:
        if ref.schema != new.schema:
            raise UnsupportedFeature(
                f"{ref} cannot move to schema {new.schema}: a DuckLake renames within a schema. CREATE TABLE … AS there."
            )
        state = self._state(ref)

        def change(work: Work) -> None:
            work.refuse_rename(ref)
            work.execute(f"ALTER TABLE {work.table(ref)} RENAME TO {quote_identifier(new.name)}")
            work.execute(
                f"UPDATE {quote_identifier(work.alias)}.{APPLIED} SET name = ? WHERE name = ? AND snapshot >= ?",
                [f"{new.schema}.{new.name}", f"{ref.schema}.{ref.name}", state.begun],
            )
            work.note(new, {"mode": "rename", "from": str(ref)})
            work.changed = True
            if work is self.together:
                work.renamed(ref, new, state)

        with self.locked(ref):
            self.alone(f"rename of table {ref}", change, state.epoch)

    def drop(self, ref: TableRef) -> None:
        if not self.exists(ref):
            return

        def change(work: Work) -> None:
            work.execute(f"DROP TABLE IF EXISTS {work.table(ref)}")
            work.note(ref, {"mode": "drop"})
            work.forget(ref)
            work.changed = True

        with self.locked(ref):
            if self.exists(ref):  # else another drop came first
                self.alone(f"drop of table {ref}", change)

    # -- what is of Delta

    def vacuum(self, snapshot: Snapshot, spec: Any) -> NoReturn:
        raise UnsupportedFeature(
            f"VACUUM is Delta's; table {snapshot.ref} is a DuckLake table: expire snapshots of its lake (expire), then cleanup."
        )

    def checkpoint(self, snapshot: Snapshot) -> NoReturn:
        raise UnsupportedFeature(
            f"Table {snapshot.ref} has no log of its own to checkpoint: its lake has one, session.checkpoint()."
        )

    def cleanup_log(self, snapshot: Snapshot) -> NoReturn:
        raise UnsupportedFeature(f"Table {snapshot.ref} has no log: expire snapshots of its lake (expire).")
