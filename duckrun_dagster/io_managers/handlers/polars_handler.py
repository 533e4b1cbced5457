"""Polars frames. A LazyFrame stays lazy in both directions."""

from __future__ import annotations

from typing import Any

import polars as pl

from duckrun_dagster.io_managers.handlers.handler import TableScan, TypeHandler


class PolarsHandler(TypeHandler[pl.DataFrame | pl.LazyFrame]):
    """The columns and filters of a LazyFrame that was loaded reach the scan of the files."""

    def to_source(self, value: pl.DataFrame | pl.LazyFrame) -> Any:
        return value

    def from_scan(self, scan: TableScan, as_type: type) -> pl.DataFrame | pl.LazyFrame:
        return scan.frame().pl(lazy=issubclass(as_type, pl.LazyFrame))
