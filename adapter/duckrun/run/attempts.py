"""Work that is done again where others have changed what it was computed from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

from duckrun.errors import SourceOutdated
from duckrun.run.pins import Pins
from duckrun.run.transaction import MAX_ATTEMPTS
from duckrun.values.snapshot import TableRef


def attempts(ref: TableRef, pins: Pins, *, once: bool = False) -> Iterator[AbstractContextManager[None]]:
    """Blocks in which the rows of a write are computed and committed: the next one works on the newest version of the table,
    where others have changed what the rows of this one were computed from. With ``once`` there is no next one.

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
    """An attempt that lets SourceOutdated pass as ``outdated``, once for each version that was read, and never the ``last``."""

    def __init__(self, *, last: bool) -> None:
        self.last = last
        self.outdated = False
        self._version: int | None = None

    def __enter__(self) -> None:
        self.outdated = False

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        if not isinstance(error, SourceOutdated) or self.last or error.version in (None, self._version):
            return False  # the same version again: the rows are a value's, not a query's
        self._version, self.outdated = error.version, True
        return True
