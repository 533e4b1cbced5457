"""Search for cyclic garbage while a long text runs.

A tree of sqlglot's is full of cycles: each node knows its parent. A long text becomes thousands of
nodes, and the search visits each of them once per pass.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG = 200_000
"""Number of new objects before a pass, while a long text runs: more than its tree has."""


class _Patience:
    """The threshold of the youngest generation, raised while any thread runs a long text."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = 0

    def raise_threshold(self) -> None:
        with self._lock:
            self._users += 1
            youngest, *older = gc.get_threshold()
            if self._users == 1:
                self._before = youngest
            if 0 < youngest < _YOUNG:  # 0 turns the search off
                gc.set_threshold(_YOUNG, *older)

    def restore_threshold(self) -> None:
        with self._lock:
            self._users -= 1
            youngest, *older = gc.get_threshold()
            if not self._users and youngest == _YOUNG:  # else somebody else has set another one
                gc.set_threshold(self._before, *older)


_PATIENCE = _Patience()


@contextmanager
def trees_collected() -> Iterator[None]:
    """Free the trees of a long text at the end of the block, in one pass over young objects.

    A pass during the block would find them in use, and make them old. Ten old trees then wait for
    the next pass over the older generation. The search stays on, because the block may run for
    hours. Nothing outside of the block may refer to the trees.
    """
    _PATIENCE.raise_threshold()
    try:
        yield
    finally:
        _PATIENCE.restore_threshold()
        if gc.isenabled():
            gc.collect(0)
