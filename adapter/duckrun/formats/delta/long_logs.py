"""Cache of snapshots of tables with many commits since the last checkpoint.

Each reader replays those commits one by one, so a snapshot is reused while it is valid.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace

from duckrun.formats.delta.log import LOG
from duckrun.storage.storage import Storage
from duckrun.values.files import Files
from duckrun.values.snapshot import Snapshot, TableRef

ListFiles = Callable[[Snapshot], Files]

LONG = 100
"""Number of commits since the last checkpoint from which on a log is long.

Duckrun's writers create a checkpoint much earlier.
"""

_KEPT = 16


def last_checkpoint(storage: Storage, location: str) -> int:
    """Return the version of the newest checkpoint by the log's hint.

    Source: Delta protocol, Last Checkpoint File (the hint is optional).

    Returns:
        -1 if there is no readable hint. The writer of the next checkpoint replaces it.
    """
    hint = storage.read_at(location, f"{LOG}/_last_checkpoint")
    try:
        return -1 if hint is None else int(json.loads(hint)["version"])
    except (KeyError, TypeError, ValueError):
        return -1


class LongLogs:
    """Snapshots with a long log, by table and requested version (None: the newest)."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._kept: dict[tuple[TableRef, int | None], Snapshot] = {}

    def find(self, ref: TableRef, version: int | None) -> Snapshot | None:
        """Return a cached snapshot if it is still valid.

        The log must have its commit, and for the newest version none after it.
        """
        # The commit itself is compared, since another table with as many versions may have replaced
        # it.
        snapshot = self._kept.get((ref, version))
        if snapshot is None or _mark(self._storage, ref, snapshot.version) != snapshot.long_log:
            return None
        return None if version is None and _commit(self._storage, ref, snapshot.version + 1) is not None else snapshot

    def keep(self, snapshot: Snapshot, requested: int | None, list_files: ListFiles) -> Snapshot:
        """Return the snapshot; if its log is long, mark it and cache it.

        Args:
            requested: Version that the caller requested; None: the newest.
            list_files: Function that lists the files of a cached snapshot.
        """
        version, location = snapshot.version, snapshot.ref.location
        if version < LONG or version - last_checkpoint(self._storage, location) < LONG:
            return snapshot
        mark = _mark(self._storage, snapshot.ref, version)
        if mark is None:
            return snapshot
        marked = replace(snapshot, long_log=mark, list_files=list_files)
        if len(self._kept) >= _KEPT:
            self._kept.clear()
        self._kept[snapshot.ref, requested] = marked
        return marked


def _mark(storage: Storage, ref: TableRef, version: int) -> str | None:
    raw = _commit(storage, ref, version)
    return None if raw is None else hashlib.sha256(raw).hexdigest()


def _commit(storage: Storage, ref: TableRef, version: int) -> bytes | None:
    return storage.read_at(ref.location, f"{LOG}/{version:020d}.json")
