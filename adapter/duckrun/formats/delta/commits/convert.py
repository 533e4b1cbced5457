"""Folders of Parquet files that become Delta tables."""

from __future__ import annotations

import json
from typing import Any

from deltalake import Schema, convert_to_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from duckrun.errors import CommitConflict, InvalidConfig, StorageError
from duckrun.formats.commits import CommitTaken
from duckrun.formats.delta.definition import types
from duckrun.formats.delta.log.entries import commit_properties, new_txn_id
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.libraries import pa, pq
from duckrun.storage.trouble import said
from duckrun.values.rows import AppTransaction
from duckrun.values.snapshot import TableRef
from duckrun.values.tables import ConvertSpec

_PARTITION = "="


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
