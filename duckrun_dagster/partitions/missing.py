"""Partitions that a step wants to read and that nobody has written: an error, not an empty frame; None where that was asked for."""

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
    """The wanted partitions that were never materialized and of which the table has no row.

    A partition that was materialized with no rows is there, and empty. One that another program has written is there too,
    which only the table can say: it is asked for those that Dagster knows nothing of.
    """
    unknown = tuple(key for key in wanted.keys if key not in materialized)
    return _without_rows(scan, replace(wanted, keys=unknown), predicate)


def _without_rows(scan: TableScan, some: PartitionSlice, predicate: Callable[[PartitionSlice], str]) -> list[str]:
    """Those of some partitions that have no row: all of them by one question, or else each half by its own."""
    if not some.keys or replace(scan, partitions=predicate(some)).frame().limit(1).count() == 0:
        return list(some.keys)
    if len(some.keys) == 1:
        return []
    middle = len(some.keys) // 2
    halves = (replace(some, keys=some.keys[:middle]), replace(some, keys=some.keys[middle:]))
    return [key for half in halves for key in _without_rows(scan, half, predicate)]


def refuse_missing(scan: TableScan, missing: list[str], materialized: Collection[str]) -> None:
    """Raise TableNotFound with what exists, if anything is missing."""
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
