"""Staging of a node's rows on Spark: its query under a temporary name of the node's session."""

from __future__ import annotations

import importlib.util
import re
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from dbt.adapters.base import BaseRelation
from dbt.adapters.duckrun.materialize.changed import Asked
from dbt.adapters.duckrun.model.node import Node
from dbt.adapters.duckrun.spark.session import Row, SparkNodeSession, rows_of, spark_errors
from dbt.adapters.events.logging import AdapterLogger
from dbt_common.exceptions import DbtRuntimeError
from sqlglot import exp

from duckrun.changes.cursors import Step
from duckrun.engines.engine import Engine
from duckrun.errors import DuckrunError, SchemaMismatch
from duckrun.frame import Frame
from duckrun.spark import as_utc, name_tables, quote
from duckrun.sql.names import parse_query
from duckrun.sql.pieces import loose
from duckrun.sql.quoting import quote_identifier
from duckrun.statements.reading import Reading
from duckrun.values.snapshot import Snapshot, TableRef

logger = AdapterLogger("Duckrun")


class SparkStage:
    """Staging without computing rows: Spark analyses the node's query at the pinned versions.

    So Spark refuses unknown names before anything is written.
    """

    def __init__(self, session: SparkNodeSession, node: Node) -> None:
        self.session, self.node = session, node

    @property
    def dialect(self) -> str:
        return self.node.dialect

    @property
    def engine(self) -> Engine:
        return self.session.engine

    def header(self, sql: str) -> None:
        with spark_errors(self.node):
            self.session.carry_out(sql, self.dialect)

    @contextmanager
    def holding(self, name: str, sql: str, *, as_view: bool = False, naive_as_utc: bool = False) -> Iterator[None]:
        with spark_errors(self.node):
            query: Any = parse_query(sql, self.dialect)
            fields = self._reading().frame(query).native.schema.fields
        intervals = [f.name for f in fields if "interval" in f.dataType.typeName()]
        if intervals and not as_view:
            raise SchemaMismatch(
                f"{self.node.name}: column {intervals[0]!r} is an interval, which Delta cannot store; cast it, "
                "for instance to VARCHAR, or select a number"
            )
        self.session.temp_views[name.lower()] = query
        casts: dict[str, str] = {}
        if not as_view:
            # A column of bare NULLs becomes INT, as in DuckDB; Delta has no type for it.
            casts = {f.name: f"CAST({quote(f.name)} AS INT)" for f in fields if f.dataType.typeName() == "void"}
        if naive_as_utc:
            instants = {f.name: as_utc(quote(f.name), f.dataType) for f in fields}
            casts |= {column: sql for column, sql in instants.items() if sql is not None}
        if casts:
            columns = ", ".join(f"{casts.get(f.name, quote(f.name))} AS {quote(f.name)}" for f in fields)
            outer: Any = loose(parse_query(f"SELECT {columns}", "spark"))
            alias = exp.TableAlias(this=exp.to_identifier("staged"))
            self.session.temp_views[name.lower()] = outer.from_(exp.Subquery(this=query, alias=alias))
        try:
            yield
        finally:
            self.session.temp_views.pop(name.lower(), None)

    def columns(self, name: str) -> list[tuple[str, str]]:
        return duckdb_types(self._query(f"select * from {quote_identifier(name)}").schema)

    def rows(self, query: str) -> list[Row]:
        with spark_errors(self.node):
            return rows_of(self._query(query).toArrow())

    def source(self, query: str) -> Frame:
        return self._query(query)

    def reads(self, sql: str) -> dict[str, int]:
        reading = self._reading()
        with spark_errors(self.node):
            reading.pinned(parse_query(sql, self.dialect))
        return reading.versions

    def keep(self, name: str, value: Any) -> None:
        """Give any tabular value a temporary name."""
        with spark_errors(self.node):
            self.session.register(name, value)

    def show_changes(self, request: Asked, step: Step) -> str:
        self.keep(request.name, self.session.env.changes.rows(request, step, self.engine))
        return request.name

    def new_relation(self, target: BaseRelation) -> BaseRelation:
        """Return a temporary name of the node's session."""
        path = {"database": None, "schema": None, "identifier": f"_duckrun_staging_{uuid.uuid4().hex}"}
        return target.incorporate(path=path, type="table")

    def drop(self, relation: BaseRelation) -> None:
        name = relation.identifier or ""
        self.session.temp_views.pop(name.lower(), None)
        self.engine.forget(name)

    def run_python(self, compiled_code: str, this: str | None) -> None:
        """Run a Python model with the SparkSession as its ``session``.

        The session is also ``spark``, as in a notebook.

        The model's result gets the name that the model's code knows as ``staging``. ``dbt.ref`` and
        ``dbt.source`` return Spark DataFrames at the versions that this run reads. Tables that the
        code names as ``schema.table`` have their names in the session.

        Args:
            compiled_code: The code that dbt has compiled.
            this: The SELECT of the model's own table, if it exists. It becomes a temporary view for
                the run, and ``dbt.this`` renders the view's name.
        """

        def load(relation: str) -> Any:
            with spark_errors(self.node):
                return self.session.sql(f"select * from {relation}").native

        spark = self.session.spark
        self._name_tables(compiled_code)
        module = _module(self.node.name, compiled_code, spark=spark)
        this_view = f"_duckrun_this_{uuid.uuid4().hex}"
        if this is not None:
            with spark_errors(self.node):
                self.session.sql(this).native.createTempView(this_view)
            module.this.__repr__ = lambda _: this_view
        try:
            value = module.model(module.dbtObj(load), spark)
        except DbtRuntimeError:
            raise
        except Exception as error:
            raise DbtRuntimeError(f"{self.node.name}: the model failed with {type(error).__name__}: {error}") from error
        finally:
            spark.catalog.dropTempView(this_view)
        self.keep(module.staging, value)

    def _name_tables(self, code: str) -> None:
        """Register the schemas and tables of the lake that the code names as ``schema.table``."""
        lake = self.session.lake
        schemas = sorted({lake.default_schema, *lake.schemas()}, key=len, reverse=True)
        names = {match[0] for match in re.finditer(rf"\b(?:{'|'.join(map(re.escape, schemas))})\.\w+\b", code)}
        if names and not lake.has_catalog and not lake.read_only:
            try:
                name_tables(self.session.spark, lake, sorted(names), limit=0)
            except DuckrunError as error:
                logger.info(f"{self.node.name}: tables have no names in Spark: {error}")

    def _query(self, sql: str) -> Frame:
        with spark_errors(self.node):
            return self.session.own(self._reading().frame(parse_query(sql, "duckdb")))

    def _reading(self) -> _NotedReading:
        session = self.session
        return _NotedReading(session.lakes, session.engine, session.pins, session.temp_views)


