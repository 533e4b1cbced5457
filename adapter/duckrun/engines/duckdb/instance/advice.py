"""Warning, before DuckDB starts, that a table is too large for this machine but not for Spark."""

from __future__ import annotations

import logging
import shutil
import threading

from duckrun.display.units import readable_bytes
from duckrun.values.snapshot import Snapshot

log = logging.getLogger(__name__)

EXPANSION = 3
"""Rough bytes in memory per byte of Parquet, because sorts, joins and merges decode the values."""

_lock = threading.Lock()
_seen: set[str] = set()


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
    files, stored = snapshot.files().weight()
    needed, disk = stored * EXPANSION, shutil.disk_usage(scratch).free
    if needed > memory + disk:
        log.warning(
            "Table %s: %s files of %s are there to be read, about %s in memory; DuckDB may use %s here and %s of "
            "temporary disk. A scan streams, but a sort, join or merge of all of it will not fit: run this with "
            "engine: spark (docs/scaling.md).",
            snapshot.ref,
            f"{files:,}",
            *(readable_bytes(each, decimal=True) for each in (stored, needed, memory, disk)),
        )
