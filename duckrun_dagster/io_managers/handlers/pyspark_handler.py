"""PySpark DataFrames, classic or Connect: read and written by Spark's workers, never collected."""

from __future__ import annotations

from typing import Any

from duckrun_dagster.io_managers.handlers.handler import TableScan, TypeHandler


class PySparkHandler(TypeHandler[Any]):
    """Handler of Spark's DataFrames, classic and Connect, known by name: imports no pyspark."""

    engine = "spark"

    def handles(self, declared: Any) -> bool:
        return isinstance(declared, type) and any(
            base.__module__.startswith("pyspark.sql.") and base.__name__ == "DataFrame" for base in declared.__mro__
        )

    def to_source(self, value: Any) -> Any:
        return value

    def from_scan(self, scan: TableScan, as_type: type) -> Any:
        return scan.frame().native

    def is_lazy(self, as_type: type) -> bool:
        return True
