"""Native values of the engines, lazy in both directions: DuckDB's relations, Spark's DataFrames."""

from __future__ import annotations

from typing import Any

import duckdb

from duckrun_dagster.io_managers.handlers.handler import TableScan, TypeHandler


class NativeHandler(TypeHandler[Any]):
    """Handler of values that their engine reads and writes without conversion."""

    def to_source(self, value: Any) -> Any:
        return value

    def from_scan(self, scan: TableScan, as_type: type) -> Any:
        return scan.frame().native

    def is_lazy(self, as_type: type) -> bool:
        return True


class DuckDBHandler(NativeHandler):
    """Handler of relations, from the step's session or any other connection of the process.

    A relation is alive until the step ends.
    """

    engine = "duckdb"

    def handles(self, declared: Any) -> bool:
        return isinstance(declared, type) and issubclass(declared, duckdb.DuckDBPyRelation)


class PySparkHandler(NativeHandler):
    """Handler of Spark's DataFrames, classic and Connect, known by name: imports no pyspark.

    Spark's workers read and write them; they are never collected.
    """

    engine = "spark"

    def handles(self, declared: Any) -> bool:
        return isinstance(declared, type) and any(
            base.__module__.startswith("pyspark.sql.") and base.__name__ == "DataFrame" for base in declared.__mro__
        )
