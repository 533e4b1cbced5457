"""``duckrun.SQL`` as an asset's value: the engine runs the query and writes the result; no row passes through Python."""

from __future__ import annotations

from typing import Any

from duckrun import SQL
from duckrun.errors import InvalidConfig
from duckrun.frame import Frame
from duckrun_dagster.io_managers.handler import TypeHandler


class SQLHandler(TypeHandler[SQL]):
    """A query is a value to write; what it wrote is read as any other type."""

    def to_source(self, value: SQL) -> Any:
        return value

    def from_scan(self, frame: Frame, as_type: type) -> SQL:
        raise InvalidConfig(
            "A table is not loaded as duckrun.SQL. Name the table in the query itself (and the asset in deps=[...]), "
            "or ask for a frame: pyarrow.Table, pandas.DataFrame, polars.LazyFrame, duckdb.DuckDBPyRelation."
        )
