"""Partitions that a step wants to read and that nobody has written: an error, not an empty frame."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from duckrun.errors import TableNotFound
from duckrun_dagster.io_managers.handlers.handler import TableScan
from duckrun_dagster.partitions.partitions import PartitionSlice

_SHOWN = 10


def refuse_missing(
    scan: TableScan,
    wanted: PartitionSlice,
    materialized: Collection[str],
    predicate: Callable[[PartitionSlice], str],
) -> None:
    """Raise TableNotFound with what exists, if a wanted partition was never materialized and the table has no row of it.

    A partition that was materialized with no rows is there, and empty. One that another program has written is there too,
    which only the table can say: it is asked for those that Dagster knows nothing of.
    """
    unknown = [one for one in wanted.each if one.keys[0] not in materialized]
    rows = {one.keys[0]: replace(scan, partitions=predicate(one)).frame().limit(1).count() for one in unknown}
    missing = [key for key, found in rows.items() if found == 0]
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
