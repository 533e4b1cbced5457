"""Rows that Spark materializes for one write.

The source of a write may return other rows when it is read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Yield the rows of a frame, read once and materialized by Spark until the block ends."""
    rows = frame.localCheckpoint()
    try:
        yield rows
    finally:
        # With Spark Connect (4.1), Python tells the server to release the rows when it destroys
        # their plan. The garbage collector may do that in a thread that gRPC has just started. The
        # call then waits for the lock of its own channel, and the process hangs forever. So tell
        # the server here, in the thread of the write, and leave nothing to tell later. A classic
        # frame has no plan; Spark's own cleaner releases its rows.
        plan = getattr(rows, "_plan", None)
        if plan is not None:
            plan.__del__()
            plan._relation_id = None
