"""Entries of the log that nobody needs any more. deltalake removes commits and checkpoints of one file that are older than the table's
retention, and leaves what other writers have beside these.

Source: Delta protocol, Metadata Cleanup; V2 Checkpoint Table Feature (Sidecar Files).
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import obstore

from duckrun.formats.delta.adds import checkpoint_actions, newest_whole
from duckrun.formats.delta.log import LOG
from duckrun.formats.delta.vacuum import log_retention
from duckrun.values.snapshot import Snapshot

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from duckrun.formats.delta.delta import DeltaFormat

_COMMIT = re.compile(rf"{LOG}/(\d{{20}})\.json$")
_CHECKSUM = re.compile(rf"{LOG}/(\d{{20}})\.crc$")
_CHECKPOINT = re.compile(rf"{LOG}/(\d{{20}})\.checkpoint\..*(?:parquet|json)$")
_OF_UUID = re.compile(rf"{LOG}/\d{{20}}\.checkpoint\.[0-9a-f-]{{36}}\.(?:parquet|json)$")
_SIDECARS = f"{LOG}/_sidecars/"


def clean(form: DeltaFormat, snapshot: Snapshot, table: DeltaTable) -> None:
    """Remove what is older than the retention and not needed for a version that can still be read."""
    table.cleanup_metadata()
    location = snapshot.ref.location
    keys = {key["path"]: key["modified"] * 1000 for key in form.storage.keys(location, LOG)}
    versions = [int(found[1]) for path in keys if (found := _COMMIT.search(path))]
    oldest = min(versions, default=0)
    young = time.time() * 1000 - log_retention(snapshot)
    checkpoints = {path: int(found[1]) for path in keys if (found := _CHECKPOINT.search(path))}
    base, _ = newest_whole(keys, 0, oldest)  # from which the oldest commit is read
    doomed = [path for path, version in checkpoints.items() if version < base and _OF_UUID.search(path)]
    doomed += [path for path in keys if (found := _CHECKSUM.search(path)) and int(found[1]) < oldest]
    kept = [path for path in checkpoints if path not in doomed]
    named = (
        {action["path"] for action in checkpoint_actions(form, snapshot, kept, "sidecar")}
        if _has_sidecars(keys)
        else set()
    )
    doomed += [path for path in keys if path.startswith(_SIDECARS) and path.removeprefix(_SIDECARS) not in named]
    gone = [path for path in doomed if keys[path] < young]
    if gone:
        obstore.delete(form.storage.store_at(location), gone)


def _has_sidecars(keys: dict[str, float]) -> bool:
    return any(path.startswith(_SIDECARS) for path in keys)
