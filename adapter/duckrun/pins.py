"""Which version of each table a run reads: set at first use, moved only by the run's own commits."""

from __future__ import annotations

import threading
from collections.abc import Callable

from duckrun.table import Snapshot, TableRef


class Pins:
    """The map location -> snapshot of one run (a dbt invocation, a Dagster step, a statement). Safe across threads."""

    def __init__(self, load: Callable[[TableRef], Snapshot]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._pinned: dict[str, Snapshot] = {}

    def snapshot(self, ref: TableRef, load: Callable[[TableRef], Snapshot] | None = None) -> Snapshot:
        """The snapshot that this run reads; the newest at the first call, by ``load`` where a session knows better how
        to reach the table. Raises TableNotFound.
        """
        with self._lock:
            found = self._pinned.get(ref.location)
        if found is not None:
            return found
        loaded = (load or self._load)(ref)
        with self._lock:
            return self._pinned.setdefault(ref.location, loaded)

    def moved(self, ref: TableRef, snapshot: Snapshot | None) -> None:
        """This run committed to the table, or (None) dropped it."""
        with self._lock:
            if snapshot is None:
                self._pinned.pop(ref.location, None)
            else:
                self._pinned[ref.location] = snapshot

    def versions(self) -> dict[str, int]:
        """The version of each location that this run has used."""
        with self._lock:
            return {location: snapshot.version for location, snapshot in self._pinned.items()}
