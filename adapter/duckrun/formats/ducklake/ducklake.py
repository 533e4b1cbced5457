"""DuckLake tables of one lake, as Format says: the catalog is a SQL database, and each commit a snapshot of the whole lake.

A table's version is the last snapshot that changed it, and any snapshot of the lake is a version of each table.
"""

from __future__ import annotations

import json
import logging
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import Any, NoReturn

import duckdb
import pyarrow as pa
from sqlglot import exp

from duckrun.errors import (
    CommitConflict,
    DuckrunError,
    InvalidConfig,
    SchemaMismatch,
    TableNotFound,
    UnsupportedFeature,
    VersionNotReadable,
)
from duckrun.formats.ducklake import definition as definitions
from duckrun.formats.ducklake.adopted import add_files, owners
from duckrun.formats.ducklake.catalog import APPLIED, Catalog
from duckrun.formats.ducklake.definition import DuckLakeAlteration, DuckLakeDefinition
from duckrun.formats.ducklake.lake_files import Footers, LakeFiles, lake_files
from duckrun.formats.ducklake.maintenance import Kept, maintain
from duckrun.formats.ducklake.records import Records, query_of_view
from duckrun.formats.ducklake.restore import restore, restore_lake
from duckrun.formats.ducklake.state import States, TableState
from duckrun.formats.ducklake.state_reader import DuckLakeStates
from duckrun.formats.ducklake.work import Work, taken
from duckrun.formats.format import Alteration, Attach, Behind, CommitRecord, CommitTaken, NewCommit, SpecT
from duckrun.sql.names import quote_identifier, quote_literal, with_values
from duckrun.sql.typed import sql_type
from duckrun.storage.storage import Storage
from duckrun.values.changes import CommitChange
from duckrun.values.cursors import Counter
from duckrun.values.files import Files, GivenFiles
from duckrun.values.lake_format import DUCKLAKE, LakeFormat
from duckrun.values.layout import COMPRESSION, TARGET_FILE_SIZE, Layout
from duckrun.values.rows import AppTransaction, Commit, ScanFile, SchemaMode, WriteSpec
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.tables import SORT_BY, AlterSpec, CreateSpec
from duckrun.values.upkeep import UpkeepSpec

log = logging.getLogger(__name__)

ATTEMPTS = 12
"""How often a change begins again where other programs commit meanwhile."""


