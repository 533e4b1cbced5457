"""What a session is opened over: its lakes, its engines, and the versions that its statements read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from sqlglot import exp

from duckrun.engines.duckdb.engine import DuckDBEngine
from duckrun.engines.engine import Engine
from duckrun.errors import InvalidConfig
from duckrun.lake.lake import Lake, TableRef
from duckrun.lake.lakes import Lakes
from duckrun.run.memory import Arbiter
from duckrun.run.pins import Pins, WorkLog
from duckrun.statements.parse.tokens import StatementText
from duckrun.values.checked import checked, unknown_word
from duckrun.values.lake_format import LakeFormat
from duckrun.values.options import given
from duckrun.values.rows import BY_DELTA_RS, EngineName, WriterChoice, preferred

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
else:

    @runtime_checkable
    class SparkSession(Protocol):
        """Methods by which arguments are checked: importing pyspark takes a second, and it may not be installed."""

        def sql(self) -> Any: ...
        def createDataFrame(self) -> Any: ...


_ENGINES = ("duckdb", "spark")


def refuse_unknown_engine(name: str) -> None:
    """Raise InvalidConfig for a name that no engine has."""
    if name not in _ENGINES:
        raise unknown_word("engine", name, _ENGINES)


class Opened:
    """The part of a Session that is open before any statement: one lake, those attached, and the engines."""

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
        """``lakes`` has those that are attached; ``engines`` are used as they are, and others made at first use. Raises
        InvalidConfig for a writer that has no part in a lake of its format.
        """
        if writer in BY_DELTA_RS and lake.format.transacts:
            raise InvalidConfig(
                f"writer {writer} makes data files of Delta tables, and the lake's format is {lake.format.name}. Leave it out."
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
        self.prepared: dict[str, StatementText] = {}

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
    def fixed_pins(self) -> Pins | None:
        """The pins of the run that this session is of; None for a session that follows the lake."""
        return self._pins

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
            refuse_unknown_engine(name)
            if name == "spark":
                from duckrun.engines.spark.engine import SparkEngine, spark_session

                made = SparkEngine(self.lake, self._spark or spark_session(storage=self.lake.storage))
                made.driver = lambda: self.embedded
                self._engines[name] = made
            else:
                limit = self.arbiter.instance_limit(beside_delta_rs=self.writer in BY_DELTA_RS)
                progress = self._pins is None
                self._engines[name] = DuckDBEngine(
                    self.lake, arbiter=self.arbiter, duckdb_limit=limit, progress=progress
                )
            for lake in self.lakes:
                self._engines[name].reach(lake)
        return self._engines[name]

    @property
    def embedded(self) -> DuckDBEngine:
        """The engine that runs in this process."""
        engine = self.engine_of("duckdb")
        assert isinstance(engine, DuckDBEngine)
        return engine

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
        """Add a lake under a name: its tables are ``name.schema.table`` in reads, joins and writes of this session.

        In a read-only session it is read-only too; ``format``, ``catalog``, ``inline_rows`` and ``encrypted`` are those of connect(). Raises InvalidConfig for the name of a lake, a schema or an engine.
        """
        form = LakeFormat.of(format, catalog, inline_rows, encrypted)
        lake = self.lakes.attach(root, name, read_only=read_only, storage_options=storage_options, form=form)
        for engine in self._engines.values():
            engine.reach(lake)

    def detach(self, name: str) -> None:
        """Forget an attached lake; its tables stay as they are. Raises InvalidConfig."""
        self.lakes.detach(given(name, str, "name", "detach()"))

    def close(self) -> None:
        """Close what this session opened, so that its frames answer nothing more. A given Spark session stays open."""
        self.closed = True
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()
        for lake in self._lakes:
            lake.close()
