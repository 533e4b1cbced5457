"""DuckDB relations: lazy in both directions, and alive until the step ends."""

from __future__ import annotations

from typing import Any

import duckdb

from duckrun_dagster.io_managers.handlers.handler import TableScan, TypeHandler


class DuckDBHandler(TypeHandler[duckdb.DuckDBPyRelation]):
    """Handler of relations, from the step's session or any other connection of the process."""

    engine = "duckdb"

    def to_source(self, value: duckdb.DuckDBPyRelation) -> Any:
        return value

    def from_scan(self, scan: TableScan, as_type: type) -> duckdb.DuckDBPyRelation:
        return scan.frame().native

    def is_lazy(self, as_type: type) -> bool:
        return True
