"""connect() and Session: the lake in a notebook, a script or a Python asset."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Self, overload

import pyarrow as pa

from duckrun.engines.duckdb.rows.source import SQL
from duckrun.engines.engine import Engine
from duckrun.engines.frame import LazyRows
from duckrun.engines.tabular.values import is_of_spark
from duckrun.errors import InvalidConfig, VersionNotReadable, outcome_of
from duckrun.frame import Frame
from duckrun.lake.catalogued import open_lake
from duckrun.lake.lake import Lake, TableRef
from duckrun.moving.moving import Moving
from duckrun.reader import DataFrameReader
from duckrun.run.attempts import attempts
from duckrun.run.memory import Arbiter
from duckrun.run.moved_cursor import move_cursor
from duckrun.run.pins import NOTHING, Pins, Reads
from duckrun.run.work_log import Read, unnoted
from duckrun.sessions import writing
from duckrun.sessions.apply import apply_changes
from duckrun.sessions.opened import Opened
from duckrun.sessions.together import OpenTransaction
from duckrun.sessions.upkeep import Upkeep
from duckrun.sql.names import transpile
from duckrun.statements.parse.parameters import Params
from duckrun.statements.run import run
from duckrun.table import Table
from duckrun.values.applying import ApplySpec, ScdType
from duckrun.values.checked import checked
from duckrun.values.choices import EngineName, SchemaMode, WriterChoice
from duckrun.values.cursors import CursorTransaction
from duckrun.values.lake_format import LakeFormat
from duckrun.values.moved import Moved
from duckrun.values.options import given, names_in
from duckrun.values.rows import AppTransaction, Commit, ReadSpec, Returning, RowSpec, StagedFile, WriteSpec
from duckrun.values.snapshot import Scan, Snapshot
from duckrun.values.tables import CommitSpec, MaintenanceResult, MaintenanceSpec, TableSpec
from duckrun.values.upkeep import UpkeepSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
else:
    from duckrun.sessions.opened import SparkSession


@checked
def connect(
    root_path: str | os.PathLike[str],
    *,
    schema: str = "main",
    engine: EngineName = "duckdb",
    storage_options: Mapping[str, Any] | None = None,
    read_only: bool = False,
    spark: SparkSession | None = None,
    memory_limit: str | int | None = None,
    memory_fraction: float | None = None,
    pins: Pins | None = None,
    format: str = "delta",
    catalog: str | None = None,
    inline_rows: int | None = None,
    encrypted: bool | None = None,
    writer: WriterChoice = "auto",
) -> Session:
    """Open a lake: a folder, or an ``s3://``, ``az://``, ``abfss://`` or ``gs://`` URL.

    Nothing is read before a statement needs it.

    Args:
        root_path: Folder or URL of the lake.
        schema: Schema of names without one.
        engine: Default engine of statements.
        storage_options: Credentials and endpoint of an object store, by the names of delta_rs.
        read_only: Refuse all writes.
        spark: Spark session to use.
        memory_limit: Memory for the session's work.
        memory_fraction: Share of the machine's memory, instead of a limit.
        pins: Versions to read for the whole session. Without them each statement pins its tables.
        format: ``delta`` or ``ducklake``.
        catalog: Database of a DuckLake's catalog: ``sqlite:<file>`` (by default ``catalog.sqlite``
            in the root), ``postgres:<dsn>`` or ``duckdb:<file>``.
        inline_rows: Largest insert, in rows, that a DuckLake stores in its catalog.
        encrypted: Create a DuckLake with encrypted files.
        writer: ``delta_rs`` lets delta_rs write the data files of Delta tables where it can. It
            holds for every write of the session that names no writer. The commit's ``reason`` says
            why delta_rs could not.

    Raises:
        InvalidConfig: An argument is unknown or invalid.
        StorageError: The root cannot be used.

    Example::

        with duckrun.connect("lake/") as s:
            s.sql("select count(*) from main.flights").show()
    """
    form = LakeFormat.of(format, catalog, inline_rows, encrypted)
    lake = open_lake(root_path, schema=schema, storage_options=storage_options, read_only=read_only, form=form)
    arbiter = Arbiter(memory_limit, memory_fraction)
    return Session(lake, engine=engine, spark=spark, arbiter=arbiter, pins=pins, writer=writer)


class Session(Opened):
    """One lake, a default engine, and the table versions that the session reads.

    Every statement reads each table at one version. A session pins a table again for each
    statement. With ``pins`` (a dbt invocation, a Dagster step) the pins hold for the whole session.

    Example::

        with duckrun.connect("lake/") as s:
            s.sql("select item, sum(price) from sales.orders group by item").show()
    """

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

    def table(self, name: str | TableRef) -> Table:
        """Return a table by ``schema.name``, with its history and older versions.

        Raises:
            TableNotFound: No such table.
        """
        ref = self.ref(name)
        lake = self.lakes.of(ref)
        if not lake.exists(ref):
            lake.snapshot(ref)
        if self.pins.hides(ref):
            self.pins.snapshot(ref)
        return Table(self, ref)

    def tables(self) -> list[str]:
        """Return the names of tables and views.

        They are ``schema.name``, in attached lakes ``lake.schema.name``. No log is opened.
        """
        return self.lakes.names(without={(ref.catalog, ref.schema, ref.name) for ref in self.pins.hidden()})

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

    def snapshot(self, name: str | TableRef, spec: ReadSpec | None = None) -> Snapshot:
        """Return the snapshot that a read of this session uses."""
        ref = self.ref(name)
        if spec is not None and (spec.version is not None or spec.timestamp is not None):
            return self.lakes.snapshot(ref, spec.version, spec.timestamp)
        return self.pins.snapshot(ref, self.lakes.snapshot)

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

    @property
    def read(self) -> DataFrameReader:
        """Reader by Spark's names, as in ``s.read.format("delta").load(path)``."""
        return DataFrameReader(self)

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
            return writing.execute(self, ref, spec, source, engine or self.engine_name, reads, returning)

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
            return apply_changes(self, ref, spec, changes, engine=engine)

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
        return move_cursor(writing.transaction_of(self, ref, spec))

    def stage(
        self, name: str | TableRef, source: Any, *, partition_by: Sequence[str] | None = None
    ) -> tuple[StagedFile, ...]:
        """Write files of a future commit, which no reader sees before ``commit_staged()``.

        The result survives pickle and JSON, so several processes can stage and one commits. DuckDB
        writes the files, whatever the session's engine.
        """
        ref = self.ref(name)
        with outcome_of("staging", ref):
            transaction = writing.transaction_of(self, ref)
            return self.embedded.stage(self.computed(source, self.embedded), transaction, partition_by)

    def commit_staged(self, name: str | TableRef, files: Sequence[StagedFile], spec: WriteSpec) -> Commit:
        """Commit staged files: append, overwrite, or error for a new table."""
        ref = self.ref(name)
        with outcome_of(spec.mode, ref):
            return self.embedded.commit_staged(files, spec, writing.transaction_of(self, ref, spec))

    def computed(self, source: Any, engine: Engine) -> Any:
        """Return the rows of duckrun.SQL on an engine as a Frame; other sources unchanged."""
        if not isinstance(source, SQL):
            return source
        rows = self.on(engine.name).sql(source.text, dialect=source.dialect or "duckdb")
        if not isinstance(rows, Frame):
            raise InvalidConfig(f"duckrun.SQL is a query whose rows are written, not {source.text[:60]!r}.")
        return rows

    def schema_of(self, source: Any, *, engine: EngineName | None = None) -> pa.Schema:
        """Return the Arrow schema that a source would be stored with; consume no stream."""
        chosen = self.engine_of("spark" if is_of_spark(source) else engine or self.engine_name)
        if isinstance(source, SQL):
            with unnoted():
                return self.computed(source, chosen).schema
        return chosen.schema_of(source)

    # -- several tables at once

    @contextmanager
    def transaction(self, lake: str | None = None) -> Iterator[Self]:
        """Group the writes of a block into one snapshot of the lake.

        Readers see all of them or none. An error rolls all of them back. Reads in the block see the
        lake as of its start, with the block's own writes.

        Args:
            lake: Name of an attached lake; None is the session's own.

        Raises:
            UnsupportedFeature: The lake has format delta, where each table has its own log.

        Example::

            with s.transaction() as t:
                t.sql("insert into sales.orders values (7, 'fig', 2.5)")
                t.sql("update sales.totals set price = price + 2.5")
        """
        with self.transactions.block(self, lake):
            yield self

    def begin(self, lake: str | None = None) -> OpenTransaction:
        """Begin a transaction that ``commit()`` or ``rollback()`` ends, like ``BEGIN``.

        Other writers wait from its first write on.

        Raises:
            UnsupportedFeature: As in ``transaction()``.
            InvalidConfig: A transaction is open already.
        """
        return self.transactions.begin(self, lake, lazily=True)

    def commit(self) -> None:
        """Commit the open transaction.

        Raises:
            InvalidConfig: No transaction is open.
            CommitConflict: It cannot be committed. The lake is unchanged then.
        """
        self.transactions.end(self, "COMMIT").commit()

    def rollback(self) -> None:
        """Roll back the open transaction.

        Raises:
            InvalidConfig: No transaction is open.
        """
        self.transactions.end(self, "ROLLBACK").rollback()

    @property
    def in_transaction(self) -> bool:
        """True while a transaction over several tables is open."""
        return self.transactions.opened is not None

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
        """Return the snapshots of a DuckLake, newest first (see ``Upkeep.snapshots``)."""
        return self.upkeep.snapshots(limit)

    @property
    def moving(self) -> Moving:
        """Moves of tables between this lake and other lakes or databases."""
        return Moving(self)

    def import_from(
        self,
        source: str | os.PathLike[str],
        tables: str | Sequence[str] | None = None,
        *,
        adopt: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> list[Moved]:
        """Copy or adopt tables of a Delta lake or a database (see ``Moving.import_from``)."""
        return self.moving.import_from(source, tables, adopt=adopt, storage_options=storage_options)

    def export_to(
        self,
        target: str | os.PathLike[str],
        tables: str | Sequence[str] | None = None,
        *,
        versions: int = 1,
        storage_options: Mapping[str, Any] | None = None,
    ) -> list[Moved]:
        """Copy tables of this DuckLake to a Delta lake (see ``Moving.export_to``)."""
        return self.moving.export_to(target, tables, versions=versions, storage_options=storage_options)
