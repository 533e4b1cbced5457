"""Cache of snapshots of tables with many commits since the last checkpoint.

Each reader replays those commits one by one, so a snapshot is reused while it is valid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from duckrun.formats.delta.log.checkpoints import last_checkpoint
from duckrun.formats.delta.log.entries import mark_at
from duckrun.storage.storage import Storage
from duckrun.values.files import Files
from duckrun.values.snapshot import Snapshot, TableRef

LONG = 100
"""Number of commits since the last checkpoint from which on a log is long.

Duckrun's writers create a checkpoint much earlier.
"""

_KEPT = 16


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
        if snapshot is None or mark_at(self._storage, ref.location, snapshot.version) != snapshot.long_log:
            return None
        is_behind = version is None and mark_at(self._storage, ref.location, snapshot.version + 1) is not None
        return None if is_behind else snapshot

    def marked(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot, with the mark of its commit if its log is long."""
        version, location = snapshot.version, snapshot.ref.location
        if version < LONG or version - last_checkpoint(self._storage, location) < LONG:
            return snapshot
        return replace(snapshot, long_log=mark_at(self._storage, location, version))

    def keep(self, marked: Snapshot, requested: int | None, list_files: Callable[[Snapshot], Files]) -> Snapshot:
        """Cache a marked snapshot.

        Args:
            marked: The snapshot.
            requested: Version that the caller requested; None: the newest.
            list_files: Function that lists the files of the cached snapshot.
        """
        if len(self._kept) >= _KEPT:
            self._kept.clear()
        cached = self._kept[marked.ref, requested] = replace(marked, list_files=list_files)
        return cached
