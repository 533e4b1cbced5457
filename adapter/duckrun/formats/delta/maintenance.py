"""Table maintenance without an engine: checkpoint, log cleanup, drop, rename, convert Parquet."""

from __future__ import annotations

import json
import logging
import shutil
import uuid
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from deltalake import Schema, convert_to_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from obstore.exceptions import BaseError as ObstoreError

from duckrun.errors import CommitConflict, DuckrunError, InvalidConfig, StorageError, UnsupportedFeature, removing
from duckrun.formats.commits import CommitTaken
from duckrun.formats.delta import types
from duckrun.formats.delta.log import LOG, commit_properties, new_txn_id
from duckrun.formats.delta.log_cleanup import clean
from duckrun.formats.delta.long_logs import last_checkpoint
from duckrun.formats.delta.table_access import TableAccess
from duckrun.libraries import pa, pq
from duckrun.storage.locks import lock_path, table_lock
from duckrun.storage.trouble import said, storage_error
from duckrun.values.data_files import is_absolute
from duckrun.values.data_paths import decoded
from duckrun.values.names import DROPPED
from duckrun.values.rows import AppTransaction
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.tables import ConvertSpec

log = logging.getLogger(__name__)

_PARTITION = "="
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


def drop(tables: TableAccess, ref: TableRef) -> None:
    """Remove a table's folder; a missing table is fine. Readers see the whole table or none."""
    if tables.storage.is_local:
        # One rename takes the folder out of sight before its removal. Later drops also remove the
        # remains of drops that were killed in between.
        folder = Path(ref.location)
        if folder.is_dir():
            with table_lock(ref, True), suppress(FileNotFoundError):
                folder.rename(folder.with_name(f"{DROPPED}{uuid.uuid4().hex}"))
        for doomed in folder.parent.glob(f"{DROPPED}*"):
            shutil.rmtree(doomed, ignore_errors=True)  # another drop may be removing it too
        return
    paths = [key["path"] for key in tables.storage.keys(ref.location)]
    log = [path for path in paths if path.startswith(f"{LOG}/")]
    data = [path for path in paths if not path.startswith(f"{LOG}/")]
    with removing():  # without the log there is no table, so it goes first
        tables.storage.remove_files(ref.location, log)
        tables.storage.remove_files(ref.location, data)


def rename(tables: TableAccess, ref: TableRef, new: TableRef) -> None:
    """Rename a table's folder, in one rename under the locks of both names.

    Raises:
        UnsupportedFeature: The lake is in an object store, or the log has absolute paths of the
            table's own files.
        InvalidConfig: The new folder is not empty.
        StorageError: The rename fails.
    """
    instead = f"CREATE TABLE {new} AS SELECT * FROM {ref}, then DROP TABLE {ref}; its history ends with it."
    if not tables.storage.is_local:
        raise UnsupportedFeature(
            f"{ref} cannot be renamed to {new}: an object store has no rename of a folder. {instead}"
        )
    folder, other = Path(ref.location), Path(new.location)
    with ExitStack() as locks:
        # A fixed order, so that two renames cannot deadlock.
        for each in sorted((ref, new), key=lambda each: str(lock_path(each))):
            locks.enter_context(table_lock(each, True))
        snapshot = tables.snapshot(ref)
        absolute = next(
            (
                file.path
                for file in snapshot.files()
                if is_absolute(file.path) and folder.as_posix() in decoded(file.path)
            ),
            None,
        )
        if absolute is not None:
            raise UnsupportedFeature(
                f"{ref} cannot be renamed to {new}: its log names {absolute} by its whole path. {instead}"
            )
        if other.is_dir() and any(other.iterdir()):
            raise InvalidConfig(
                f"{ref} cannot be renamed to {new}: {other} holds files. Move them, or choose another name."
            )
        other.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.rename(other)
        except OSError as error:
            raise StorageError(f"{ref} cannot be renamed to {new}: {said(error)}") from error


def cleanup_log(tables: TableAccess, snapshot: Snapshot) -> tuple[str, ...]:
    """Remove log files that have expired and that a checkpoint covers; return their paths."""
    before = _log(tables, snapshot.ref)
    with removing():
        _run(snapshot, "cleanup_log", partial(clean, tables, snapshot, tables.handle(snapshot.ref, snapshot.version)))
    return tuple(sorted(before - _log(tables, snapshot.ref)))


