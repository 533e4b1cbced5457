"""Warning, before DuckDB starts, that a table is too large for this machine but not for Spark."""

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
"""Rough bytes in memory per byte of Parquet, because sorts, joins and merges decode the values."""

_lock = threading.Lock()
_seen: set[str] = set()


@dataclass(frozen=True)
class Estimate:
    """Size of a read, and this machine's memory and disk, in bytes."""

    files: int
    """Number of files to read."""
    stored: int
    memory: int
    disk: int

    @property
    def needed(self) -> int:
        """Bytes in memory if the job has to hold all rows."""
        return self.stored * EXPANSION

    @property
    def is_too_large(self) -> bool:
        """True if memory and DuckDB's spill disk together cannot hold the rows."""
        return self.needed > self.memory + self.disk


def estimate(files: Files, memory: int, scratch: str) -> Estimate:
    """Size of a read by the log's figures; ``scratch`` is DuckDB's spill folder."""
    return Estimate(*files.weight(), memory, shutil.disk_usage(scratch).free)


def advise(snapshot: Snapshot, memory: int, scratch: str) -> None:
    """Log one warning before the first read of a table that is far too large for this machine.

    Each table is checked once per process.

    Args:
        snapshot: The table.
        memory: Bytes of memory that this process may use.
        scratch: DuckDB's spill folder.
    """
    with _lock:
        if snapshot.ref.location in _seen:
            return
        _seen.add(snapshot.ref.location)
    size = estimate(snapshot.files(), memory, scratch)
    if size.is_too_large:
        log.warning(
            "Table %s: %s files of %s are there to be read, about %s in memory; DuckDB may use %s here and %s of "
            "temporary disk. A scan streams, but a sort, join or merge of all of it will not fit: run this with "
            "engine: spark (docs/scaling.md).",
            snapshot.ref,
            f"{size.files:,}",
            *(readable_bytes(each, decimal=True) for each in (size.stored, size.needed, size.memory, size.disk)),
        )
