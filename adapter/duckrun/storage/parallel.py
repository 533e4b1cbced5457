"""Requests to a store at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_THREADS = 16

Item = TypeVar("Item")
Result = TypeVar("Result")


def at_once(request: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return the results of a request for each item, in the order of the items."""
    # A request mostly waits for the store, so threads help although Python runs one at a time.
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(request, items))
