"""Rows as a list of dictionaries."""

from __future__ import annotations

from typing import Any, get_args, get_origin

import pyarrow as pa

from duckrun.engines.tabular.python_values import array_of
from duckrun.errors import SchemaMismatch
from duckrun_dagster.io_managers.annotation import is_row
from duckrun_dagster.io_managers.handlers.handler import TableScan, TypeHandler


class RowsHandler(TypeHandler[list[Any]]):
    """Handler of rows. Each key of any row is a column, NULL in rows without it."""

    def handles(self, declared: Any) -> bool:
        return declared is list or (get_origin(declared) is list and is_row((*get_args(declared), Any)[0]))

    def to_source(self, value: list[Any]) -> Any:
        other = next((place for place, row in enumerate(value) if not isinstance(row, dict)), None)
        if other is not None:
            raise SchemaMismatch(
                "a list is rows, each a dictionary by the names of columns, "
                f"and its item {other} is a {type(value[other]).__name__}"
            )
        names = dict.fromkeys(str(key) for row in value for key in row)
        columns = {name: array_of([row.get(name) for row in value], f"column {name!r} of the rows") for name in names}
        try:
            return pa.table(columns)
        except UnicodeEncodeError as error:
            raise SchemaMismatch(f"the rows have a column whose name is no text: {error}") from error

    def from_scan(self, scan: TableScan, as_type: Any) -> list[Any]:
        return scan.frame().toArrow().to_pylist()

    def nothing(self, as_type: Any) -> list[Any]:
        return []
