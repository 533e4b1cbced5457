"""connect(): the lake in a notebook, a script or a Python asset."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa
from sqlglot import exp

from duckrun.apply import apply_changes
from duckrun.engines.duckdb.engine import DuckDBEngine
from duckrun.engines.duckdb.source import SQL
from duckrun.engines.duckdb.writers.reads import matching, meets_commit
from duckrun.engines.engine import Engine
from duckrun.engines.frame import LazyRows
from duckrun.engines.tabular.values import is_of_spark
from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.formats.commits import CommitRecord
from duckrun.frame import Frame
from duckrun.lake.catalogued import open_lake
from duckrun.lake.lake import Lake, TableRef
from duckrun.lake.lakes import Lakes
from duckrun.moving.moving import Moving
from duckrun.reader import DataFrameReader
from duckrun.run.attempts import attempts
from duckrun.run.memory import Arbiter
from duckrun.run.moved_cursor import move_cursor
from duckrun.run.pins import NOTHING, Pins, Read, Reads, WorkLog, together, unnoted
from duckrun.run.transaction import Transaction
from duckrun.run.transactions import refuse_without
from duckrun.sql.names import transpile
from duckrun.statements.parse.parameters import Params
from duckrun.statements.parse.tokens import StatementText
from duckrun.statements.run import run
from duckrun.table import Table
from duckrun.together import OpenTransaction
from duckrun.upkeep import LakeUpkeep
from duckrun.values.applying import ApplySpec, ScdType
from duckrun.values.cursors import CursorTransaction
from duckrun.values.lake_format import LakeFormat
from duckrun.values.options import given, names_in
from duckrun.values.rows import (
    AppTransaction,
    Commit,
    EngineName,
    ReadSpec,
    Returning,
    RowSpec,
    SchemaMode,
    Spec,
    StagedFile,
    WriteSpec,
)
from duckrun.values.snapshot import Scan, Snapshot
from duckrun.values.tables import CommitSpec, MaintenanceResult, MaintenanceSpec, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ENGINES = ("duckdb", "spark")


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
) -> Session:
    """Open a lake: a folder, or an ``s3://``, ``az://``, ``abfss://`` or ``gs://`` URL.

    With ``format="ducklake"`` its tables are DuckLake's: ``catalog`` is the database that knows them (``sqlite:<file>``, by default
    ``catalog.sqlite`` in the root, ``postgres:<dsn>``, ``duckdb:<file>``), ``inline_rows`` up to how many rows of an insert lie in it, and
    ``encrypted`` makes a new lake whose files are.

    Nothing is read before a statement needs it. Raises InvalidConfig for an unknown engine or an empty root,
    StorageError for a root that cannot be used.

    Example::

        with duckrun.connect("lake/") as s:
            s.sql("select count(*) from main.flights").show()
    """
    form = LakeFormat.of(format, catalog, inline_rows, encrypted)
    lake = open_lake(root_path, schema=schema, storage_options=storage_options, read_only=read_only, form=form)
    _refuse_unknown(engine)
    return Session(lake, engine=engine, spark=spark, arbiter=Arbiter(memory_limit, memory_fraction), pins=pins)


def _refuse_unknown(engine: str) -> None:
    if engine not in _ENGINES:
        raise InvalidConfig(f"Unknown engine {engine!r}; the engines are {', '.join(_ENGINES)}.")


class Session(LakeUpkeep, Moving):
    """One lake, one engine by default, and the versions that this session reads.

    Every statement reads each table at one version. A session follows the lake: a table is pinned again for each
    statement, unless ``pins`` was given (a dbt invocation, a Dagster step), which then hold for the whole session.

    Example::

        with duckrun.connect("lake/") as s:
            s.sql("select item, sum(price) from sales.orders group by item").show()
    """

    def __init__(
        self,
        lake: Lake,
        *,
        engine: EngineName = "duckdb",
        spark: SparkSession | None = None,
        arbiter: Arbiter | None = None,
        pins: Pins | None = None,
        lakes: Lakes | None = None,
        engines: dict[str, Engine] | None = None,
    ) -> None:
        """``lakes`` has those that are attached; ``engines`` are used as they are, and others made at first use."""
        self.lake = lake
        self._lakes = lakes or Lakes(lake)
        self.closed = False
        self.arbiter = arbiter or Arbiter()
        self.engine_name: EngineName = engine
        self._spark = spark
        self._engines: dict[str, Engine] = {} if engines is None else engines
        self._pins = pins
        self._log = WorkLog()
        self._together: OpenTransaction | None = None
        self.temp_views: dict[str, exp.Query] = {}
        self.prepared: dict[str, StatementText] = {}

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({self.lake.root!r}, engine={self.engine_name!r})"

    def ensure_open(self) -> None:
        """Raise InvalidConfig if this session is closed."""
        if self.closed:
            raise InvalidConfig(
                f"This session of lake {self.lake.root} is closed, and so are its tables and frames: open another one by connect()."
            )

    @property
    def lakes(self) -> Lakes:
        """The session's own lake and those attached. Raises InvalidConfig if it is closed."""
        self.ensure_open()
        return self._lakes

    def look_in(self, lakes: Lakes) -> None:
        """Look up names in these lakes from now on: USE."""
        self._lakes = lakes

    @property
    def pins(self) -> Pins:
        """The pins of the next statement: those of the run, or fresh ones."""
        return self._pins if self._pins is not None else Pins(self.lakes.snapshot, log=self._log)

    @property
    def log(self) -> WorkLog:
        """What the run, or else this session, has read and committed: in a dbt invocation, the node that runs now."""
        return self.pins.log

    @property
    def engine(self) -> Engine:
        """The session's own engine."""
        return self.engine_of(self.engine_name)

    def engine_of(self, name: EngineName) -> Engine:
        """An engine by name; made at first use, so that Spark starts only for what needs it."""
        self.ensure_open()
        if name not in self._engines:
            _refuse_unknown(name)
            if name == "spark":
                from duckrun.engines.spark.engine import SparkEngine, spark_session

                self._engines[name] = SparkEngine(self.lake, self._spark or spark_session(storage=self.lake.storage))
            else:
                self._engines[name] = DuckDBEngine(self.lake, arbiter=self.arbiter, progress=self._pins is None)
            for lake in self.lakes:
                self._engines[name].reach(lake)
        return self._engines[name]

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
        """Carry out SQL statements, in DuckDB's dialect or Spark's, and give the result of the last one.

        A query gives a Frame: lazy, over tables and views by ``name``, ``schema.name`` or ``lake.schema.name``, each at one
        version. A statement that writes makes one commit and gives it, or its rows where it has a RETURNING; between BEGIN and COMMIT all of them are one commit of a DuckLake; maintenance gives
        a MaintenanceResult, and what makes no version (views, DROP) a Done. ``schema_mode`` is for INSERT and MERGE; ``app`` makes writes happen once.
        ``params`` are the values of ``?`` and ``$1`` (a list) or of ``$name`` (a dict), each a literal of its own type.

        Raises UnsupportedFeature for a statement that is not supported, InvalidConfig for what is no SQL, ReadOnlyLake:
        these before anything runs. TableNotFound has the nearest names.
        """
        self.ensure_open()
        given(text, str, "text", "sql()")
        if app is not None:
            given(app, AppTransaction, "app", "sql()")
        before = self._together
        try:
            return run(self, text, dialect=dialect, params=params, schema_mode=schema_mode, app=app)
        except BaseException as error:
            if (opened := self._together) is not None:
                opened.fail(error)
                self._together = before if opened is before else None  # what the text began ends with it
            raise

    def table(self, name: str | TableRef) -> Table:
        """A table by ``schema.name``, with its history and older versions. Raises TableNotFound."""
        ref = self.ref(name)
        lake = self.lakes.of(ref)
        if not lake.exists(ref):
            lake.snapshot(ref)
        return Table(self, ref)

    def tables(self) -> list[str]:
        """The tables and views, as ``schema.name``, and of attached lakes as ``lake.schema.name``. No log is opened."""
        return self.lakes.names()

    def scan(self, name: str | TableRef, spec: ReadSpec | None = None, *, engine: EngineName | None = None) -> Frame:
        """Some columns and rows of one table, at the pinned version or the one that the spec names: lazy."""
        ref, spec = self.ref(name), given(spec, ReadSpec, "spec", "scan()") if spec is not None else ReadSpec()
        chosen = self.engine_of(engine or self.engine_name)
        chosen.reach(self.lakes.of(ref))
        snapshot = self.snapshot(ref, spec)
        frame = chosen.scan(snapshot, spec)
        frame.reads = self.reading(snapshot, spec)
        return self.own(frame)

    def reading(self, snapshot: Snapshot, spec: ReadSpec) -> Reads:
        """What a value with rows of a snapshot has read, noted in the log; nothing where the spec names the version."""
        if spec.version is not None or spec.timestamp is not None:
            return NOTHING
        predicate = None if spec.predicate is None else transpile(spec.predicate, spec.dialect, "duckdb")
        read = Read.of(snapshot, predicate)
        self.log.note(snapshot.ref.location, read)
        return {snapshot.ref.location: read}

    def snapshot(self, name: str | TableRef, spec: ReadSpec | None = None) -> Snapshot:
        """The snapshot that a read of this session uses."""
        ref = self.ref(name)
        if spec is not None and (spec.version is not None or spec.timestamp is not None):
            return self.lakes.snapshot(ref, spec.version, spec.timestamp)
        return self.pins.snapshot(ref, self.lakes.snapshot)

    def open(self, scan: Scan) -> Frame:
        """The rows of a scan, which may be one part of a table's files and come from another process."""
        return self.own(self.engine.open(scan))

    def read_files(self, format: str, path: str, options: Mapping[str, Any]) -> Frame:
        """The rows of ``parquet`` or ``csv`` files, by Spark's options: lazy."""
        self.engine.reach(self.lakes.at(path).lake)
        return self.own(self.engine.read_files(format, path, options))

    def own(self, rows: LazyRows) -> Frame:
        """An engine's rows as a Frame, whose ``write`` goes to this session."""
        return Frame(rows.source, rows.engine, self, rows.alias_name, rows.reads)

    @property
    def read(self) -> DataFrameReader:
        """Read by Spark's names: ``s.read.table("sales.orders")``, ``s.read.format("delta").load(path)``."""
        return DataFrameReader(self)

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

        ``source`` is a pyarrow Table or RecordBatchReader, a pandas or polars frame (lazy too), a DuckDB relation, a
        Frame, a Spark DataFrame, or duckrun.SQL. A Spark DataFrame is written by Spark whatever the session's engine.
        ``reads`` is what the spec was computed from, beside the source; ``returning`` gets the rows that DuckDB writes, or deletes.

        Rows that were computed from the table itself never go on top of another writer's change of its rows: duckrun.SQL
        is computed again from what is there then, for any other source SourceOutdated (a CommitConflict) is raised.
        """
        with self._inside():
            return self._executed(name, spec, source, engine=engine, reads=reads, returning=returning)

    def _executed(
        self,
        name: str | TableRef,
        spec: RowSpec | ApplySpec | TableSpec,
        source: Any | None,
        *,
        engine: EngineName | None,
        reads: Reads,
        returning: Returning | None,
    ) -> Commit | MaintenanceResult:
        ref = self.ref(name, to_write=True)
        if isinstance(spec, ApplySpec):
            return apply_changes(self, ref, spec, source, engine=engine)
        transaction = self._transaction(ref, given(spec, Spec, "spec", "execute()"))
        transaction.returning = returning
        chosen = self.engine_to_write(engine or self.engine_name, source, ref)
        if self._together is not None:
            if transaction.lake is not self._together.lake:
                raise UnsupportedFeature(
                    f"{ref} is of lake {transaction.lake.root}, and the transaction that is open is of lake {self._together.lake.root}: no commit spans two lakes. "
                    "Write to it before or after. Nothing was written."
                )
            refuse_without(transaction.lake, chosen.name)
        chosen.reach(transaction.lake)

        for attempt in self.attempts(ref) if isinstance(source, SQL) else (nullcontext(),):
            with attempt:
                rows = self.computed(source, chosen)
                transaction.reads = None if isinstance(spec, TableSpec) else together(reads, self.reads_of(rows))
                driver = (lambda: self.embedded) if transaction.lake.format.transacts else None
                return chosen.execute(spec, rows, transaction, driver)
        raise AssertionError("the last attempt returns or raises")

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
        """Apply changes of rows to a table by key, in the order of a column, as one commit; late ones find their place.

        With ``scd`` 1 the table holds the last state of each key, with 2 all of its states, with the columns ``valid_from`` and
        ``valid_to`` (half-open, NULL while a row holds) of the type of ``sequence_by``; without that, for ``scd`` 1, all changes are newer than what is there. ``changes`` are an answer of ``Table.changes()`` or
        any rows; ``deletes`` is a condition on them (SQL), or True for those whose ``_change_type`` says so. ``columns`` are those to
        store, by default all but the ones that change queries add. A table that is not there is made.

        Raises SchemaMismatch for a key or a sequence that is NULL, or several rows of a key at one point (with the count and three of them),
        InvalidConfig for columns that are not there. The table is then as it was.
        """
        given(target, (str, TableRef), "target", "apply_changes()")
        asked = ApplySpec(
            names_in([keys], "keys", "apply_changes()"),
            None if sequence_by is None else given(sequence_by, str, "sequence_by", "apply_changes()"),
            scd,
            given(deletes, (bool, str), "deletes", "apply_changes()"),
            None if columns is None else names_in([columns], "columns", "apply_changes()"),
            schema_mode=schema_mode,
            app=app,
        )
        return apply_changes(self, self.ref(target), asked, changes, engine=engine)

    def attempts(self, ref: TableRef) -> Iterator[AbstractContextManager[None]]:
        """Blocks in which the rows of a write to a table are computed and committed (see run.attempts).

        There is one only where something else of the run has read the table before: the work may follow from that.
        """
        once = self._pins is not None and self.log.read(ref.location) is not None
        return attempts(ref, self.pins, once=once)

    def _transaction(self, ref: TableRef, spec: Spec | None = None) -> Transaction:
        lake = self.lakes.of(ref)
        app, words = (None, None) if spec is None else (spec.app, spec.commit_metadata)
        return Transaction(lake, ref, app=app, pins=self._pins, log=self._log, sees=self._commit_meets, metadata=words)

    def _commit_meets(self, transaction: Transaction, other: CommitRecord, predicate: str) -> bool:
        """Whether a commit of another writer's changed rows for which a predicate (DuckDB's SQL) is true; in doubt it did."""
        return meets_commit(transaction, other, matching(self.embedded.cursor(), predicate))

    def reads_of(self, source: Any) -> Reads:
        """What a source was computed from, as far as it can be known."""
        if isinstance(source, LazyRows):
            return source.reads
        found = together(*(engine.reads_of(source) for engine in self._engines.values()))
        return {location: read for location, read in found.items() if self.log.has_seen(location, read.version)}

    def move_cursor(self, name: str | TableRef, app: CursorTransaction, *, engine: EngineName | None = None) -> Commit:
        """Commit a consumer's offsets to a table with no row: it has read on, and nothing was to be written."""
        ref = self.ref(name)
        if (engine or self.engine_name) == "spark":
            none = self.lakes.snapshot(ref).schema.empty_table()
            return self.execute(ref, WriteSpec("append", app=app, existing=True), none, engine="spark")
        return move_cursor(self._transaction(ref, WriteSpec("append", app=app)))

    def stage(
        self, name: str | TableRef, source: Any, *, partition_by: Sequence[str] | None = None
    ) -> tuple[StagedFile, ...]:
        """Write a part of a commit to come: files that no reader sees before commit_staged(). They survive pickle and
        JSON, so that N processes stage and one commits. DuckDB writes them, whatever the session's engine.
        """
        transaction = self._transaction(self.ref(name))
        return self.embedded.stage(self.computed(source, self.embedded), transaction, partition_by)

    def commit_staged(self, name: str | TableRef, files: Sequence[StagedFile], spec: WriteSpec) -> Commit:
        """Make staged files visible in one commit (append, overwrite, or error for a new table)."""
        return self.embedded.commit_staged(files, spec, self._transaction(self.ref(name), spec))

    @property
    def embedded(self) -> DuckDBEngine:
        """The engine that runs in this process."""
        engine = self.engine_of("duckdb")
        assert isinstance(engine, DuckDBEngine)
        return engine

    def engine_to_write(self, name: EngineName, source: Any, ref: TableRef) -> Engine:
        """The engine of that name, or Spark for what only Spark writes. Raises InvalidConfig."""
        of_spark = is_of_spark(source)
        if of_spark and self._spark is None and "spark" not in self._engines and name != "spark":
            raise InvalidConfig(
                f"Table {ref}: a Spark DataFrame is written by Spark, and this session has none; "
                "pass spark=… to connect(), or a SparkResource to the IO manager."
            )
        return self.engine_of("spark" if of_spark else name)

    def computed(self, source: Any, engine: Engine) -> Any:
        """The rows of duckrun.SQL, by an engine, as a Frame; any other source as it is."""
        if not isinstance(source, SQL):
            return source
        own = copy(self)
        own.engine_name = engine.name  # type: ignore[assignment]
        found = own.sql(source.text, dialect=source.dialect or "duckdb")
        if not isinstance(found, Frame):
            raise InvalidConfig(f"duckrun.SQL is a query whose rows are written, not {source.text[:60]!r}.")
        return found

    def schema_of(self, source: Any, *, engine: EngineName | None = None) -> pa.Schema:
        """The Arrow schema with which a value would be stored; a stream is not consumed."""
        chosen = self.engine_of("spark" if is_of_spark(source) else engine or self.engine_name)
        if isinstance(source, SQL):
            with unnoted():
                return self.computed(source, chosen).schema
        return chosen.schema_of(source)

    def register(self, name: str, frame: Any) -> None:
        """Give a frame or any tabular value a name that statements of this session can read."""
        self.engine.register(given(name, str, "name", "register()"), frame, self.reads_of(frame))

    def ref(self, name: str | TableRef, *, to_write: bool = False) -> TableRef:
        """The table of a name: ``name``, ``schema.name`` or ``lake.schema.name``, whether it exists or not. ``to_write`` is for a write, which
        looks itself whether a table is still there that was.

        Raises InvalidConfig for a name that a view has.
        """
        if isinstance(name, TableRef):
            return name
        found = self.lakes.locate(given(name, str, "name", "a table"), to_write=to_write)
        if found.view is not None:
            raise InvalidConfig(
                f"{found.ref} is a view: read it by read.table() or sql(); it has no versions and takes no rows."
            )
        return found.ref

    # -- several tables at once

    @contextmanager
    def transaction(self, lake: str | None = None) -> Iterator[Session]:
        """A block whose writes are one snapshot of the lake, or none: nobody sees one of them before all are there, and an error takes all
        back. What it reads is of the moment at which it began, with its own writes. ``lake`` names an attached one.

        Raises UnsupportedFeature for a lake of format delta, whose tables have a log each. Example::

            with s.transaction() as t:
                t.sql("insert into sales.orders values (7, 'fig', 2.5)")
                t.sql("update sales.totals set price = price + 2.5")
        """
        opened = self.begin(lake)
        try:
            yield self
        except BaseException as error:
            self._together = None
            opened.fail(error)
            raise
        self.commit()

    def begin(self, lake: str | None = None) -> OpenTransaction:
        """Begin a transaction over several tables, which commit() or rollback() ends: what ``BEGIN`` does. Raises as transaction() does,
        InvalidConfig where one is open.
        """
        self.ensure_open()
        if self._together is not None:
            raise InvalidConfig(
                f"A transaction of lake {self._together.lake.root} is open in this session already; COMMIT or ROLLBACK it first."
            )
        of = self.lakes.lake if lake is None else self.lakes.named(lake, "transaction()")
        self._together = OpenTransaction(self, of)
        return self._together

    def commit(self) -> None:
        """Commit the open transaction. Raises InvalidConfig where none is, CommitConflict where it cannot be: nothing of it is there then."""
        self._ended_transaction("COMMIT").commit()

    def rollback(self) -> None:
        """Take back what the open transaction has done. Raises InvalidConfig where none is open."""
        self._ended_transaction("ROLLBACK").rollback()

    def _ended_transaction(self, word: str) -> OpenTransaction:
        self.ensure_open()
        opened, self._together = self._together, None
        if opened is None:
            raise InvalidConfig(f"{word} without BEGIN: no transaction is open in this session.")
        return opened

    @property
    def in_transaction(self) -> bool:
        """True while a transaction over several tables is open."""
        return self._together is not None

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """A statement, of the open transaction where there is one: an error of it takes all of that back."""
        opened = self._together
        if opened is None:
            yield
            return
        opened.check()
        try:
            yield
        except BaseException as error:
            opened.fail(error)
            raise

    def refuse_failed(self) -> None:
        """Raise InvalidConfig where the open transaction has failed already."""
        if self._together is not None:
            self._together.check()

    @property
    def fixed_pins(self) -> Pins | None:
        """The pins of the run that this session is of; None for a session that follows the lake."""
        return self._pins

    def snapshots(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The snapshots of a DuckLake, newest first: snapshot_id, timestamp (ms since 1970), changes, author, commit_message, …

        Raises UnsupportedFeature for a lake of format delta, where each table has its history.
        """
        form = self.lake.format
        if not form.transacts:
            raise UnsupportedFeature(
                f"Lake {self.lake.root} is of format {form.name}, whose tables have a history each: table(…).history()."
            )
        return form.snapshots(None if limit is None else given(limit, int, "limit", "snapshots()"))

    # -- other lakes

    def attach(
        self,
        root: str | os.PathLike[str],
        name: str,
        *,
        read_only: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        format: str = "delta",
        catalog: str | None = None,
        inline_rows: int | None = None,
        encrypted: bool | None = None,
    ) -> None:
        """Add a lake under a name: its tables are ``name.schema.table`` in reads, joins and writes of this session.

        In a read-only session it is read-only too; ``format``, ``catalog``, ``inline_rows`` and ``encrypted`` are those of connect(). Raises InvalidConfig for the name of a lake, a schema or an engine.
        """
        given(name, str, "name", "attach()")
        form = LakeFormat.of(format, catalog, inline_rows, encrypted)
        lake = self.lakes.attach(root, name, read_only=read_only, storage_options=storage_options, form=form)
        for engine in self._engines.values():
            engine.reach(lake)

    def detach(self, name: str) -> None:
        """Forget an attached lake; its tables stay as they are. Raises InvalidConfig."""
        self.lakes.detach(given(name, str, "name", "detach()"))

    def close(self) -> None:
        """Close what this session opened, so that its frames answer nothing more; a transaction that is open is rolled back. A given Spark
        session stays open.
        """
        opened, self._together = self._together, None
        if opened is not None:
            opened.rollback()
        self.closed = True
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()
