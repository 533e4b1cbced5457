"""Rows that Spark keeps for one write, since its source may give others when it is read again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """The rows of a frame, read once and kept by Spark until the block ends.

    With Spark Connect (4.1) the server is told to let them go when Python destroys the plan that stands for them. Where the garbage
    collector does that in a thread that gRPC has just started, the call waits for the lock of its own channel, and the process stands
    still for ever. So it is told here, in the thread of the write, and the plan has nothing left to tell.
    """
    rows = frame.localCheckpoint()
    try:
        yield rows
    finally:
        plan = getattr(rows, "_plan", None)  # a classic frame has none, and Spark's own cleaner lets its rows go
        if plan is not None:
            plan.__del__()
            plan._relation_id = None
