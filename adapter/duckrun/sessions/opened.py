"""Lakes, engines, read versions and transactions of a session."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from sqlglot import exp

from duckrun.engines.duckdb.engine import DuckDBEngine
from duckrun.engines.engine import Engine
from duckrun.engines.frame import LazyRows
from duckrun.engines.tabular.values import is_of_spark
from duckrun.errors import InvalidConfig
from duckrun.lake.lake import Lake, TableRef
from duckrun.lake.lakes import Lakes
from duckrun.run.memory import Arbiter
from duckrun.run.pins import Pins, Reads, together
from duckrun.run.work_log import WorkLog
from duckrun.sessions.together import OpenTransaction, Transactions
from duckrun.values.attributes import NamesAttributes
from duckrun.values.checked import checked, unknown_word
from duckrun.values.choices import BY_DELTA_RS, ENGINES, EngineName, WriterChoice
from duckrun.values.lake_format import LakeFormat
from duckrun.values.options import given
from duckrun.values.rows import ReadSpec, preferred
from duckrun.values.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
else:

    @runtime_checkable
    class SparkSession(Protocol):
        """Methods that identify a Spark session. Importing pyspark takes a second, if it exists."""

        def sql(self) -> Any: ...
        def createDataFrame(self) -> Any: ...


class Opened(NamesAttributes):
    """Part of a Session that exists before any statement: its lakes and engines."""

    _INSTEAD = "sql() runs statements, table() opens a table, register() names a frame of Python."

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
        writer: WriterChoice = "auto",
    ) -> None:
        """Open a session over a lake.

        Args:
            spark: Spark session to use; it stays open.
            pins: Versions that the run around the session reads.
            lakes: The lake and those attached to it.
            engines: Engines to share. Missing ones are created on first use.

        Raises:
            InvalidConfig: The writer cannot write the lake's format.
        """
        if writer in BY_DELTA_RS and lake.format.logs is None:
            raise InvalidConfig(
                f"writer {writer} makes data files of Delta tables, and the lake's format is {lake.format.name}. "
                "Leave it out."
            )
        self.lake = lake
        self._lakes = lakes or Lakes(lake)
        self.closed = False
        self.arbiter = arbiter or Arbiter()
        self.engine_name: EngineName = engine
        self.writer: WriterChoice = preferred(writer)
        self._spark = spark
        self._engines: dict[str, Engine] = {} if engines is None else engines
        self._pins = pins
        self._log = WorkLog()
        self.temp_views: dict[str, exp.Query] = {}
        self.of_branches: dict[str, Opened] = {}
        """Sessions that read the changed rows of branches, by the folder of the branch."""
        self._looked_at: set[str] = set()
        """Roots of the lakes whose unfinished publishes are finished."""
        self.transactions = Transactions()
        """The open transaction over several tables, if any."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({self.lake.root!r}, engine={self.engine_name!r})"

    def ensure_open(self) -> None:
        """Raise InvalidConfig if this session is closed."""
        if self.closed:
            raise InvalidConfig(
                f"This session of lake {self.lake.root} is closed, and so are its tables and frames: open another one "
                "by connect()."
            )

    @property
    def lakes(self) -> Lakes:
        """The session's own lake and those attached.

        Raises:
            InvalidConfig: The session is closed.
        """
        self.ensure_open()
        return self._lakes

    def look_in(self, lakes: Lakes) -> None:
        """Resolve names in these lakes from now on; USE does this."""
        self._lakes = lakes

    @property
    def pins(self) -> Pins:
        """Pins of the next statement: those of the run, or fresh ones."""
        return self._pins if self._pins is not None else Pins(self.lakes, log=self._log, of_statement=True)

    @property
    def fixed_pins(self) -> Pins | None:
        """Pins of the run around this session; None if the session follows the lake."""
        return self._pins

    @property
    def log(self) -> WorkLog:
        """Log of reads and commits, of the run or else of this session.

        In a dbt invocation it is that of the node that runs now.
        """
        return self.pins.log

    @property
    def engine(self) -> Engine:
        """The session's default engine."""
        return self.engine_of(self.engine_name)

    def engine_of(self, name: EngineName) -> Engine:
        """Return an engine by name.

        It is created on first use, so that Spark starts only if it is needed.

        Raises:
            InvalidConfig: No engine has this name.
        """
        self.ensure_open()
        if name not in self._engines:
            if name not in ENGINES:
                raise unknown_word("engine", name, ENGINES)
            if name == "spark":
                from duckrun.engines.spark.engine import SparkEngine
                from duckrun.engines.spark.process.session import spark_session

                spark_engine = SparkEngine(self.lake, self._spark or spark_session(storage=self.lake.storage))
                spark_engine.driver = lambda: self.embedded
                self._engines[name] = spark_engine
            else:
                limit = self.arbiter.instance_limit(beside_delta_rs=self.writer in BY_DELTA_RS)
                progress = self._pins is None
                self._engines[name] = DuckDBEngine(
                    self.lake, arbiter=self.arbiter, duckdb_limit=limit, progress=progress
                )
            for lake in self.lakes:
                self._engines[name].reach(lake)
        return self._engines[name]

    def on(self, engine: EngineName) -> Self:
        """Return this session with another default engine; both share the open transaction."""
        session = copy(self)
        session.engine_name = engine
        return session

    def engine_to_write(self, name: EngineName, source: Any, ref: TableRef) -> Engine:
        """Return the engine of that name, or Spark for a Spark DataFrame.

        Raises:
            InvalidConfig: The source needs Spark, and the session has no Spark session.
        """
        of_spark = is_of_spark(source)
        if of_spark and self._spark is None and "spark" not in self._engines and name != "spark":
            raise InvalidConfig(
                f"Table {ref}: a Spark DataFrame is written by Spark, and this session has none; "
                "pass spark=… to connect(), or a SparkResource to the IO manager."
            )
        return self.engine_of("spark" if of_spark else name)

    def reads_of(self, source: Any) -> Reads:
        """Return the tables and versions that a source reads, if they are known."""
        if isinstance(source, LazyRows):
            return source.reads
        reads = together(*(engine.reads_of(source) for engine in self._engines.values()))
        newest = {}
        for at, read in reads.newest.items():  # a relation's SQL names no table id
            if (table_id := self.log.id_seen(at, read.version)) is not None:
                newest[at] = replace(read, table_id=table_id)
        return Reads(newest, reads.pins)

    @property
    def embedded(self) -> DuckDBEngine:
        """The DuckDB engine in this process."""
        engine = self.engine_of("duckdb")
        assert isinstance(engine, DuckDBEngine)
        return engine

    def ref(self, name: str | TableRef, *, to_write: bool = False) -> TableRef:
        """Return the table of a name, whether it exists or not.

        Args:
            name: ``name``, ``schema.name`` or ``lake.schema.name``.
            to_write: The caller writes, and checks itself that a table seen before still exists.

        Raises:
            InvalidConfig: The name belongs to a view.
        """
        if isinstance(name, TableRef):
            return name
        place = self.lakes.locate(given(name, str, "name", "a table"), to_write=to_write)
        if place.view is not None:
            raise InvalidConfig(
                f"{place.ref} is a view: read it by read.table() or sql(); it has no versions and takes no rows."
            )
        return place.ref

    def snapshot(self, name: str | TableRef, spec: ReadSpec | None = None) -> Snapshot:
        """Return the snapshot that a read of this session uses."""
        ref = self.ref(name)
        if spec is not None and (spec.version is not None or spec.timestamp is not None):
            return self.lakes.snapshot(ref, spec.version, spec.timestamp)
        return self.pins.snapshot(ref, self.lakes.snapshot)

    def tables(self) -> list[str]:
        """Return the names of tables and views.

        They are ``schema.name``, in attached lakes ``lake.schema.name``. No log is opened.
        """
        return self.lakes.names(without={(ref.catalog, ref.schema, ref.name) for ref in self.pins.hidden()})

    def existing(self, name: str | TableRef) -> TableRef:
        """Return the table of a name.

        Raises:
            TableNotFound: No such table.
        """
        ref = self.ref(name)
        lake = self.lakes.of(ref)
        if not lake.exists(ref):
            lake.snapshot(ref)
        if self.pins.hides(ref):
            self.pins.snapshot(ref)
        return ref

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

    # -- other lakes

    @checked
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
        """Attach a lake under a name.

        Its tables are ``name.schema.table`` in reads, joins and writes of this session. A read-only
        session attaches read-only. The other arguments are those of ``connect()``.

        Raises:
            InvalidConfig: The name belongs to a lake, a schema or an engine.
        """
        form = LakeFormat.of(format, catalog, inline_rows, encrypted)
        lake = self.lakes.attach(root, name, read_only=read_only, storage_options=storage_options, form=form)
        for engine in self._engines.values():
            engine.reach(lake)

    def detach(self, name: str) -> None:
        """Detach an attached lake; its tables stay.

        Raises:
            InvalidConfig: No such lake is attached.
        """
        self.lakes.detach(given(name, str, "name", "detach()"))

    def close(self) -> None:
        """Close what this session opened; its frames fail from then on.

        An open transaction is rolled back. A Spark session that the caller passed stays open.
        """
        self.transactions.close()
        self.closed = True
        for other in self.of_branches.values():
            other.close()
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()
        for lake in self._lakes:
            lake.close()
