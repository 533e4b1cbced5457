"""connect(): the lake in a notebook, a script or a Python asset."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from duckrun.delta_table import Table
from duckrun.engines.duckdb import DuckDBEngine
from duckrun.engines.duckdb_source import SQL
from duckrun.engines.engine import Engine
from duckrun.errors import InvalidConfig, TableNotFound
from duckrun.frame import Frame
from duckrun.lake import Lake, TableRef, ViewDefinition
from duckrun.memory import Arbiter
from duckrun.pins import Pins
from duckrun.specs import Commit, EngineName, ReadSpec, Spec, StagedFile, WriteSpec
from duckrun.sql import parse_query, replace_tables
from duckrun.table import Scan, Snapshot
from duckrun.transaction import Transaction

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
) -> Session:
    """Open a lake: a folder, or an ``s3://``, ``az://``, ``abfss://`` or ``gs://`` URL.

    Nothing is read before a statement needs it. Raises InvalidConfig for an unknown engine or an empty root,
    StorageError for a root that cannot be used.

    Example::

        with duckrun.connect("lake/") as s:
            s.sql("select count(*) from main.flights").show()
    """
    lake = Lake(root_path, schema=schema, storage_options=storage_options, read_only=read_only)
    if engine not in _ENGINES:
        raise InvalidConfig(f"Unknown engine {engine!r}; the engines are {', '.join(_ENGINES)}.")
    arbiter = Arbiter(memory_limit, memory_fraction)
    return Session(lake, engine=engine, spark=spark, arbiter=arbiter, pins=pins)


class Session:
    """One lake, one engine by default, and the versions that this session reads.

    Every statement reads each table at one version. A session follows the lake: a table is pinned again for each
    statement, unless ``pins`` was given (a dbt invocation, a Dagster step), which then hold for the whole session.
    """

    def __init__(
        self,
        lake: Lake,
        *,
        engine: EngineName = "duckdb",
        spark: SparkSession | None = None,
        arbiter: Arbiter | None = None,
        pins: Pins | None = None,
    ) -> None:
        self.lake = lake
        self.arbiter = arbiter or Arbiter()
        self.engine_name: EngineName = engine
        self._spark = spark
        self._engines: dict[str, Engine] = {}
        self._pins = pins

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({self.lake.root!r}, engine={self.engine_name!r})"

    @property
    def pins(self) -> Pins:
        """The pins of the next statement: those of the run, or fresh ones."""
        return self._pins if self._pins is not None else Pins(self.lake.snapshot)

    @property
    def engine(self) -> Engine:
        """The session's own engine."""
        return self.engine_of(self.engine_name)

    def engine_of(self, name: EngineName) -> Engine:
        """An engine by name; made at first use, so that Spark starts only for what needs it."""
        if name not in self._engines:
            if name not in _ENGINES:
                raise InvalidConfig(f"Unknown engine {name!r}; the engines are {', '.join(_ENGINES)}.")
            if name == "spark":
                from duckrun.engines.spark import SparkEngine, spark_session

                self._engines[name] = SparkEngine(self.lake, self._spark or spark_session(storage=self.lake.storage))
            else:
                self._engines[name] = DuckDBEngine(self.lake, arbiter=self.arbiter)
        return self._engines[name]

    # -- reading

    def sql(self, query: str, *, dialect: str = "duckdb") -> Frame:
        """The rows of a SELECT over the lake's tables and views, by ``name`` or ``schema.name``: lazy.

        Raises TableNotFound with the nearest names, InvalidConfig for text that is no SQL.
        """
        tree = parse_query(query, dialect)
        pins = self.pins
        tables: dict[str, Snapshot] = {}
        for _ in range(16):
            views = self._resolve(tree, pins, tables)
            if not views:
                break
            tree = replace_tables(tree, _by_name(views))
        else:
            raise InvalidConfig("The views of this statement read each other in a circle.")
        return self.engine.query(tree.sql(dialect=dialect), tables, dialect)

    def _resolve(self, tree: exp.Expr, pins: Pins, tables: dict[str, Snapshot]) -> dict[str, exp.Expr]:
        """Pin the tables that a tree names; give the views that it names as subqueries."""
        views: dict[str, exp.Expr] = {}

        def visit(table: exp.Table) -> None:
            name = _dotted(table)
            if name in tables or name in views or self.engine.has_name(name):
                return None
            if table.catalog and table.catalog not in self._catalogs(table):
                raise TableNotFound(f"There is no lake {table.catalog!r} in this session ({name}).")
            ref = self._find(table.db or self.lake.default_schema, table.name)
            definition = self.lake.definition(ref)
            if isinstance(definition, ViewDefinition):
                inner = parse_query(definition.sql, definition.dialect)
                views[name] = exp.Subquery(this=_qualified(inner, ref.schema))
            else:
                tables[name] = pins.snapshot(ref)
            return None

        replace_tables(tree, visit)
        return views

    def _catalogs(self, table: exp.Table) -> set[str]:
        return {"memory", "lake", table.catalog}

    def _find(self, schema: str, name: str) -> TableRef:
        """A table by its exact name, else by the only one that differs in case."""
        ref = self.lake.resolve(schema, name)
        if self.lake.exists(ref) or self.lake.definition(ref) is not None:
            return ref
        schemas = [s for s in self.lake.schemas() if s.lower() == schema.lower()]
        same = [
            (s, n) for s in schemas for n in (*self.lake.tables(s), *self.lake.views(s)) if n.lower() == name.lower()
        ]
        return self.lake.resolve(*same[0]) if len(same) == 1 else ref

    def table(self, name: str | TableRef) -> Table:
        """A table by ``schema.name``, with its history and older versions. Raises TableNotFound."""
        ref = self._ref(name)
        if not self.lake.exists(ref):
            self.lake.snapshot(ref)
        return Table(self, ref)

    def tables(self) -> list[str]:
        """The tables and views of the lake, as ``schema.name``. No log is opened."""
        return [f"{s}.{n}" for s in self.lake.schemas() for n in sorted({*self.lake.tables(s), *self.lake.views(s)})]

    def scan(self, name: str | TableRef, spec: ReadSpec | None = None, *, engine: EngineName | None = None) -> Frame:
        """Some columns and rows of one table, at the pinned version or the one that the spec names: lazy."""
        ref, spec = self._ref(name), spec or ReadSpec()
        return self.engine_of(engine or self.engine_name).scan(self.snapshot(ref, spec), spec)

    def snapshot(self, name: str | TableRef, spec: ReadSpec | None = None) -> Snapshot:
        """The snapshot that a read of this session uses."""
        ref = self._ref(name)
        if spec is not None and (spec.version is not None or spec.timestamp is not None):
            return self.lake.snapshot(ref, spec.version, spec.timestamp)
        return self.pins.snapshot(ref)

    def open(self, scan: Scan) -> Frame:
        """The rows of a scan, which may be one part of a table's files and come from another process."""
        return self.engine.open(scan)

    # -- writing

    def execute(
        self,
        name: str | TableRef,
        spec: Spec,
        source: Any | None = None,
        *,
        engine: EngineName | None = None,
    ) -> Commit:
        """Carry out one spec on a table, as one commit.

        ``source`` is a pyarrow Table or RecordBatchReader, a pandas or polars frame (lazy too), a DuckDB relation, a
        Frame, a Spark DataFrame, or duckrun.SQL. A Spark DataFrame is written by Spark whatever the session's engine.
        """
        ref = self._ref(name)
        self.lake.ensure_writable(ref)
        chosen = self._writing_engine(engine or self.engine_name, source, ref)
        if isinstance(source, SQL):
            source = self._selected(source, chosen)
        transaction = Transaction(self.lake, ref, app=spec.app, pins=self._pins)
        return chosen.execute(spec, source, transaction)

    def stage(
        self, name: str | TableRef, source: Any, *, partition_by: Sequence[str] | None = None
    ) -> tuple[StagedFile, ...]:
        """Write a part of a commit to come: files that no reader sees before commit_staged(). They survive pickle and
        JSON, so that N processes stage and one commits.
        """
        ref = self._ref(name)
        self.lake.ensure_writable(ref)
        if isinstance(source, SQL):
            source = self._selected(source, self._embedded)
        return self._embedded.stage(source, Transaction(self.lake, ref), partition_by)

    def commit_staged(self, name: str | TableRef, files: Sequence[StagedFile], spec: WriteSpec) -> Commit:
        """Make staged files visible in one commit (append, overwrite, or error for a new table)."""
        transaction = Transaction(self.lake, self._ref(name), app=spec.app, pins=self._pins)
        return self._embedded.commit_staged(files, spec, transaction)

    @property
    def _embedded(self) -> DuckDBEngine:
        engine = self.engine_of("duckdb")
        assert isinstance(engine, DuckDBEngine)
        return engine

    def _writing_engine(self, name: EngineName, source: Any, ref: TableRef) -> Engine:
        if _is_spark(source):
            if self._spark is None and "spark" not in self._engines and name != "spark":
                raise InvalidConfig(
                    f"Table {ref}: a Spark DataFrame is written by Spark, and this session has none; "
                    "pass spark=… to connect(), or a SparkResource to the IO manager."
                )
            return self.engine_of("spark")
        return self.engine_of(name)

    def _selected(self, source: SQL, engine: Engine) -> Frame:
        own = Session(self.lake, engine=engine.name, pins=self._pins, arbiter=self.arbiter, spark=self._spark)  # type: ignore[arg-type]
        own._engines = self._engines
        return own.sql(source.text, dialect=source.dialect or "duckdb")

    def schema_of(self, source: Any, *, engine: EngineName | None = None) -> pa.Schema:
        """The Arrow schema with which a value would be stored; a stream is not consumed."""
        chosen = self.engine_of("spark") if _is_spark(source) else self.engine_of(engine or self.engine_name)
        if isinstance(source, SQL):
            return self._selected(source, chosen).schema
        return chosen.schema_of(source)

    def register(self, name: str, frame: Any) -> None:
        """Give a frame or any tabular value a name that statements of this session can read."""
        self.engine.register(name, frame)

    def _ref(self, name: str | TableRef) -> TableRef:
        return name if isinstance(name, TableRef) else self.lake.parse(name)

    def close(self) -> None:
        """Close what this session opened. A Spark session that was handed in stays open."""
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()


def _by_name(views: Mapping[str, exp.Expr]) -> Callable[[exp.Table], exp.Expr | None]:
    def resolve(table: exp.Table) -> exp.Expr | None:
        found = views.get(_dotted(table))
        return None if found is None else found.copy()

    return resolve


def _dotted(table: exp.Table) -> str:
    return ".".join(part for part in (table.catalog, table.db, table.name) if part)


def _qualified(tree: exp.Expr, schema: str) -> exp.Expr:
    """A view's query with its bare table names in the view's own schema."""

    def qualify(table: exp.Table) -> exp.Expr | None:
        if table.db:
            return None
        return exp.table_(table.name, db=schema, quoted=True)

    return replace_tables(tree, qualify)


def _is_spark(value: Any) -> bool:
    if isinstance(value, Frame):
        return value.engine == "spark"
    return type(value).__module__.startswith("pyspark.sql") and type(value).__name__ == "DataFrame"