def _log(tables: TableAccess, ref: TableRef) -> set[str]:
    return {key["path"] for key in tables.storage.keys(ref.location, LOG)}


def _run(snapshot: Snapshot, mode: str, work: Any) -> None:
    try:
        work()
    except DeltaError as error:
        what = f"{mode} of table {snapshot.ref}"
        raise storage_error(error, what) or StorageError(f"{what}: {said(error)}.") from error


def convert(
    tables: TableAccess, ref: TableRef, spec: ConvertSpec, note: dict[str, Any], app: AppTransaction | None
) -> None:
    """Create a table, at version 0, from a folder's Parquet files, which stay unchanged.

    Raises:
        CommitConflict: There is a table already.
        StorageError: The folder has other files, or no Parquet file.
        InvalidConfig: The folders have other partitions.
    """
    if tables.exists(ref):
        raise CommitConflict(f"{ref.location} is a Delta table already, {ref}; there is nothing to convert.")
    paths = _parquet_files(tables, ref)
    _check_partitions(ref, paths, [column.name for column in spec.partition_by])
    smallest = tables.storage.read_at(ref.location, paths[0]) or b""
    try:
        schema = pq.read_schema(pa.BufferReader(smallest))
    except (pa.ArrowInvalid, OSError) as error:
        raise StorageError(
            f"{ref.location} cannot become table {ref}: {paths[0]} is no Parquet file ({error})"
        ) from error
    partitions = [types.field(c.name, types.delta_type(c.type, spec.dialect, c.name)) for c in spec.partition_by]
    txn_id = new_txn_id()
    try:
        convert_to_deltalake(
            ref.url,
            mode="error",
            partition_by=Schema.from_json(json.dumps({"type": "struct", "fields": partitions})) if partitions else None,
            partition_strategy="hive" if partitions else None,
            storage_options=tables.storage.delta_options(),
            # Parquet bounds leave out NaN. Readers that skip files by them would lose rows with
            # NaN.
            collect_stats=not _has_floats(schema),
            commit_properties=commit_properties(app, note, txn_id),
        )
    except (DeltaError, OSError) as error:
        if tables.has_landed(ref, 0, txn_id, error):
            return
        if isinstance(error, CommitFailedError) or tables.exists(ref):
            raise CommitTaken(str(error)) from error
        raise StorageError(f"{ref.location} cannot become table {ref}: {said(error)}") from error


def _parquet_files(tables: TableAccess, ref: TableRef) -> list[str]:
    """Return the folder's Parquet files, the smallest first."""
    keys = sorted(tables.storage.keys(ref.location), key=lambda key: key["size"])
    paths = [key["path"] for key in keys]
    hidden = [p for p in paths if any(part.startswith(("_", ".")) for part in p.split("/"))]
    other = [p for p in paths if p not in hidden and not p.endswith(".parquet")]
    if other:
        raise StorageError(
            f"{ref.location} cannot become table {ref}: it holds {len(other)} files that are not Parquet, such as "
            f"{other[0]}",
            remedy="move them",
        )
    visible = [p for p in paths if p not in hidden]
    if not visible:
        raise StorageError(f"{ref.location} cannot become table {ref}: there is no Parquet file in it.")
    return visible


def _check_partitions(ref: TableRef, paths: list[str], expected: list[str]) -> None:
    for path in paths:
        folders = path.split("/")[:-1]
        names = [folder.partition(_PARTITION)[0] for folder in folders]
        if names != expected or any(_PARTITION not in folder for folder in folders):
            raise InvalidConfig(
                f"{ref.location} cannot become table {ref}: the file {path} lies in "
                f"{'/'.join(folders) or 'no folder'}, and partition_by says {', '.join(expected) or 'no partitions'}. "
                "Name every name=value level, with its type."
            )


def _has_floats(schema: pa.Schema) -> bool:
    kinds = [column["type"] for column in types.fields_of(schema)]
    return any(types.holds(kind, floating) for kind in kinds for floating in ("float", "double"))