@dataclass
class _NotedReading(Reading):
    """The reading of one query, which records the versions by the names of the tables."""

    versions: dict[str, int] = field(default_factory=dict)

    def snapshot(self, ref: TableRef, newest: Snapshot | None = None) -> Snapshot:
        pinned = super().snapshot(ref, newest)
        self.versions[str(ref)] = pinned.version
        return pinned


def _module(name: str, code: str, **names: Any) -> Any:
    with tempfile.TemporaryDirectory(prefix="duckrun-dbt-") as folder:
        path = Path(folder) / "model.py"
        path.write_text(code.lstrip(), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None, "a .py file has a loader"
        module = importlib.util.module_from_spec(spec)
        vars(module).update(names)
        spec.loader.exec_module(module)
        return module


def duckdb_types(schema: pa.Schema) -> list[tuple[str, str]]:
    """Return columns with their DuckDB types, which dbt's macros and contracts use."""
    with duckdb.connect() as connection:
        relation = connection.from_arrow(schema.empty_table())
        return [(name, str(kind)) for name, kind in zip(schema.names, relation.types, strict=True)]


def spark_type(kind: str) -> str:
    """Return the Spark name of a DuckDB type."""
    return exp.DataType.build(kind, dialect="duckdb").sql(dialect="spark")