class DuckLakeFormat:
    """DuckLake tables of one lake. What is Delta's own says so (UnsupportedFeature), with the DuckLake word for it."""

    name: str = DUCKLAKE
    feed_folder = "_change_data"
    transacts = True
    dense = False

    def __init__(self, storage: Storage, form: LakeFormat | None = None, *, read_only: bool = False) -> None:
        self.storage = storage
        self.read_only = read_only
        self.catalog = Catalog(storage, form or LakeFormat(DUCKLAKE), read_only=read_only)
        self.states = States(self.catalog)
        self.records = Records(self.catalog, self.states)
        self.footers = Footers()
        self.together: Work | None = None
        """The transaction over several tables that is open, if any."""
        self._prepared = False

    # -- DuckDB instances

    @property
    def extensions(self) -> tuple[str, ...]:
        return self.catalog.extensions

    def lend(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.catalog.lend(connection)

    def locked(self, ref: TableRef) -> AbstractContextManager[None]:
        return self._within() if self.together is not None else self.catalog.locked()

    @contextmanager
    def _within(self) -> Iterator[None]:
        yield

    # -- tables and their versions

    def exists(self, ref: TableRef) -> bool:
        if self.together is not None:
            return self._live(ref) is not None
        return self.states.exists(ref)

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
            make_scan_sql=self.scan_sql,
            find_parts=self._parts,
        )

    def _live(self, ref: TableRef) -> Snapshot | None:
        """A table as the open transaction over several sees it."""
        work = self.together
        assert work is not None
        key = (ref.schema.lower(), ref.name.lower())
        row = work.cursor.execute(
            with_values(
                "SELECT 1 FROM duckdb_tables() WHERE database_name = ? AND schema_name = ? AND table_name = ?",
                [work.alias, ref.schema, ref.name],
            )
        ).fetchone()
        if row is None:
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
    ) -> str:
        state = snapshot.own
        if state is None:  # of a scan from another process
            found = self.snapshot(snapshot.ref, snapshot.version)
            state = found.own
        epoch = state.epoch if state.at == -1 else self.states.epoch_now(state)
        self.catalog.ensure(epoch)
        columns = [
            quote_identifier(name) if name not in state.narrow else f"{state.column(name)} AS {quote_identifier(name)}"
            for name in state.definition.names
        ]
        columns += [f"'' AS {quote_identifier(file)}"] if file is not None else []
        columns += [f"rowid AS {quote_identifier(row)}"] if row is not None else []
        alias = self.together.alias if state.at == -1 and self.together is not None else self.catalog.alias(epoch)
        source = quote_identifier(alias, state.schema, state.name)
        source += "" if state.at == -1 else f" AT (VERSION => {state.version})"
        where = ""
        if files is not None:
            paths = ", ".join(quote_literal(each.path) for each in files) or "''"
            where = f" WHERE filename IN ({paths})"
        return f"(SELECT {', '.join(columns)} FROM {source}{where})"

    def file_bounds(self, snapshot: Snapshot, column: str) -> pa.Table | None:
        return None  # DuckLake prunes its files itself

    def _files(self, snapshot: Snapshot) -> Files:
        return GivenFiles(snapshot.ref.location, tuple(self.records.files(snapshot)))

    def _parts(self, snapshot: Snapshot) -> LakeFiles:
        return lake_files(self.catalog, self.footers, snapshot)

    # -- history

    def snapshots(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The snapshots of the lake, newest first."""
        return self.records.snapshots(limit)

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

    def tells_since(self, ref: TableRef, version: int, newest: int, commits: Sequence[CommitRecord]) -> bool:
        """Whether those commits are all that changed a table since a version."""
        return self.records.oldest() <= version + 1 or version == newest

    def commits_between(self, ref: TableRef, after: int, to: int) -> list[CommitChange]:
        return self.records.commits_between(ref, self._state(ref), after, to)

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

    def stored_schema(self, snapshot: Snapshot) -> pa.Schema:
        return snapshot.schema

    def row_id_columns(self, snapshot: Snapshot) -> tuple[str, str] | None:
        return ("rowid", "snapshot_id")

    def has_feed(self, snapshot: Snapshot) -> bool:
        return False  # the catalog tells what changed

    # -- exactly once

    def app_version(self, ref: TableRef, app_id: str) -> int | None:
        if self.together is not None:
            live = self._live(ref)
            return None if live is None else self.records.applied_version(ref, live.own, app_id, self.together)
        return self.records.applied_version(ref, self.states.find(ref), app_id)

    def find_commit(self, ref: TableRef, app: AppTransaction, newest: Snapshot | None = None) -> Commit | None:
        state = self.states.find(ref) if newest is None else newest.own
        return None if state is None else self.records.find_commit(ref, state, app, self.together)

    def counter(self, ref: TableRef, consumer: str, newest: Snapshot | None = None) -> Counter:
        state = self.states.find(ref) if newest is None else newest.own
        return Counter() if state is None else self.records.counter(ref, state, consumer, self.together)

    def log_retention(self, snapshot: Snapshot) -> float:
        return float("inf")  # snapshots expire when somebody asks for it

    def fingerprint(self, ref: TableRef, version: int) -> str | None:
        return self.records.fingerprint(version)

    # -- commits

    @contextmanager
    def transaction(self, cursor: duckdb.DuckDBPyConnection, snapshot: Snapshot | None) -> Iterator[Work]:
        """A transaction of DuckDB's on a cursor, in which a write happens that begins from a snapshot; nothing of it is there if the block
        raises. Raises CommitTaken where another program has committed since that was read.
        """
        with self._transaction(cursor, 0 if snapshot is None else snapshot.own.epoch) as work:
            if snapshot is not None and work is not self.together and work.base != snapshot.own.at:
                self.states.outrun()
                raise Behind(f"snapshot {work.base} of the lake came meanwhile")
            yield work

    @contextmanager
    def _transaction(self, cursor: duckdb.DuckDBPyConnection, epoch: int | str) -> Iterator[Work]:
        if self.together is not None:
            try:
                yield self.together
            except BaseException as error:
                self.together.failure = self.together.failure or error
                other = taken(error, self.catalog)
                if isinstance(other, CommitTaken):  # to begin again is the caller's, with all of the transaction
                    raise CommitConflict(
                        f"The transaction of lake {self.storage.root} cannot go on: {other} Run all of it again."
                    ) from error
                raise
            return
        self.catalog.ensure(epoch, create=True)
        self._prepare()
        work = Work(self.catalog, cursor, epoch)
        try:
            yield work.begin()
        except BaseException as error:
            work.rollback()
            other = taken(error, self.catalog)
            if other is error:
                raise
            raise other from error
        finally:
            work.rollback()

    @contextmanager
    def together_on(self, cursor: duckdb.DuckDBPyConnection, database: str | None = None) -> Iterator[Work]:
        """One transaction over several tables, on one cursor, on which all that the lake is asked meanwhile has to run. Meanwhile the lake is
        attached under a name of its own, or as the ``database`` that is given. Raises InvalidConfig where one is open already.
        """
        if self.together is not None:
            raise InvalidConfig(
                f"A transaction of lake {self.storage.root} is open already; commit it, or roll it back, first."
            )
        with self.catalog.locked():
            self.catalog.ensure(0, create=True)
            self._prepare()
            name = f"t{uuid.uuid4().hex[:12]}"
            alias = self.catalog.attach_for(cursor, name, database)
            work = Work(self.catalog, cursor, name, alias)
            try:
                self.together = work.begin()
                yield work
                self.together = None
                work.made = work.commit()
                self._afterwards(work)
            finally:
                self.together = None
                work.rollback()
                self.catalog.detach(cursor, alias, spoiled=work.redefined)
                self.states.forget()

    def _prepare(self) -> None:
        """Make, once, the table that says which application transactions were committed."""
        if self._prepared:
            return
        cursor, alias = self.catalog.cursor(create=True), quote_identifier(self.catalog.alias())
        schema, table = APPLIED.split(".")
        there = cursor.execute(
            with_values(
                "SELECT 1 FROM duckdb_tables() WHERE database_name = ? AND schema_name = ? AND table_name = ?",
                [self.catalog.alias(), schema, table],
            )
        ).fetchone()
        if there is None:
            # The rows of this table are few and small: they lie in the catalog, and no file is made for each commit. Where they lie has to be
            # made with this table: once rows of it were read, DuckLake takes what the lake was when this table was made for what it was when that
            # was, so that a table of the same snapshot as that is not there at its first version (duckdb 1.5.5).
            shared = self.catalog.address.kind == "duckdb"  # what was attached of such a file stays
            name = self.catalog.alias() if shared else self.catalog.attach_inlining(cursor, 1000)
            with self.catalog.errors("prepare"):
                try:
                    cursor.execute("BEGIN TRANSACTION")
                    cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(name, schema)}")
                    cursor.execute(
                        f"CREATE TABLE {quote_identifier(name, schema, table)} (name VARCHAR, app_id VARCHAR, version BIGINT, snapshot BIGINT, note VARCHAR)"
                    )
                    cursor.execute("COMMIT")
                finally:
                    if not shared:
                        self.catalog.detach(cursor, name)
                cursor.execute(
                    f"CALL {alias}.set_option('data_inlining_row_limit', 1000, schema => '{schema}', table_name => '{table}')"
                )
                if shared:
                    cursor.execute(f"INSERT INTO {alias}.{APPLIED} VALUES ('', '', 0, 0, '{{}}')")
        self._prepared = True

    def define(
        self, work: Work, ref: TableRef, snapshot: Snapshot | None, new: NewCommit, *, emptied: bool | None = None
    ) -> None:
        """Make the table, or what it is apart from its rows, as a commit says: before rows are written in the same transaction.
        ``emptied`` says whether the rows of a table that is the same one afterwards are gone by then; NOT NULL follows then.
        """
        made = new.definition
        if made is None or work.is_defined(ref):
            return
        assert isinstance(made, DuckLakeDefinition), "a definition of this format"
        work.redefined = True
        table = work.table(ref)
        before = None if snapshot is None else snapshot.own.definition
        statements: list[str] = []
        empty = isinstance(new.spec, WriteSpec | CreateSpec) and new.spec.mode in ("overwrite", "create")
        empty = empty if emptied is None else emptied
        # DuckLake sets NOT NULL on no column that was added, so that a table which asks it of one is made anew.
        requires = before is not None and empty and emptied is None and definitions.requires_added(before, made)
        # Rows that are inserted behind RESET PARTITIONED BY, in its transaction, end DuckDB with an error of its own (1.5.5).
        parted = before is not None and bool(before.partition_by) and not made.partition_by
        anew = new.anew or requires or (parted and empty and emptied is None)
        if before is None or anew:
            if before is None:  # a view of that name gives way
                statements += [f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(work.alias, ref.schema)}"]
                statements += [f"DROP VIEW IF EXISTS {table}"]
            statements += [f"DROP TABLE {table}"] if before is not None else []
            statements += list(definitions.created_sql(table, made))
            old: Mapping[str, str] = {}
        else:
            renames: Sequence[tuple[str, str]] = ()
            if isinstance(new.spec, AlterSpec):
                renames = definitions.altered(before, new.spec).renames
            statements += list(definitions.changed_sql(table, before, made, renames, empty=empty))
            if parted and emptied is not None:  # of a restore: its rows lie in one part, until the commit is made
                statements += [f"ALTER TABLE {table} SET PARTITIONED BY ({definitions.one_part(ref, made).sql})"]
                work.later.append(f"ALTER TABLE {table} RESET PARTITIONED BY")
            old = before.properties
        for statement in statements:
            if emptied is not None and statement.endswith(" SET NOT NULL"):
                work.later.append(statement)
                continue
            try:
                work.execute(statement)
            except duckdb.Error as error:
                if statement.endswith(" SET NOT NULL") and "transaction-local changes" in str(error):
                    work.later.append(statement)
                    work.failure = None if work.failure is error else work.failure
                    continue
                raise InvalidConfig(
                    f"table {ref} cannot be so: {self.catalog.redacted(error).splitlines()[0]} Nothing was written."
                ) from error
            work.changed = True
        for option, value in definitions.options_of(old, made.properties).items():
            work.options.append((ref, option, value))
        work.now_defined(ref)

    def commit(
        self,
        ref: TableRef,
        snapshot: Snapshot | None,
        new: NewCommit,
        note: Mapping[str, Any],
        app: AppTransaction | None,
    ) -> int:
        if new.work is not None:
            return self._committed(new.work, ref, snapshot, new, note, app)
        with self.transaction(self.catalog.cursor(create=True), snapshot) as work:
            if snapshot is not None and new.spec is not None and new.spec.mode == "create" and not new.anew:
                work.changed = bool(work.execute(f"DELETE FROM {work.table(ref)}"))
            return self._committed(work, ref, snapshot, new, note, app)

    def _committed(
        self,
        work: Work,
        ref: TableRef,
        snapshot: Snapshot | None,
        new: NewCommit,
        note: Mapping[str, Any],
        app: AppTransaction | None,
    ) -> int:
        self.define(work, ref, snapshot, new)
        if app is not None:
            plain = getattr(app, "plain", app)
            work.applied(ref, plain, note)
        same = snapshot is not None and new.definition is None and app is None and not any(new.rows)
        if work is self.together and snapshot is not None and same:
            return snapshot.version
        work.note(ref, note)
        if work is self.together:
            work.remember(ref, snapshot, new)
            return work.base + 1
        made = work.commit()
        self._afterwards(work)
        if made is not None and snapshot is not None and made == work.base + 1 and not work.redefined:
            self.states.advance(ref, work.base, made)
        if made is None:
            assert snapshot is not None, "a table that is made is a change"
            return snapshot.version
        return made

    def _afterwards(self, work: Work) -> None:
        """What DuckLake does not take within the transaction that is committed: options of tables, and NOT NULL of a table with changes."""
        for where, option, value in work.options:
            self.set_option(where, option, value)
        for statement in work.later:
            here = statement.replace(quote_identifier(work.alias), quote_identifier(self.catalog.alias()), 1)
            try:
                self.catalog.cursor().execute(here)
            except duckdb.Error as error:
                log.warning("lake %s: a column stays nullable: %s", self.storage.root, self.catalog.redacted(error))
            self.states.forget()

    def set_option(self, ref: TableRef, option: str, value: str) -> None:
        """One of DuckLake's options of a table; it makes no snapshot."""
        with self.catalog.errors(f"table {ref}"):
            self.catalog.cursor().execute(
                f"CALL {quote_identifier(self.catalog.alias())}.set_option({quote_literal(option)}, {quote_literal(value)}, "
                f"schema => {quote_literal(ref.schema)}, table_name => {quote_literal(ref.name)})"
            )
        self.states.forget()

    def committed(self, before: Snapshot | None, ref: TableRef, version: int) -> Snapshot | None:
        if self.together is not None:
            return self._live(ref)
        known = self.states.known(ref)
        found = self.snapshot(ref) if known is None else self.of_state(ref, known)
        return found if found.version == version else None

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
            self._alone(f"rename of table {ref}", change, state.epoch)

    def _alone(self, what: str, change: Callable[[Work], None], epoch: int | str = 0) -> None:
        """Make a change, under the lock, as a commit of its own, or as a part of the open transaction over several tables; again where another
        program commits meanwhile. Raises CommitConflict.
        """
        for attempt in range(ATTEMPTS):
            try:
                with self._transaction(self.catalog.cursor(create=True), epoch) as work:
                    change(work)
                    if work is not self.together:
                        work.commit()
                break
            except CommitTaken as error:
                if attempt + 1 == ATTEMPTS:
                    raise CommitConflict(
                        f"{what}: other programs committed to lake {self.storage.root} {ATTEMPTS} times meanwhile ({error}). Nothing was written; run it again."
                    ) from error
            time.sleep(random.uniform(0, min(0.05 * 2**attempt, 2.0)))
        self.states.forget()

    def drop(self, ref: TableRef) -> None:
        if not self.exists(ref):
            return

        def change(work: Work) -> None:
            work.execute(f"DROP TABLE IF EXISTS {work.table(ref)}")
            work.note(ref, {"mode": "drop"})
            work.touched.pop((ref.schema.lower(), ref.name.lower()), None)
            work.changed = True

        with self.locked(ref):
            if self.exists(ref):  # else another drop came first
                self._alone(f"drop of table {ref}", change)

    def put_view(self, ref: TableRef, sql: str, comment: str | None) -> None:
        """Make a view of the catalog; a table of its name goes. Raises InvalidConfig where DuckDB does not take it."""
        view = f"{{lake}}.{quote_identifier(ref.schema, ref.name)}"
        self.run_alone(
            f"CREATE SCHEMA IF NOT EXISTS {{lake}}.{quote_identifier(ref.schema)}",
            *([f"DROP TABLE {view}"] if self.exists(ref) else []),
            f"CREATE OR REPLACE VIEW {view} AS {sql}",
            *([f"COMMENT ON VIEW {view} IS {quote_literal(comment)}"] if comment is not None else []),
        )

    def view(self, schema: str, name: str) -> tuple[str, str | None] | None:
        """The SQL of a view, and its comment, as an open transaction over several sees it; None where there is none of that name."""
        if self.together is None:
            return self.records.view(schema, name)
        found = self.together.cursor.execute(
            with_values(
                "SELECT sql, comment FROM duckdb_views() WHERE database_name = ? AND schema_name = ? AND view_name = ?",
                [self.together.alias, schema, name],
            )
        ).fetchone()
        if found is None:
            return None
        return query_of_view(found[0]), found[1]

    def is_view(self, ref: TableRef, sql: str, comment: str | None) -> bool:
        """True if a view of the catalog has this SQL, however it is spelled, and this comment."""
        found = self.view(ref.schema, ref.name)
        return found is not None and found[1] == comment and self.records.is_same(found[0], sql)

    def rename_view(self, ref: TableRef, new: TableRef, sql: str, comment: str | None) -> None:
        """Give a view another name in its schema."""
        old, view = (f"{{lake}}.{quote_identifier(each.schema, each.name)}" for each in (ref, new))
        said = [f"COMMENT ON VIEW {view} IS {quote_literal(comment)}"] if comment is not None else []
        self.run_alone(f"DROP VIEW {old}", f"CREATE VIEW {view} AS {sql}", *said)

    def drop_view(self, ref: TableRef) -> None:
        self.run_alone(f"DROP VIEW IF EXISTS {{lake}}.{quote_identifier(ref.schema, ref.name)}")

    def run_alone(self, *statements: str) -> None:
        """Run statements over ``{lake}`` as one transaction; names without a catalog are this lake's."""

        def change(work: Work) -> None:
            alias = quote_identifier(work.alias)
            before = work.cursor.execute("SELECT current_setting('search_path')").fetchall()[0][0]
            for statement in statements:
                try:
                    work.cursor.execute(f"USE {alias}")
                    work.execute(statement.replace("{lake}", alias))
                except duckdb.Error as error:
                    raise InvalidConfig(
                        f"Lake {self.storage.root}: {self.catalog.redacted(error).splitlines()[0]}"
                    ) from error
                finally:
                    with suppress(duckdb.Error):  # of a transaction that the error has ended
                        work.cursor.execute(f"SET search_path = {quote_literal(before)}" if before else "USE memory")

        self._alone(statements[-1].partition(" {lake}")[0], change)

    # -- files of others

    def add_files(self, ref: TableRef, paths: Sequence[str], *, hive: bool) -> None:
        assert self.together is not None, "within a transaction over several tables"
        add_files(self.catalog, self.together, ref, paths, hive=hive)

    def owners_of(self, paths: Sequence[str]) -> dict[str, str]:
        marks = ", ".join("?" for _ in paths)
        return owners(self.catalog, f"place IN ({marks})", paths) if paths else {}

    def owners_below(self, folder: str) -> dict[str, str]:
        return owners(self.catalog, "starts_with(place, ?)", [folder.rstrip("/") + "/"])

    def set_log_aside(self, ref: TableRef, whose: str) -> NoReturn:
        raise AssertionError("the tables of a DuckLake have no log each")

    def log_aside(self, ref: TableRef) -> NoReturn:
        raise AssertionError("the tables of a DuckLake have no log each")

    def bring_log_back(self, ref: TableRef, *, away: bool) -> NoReturn:
        raise AssertionError("the tables of a DuckLake have no log each")

    def logs_aside(self, root: str) -> NoReturn:
        raise AssertionError("the tables of a DuckLake have no log each")

    # -- maintenance

    def maintain(self, spec: UpkeepSpec, ref: TableRef | None, needed_from: int | None) -> Kept:
        return maintain(self, spec, ref, needed_from)

    def restore_lake(self, version: int, note: Mapping[str, Any]) -> list[str]:
        return restore_lake(self, version, note)

    def figures(self, ref: TableRef | None) -> tuple[int, int]:
        return self.records.figures(None if ref is None else self._state(ref))

    def set_inline_rows(self, rows: int, ref: TableRef | None) -> None:
        """Up to how many rows of an insert lie in the catalog, for a table or the lake. Raises InvalidConfig within a transaction."""
        if self.together is not None:
            raise InvalidConfig(
                f"inline_rows of lake {self.storage.root} cannot change within a transaction: DuckLake keeps it outside of them. Commit first."
            )
        if ref is not None and not self.states.exists(ref):
            raise TableNotFound(f"There is no table {ref}.")
        place = (
            "" if ref is None else f", schema => {quote_literal(ref.schema)}, table_name => {quote_literal(ref.name)}"
        )
        with self.catalog.locked(), self.catalog.errors("inline_rows"):
            self.catalog.cursor(create=True).execute(
                f"CALL {quote_identifier(self.catalog.alias())}.set_option('data_inlining_row_limit', {int(rows)}{place})"
            )

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

    # -- definitions

    def with_properties(self, spec: SpecT, table: TableRef) -> SpecT:
        if not isinstance(spec, Layout):
            return spec
        if spec.cluster_by:
            raise UnsupportedFeature(
                f"{spec.mode} on table {table}: cluster_by is Delta's liquid clustering; a DuckLake table has sort_by."
            )
        try:
            asked = definitions.kept(spec.table_properties)
        except DuckrunError as error:
            raise type(error)(f"{spec.mode} on table {table}: {error}. Nothing was written.") from error
        if spec.compression is not None:
            asked[COMPRESSION] = spec.compression
        if spec.target_file_size is not None:
            asked[TARGET_FILE_SIZE] = str(spec.target_file_size)
        return replace(spec, table_properties=asked)

    def created(self, spec: CreateSpec, snapshot: Snapshot | None) -> DuckLakeDefinition:
        if spec.checks:
            raise UnsupportedFeature("DuckLake has no CHECK constraints; check the rows before they are written")
        definitions.refuse_names(column.name for column in spec.columns)
        fields = tuple(definitions.field_of(column, spec.dialect) for column in spec.columns)
        return self._with_layout(spec, fields, spec.description)

    def _with_layout(
        self,
        spec: Any,
        fields: tuple[dict[str, Any], ...],
        description: str | None,
        before: DuckLakeDefinition | None = None,
    ) -> DuckLakeDefinition:
        names = [f["name"] for f in fields]
        if spec.partition_by is None:
            keys = () if before is None else tuple(key for key in before.partition_by if key.column in names)
        else:
            keys = definitions.partitions(spec.partition_by, names)
        properties = dict(before.properties) if before is not None else {}
        properties |= definitions.kept(spec.table_properties)
        if spec.sort_by:
            unknown = [c for c in spec.sort_by if c not in names]
            if unknown:
                raise InvalidConfig(f"sort_by names {', '.join(unknown)}, which is no column")
            properties[SORT_BY] = json.dumps(list(spec.sort_by))
        return DuckLakeDefinition(fields, keys, properties, description)

    def overwritten(
        self,
        spec: WriteSpec,
        fields: Sequence[Mapping[str, Any]],
        partition_by: Sequence[str],
        snapshot: Snapshot | None,
    ) -> DuckLakeDefinition:
        before = None if snapshot is None or spec.redefine else snapshot.own.definition
        held = spec.constraints
        if held is not None and held.checks:
            raise UnsupportedFeature(
                "DuckLake has no CHECK constraints; check the rows before they are written (a dbt test, a Dagster check)"
            )
        definitions.refuse_names(f["name"] for f in fields)
        old = {} if before is None else {f["name"]: f for f in before.fields}
        comments = {name.lower(): text for name, text in spec.column_comments.items()}
        there = {f["name"].lower() for f in fields}
        if uncommented := [name for name in spec.column_comments if name.lower() not in there]:
            raise SchemaMismatch(
                f"there is no column {uncommented[0]!r} to comment; it has {', '.join(f['name'] for f in fields)}"
            )
        if missing := [key for key in spec.partition_by or () if key.isidentifier() and key.lower() not in there]:
            raise SchemaMismatch(
                f"it is partitioned by {', '.join(missing)}, which the data has not; it has {', '.join(f['name'] for f in fields)}"
            )
        made = []
        for f in fields:
            was = old.get(f["name"])
            comment = comments.get(f["name"].lower())
            metadata = {"comment": comment} if comment is not None else dict(was["metadata"]) if was else {}
            required = f["name"] in held.not_null if held is not None else was is not None and not was["nullable"]
            made.append(
                {**f, "nullable": not required, "metadata": metadata, "default": was.get("default") if was else None}
            )
        if held is not None and (unknown := set(held.not_null) - {f["name"] for f in made}):
            raise SchemaMismatch(f"constraints name {', '.join(sorted(unknown))}, which is no column")
        description = (
            spec.description if spec.description is not None else None if before is None else before.description
        )
        return self._with_layout(spec, tuple(made), description, before)

    def altered(self, snapshot: Snapshot, spec: AlterSpec) -> DuckLakeAlteration:
        return definitions.altered(snapshot.own.definition, spec)

    def evolved(self, snapshot: Snapshot, fields: Sequence[Mapping[str, Any]], mode: SchemaMode) -> Alteration:
        return definitions.evolved(snapshot.own.definition, fields, mode)

    def described(
        self, snapshot: Snapshot, description: str | None, column_comments: Mapping[str, str]
    ) -> DuckLakeDefinition | None:
        before: DuckLakeDefinition = snapshot.own.definition
        after = before if description is None else replace(before, description=description)
        comments = {name.lower(): text for name, text in column_comments.items()}
        for name in before.names:
            if (comment := comments.get(name.lower())) is not None:
                after = after.with_column(name, metadata={"comment": comment})
        return None if after == before else after

    def marking(self, snapshot: Snapshot, definition: Any) -> Any:
        return definition

    def marking_change(self, snapshot: Snapshot) -> AlterSpec | None:
        return None  # DuckLake marks rows in delete files by itself

    def marks_rows(self, snapshot: Snapshot) -> bool:
        return True

    def fields_of(self, schema: pa.Schema, types: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        if types is None:
            types = {f.name: sql_type(f.type) for f in schema}
        return [
            {
                "name": f.name,
                "type": str(duckdb.type(types[f.name])),
                "nullable": f.nullable,
                "metadata": {},
                "default": None,
            }
            for f in schema
        ]

    # -- what a table's features, properties and types allow

    def refuse_unknown_features(self, snapshot: Snapshot) -> None:
        """There are none."""

    def only_spark(self, snapshot: Snapshot) -> bool:
        return False

    def special_properties(self, properties: Mapping[str, str]) -> dict[str, str]:
        return {}

    def asks_features(self, properties: Mapping[str, Any]) -> bool:
        return False

    def lacks_feature(self, snapshot: Snapshot, fields: Sequence[Mapping[str, Any]]) -> bool:
        return False

    def constrained_anew(self, snapshot: Snapshot, spec: WriteSpec) -> bool:
        return spec.constraints is not None

    def computed_columns(self, snapshot: Snapshot) -> set[str]:
        return {f["name"] for f in snapshot.own.definition.fields if f.get("default") is not None}

    def spark_type(self, text: str, dialect: str, column: str) -> str:
        return exp.DataType.build(definitions.type_in(text, dialect, column), dialect="duckdb").sql(dialect="spark")

    def spelled(self, kind: Any) -> str:
        return exp.DataType.build(str(kind), dialect="duckdb").sql(dialect="spark")

    def scratch(self, owner: TableRef, definition: Any) -> NoReturn:
        raise UnsupportedFeature(f"Table {owner} is a DuckLake table, of which there are no scratch copies.")
