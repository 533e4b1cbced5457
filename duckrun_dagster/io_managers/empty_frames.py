"""Frames without rows, whose columns may have no types."""

from __future__ import annotations

from typing import Any

from duckrun.errors import SchemaMismatch
from duckrun.lake.lake import Lake
from duckrun.libraries import pa
from duckrun.values.snapshot import TableRef
from duckrun_dagster.config import TableConfig
from duckrun_dagster.io_managers.handlers.handler import TypeHandler


def _without_rows(source: Any) -> pa.Table | None:
    """Return a frame without rows as Arrow; None if it has rows or is not in memory."""
    polars = type(source).__module__.startswith("polars.") and hasattr(source, "to_arrow")
    if not (polars or isinstance(source, pa.Table)) or len(source):
        return None
    return source.to_arrow() if polars else source


def refuse_untyped(source: Any, handler: TypeHandler[Any], config: TableConfig, what: str) -> None:
    """Raise SchemaMismatch for a first write without rows and without a partition column type."""
    empty = _without_rows(source)
    if empty is None:
        return
    types = {field.name.lower(): field.type for field in empty.schema}
    for named in config.partition_expr.values():
        kind = types.get(named.column.lower())
        if kind is None or handler.is_untyped(kind):
            raise SchemaMismatch(
                f"{what} has no rows, so its partition column {named.column!r} has no type, "
                f"and there is no table {config.schema}.{config.table} yet to take it "
                "from. Give the frame's columns types (pandas: df.astype({'day': 'string'}); polars: schema=…), "
                "or annotate '-> Optional[…]' and return "
                "None where there is nothing to write."
            )


def typed_as_table(source: Any, lake: Lake, ref: TableRef, handler: TypeHandler[Any]) -> Any:
    """Give the untyped columns of a frame without rows the types of the table's columns.

    A frame without columns gets all columns of the table. Other sources are returned unchanged.
    """
    empty = _without_rows(source)
    if empty is None or not lake.exists(ref):
        return source
    if empty.num_columns and not any(handler.is_untyped(kind) for kind in empty.schema.types):
        return source
    table = lake.snapshot(ref).schema
    types = {field.name.lower(): field.type for field in table}
    columns = empty.schema if empty.num_columns else table
    typed_fields = [
        pa.field(each.name, types.get(each.name.lower(), each.type) if handler.is_untyped(each.type) else each.type)
        for each in columns
    ]
    return pa.schema(typed_fields).empty_table()
