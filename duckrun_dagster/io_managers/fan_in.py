"""One value per partition, for inputs of type ``dict[str, T]`` and ``list[T]``."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from duckrun.errors import InvalidConfig
from duckrun.libraries import pa
from duckrun.run.work_log import unnoted
from duckrun_dagster.io_managers.annotation import Wanted
from duckrun_dagster.io_managers.handlers.handler import TableScan, TypeHandler
from duckrun_dagster.io_managers.handlers.registry import type_name
from duckrun_dagster.partitions.partitions import PartitionSlice

_OTHER_BYTES = 8
"""Least size of a value of variable width, including its offset."""
_GB = 1024**3


def fan_in(
    scan: TableScan,
    partitions: PartitionSlice,
    missing: Collection[str],
    predicate: Callable[[PartitionSlice], str],
    wanted: Wanted,
    handler: TypeHandler[Any],
) -> dict[str, Any] | list[Any]:
    """Return a value for each of the partitions, in the order of their keys.

    Args:
        scan: The read of the table.
        partitions: The partitions to load.
        missing: Keys without data: None in the result, or left out if a partition may not be None.
        predicate: Returns the SQL predicate of partitions.
        wanted: The annotation of the input.
        handler: The handler of the type.

    Raises:
        InvalidConfig: The values would not fit into memory; raised before anything is loaded.
    """
    there = tuple(key for key in partitions.keys if key not in missing)
    if there and not handler.is_lazy(wanted.as_type):
        _refuse_too_large(
            replace(scan, partitions=predicate(PartitionSlice(partitions.definition, there))), len(there), wanted
        )
    entries: dict[str, Any] = {}
    for key in partitions.keys:
        if key not in missing:
            one = PartitionSlice(partitions.definition, (key,))
            entries[str(key)] = handler.from_scan(replace(scan, partitions=predicate(one)), wanted.as_type)
        elif wanted.optional_each:
            entries[str(key)] = None
    return entries if wanted.collection is dict else list(entries.values())


def _refuse_too_large(scan: TableScan, partitions: int, wanted: Wanted) -> None:
    with unnoted():
        frame = scan.frame()
        width = sum(_width(field.type) for field in frame.schema)
        rows = frame.count()
    limit = scan.session.arbiter.limit()
    if rows * width <= limit:
        return
    raise InvalidConfig(
        f"{partitions} partitions of table {scan.ref} have {rows:,} rows, "
        f"which take at least {rows * width / _GB:,.2f} GB as "
        f"{type_name(wanted.as_type)}; this process may use {limit / _GB:,.2f} GB. Ask for a lazy type, such as "
        f"{wanted.collection.__name__ if wanted.collection else 'list'}[…] of polars.LazyFrame or "
        "pyarrow.RecordBatchReader, or name "
        "the 'columns' that are needed, or a 'predicate', in the metadata of the input."
    )


def _width(kind: pa.DataType) -> float:
    try:
        return kind.bit_width / 8
    except ValueError:
        return _OTHER_BYTES
