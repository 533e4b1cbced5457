"""Checkpoints that commits and ``checkpoint()`` write, and the cleanup of the log after them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from deltalake.exceptions import DeltaError
from obstore.exceptions import BaseError as ObstoreError

from duckrun.errors import DuckrunError, StorageError, removing
from duckrun.formats.delta.commits.log_cleanup import clean
from duckrun.formats.delta.log.checkpoints import last_checkpoint
from duckrun.formats.delta.log.entries import LOG
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.storage.trouble import said, storage_error
from duckrun.values.snapshot import Snapshot, TableRef

log = logging.getLogger(__name__)
_INTERVAL = 10
"""Default number of commits between checkpoints, as in Delta."""


def checkpoint(tables: TableAccess, snapshot: Snapshot) -> None:
    """Write a checkpoint of a version."""
    _run(snapshot, "checkpoint", tables.handle(snapshot.ref, snapshot.version).create_checkpoint)


def checkpoint_if_due(
    tables: TableAccess, before: Snapshot | None, now: Snapshot | None, ref: TableRef, version: int
) -> None:
    """Write a checkpoint of a version that was just committed, if one is due.

    It is due at the table's interval unless the engine wrote one, or after a long log. Then the log
    is cleaned up unless the table forbids it. A failure is logged, since the commit stands.

    Args:
        now: Snapshot of the version, if known.
    """
    if before is None:
        return
    try:
        interval = int(before.properties.get("delta.checkpointInterval", _INTERVAL))
        if interval <= 0 or not (version % interval == 0 or before.long_log):
            return
        last = last_checkpoint(tables.storage, ref.location)
        if last < version and (version % interval == 0 or version - last >= interval):
            table = tables.handle(ref, version) if now is None else tables.handle_of(now)
            _run(now or before, "checkpoint", table.create_checkpoint)
            if before.properties.get("delta.enableExpiredLogCleanup", "true").lower() == "true":
                clean(tables, now or before, table)  # Spark and deltalake do so after a checkpoint, too
    except (DuckrunError, DeltaError, ObstoreError, OSError, ValueError) as error:
        log.warning("table %s: version %s is committed, but has no checkpoint: %s", ref, version, error)


def changes_partitions(before: Snapshot, after: Snapshot) -> bool:
    """True if a table had partition columns that now differ in name or type."""
    columns = [(name, before.schema.field(name).type) for name in before.partition_columns]
    return bool(columns) and columns != [(name, after.schema.field(name).type) for name in after.partition_columns]


def checkpoint_partitions(tables: TableAccess, snapshot: Snapshot) -> None:
    """Write a checkpoint of a version whose partition columns differ from older commits.

    A failure is logged, since the commit stands.
    """
    # Delta Kernel, and so DuckDB, also reads the partition values of removed files in the table's
    # new types. Without a checkpoint it fails at a value of the old type.
    try:
        checkpoint(tables, snapshot)
    except (DuckrunError, DeltaError, ObstoreError, OSError) as error:
        log.warning(
            "table %s: version %s changed the partition columns, and its checkpoint could not be written: %s. DuckDB "
            "cannot read the table until it has one: session.table('%s').checkpoint().",
            snapshot.ref,
            snapshot.version,
            error,
            snapshot.ref,
        )


def cleanup_log(tables: TableAccess, snapshot: Snapshot) -> tuple[str, ...]:
    """Remove log files that have expired and that a checkpoint covers; return their paths."""
    before = _log(tables, snapshot.ref)
    with removing():
        _run(snapshot, "cleanup_log", partial(clean, tables, snapshot, tables.handle(snapshot.ref, snapshot.version)))
    return tuple(sorted(before - _log(tables, snapshot.ref)))


def _log(tables: TableAccess, ref: TableRef) -> set[str]:
    return {key["path"] for key in tables.storage.keys(ref.location, LOG)}


def _run(snapshot: Snapshot, mode: str, work: Callable[[], object]) -> None:
    try:
        work()
    except DeltaError as error:
        what = f"{mode} of table {snapshot.ref}"
        raise storage_error(error, what) or StorageError(f"{what}: {said(error)}.") from error
