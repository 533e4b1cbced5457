"""A DB-API cursor for dbt whose statements run on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from dbt.adapters.duckrun.model.node import Node, reading
from dbt.adapters.duckrun.spark.session import SparkNodeSession, spark_errors
from dbt.adapters.duckrun.statements import rows_changed
from dbt_common.exceptions import DbtRuntimeError

from duckrun.frame import Frame

Row = tuple[Any, ...]


class SparkCursor:
    """Cursor with one result: the rows of a query, or one row with the count of changed rows."""

    def __init__(self, session: SparkNodeSession, node: Node) -> None:
        self.session = session
        self.node = node
        self._rows: list[Row] = []
        self._schema: pa.Schema | None = None

    def execute(self, sql: str, bindings: Any = None) -> SparkCursor:
        """Run the statements of a text, in the dialect of the node. Raises DbtRuntimeError."""
        if bindings is not None:
            raise DbtRuntimeError(f"{self.node.name}: Spark takes no parameters; put the values into the statement.")
        self._rows, self._schema = [], None
        with spark_errors(self.node), reading(sql):
            result = self.session.carry_out(sql, self.node.dialect)
            table = result.toArrow() if isinstance(result, Frame) else pa.table({"Count": [rows_changed(result)]})
        self._schema = table.schema
        self._rows = rows_of(table)
        return self

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        """Return name and Arrow type of each column, in DB-API's shape."""
        if self._schema is None:
            return None
        return [(field.name, field.type, None, None, None, None, True) for field in self._schema]

    def fetchall(self) -> list[Row]:
        rows, self._rows = self._rows, []
        return rows

    def fetchmany(self, size: int = 1) -> Sequence[Row]:
        rows, self._rows = self._rows[:size], self._rows[size:]
        return rows

    def fetchone(self) -> Row | None:
        return self._rows.pop(0) if self._rows else None

    def close(self) -> None:
        self._rows = []


def rows_of(table: pa.Table) -> list[Row]:
    """Return the rows of an Arrow table as Python values, by position, since names may repeat."""
    columns = [column.to_pylist() for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else []
