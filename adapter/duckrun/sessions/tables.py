"""Statements, reads and writes of a session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, overload

import pyarrow as pa

from duckrun.engines.duckdb.rows.reads import matching, meets_commit
from duckrun.engines.duckdb.rows.source import SQL
from duckrun.engines.engine import Engine
from duckrun.engines.frame import LazyRows
from duckrun.engines.tabular.values import is_of_spark
from duckrun.errors import VersionNotReadable, outcome_of
from duckrun.formats.commits import CommitRecord
from duckrun.frame import Frame
from duckrun.lake.lake import Lake, TableRef
from duckrun.run.attempts import attempts
from duckrun.run.pins import NOTHING, Reads, together
from duckrun.run.transaction import Transaction
from duckrun.run.transactions import transactions_on
from duckrun.run.work_log import Read, unnoted
from duckrun.sessions.apply import apply_changes
from duckrun.sessions.branches import finish_publishes
from duckrun.sessions.opened import Opened
from duckrun.sessions.upkeep import Upkeep
from duckrun.sql.names import transpile
from duckrun.statements.parse.parameters import Params
from duckrun.statements.run import run
from duckrun.values.applying import ApplySpec, ScdType
from duckrun.values.choices import EngineName, SchemaMode
from duckrun.values.cursors import CursorTransaction
from duckrun.values.options import given, names_in
from duckrun.values.rows import AppTransaction, Commit, ReadSpec, Returning, RowSpec, Spec, StagedFile, WriteSpec
from duckrun.values.snapshot import Scan, Snapshot
from duckrun.values.tables import CommitSpec, MaintenanceResult, MaintenanceSpec, TableSpec
from duckrun.values.upkeep import UpkeepSpec


class TableSession(Opened):
    """Part of a Session that runs statements, and reads and writes tables."""

    # -- reading

    def sql(
        self,
        text: str,
        *,
        dialect: str = "duckdb",
        params: Params | None = None,
        schema_mode: SchemaMode = "fail",
        app: AppTransaction | None = None,
    ) -> Any:
        """Run SQL statements in DuckDB's or Spark's dialect, and return the last result.

        A query reads tables and views by ``name``, ``schema.name`` or ``lake.schema.name``, each at
        one version. A statement that writes makes one commit. Between BEGIN and COMMIT, all writes
        to a DuckLake are one commit.

        Args:
            dialect: ``duckdb`` or ``spark``.
            params: Values of ``?`` and ``$1`` (a list) or of ``$name`` (a dict), each a literal of
                its type.
            schema_mode: Schema evolution of INSERT and MERGE.
            app: Application transaction, which makes the writes happen once.

        Returns:
            A lazy Frame for a query. A Commit for a write, or its rows with RETURNING. A
            MaintenanceResult for maintenance. A Done for statements without a version (views,
            DROP).

        Raises:
            UnsupportedFeature: A statement is not supported; nothing ran.
            InvalidConfig: The text is not SQL; nothing ran.
            ReadOnlyLake: A statement would write; nothing ran.
            TableNotFound: No such table; the message has the nearest names.
        """
        self.ensure_open()
        given(text, str, "text", "sql()")
        if app is not None:
            given(app, AppTransaction, "app", "sql()")
        with self.transactions.statements():
            return run(self, text, dialect=dialect, params=params, schema_mode=schema_mode, app=app)

    def scan(self, name: str | TableRef, spec: ReadSpec | None = None, *, engine: EngineName | None = None) -> Frame:
        """Return columns and rows of one table, at the pinned version or that of the spec. Lazy."""
        ref, spec = self.ref(name), given(spec, ReadSpec, "spec", "scan()") if spec is not None else ReadSpec()
        chosen = self.engine_of(engine or self.engine_name)
        chosen.reach(self.lakes.of(ref))
        snapshot = self.snapshot(ref, spec)
        frame = chosen.scan(snapshot, spec)
        frame.reads = self.reading(snapshot, spec)
        return self.own(frame)

    def reading(self, snapshot: Snapshot, spec: ReadSpec) -> Reads:
        """Return the reads of a snapshot; record them unless the spec names the version."""
        if spec.version is not None or spec.timestamp is not None:
            return Reads.of(snapshot)
        predicate = None if spec.predicate is None else transpile(spec.predicate, spec.dialect, "duckdb")
        read = Read.of(snapshot, predicate)
        self.log.note(snapshot.ref.location, read)
        return Reads.of(snapshot, read)

    def open(self, scan: Scan) -> Frame:
        """Return the rows of a scan, which may be a part of one and come from another process.

        Raises:
            TableNotFound: The table was dropped since the scan was made.
            VersionNotReadable: The table was dropped and created again since.
        """
        given(scan, Scan, "scan", "open()")
        snapshot = self.lakes.snapshot(scan.ref, scan.version)
        if scan.table_id and snapshot.table_id != scan.table_id:
            raise VersionNotReadable(
                f"Table {scan.ref} was dropped and created again since this scan of version "
                f"{scan.version} was made: make another, by "
                "table(name).snapshot().scan()."
            )
        frame = self.engine.open(scan)
        frame.reads = Reads.of(snapshot)
        return self.own(frame)

    def read_files(self, format: str, path: str, options: Mapping[str, Any]) -> Frame:
        """Return the rows of ``parquet`` or ``csv`` files, by Spark's options. Lazy."""
        self.engine.reach(self.lakes.at(path).lake)
        return self.own(self.engine.read_files(format, path, options))

    def own(self, rows: LazyRows) -> Frame:
        """Return an engine's rows as a Frame that writes to this session."""
        return Frame(rows.source, rows.engine, self, rows.alias_name, rows.reads)

    def register(self, name: str, frame: Any) -> None:
        """Register a frame or any tabular value under a name, for statements of this session."""
        self.engine.register(given(name, str, "name", "register()"), frame, self.reads_of(frame))

    # -- writing

    @overload
    def execute(
        self,
        name: str | TableRef,
        spec: RowSpec | ApplySpec | CommitSpec,
        source: Any | None = None,
        *,
        engine: EngineName | None = None,
        reads: Reads = NOTHING,
        returning: Returning | None = None,
    ) -> Commit: ...

    @overload
    def execute(
        self, name: str | TableRef, spec: MaintenanceSpec, *, engine: EngineName | None = None
    ) -> MaintenanceResult: ...

    def execute(
        self,
        name: str | TableRef,
        spec: RowSpec | ApplySpec | TableSpec,
        source: Any | None = None,
        *,
        engine: EngineName | None = None,
        reads: Reads = NOTHING,
        returning: Returning | None = None,
    ) -> Commit | MaintenanceResult:
        """Carry out one spec on a table, as one commit.

        Rows computed from the table itself never overwrite another writer's change of these rows.
        duckrun.SQL is computed again from the new rows. Any other source raises SourceOutdated.

        Args:
            source: A pyarrow Table or RecordBatchReader, a pandas or polars frame (lazy too), a
                DuckDB relation, a Frame, a Spark DataFrame, or duckrun.SQL. Spark writes a Spark
                DataFrame, whatever the session's engine.
            reads: Inputs of the spec, beside the source.
            returning: Receives the rows that DuckDB writes or deletes.

        Raises:
            SourceOutdated: Another writer changed rows that the source was computed from.
        """
        with self.transactions.write():
            ref = self.ref(name, to_write=True)
            with outcome_of(given(spec, (Spec, ApplySpec), "spec", "execute()").mode, ref):
                if isinstance(spec, ApplySpec):
                    return self._applied(ref, spec, source, engine)
                transaction = self._transaction(ref, spec)
                transaction.returning = returning
                chosen = self.engine_to_write(engine or self.engine_name, source, ref)
                return self._executed(transaction, spec, source, chosen, reads)

    def _executed(
        self, transaction: Transaction, spec: RowSpec | TableSpec, source: Any | None, engine: Engine, reads: Reads
    ) -> Commit | MaintenanceResult:
        if self.in_transaction:
            transactions_on(transaction.lake, engine.name)
        engine.reach(transaction.lake)
        if engine.name == "duckdb" and transaction.lake.format.logs is not None and spec.writer == "auto":
            spec = replace(spec, writer=self.writer)

        for attempt in self.attempts(transaction.ref) if isinstance(source, SQL) else (nullcontext(),):
            with attempt:
                rows = self.computed(source, engine)
                transaction.fence.reads = None if isinstance(spec, TableSpec) else together(reads, self.reads_of(rows))
                return engine.execute(spec, rows, transaction)
        raise AssertionError("the last attempt returns or raises")

    def _transaction(self, ref: TableRef, spec: Spec | None = None) -> Transaction:
        """Return the commit of one write, with the versions and the log of the session."""

        def meets(transaction: Transaction, other: CommitRecord, predicate: str) -> bool:
            """True if another writer's commit changed rows of a predicate, or may have."""
            return meets_commit(transaction, other, matching(self.embedded.cursor(), predicate))

        app, words = (None, None) if spec is None else (spec.app, spec.commit_metadata)
        lake, pins = self.lakes.of(ref), self.fixed_pins
        if lake.root not in self._looked_at:
            self._looked_at.add(lake.root)
            finish_publishes(self, lake)
        return Transaction(lake, ref, app=app, pins=pins, log=self.log, sees=meets, metadata=words)

    def apply_changes(
        self,
        target: str | TableRef,
        changes: Any,
        *,
        keys: str | Sequence[str],
        sequence_by: str | None = None,
        scd: ScdType = 1,
        deletes: bool | str = True,
        columns: Sequence[str] | None = None,
        schema_mode: SchemaMode = "fail",
        app: AppTransaction | None = None,
        engine: EngineName | None = None,
    ) -> Commit:
        """Apply row changes to a table by key, in the order of a column, as one commit.

        Late changes are sorted into their place. A missing table is created.

        Args:
            changes: Result of ``Table.changes()``, or any rows.
            sequence_by: Column that orders the changes. Without it, for ``scd`` 1 alone, all
                changes are newer than the table's rows.
            scd: 1 keeps the last state of each key. 2 keeps all states, as half-open intervals in
                the columns ``valid_from`` and ``valid_to``, of the type of ``sequence_by``.
                ``valid_to`` is NULL for the current state.
            deletes: SQL condition on the changes that delete their key. True takes those whose
                ``_change_type`` says so.
            columns: Columns to store; None takes all but those that change queries add.

        Raises:
            SchemaMismatch: A key or a sequence value is NULL, or a key has several rows at one
                position. The error has their number and three of them.
            InvalidConfig: A named column is missing.
        """
        given(target, (str, TableRef), "target", "apply_changes()")
        spec = ApplySpec(
            names_in([keys], "keys", "apply_changes()"),
            None if sequence_by is None else given(sequence_by, str, "sequence_by", "apply_changes()"),
            scd,
            given(deletes, (bool, str), "deletes", "apply_changes()"),
            None if columns is None else names_in([columns], "columns", "apply_changes()"),
            schema_mode=schema_mode,
            app=app,
        )
        ref = self.ref(target)
        with outcome_of("apply_changes", ref):
            return self._applied(ref, spec, changes, engine)

    def _applied(self, ref: TableRef, spec: ApplySpec, changes: Any, engine: EngineName | None) -> Commit:
        chosen = self.engine_to_write(engine or self.engine_name, changes, ref)
        chosen.reach(self.lakes.of(ref))
        return apply_changes(self.on(chosen.name), ref, spec, changes)

    def attempts(self, ref: TableRef) -> Iterator[AbstractContextManager[None]]:
        """Yield the blocks that compute and commit the rows of a write (see run.attempts).

        There is only one block if the run has read the table before, since its work may depend on
        that.
        """
        once = self.fixed_pins is not None and self.log.read(ref.location) is not None
        return attempts(ref, self.pins, once=once)

    def move_cursor(self, name: str | TableRef, app: CursorTransaction, *, engine: EngineName | None = None) -> Commit:
        """Commit a consumer's offsets to a table without rows."""
        ref, spec = self.ref(name), WriteSpec("append", app=app, existing=True)
        if (engine or self.engine_name) == "spark" or app.instead is not None:
            return self.execute(ref, spec, self.lakes.snapshot(ref).schema.empty_table(), engine=engine)
        return self._transaction(ref, spec).move_cursor()

    def stage(
        self, name: str | TableRef, source: Any, *, partition_by: Sequence[str] | None = None
    ) -> tuple[StagedFile, ...]:
        """Write files of a future commit, which no reader sees before ``commit_staged()``.

        The result survives pickle and JSON, so several processes can stage and one commits. DuckDB
        writes the files, whatever the session's engine.
        """
        ref = self.ref(name)
        with outcome_of("staging", ref):
            transaction = self._transaction(ref)
            return self.embedded.stage(self.computed(source, self.embedded), transaction, partition_by)

    def commit_staged(self, name: str | TableRef, files: Sequence[StagedFile], spec: WriteSpec) -> Commit:
        """Commit staged files: append, overwrite, or error for a new table."""
        ref = self.ref(name)
        with outcome_of(spec.mode, ref):
            return self.embedded.commit_staged(files, spec, self._transaction(ref, spec))

    def computed(self, source: Any, engine: Engine) -> Any:
        """Return the rows of duckrun.SQL on an engine as a Frame; other sources unchanged."""
        if not isinstance(source, SQL):
            return source
        session = self.on(engine.name)
        with session.transactions.statements():
            return run(session, source.text, dialect=source.dialect or "duckdb", is_source=True)

    def schema_of(self, source: Any) -> pa.Schema:
        """Return the Arrow schema that a source would be stored with; consume no stream."""
        chosen = self.engine_of("spark" if is_of_spark(source) else self.engine_name)
        if isinstance(source, SQL):
            with unnoted():
                return self.computed(source, chosen).schema
        return chosen.schema_of(source)

    # -- the lake as a whole

    @property
    def upkeep(self) -> Upkeep:
        """Maintenance of the lake as a whole, if it is a DuckLake."""
        return Upkeep(self)

    def maintain(
        self, spec: UpkeepSpec, table: str | TableRef | None = None, *, lake: Lake | None = None
    ) -> MaintenanceResult:
        """Carry out a maintenance spec (see ``Upkeep.maintain``)."""
        return self.upkeep.maintain(spec, table, lake=lake)

    def merge_files(self, table: str | TableRef | None = None) -> MaintenanceResult:
        """Merge small files of a DuckLake (see ``Upkeep.merge_files``)."""
        return self.upkeep.merge_files(table)

    def snapshots(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the snapshots of a DuckLake, newest first.

        Each has snapshot_id, timestamp (ms since 1970), changes, author, commit_message, …

        Raises:
            UnsupportedFeature: The lake has format delta, where each table has its own history.
        """
        transactions = self.lake.transactions(", whose tables have a history each: table(…).history().")
        return transactions.snapshots(None if limit is None else given(limit, int, "limit", "snapshots()"))
