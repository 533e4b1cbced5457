"""What was read of a log is kept for as long as it is true, of a table whose log has many commits since its last checkpoint, which
each reader replays one by one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from duckrun.formats.delta.log import LOG
from duckrun.storage.storage import Storage
from duckrun.values.files import Files
from duckrun.values.snapshot import Snapshot, TableRef

ListFiles = Callable[[Snapshot], Files]

if TYPE_CHECKING:
    from duckrun.formats.delta.delta import DeltaFormat

LONG = 100
"""Commits since the last checkpoint from which on a log is long. Every writer of ours makes a checkpoint long before."""

_KEPT = 16


def last_checkpoint(storage: Storage, location: str) -> int:
    """The version of the newest checkpoint by the log's own hint; -1 where there is none, or one that cannot be read: whoever
    writes the next checkpoint writes the hint anew.

    Source: Delta protocol, Last Checkpoint File (the hint is optional).
    """
    hint = storage.read_at(location, f"{LOG}/_last_checkpoint")
    try:
        return -1 if hint is None else int(json.loads(hint)["version"])
    except (KeyError, TypeError, ValueError):
        return -1


class LongLogs:
    """The snapshots of one format's tables that have a long log, by the version that was asked for (None: the newest)."""

    def __init__(self, form: DeltaFormat) -> None:
        self._storage = form.storage
        self._kept: dict[tuple[TableRef, int | None], Snapshot] = {}

    def find(self, ref: TableRef, version: int | None) -> Snapshot | None:
        """A snapshot that was kept, if the log still has its commit, and for the newest version none after it.

        The commit itself is compared: another table may have come to the place, with as many versions.
        """
        found = self._kept.get((ref, version))
        if found is None or _mark(self._storage, ref, found.version) != found.long_log:
            return None
        return None if version is None and _commit(self._storage, ref, found.version + 1) is not None else found

    def keep(self, snapshot: Snapshot, asked: int | None, list_files: ListFiles) -> Snapshot:
        """The snapshot; where its log is long it is marked, lists its files by ``list_files``, and is kept."""
        version, location = snapshot.version, snapshot.ref.location
        if version < LONG or version - last_checkpoint(self._storage, location) < LONG:
            return snapshot
        mark = _mark(self._storage, snapshot.ref, version)
        if mark is None:
            return snapshot
        marked = replace(snapshot, long_log=mark, list_files=list_files)
        if len(self._kept) >= _KEPT:
            self._kept.clear()
        self._kept[snapshot.ref, asked] = marked
        return marked


def _mark(storage: Storage, ref: TableRef, version: int) -> str | None:
    raw = _commit(storage, ref, version)
    return None if raw is None else hashlib.sha256(raw).hexdigest()


def _commit(storage: Storage, ref: TableRef, version: int) -> bytes | None:
    return storage.read_at(ref.location, f"{LOG}/{version:020d}.json")
