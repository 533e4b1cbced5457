"""A node's rows on Spark while its write is planned: its query under a temporary name of the node's own session."""

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
from dbt.adapters.duckrun.spark.cursor import rows_of
from dbt.adapters.duckrun.spark.session import SparkNodeSession, spark_errors
from dbt.adapters.events.logging import AdapterLogger
from dbt_common.exceptions import DbtRuntimeError
from sqlglot import exp

from duckrun.changes.cursors import Step
from duckrun.engines.engine import Engine
from duckrun.errors import DuckrunError, SchemaMismatch
from duckrun.frame import Frame
from duckrun.spark import as_utc, name_tables, quote
from duckrun.sql.names import parse_query, quote_identifier
from duckrun.sql.written import loose
from duckrun.statements.reading import Reading
from duckrun.values.snapshot import Snapshot, TableRef

logger = AdapterLogger("Duckrun")

Row = tuple[Any, ...]


class SparkStage:
    """Nothing is computed to stage rows: Spark analyses the node's query, at the versions that this run reads, and so
    refuses what it does not know before anything is written.
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
                f"{self.node.name}: column {intervals[0]!r} is an interval, which Delta cannot store; cast it, for instance to "
                "VARCHAR, or select a number. Nothing was written."
            )
        self.session.temp_views[name.lower()] = query
        casts: dict[str, str] = {}
        if not as_view:
            # As DuckDB stores a column of bare NULLs; Delta has no type for it.
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

    def show_changes(self, asked: Asked, step: Step) -> None:
        with spark_errors(self.node):
            self.session.env.changes.show(asked, step, self.engine, self.session)

    def new_relation(self, target: BaseRelation) -> BaseRelation:
        """A temporary name of the node's session."""
        path = {"database": None, "schema": None, "identifier": f"_duckrun_staging_{uuid.uuid4().hex}"}
        return target.incorporate(path=path, type="table")

    def drop(self, relation: BaseRelation) -> None:
        name = relation.identifier or ""
        self.session.temp_views.pop(name.lower(), None)
        self.engine.forget(name)

    def run_python(self, compiled_code: str, this: str | None) -> None:
        """Run a Python model, with the SparkSession as its ``session``, and as ``spark`` like in a notebook; what it returns
        gets the name that the model's code knows as ``staging``.

        ``dbt.ref`` and ``dbt.source`` give Spark DataFrames, at the versions that this run reads. Tables that the code names as
        ``schema.table`` have their names in the session. ``this``, the SELECT of the
        model's own table where there is one, is a temporary view meanwhile, which ``dbt.this`` is the name of in Spark's SQL.
        """

        def load(relation: str) -> Any:
            with spark_errors(self.node):
                return self.session.sql(f"select * from {relation}").native

        spark = self.session.spark
        self._name_tables(compiled_code)
        module = _module(self.node.name, compiled_code, spark=spark)
        own = f"_duckrun_this_{uuid.uuid4().hex}"
        if this is not None:
            with spark_errors(self.node):
                self.session.sql(this).native.createTempView(own)
            module.this.__repr__ = lambda _: own
        try:
            value = module.model(module.dbtObj(load), spark)
        except DbtRuntimeError:
            raise
        except Exception as error:
            raise DbtRuntimeError(f"{self.node.name}: the model failed with {type(error).__name__}: {error}") from error
        finally:
            spark.catalog.dropTempView(own)
        self.keep(module.staging, value)

    def _name_tables(self, code: str) -> None:
        """Register the schemas and tables of the lake that a model's code names as ``schema.table``."""
        lake = self.session.lake
        schemas = sorted({lake.default_schema, *lake.schemas()}, key=len, reverse=True)
        names = {match[0] for match in re.finditer(rf"\b(?:{'|'.join(map(re.escape, schemas))})\.\w+\b", code)}
        if names and not lake.format.transacts and not lake.read_only:
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
    """What one query reads, and the versions of it by the names of the tables."""

    versions: dict[str, int] = field(default_factory=dict)

    def snapshot(self, ref: TableRef, newest: Snapshot | None = None) -> Snapshot:
        found = super().snapshot(ref, newest)
        self.versions[str(ref)] = found.version
        return found


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
    """Columns with the names of their types in DuckDB, which dbt's macros and contracts speak."""
    with duckdb.connect() as connection:
        relation = connection.from_arrow(schema.empty_table())
        return [(name, str(kind)) for name, kind in zip(schema.names, relation.types, strict=True)]


def spark_type(kind: str) -> str:
    """A type's name in Spark's SQL, from DuckDB's."""
    return exp.DataType.build(kind, dialect="duckdb").sql(dialect="spark")
