"""Decisions about a write that are the same on every engine and format.

A function gets the table and the request as values, and returns its decision or raises.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from duckrun.errors import (
    CommitConflict,
    DuplicateSourceKeys,
    InvalidConfig,
    RowsOutsidePartition,
    repeated_keys,
)
from duckrun.values.snapshot import Snapshot, TableRef

LEFT_AS_IT_IS = "the table exists already, and mode 'ignore' leaves it as it is"
"""Reason of a commit that mode ``ignore`` did not make."""


def leaves_table(mode: str, snapshot: Snapshot) -> bool:
    """True if a write mode leaves an existing table unchanged.

    Raises:
        CommitConflict: The mode writes new tables only.
    """
    if mode == "error":
        raise CommitConflict(
            f"Table {snapshot.ref} exists already, at version {snapshot.version}; mode 'error' writes new tables only.",
            remedy="Add rows by mode 'append' or INSERT INTO; replace them by mode 'overwrite' or CREATE OR REPLACE",
        )
    return mode == "ignore"


def refuse_other_partitions(snapshot: Snapshot, keys: Sequence[str] | None) -> None:
    """Raise InvalidConfig if a write to existing rows asks for other partitions than the table's.

    Args:
        snapshot: The table.
        keys: Requested partition keys; None for those of the table.
    """
    if keys is not None and not snapshot.has_partitions(keys):
        raise InvalidConfig(
            f"Table {snapshot.ref} is partitioned by {', '.join(snapshot.partition_keys) or 'nothing'}, not by "
            f"{', '.join(keys) or 'nothing'}; only mode overwrite changes that."
        )


def clustered_by(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the clustering columns of a table, and the fields within them as ``a.b``."""
    return tuple(".".join(path) for path in snapshot.cluster_by)


def refuse_other_clustering(snapshot: Snapshot, cluster_by: Sequence[str] | None) -> None:
    """Raise InvalidConfig if a write to existing rows asks for another clustering than the table's.

    Args:
        snapshot: The table.
        cluster_by: Requested clustering columns; None for those of the table.
    """
    present = clustered_by(snapshot)
    if cluster_by is not None and not same_names(present, cluster_by):
        raise InvalidConfig(
            f"Table {snapshot.ref} is clustered by {', '.join(present) or 'nothing'}, not by "
            f"{', '.join(cluster_by) or 'nothing'}; mode overwrite changes that, or ALTER TABLE … CLUSTER BY."
        )


def refuse_missing_keys(
    ref: TableRef,
    keys: Sequence[str],
    data: Collection[str],
    table: Collection[str] | None,
    compared: Collection[str] = (),
) -> None:
    """Raise InvalidConfig if the data or the table lacks a key column.

    Args:
        ref: The table.
        keys: Key columns.
        data: Columns of the data.
        table: Columns of the table; None for a new one.
        compared: Keys that are compared with an expression. The table needs no column for them.
    """
    if missing := _missing(keys, data):
        raise InvalidConfig(
            f"Table {ref}: the key {', '.join(missing)} is not a column of the data, which has {', '.join(data)}."
        )
    if table is not None and (unknown := _missing([key for key in keys if key not in compared], table)):
        raise InvalidConfig(f"Table {ref} has no key column {', '.join(unknown)}; it has {', '.join(table)}.")


def repeated_source_keys(
    ref: TableRef, count: int, keys: Sequence[str], examples: Sequence[Sequence[object]]
) -> DuplicateSourceKeys:
    """Error of a merge whose source has keys more than once.

    Args:
        ref: The table.
        count: Number of these keys.
        keys: Key columns.
        examples: Some of these keys, each with the number of its rows.
    """
    return DuplicateSourceKeys(
        f"The source of the merge into table {ref} holds {count} keys more than once: {repeated_keys(keys, examples)}",
        remedy="remove the duplicates, or choose keys that are unique",
    )


def rows_outside(ref: TableRef, count: int, condition: str, examples: str) -> RowsOutsidePartition:
    """Error of a write with rows that violate the condition of the part that it may touch."""
    return RowsOutsidePartition(
        f"Table {ref}: {count} rows lie outside the part being written ({condition}): {examples[:500]}"
    )


def same_names(some: Sequence[str], others: Sequence[str]) -> bool:
    """True if both name the same columns in the same order; SQL ignores letter case."""
    return [name.lower() for name in some] == [name.lower() for name in others]


def spelled(names: Iterable[str], columns: Iterable[str]) -> tuple[str, ...]:
    """Return names as the columns of the same names are spelled; others are unchanged."""
    spelling = {column.lower(): column for column in columns}
    return tuple(spelling.get(name.lower(), name) for name in names)


def _missing(names: Iterable[str], columns: Iterable[str]) -> list[str]:
    present = {column.lower() for column in columns}
    return [name for name in names if name.lower() not in present]
