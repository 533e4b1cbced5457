"""Cleanup of expired log files.

deltalake removes commits and single-file checkpoints older than the table's retention. It leaves
the other files that other writers create.

Source: Delta protocol, Metadata Cleanup; V2 Checkpoint Table Feature (Sidecar Files).
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import obstore

from duckrun.formats.delta.definition.retention import log_retention
from duckrun.formats.delta.log.access import LogAccess
from duckrun.formats.delta.log.checkpoints import checkpoint_actions, newest_whole
from duckrun.formats.delta.log.entries import LOG
from duckrun.values.snapshot import Snapshot

if TYPE_CHECKING:
    from deltalake import DeltaTable


_COMMIT = re.compile(rf"{LOG}/(\d{{20}})\.json$")
_CHECKSUM = re.compile(rf"{LOG}/(\d{{20}})\.crc$")
_CHECKPOINT = re.compile(rf"{LOG}/(\d{{20}})\.checkpoint\..*(?:parquet|json)$")
_OF_UUID = re.compile(rf"{LOG}/\d{{20}}\.checkpoint\.[0-9a-f-]{{36}}\.(?:parquet|json)$")
_SIDECARS = f"{LOG}/_sidecars/"


def clean(logs: LogAccess, snapshot: Snapshot, table: DeltaTable) -> None:
    """Remove log files older than the retention that no readable version needs."""
    table.cleanup_metadata()
    location = snapshot.ref.location
    keys = {key["path"]: key["modified"] * 1000 for key in logs.storage.keys(location, LOG)}
    versions = [int(match[1]) for path in keys if (match := _COMMIT.search(path))]
    oldest = min(versions, default=0)
    young = time.time() * 1000 - log_retention(snapshot)
    checkpoints = {path: int(match[1]) for path in keys if (match := _CHECKPOINT.search(path))}
    base, _ = newest_whole(keys, 0, oldest)  # readers replay the oldest commit on top of it
    doomed = [path for path, version in checkpoints.items() if version < base and _OF_UUID.search(path)]
    doomed += [path for path in keys if (match := _CHECKSUM.search(path)) and int(match[1]) < oldest]
    remaining = [path for path in checkpoints if path not in doomed]
    named = (
        {action["path"] for action in checkpoint_actions(logs.storage, snapshot.ref, remaining, "sidecar")}
        if any(path.startswith(_SIDECARS) for path in keys)
        else set()
    )
    doomed += [path for path in keys if path.startswith(_SIDECARS) and path.removeprefix(_SIDECARS) not in named]
    gone = [path for path in doomed if keys[path] < young]
    if gone:
        obstore.delete(logs.storage.store_at(location), gone)
