"""Values of single partitions of a table that an input reads.

Partitions that nobody has written are an error, not an empty frame; an optional input is None
instead. Inputs of type ``dict[str, T]`` and ``list[T]`` have one value per partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from duckrun.errors import InvalidConfig, TableNotFound
from duckrun.libraries import pa
from duckrun.run.work_log import unnoted
from duckrun_dagster.io_managers.annotation import Wanted
from duckrun_dagster.io_managers.handlers.handler import TableScan, TypeHandler
from duckrun_dagster.io_managers.handlers.registry import type_name
from duckrun_dagster.partitions.partitions import PartitionSlice

_OTHER_BYTES = 8
"""Least size of a value of variable width, including its offset."""
_GB = 1024**3
_SHOWN = 10


def missing_partitions(
    scan: TableScan,
    wanted: PartitionSlice,
    materialized: Collection[str],
    predicate: Callable[[PartitionSlice], str],
) -> list[str]:
    """Return the wanted partitions that were never materialized and have no row in the table.

    Args:
        scan: The read of the table.
        wanted: The partitions that the step reads.
        materialized: The keys that Dagster knows. A partition that was materialized without rows
            exists.
        predicate: Returns the SQL predicate of partitions.
    """
    # Another program may have written partitions that Dagster does not know; only the table tells.
    unknown = tuple(key for key in wanted.keys if key not in materialized)
    return _without_rows(scan, replace(wanted, keys=unknown), predicate)


def _without_rows(scan: TableScan, some: PartitionSlice, predicate: Callable[[PartitionSlice], str]) -> list[str]:
    """Return the partitions without rows: one query for all, else one for each half."""
    if not some.keys or replace(scan, partitions=predicate(some)).frame().limit(1).count() == 0:
        return list(some.keys)
    if len(some.keys) == 1:
        return []
    middle = len(some.keys) // 2
    halves = (replace(some, keys=some.keys[:middle]), replace(some, keys=some.keys[middle:]))
    return [key for half in halves for key in _without_rows(scan, half, predicate)]


def refuse_missing(scan: TableScan, missing: list[str], materialized: Collection[str]) -> None:
    """Refuse to read missing partitions.

    Raises:
        TableNotFound: A partition is missing; the text lists the existing ones.
    """
    if not missing:
        return
    existing = sorted(materialized)
    known = f"it has {_listed(existing)}" if existing else "none of its partitions was materialized"
    raise TableNotFound(
        f"Table {scan.ref} has no partition {_listed(missing)}; {known}. Materialize what is missing first, or set "
        "metadata 'allow_missing_partitions' of the input to True to read those that there are."
    )


def _listed(keys: list[str]) -> str:
    if len(keys) <= _SHOWN:
        return ", ".join(keys)
    return f"{', '.join(keys[: _SHOWN - 1])}, ... {keys[-1]} ({len(keys)} partitions)"


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
