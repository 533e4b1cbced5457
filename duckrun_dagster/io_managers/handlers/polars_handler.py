"""Polars frames, and a Series as a table of one column.

A LazyFrame stays lazy in both directions.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from duckrun.errors import SchemaMismatch
from duckrun_dagster.io_managers.handlers.handler import TableScan, TypeHandler


class PolarsHandler(TypeHandler[pl.DataFrame | pl.LazyFrame | pl.Series]):
    """Handler of Polars frames; columns and filters of a loaded LazyFrame reach the file scan."""

    def to_source(self, value: pl.DataFrame | pl.LazyFrame | pl.Series) -> Any:
        if not isinstance(value, pl.Series):
            return value
        if not value.name:
            raise SchemaMismatch(
                "a polars Series without a name has no column to be stored in; name it: series.alias('amount')"
            )
        return value.to_frame()

    def from_scan(self, scan: TableScan, as_type: type) -> pl.DataFrame | pl.LazyFrame | pl.Series:
        if issubclass(as_type, pl.Series):
            return scan.one_column("polars.Series").pl().lazy().collect().to_series()
        return scan.frame().pl(lazy=issubclass(as_type, pl.LazyFrame))

    def nothing(self, as_type: type) -> pl.DataFrame | pl.LazyFrame | pl.Series:
        return as_type()

    def is_lazy(self, as_type: type) -> bool:
        return issubclass(as_type, pl.LazyFrame)
