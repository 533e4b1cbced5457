"""Progress of long work: a line on stderr, in a terminal or a notebook only.

``DUCKRUN_PROGRESS=0`` turns it off, and DuckDB's and Spark's progress bars with it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator
from typing import TextIO, TypeVar

from duckrun.display.notebook import is_notebook

SETTING = "DUCKRUN_PROGRESS"
SECONDS = 1.0
"""Shorter work shows nothing."""

Item = TypeVar("Item")


def shows_progress(stream: TextIO | None = None) -> bool:
    """True in a terminal or a notebook, unless ``DUCKRUN_PROGRESS`` is 0.

    Args:
        stream: Where the progress goes; by default stderr.
    """
    if os.environ.get(SETTING) == "0":
        return False
    stream = stream or sys.stderr  # both are None in a process without a console
    return is_notebook() or (stream is not None and stream.isatty())


def tracked(
    items: Collection[Item], what: str, unit: str, *, size: Callable[[Item], int] = lambda _: 1
) -> Iterator[Item]:
    """Yield the items, and show how many units are done and the time left.

    Args:
        what: The work and its table, such as ``optimize sales.orders``.
        unit: What is counted, in the plural.
        size: Returns the number of units of an item.
    """
    if not shows_progress():
        yield from items
        return
    from tqdm import tqdm  # type: ignore[import-untyped]  # deferred: most processes show no progress

    total = sum(map(size, items))
    with tqdm(desc=what, total=total, unit=f" {unit}", delay=SECONDS, leave=False, file=sys.stderr) as line:
        for item in items:
            yield item
            line.update(size(item))
