"""connect(): the lake in a notebook, a script or a Python asset."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from duckrun.engines.frame import LazyRows
from duckrun.errors import VersionNotReadable
from duckrun.frame import Frame
from duckrun.lake.catalogued import open_lake
from duckrun.lake.lake import TableRef
from duckrun.moving.moving import Moving
from duckrun.reader import DataFrameReader
from duckrun.run.memory import Arbiter
from duckrun.run.pins import Pins, Read, Reads
from duckrun.sessions.upkeep import LakeUpkeep
from duckrun.sql.names import transpile
from duckrun.statements.parse.parameters import Params
from duckrun.statements.run import run
from duckrun.table import Table
from duckrun.values.checked import checked
from duckrun.values.lake_format import LakeFormat
from duckrun.values.options import given
from duckrun.values.rows import (
    AppTransaction,
    EngineName,
    ReadSpec,
    SchemaMode,
    WriterChoice,
)
from duckrun.values.snapshot import Scan, Snapshot

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

    With ``format="ducklake"`` its tables are DuckLake's: ``catalog`` is the database that knows them (``sqlite:<file>``, by default
    ``catalog.sqlite`` in the root, ``postgres:<dsn>``, ``duckdb:<file>``), ``inline_rows`` up to how many rows of an insert lie in it, and
    ``encrypted`` makes a new lake whose files are.

    With ``writer="delta_rs"`` delta_rs makes the data files of Delta tables where it can, for every write of the session that
    names no writer itself; the commit's ``reason`` says why it could not.

    Nothing is read before a statement needs it. Raises InvalidConfig for a bad or unknown argument, StorageError for a root that cannot be used.

    Example::

        with duckrun.connect("lake/") as s:
            s.sql("select count(*) from main.flights").show()
    """
    form = LakeFormat.of(format, catalog, inline_rows, encrypted)
    lake = open_lake(root_path, schema=schema, storage_options=storage_options, read_only=read_only, form=form)
    arbiter = Arbiter(memory_limit, memory_fraction)
    return Session(lake, engine=engine, spark=spark, arbiter=arbiter, pins=pins, writer=writer)


class Session(LakeUpkeep, Moving):
    """One lake, one engine by default, and the versions that this session reads.

    Every statement reads each table at one version. A session follows the lake: a table is pinned again for each
    statement, unless ``pins`` was given (a dbt invocation, a Dagster step), which then hold for the whole session.

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
        if self.pins.hides(ref):
            self.pins.snapshot(ref)
        return Table(self, ref)

    def tables(self) -> list[str]:
        """The tables and views, as ``schema.name``, and of attached lakes as ``lake.schema.name``. No log is opened."""
        return self.lakes.names(without={(ref.catalog, ref.schema, ref.name) for ref in self.pins.hidden()})

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
        """What a value with rows of a snapshot reads; noted in the log, unless the spec names the version."""
        if spec.version is not None or spec.timestamp is not None:
            return Reads.of(snapshot)
        predicate = None if spec.predicate is None else transpile(spec.predicate, spec.dialect, "duckdb")
        read = Read.of(snapshot, predicate)
        self.log.note(snapshot.ref.location, read)
        return Reads.of(snapshot, read)

    def snapshot(self, name: str | TableRef, spec: ReadSpec | None = None) -> Snapshot:
        """The snapshot that a read of this session uses."""
        ref = self.ref(name)
        if spec is not None and (spec.version is not None or spec.timestamp is not None):
            return self.lakes.snapshot(ref, spec.version, spec.timestamp)
        return self.pins.snapshot(ref, self.lakes.snapshot)

    def open(self, scan: Scan) -> Frame:
        """The rows of a scan, which may be one part of a table's files and come from another process.

        Raises TableNotFound, VersionNotReadable where the table was dropped, or made anew, since the scan was made.
        """
        given(scan, Scan, "scan", "open()")
        snapshot = self.lakes.snapshot(scan.ref, scan.version)
        if scan.table_id and snapshot.table_id != scan.table_id:
            raise VersionNotReadable(
                f"Table {scan.ref} was dropped and created again since this scan of version {scan.version} was made: make another, by "
                "table(name).snapshot().scan()."
            )
        frame = self.engine.open(scan)
        frame.reads = Reads.of(snapshot)
        return self.own(frame)

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

    def register(self, name: str, frame: Any) -> None:
        """Give a frame or any tabular value a name that statements of this session can read."""
        self.engine.register(given(name, str, "name", "register()"), frame, self.reads_of(frame))
