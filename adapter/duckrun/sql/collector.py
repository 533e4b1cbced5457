"""Search for cyclic garbage while a block runs, such as that of a long text.

A tree of sqlglot's is full of cycles: each node knows its parent. A long text becomes thousands of
nodes, and the search visits each of them once per pass.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_YOUNG = 200_000
"""Number of new objects before a pass, while a long text runs: more than its tree has."""


class _Threshold:
    """Number of new objects before a pass: the highest one that a running block asks for.

    Blocks overlap in any order, since threads run them. A threshold that somebody else sets
    meanwhile stays.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: list[int] = []
        self._before = 0
        """Threshold before the first of the running blocks."""

    @contextmanager
    def at_least(self, young: int) -> Iterator[None]:
        with self._lock:
            if not self._wanted:
                self._before = gc.get_threshold()[0]
            self._change(lambda: self._wanted.append(young))
        try:
            yield
        finally:
            with self._lock:
                self._change(lambda: self._wanted.remove(young))

    def _change(self, change: Callable[[], None]) -> None:
        """Start or end a block, and set the threshold that the running ones ask for."""
        youngest, *older = gc.get_threshold()
        is_ours = 0 < youngest == max(self._before, *self._wanted, 0)  # 0 turns the search off
        change()
        if is_ours:
            gc.set_threshold(max(self._before, *self._wanted, 0), *older)


threshold_at_least = _Threshold().at_least


@contextmanager
def trees_collected() -> Iterator[None]:
    """Free the trees of a long text at the end of the block, in one pass over young objects.

    A pass during the block would find them in use, and make them old. Ten old trees then wait for
    the next pass over the older generation. The search stays on, because the block may run for
    hours. Nothing outside of the block may refer to the trees.
    """
    try:
        with threshold_at_least(_YOUNG):
            yield
    finally:
        if gc.isenabled():
            gc.collect(0)
