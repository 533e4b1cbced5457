"""Requests to a store at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

_THREADS = 16

Item = TypeVar("Item")
Result = TypeVar("Result")


def at_once(request: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return the results of a request for each item, in the order of the items.

    Each request sees the context variables of the caller.
    """
    # A request mostly waits for the store, so threads help although Python runs one at a time.
    calls = [(copy_context(), item) for item in items]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda call: call[0].run(request, call[1]), calls))
