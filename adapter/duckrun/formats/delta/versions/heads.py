"""Heads of logs: protocol and metadata of the newest version, read without the table's files.

A listing of thousands of tables needs no more. deltalake takes a millisecond to open a log.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import reduce
from typing import Any

from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from obstore.exceptions import BaseError as ObstoreError

from duckrun.errors import DuckrunError
from duckrun.formats.delta.log.checkpoints import newest_whole, rows_in
from duckrun.formats.delta.log.entries import ENTRY, LOG, entry
from duckrun.libraries import pa, pc
from duckrun.storage.storage import Storage
from duckrun.values.frozen import frozen
from duckrun.values.snapshot import TableRef

_MOST = 100
"""Maximum number of commits that are read one by one."""
_KINDS = {"protocol", "metaData"}
_ODD = (DuckrunError, DeltaError, ObstoreError, OSError, ValueError, LookupError, TypeError, AttributeError)
"""Errors of a log that is damaged, or is removed while it is read."""


@frozen
class Head:
    """Protocol and metadata of one version."""

    version: int
    table_id: str
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    properties: dict[str, str]
    description: str | None
    reader_features: frozenset[str]
    writer_features: frozenset[str]

    @classmethod
    def of(cls, table: DeltaTable) -> Head:
        """Return the head of an open log."""
        protocol, metadata = table.protocol(), table.metadata()
        return cls(
            table.version(),
            str(metadata.id),
            pa.schema(table.schema().to_arrow()),
            tuple(metadata.partition_columns),
            dict(metadata.configuration),
            metadata.description,
            frozenset(protocol.reader_features or ()),
            frozenset(protocol.writer_features or ()),
        )


def head_of(storage: Storage, ref: TableRef) -> Head | None:
    """Return the head of a table's log; None if deltalake has to read the log.

    deltalake reads a long, unusual or damaged log, and reports what is wrong with it.
    """
    try:
        paths = [key["path"] for key in storage.keys(ref.location, LOG)]
        versions = sorted(int(match[1]) for path in paths if (match := ENTRY.fullmatch(path)))
        newest = versions[-1]
        checkpoint, files = newest_whole(paths, 0, newest)
        since = range(checkpoint + 1, newest + 1)
        if len(since) > _MOST or versions[len(versions) - len(since) :] != list(since):
            return None
        actions = _newest_actions(storage, ref, since, files)
        protocol, metadata = actions["protocol"], actions["metaData"]
        return Head(
            newest,
            metadata["id"],
            pa.schema(Schema.from_json(metadata["schemaString"]).to_arrow()),
            tuple(metadata["partitionColumns"]),
            dict(metadata.get("configuration") or {}),
            metadata.get("description"),
            frozenset(protocol.get("readerFeatures") or ()),
            frozenset(protocol.get("writerFeatures") or ()),
        )
    except _ODD:
        return None


def _newest_actions(storage: Storage, ref: TableRef, since: range, checkpoint: Sequence[str]) -> dict[str, Any]:
    """Return the newest action of each kind: from commits, else from the checkpoint before them."""
    actions = dict[str, Any]()
    for version in reversed(since):
        raw = storage.read_at(ref.location, entry(version)) or b""
        # A commit may add thousands of files, whose actions are not parsed.
        for line in raw.splitlines():
            if b'"protocol"' in line or b'"metaData"' in line:
                actions = {**json.loads(line), **actions}
        if actions.keys() >= _KINDS:
            return actions
    for path in checkpoint:
        for row in rows_in(storage, ref, path, sorted(_KINDS), _has_kind):
            actions = {**{kind: row[kind] for kind in _KINDS if row.get(kind)}, **actions}
    return actions


def _has_kind(batch: pa.RecordBatch) -> Any:
    return reduce(pc.or_, (pc.is_valid(batch.column(kind)) for kind in _KINDS))
