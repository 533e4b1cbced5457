"""Log of the reads and the commits of one piece of work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from duckrun.values.frozen import frozen

if TYPE_CHECKING:
    from duckrun.values.snapshot import Snapshot


@frozen
class Read:
    """Rows read from a table at its newest version then; ``NO_TABLE`` if the work saw no table."""

    version: int
    table_id: str = ""
    predicates: frozenset[str] | None = None
    """Conditions (DuckDB's SQL over its columns), one of which holds for each row read.

    None if any row may have been read.
    """

    @classmethod
    def of(cls, snapshot: Snapshot, predicate: str | None = None) -> Read:
        return cls(snapshot.version, snapshot.table_id, None if predicate is None else frozenset((predicate,)))

    def with_(self, other: Read | None) -> Read:
        """Return the union of two reads: the rows of both, since the older version."""
        if other is None:
            return self
        older = min(self, other, key=lambda read: read.version)
        either = None
        if self.predicates is not None and other.predicates is not None:
            either = self.predicates | other.predicates
        return Read(older.version, older.table_id, either)


_unnoted: ContextVar[bool] = ContextVar("duckrun_unnoted", default=False)


@contextmanager
def unnoted() -> Iterator[None]:
    """Do not record this thread's reads meanwhile; for reads of columns only."""
    token = _unnoted.set(True)
    try:
        yield
    finally:
        _unnoted.reset(token)


class WorkLog:
    """Reads and commits of one piece of work (a session, Dagster step or dbt node). Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: dict[str, Read] = {}
        self._own: set[tuple[str, int]] = set()
        self._dropped: set[tuple[str, str]] = set()
        self._seen: dict[tuple[str, int], str] = {}

    def note(self, location: str, read: Read) -> None:
        """Record a read."""
        if not _unnoted.get():
            with self._lock:
                self._read[location] = read.with_(self._read.get(location))
                self._seen[location, read.version] = read.table_id

    def read(self, location: str) -> Read | None:
        """Return the reads of a table so far; None without any."""
        with self._lock:
            return self._read.get(location)

    def id_seen(self, location: str, version: int) -> str | None:
        """Return the table id behind a version that was last read as the newest.

        None for a version that was read only by its number.
        """
        return self._seen.get((location, version))

    def savepoint(self) -> Callable[[], None]:
        """Return a function that forgets what was recorded since, after a rollback."""
        with self._lock:
            recorded = dict(self._read), set(self._own), set(self._dropped)

        def restore() -> None:
            with self._lock:
                self._read, self._own, self._dropped = recorded

        return restore

    def forget(self, location: str) -> None:
        """Forget the reads of a table, which are repeated."""
        with self._lock:
            self._read.pop(location, None)

    def committed(self, location: str, version: int) -> None:
        """Record a commit of this work."""
        with self._lock:
            self._own.add((location, version))

    def is_own(self, location: str, version: int) -> bool:
        return (location, version) in self._own

    def dropped(self, location: str) -> None:
        """Record a drop by this work. Earlier reads say nothing about a next table of that name."""
        with self._lock:
            read = self._read.pop(location, None)
            if read is not None:
                self._dropped.add((location, read.table_id))
            self._own = {commit for commit in self._own if commit[0] != location}

    def has_dropped(self, location: str, read: Read) -> bool:
        """True if this work dropped the table that was read."""
        return (location, read.table_id) in self._dropped
