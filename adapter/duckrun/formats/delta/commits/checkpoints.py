"""Checkpoints that commits and ``checkpoint()`` write, and the cleanup of the log after them."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from functools import partial

import obstore
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from obstore.exceptions import BaseError as ObstoreError

from duckrun.errors import DuckrunError, StorageError, removing
from duckrun.formats.delta.definition.retention import log_retention
from duckrun.formats.delta.log.checkpoints import checkpoint_actions, last_checkpoint, newest_whole
from duckrun.formats.delta.log.entries import ENTRY, LOG
from duckrun.formats.delta.log.lines import lines_at
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.storage.trouble import said, storage_error
from duckrun.values.snapshot import Snapshot, TableRef

log = logging.getLogger(__name__)
_INTERVAL = 10
"""Default number of commits between checkpoints, as in Delta."""
_CHECKSUM = re.compile(rf"{LOG}/(\d{{20}})\.crc$")
_CHECKPOINT = re.compile(rf"{LOG}/(\d{{20}})\.checkpoint\..*(?:parquet|json)$")
_OF_UUID = re.compile(rf"{LOG}/\d{{20}}\.checkpoint\.[0-9a-f-]{{36}}\.(?:parquet|json)$")
_SIDECARS = f"{LOG}/_sidecars/"


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
            is_wanted = before.properties.get("delta.enableExpiredLogCleanup", "true").lower() == "true"
            if is_wanted and _has_expired(tables, now or before):
                _clean(tables, now or before, table)  # Spark and deltalake do so after a checkpoint, too
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
        _run(snapshot, "cleanup_log", partial(_clean, tables, snapshot, tables.handle(snapshot.ref, snapshot.version)))
    return tuple(sorted(before - _log(tables, snapshot.ref)))


def _log(tables: TableAccess, ref: TableRef) -> set[str]:
    return {key["path"] for key in tables.storage.keys(ref.location, LOG)}


def _run(snapshot: Snapshot, mode: str, work: Callable[[], object]) -> None:
    try:
        work()
    except DeltaError as error:
        what = f"{mode} of table {snapshot.ref}"
        raise storage_error(error, what) or StorageError(f"{what}: {said(error)}.") from error


def _expiry(snapshot: Snapshot) -> float:
    """Return the moment before which log files have expired, in milliseconds since 1970."""
    return time.time() * 1000 - log_retention(snapshot)


def _has_expired(tables: TableAccess, snapshot: Snapshot) -> bool:
    """True if the first file of the log has expired."""
    # Names begin with versions, so the first file is the oldest. A listing of all files, and
    # deltalake's search among them, take longer than the checkpoint of a long log.
    first = next(iter(tables.storage.keys(snapshot.ref.location, LOG)), None)
    return first is not None and first["modified"] * 1000 <= _expiry(snapshot)


def _clean(tables: TableAccess, snapshot: Snapshot, table: DeltaTable) -> None:
    """Remove log files older than the retention that no readable version needs."""
    if lines := lines_at(tables.storage, snapshot.ref.location):
        log.warning(
            "table %s: its log is not cleaned up, since branches read older versions: %s",
            snapshot.ref,
            ", ".join(sorted(folder.rpartition("-")[0] for folder in lines)),
        )
        return
    # deltalake removes commits and single-file checkpoints. It leaves the other files that other
    # writers create (Delta protocol, Metadata Cleanup; V2 Checkpoint Table Feature, Sidecar Files).
    table.cleanup_metadata()
    location = snapshot.ref.location
    keys = {key["path"]: key["modified"] * 1000 for key in tables.storage.keys(location, LOG)}
    versions = [int(match[1]) for path in keys if (match := ENTRY.fullmatch(path))]
    oldest = min(versions, default=0)
    young = _expiry(snapshot)
    checkpoints = {path: int(match[1]) for path in keys if (match := _CHECKPOINT.search(path))}
    base, _ = newest_whole(keys, 0, oldest)  # readers replay the oldest commit on top of it
    doomed = [path for path, version in checkpoints.items() if version < base and _OF_UUID.search(path)]
    doomed += [path for path in keys if (match := _CHECKSUM.search(path)) and int(match[1]) < oldest]
    if sidecars := [path for path in keys if path.startswith(_SIDECARS)]:
        remaining = [path for path in checkpoints if path not in doomed]
        actions = checkpoint_actions(tables.storage, snapshot.ref, remaining, "sidecar")
        named = {f"{_SIDECARS}{action['path']}" for action in actions}
        doomed += [path for path in sidecars if path not in named]
    gone = [path for path in doomed if keys[path] < young]
    if gone:
        obstore.delete(tables.storage.store_at(location), gone)
