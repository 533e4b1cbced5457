"""Retries of work whose input others have changed meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

from duckrun.errors import SourceOutdated
from duckrun.run.pins import Pins
from duckrun.run.transaction import MAX_ATTEMPTS
from duckrun.values.snapshot import TableRef


def attempts(ref: TableRef, pins: Pins, *, once: bool = False) -> Iterator[AbstractContextManager[None]]:
    """Yield blocks to compute and commit a write; each retry works on the table's newest version.

    A retry follows if others changed the table that the rows were computed from.

    Args:
        once: Do not retry.

    Example::

        for attempt in attempts(ref, pins):
            with attempt:
                return work()
    """
    again = _Attempt(last=once)
    for number in range(1, MAX_ATTEMPTS + 1):
        again.last = again.last or number == MAX_ATTEMPTS
        yield again
        if not again.outdated:
            return
        pins.renew(ref)


class _Attempt(AbstractContextManager[None]):
    """An attempt that swallows SourceOutdated once per version read, except in the last one."""

    def __init__(self, *, last: bool) -> None:
        self.last = last
        self.outdated = False
        self._version: int | None = None

    def __enter__(self) -> None:
        self.outdated = False

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        if not isinstance(error, SourceOutdated) or self.last or error.version in (None, self._version):
            return False  # the same version again: the rows are fixed, so that a retry cannot help
        self._version, self.outdated = error.version, True
        return True
