"""When to switch: a warning, before DuckDB starts, that a table is too much for this machine and not for Spark."""

from __future__ import annotations

import logging
import shutil
import threading
from dataclasses import dataclass

from duckrun.display.units import readable_bytes
from duckrun.values.files import Files
from duckrun.values.snapshot import Snapshot

log = logging.getLogger(__name__)

EXPANSION = 3
"""Bytes in memory for one byte of Parquet, roughly: codes and compression are undone when rows are sorted, joined, merged."""

_lock = threading.Lock()
_seen: set[str] = set()


@dataclass(frozen=True)
class Estimate:
    """What a job reads, and what this machine has for it, all in bytes. ``files`` is how many are read."""

    files: int
    stored: int
    memory: int
    disk: int

    @property
    def needed(self) -> int:
        """Bytes of the rows, if the job has to hold them all."""
        return self.stored * EXPANSION

    @property
    def is_too_large(self) -> bool:
        """True where the rows fit neither the memory nor the disk that DuckDB spills to, both together."""
        return self.needed > self.memory + self.disk


def estimate(files: Files, memory: int, scratch: str) -> Estimate:
    """The size of a read by the log's own figures; ``scratch`` is the folder that DuckDB spills to."""
    return Estimate(*files.weight(), memory, shutil.disk_usage(scratch).free)


def advise(snapshot: Snapshot, memory: int, scratch: str) -> None:
    """Log one warning, with the figures, before the first read of a table that is far above this machine.

    ``memory`` is what this process may use, in bytes. A table is looked at once in a process.
    """
    with _lock:
        if snapshot.ref.location in _seen:
            return
        _seen.add(snapshot.ref.location)
    found = estimate(snapshot.files(), memory, scratch)
    if found.is_too_large:
        log.warning(
            "Table %s: %s files of %s are there to be read, about %s in memory; DuckDB may use %s here and %s of temporary "
            "disk. A scan streams, but a sort, join or merge of all of it will not fit: run this with engine: spark "
            "(docs/scaling.md).",
            snapshot.ref,
            f"{found.files:,}",
            readable_bytes(found.stored, decimal=True),
            readable_bytes(found.needed, decimal=True),
            readable_bytes(found.memory, decimal=True),
            readable_bytes(found.disk, decimal=True),
        )
