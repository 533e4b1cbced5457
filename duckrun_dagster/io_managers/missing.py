"""Partitions that a step reads and that nobody has written.

They are an error, not an empty frame; an optional input is None instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from duckrun.errors import TableNotFound
from duckrun_dagster.io_managers.handlers.handler import TableScan
from duckrun_dagster.partitions.partitions import PartitionSlice

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
