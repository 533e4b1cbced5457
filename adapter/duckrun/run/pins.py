"""Which version of each table a run reads: set at first use, moved only by the run's own commits; and what it has read.

What a write was computed from decides whether it may go on top of another writer's commit. So whoever reads says so here:
a Frame carries it, and a piece of work (a Dagster step, a dbt node) has one log of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType

from duckrun.errors import TableNotFound
from duckrun.values.rows import NO_TABLE
from duckrun.values.snapshot import Pin, Snapshot, TableRef


@dataclass(frozen=True)
class Read:
    """Rows of a table, at what was its newest version when they were read; ``NO_TABLE`` if the work saw that there is none.

    ``predicates`` are the conditions (DuckDB's SQL over its columns) one of which holds for each row that was read; None
    where it may be any row.
    """

    version: int
    table_id: str = ""
    predicates: frozenset[str] | None = None

    @classmethod
    def of(cls, snapshot: Snapshot, predicate: str | None = None) -> Read:
        return cls(snapshot.version, snapshot.table_id, None if predicate is None else frozenset((predicate,)))

    def with_(self, other: Read | None) -> Read:
        """Both together: all rows of both, since the older of their versions."""
        if other is None:
            return self
        older = min(self, other, key=lambda read: read.version)
        either = None
        if self.predicates is not None and other.predicates is not None:
            either = self.predicates | other.predicates
        return Read(older.version, older.table_id, either)


@dataclass(frozen=True)
class Reads:
    """The tables that rows are computed from."""

    newest: Mapping[str, Read] = field(default_factory=lambda: MappingProxyType({}))
    """What is read of each location at its newest version. Rows of a version that was named are the same at any time, and not in it."""
    pins: frozenset[Pin] = frozenset()
    """Each table and version that is read when the rows are computed, named versions among them."""

    @classmethod
    def of(cls, snapshot: Snapshot, read: Read | None = None) -> Reads:
        """Rows of a snapshot; ``read`` where it is the newest."""
        pin = snapshot.pin
        newest = {} if read is None else {snapshot.ref.location: read}
        return cls(newest, frozenset() if pin is None else frozenset((pin,)))

    def computed(self) -> Reads:
        """The same of rows that are computed already, which read no table any more."""
        return Reads(self.newest)

    def check(self) -> None:
        """Raise VersionNotReadable or TableNotFound where a pinned version is no longer that of its table."""
        for pin in self.pins:
            pin.check("read the table again, by sql() or table(name).toDF()")


NOTHING = Reads()


def together(*many: Reads) -> Reads:
    """What several sources have read."""
    newest: dict[str, Read] = {}
    for reads in many:
        for location, read in reads.newest.items():
            newest[location] = read.with_(newest.get(location))
    return Reads(newest, frozenset().union(*(reads.pins for reads in many)))


_unnoted: ContextVar[bool] = ContextVar("duckrun_unnoted", default=False)


@contextmanager
def unnoted() -> Iterator[None]:
    """Meanwhile no log takes down what this thread reads: only the columns of it are looked at."""
    token = _unnoted.set(True)
    try:
        yield
    finally:
        _unnoted.reset(token)


class WorkLog:
    """What one piece of work (a session, a Dagster step, a dbt node) has read, and its own commits. Safe across threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: dict[str, Read] = {}
        self._own: set[tuple[str, int]] = set()
        self._dropped: set[tuple[str, str]] = set()
        self._seen: dict[tuple[str, int], str] = {}

    def note(self, location: str, read: Read) -> None:
        """Take down that rows were read."""
        if not _unnoted.get():
            with self._lock:
                self._read[location] = read.with_(self._read.get(location))
                self._seen[location, read.version] = read.table_id

    def read(self, location: str) -> Read | None:
        """What was read of a table so far; None where nothing was."""
        with self._lock:
            return self._read.get(location)

    def id_seen(self, location: str, version: int) -> str | None:
        """The id of the table of which a version was last read as the newest; None for one that was read by its number alone."""
        return self._seen.get((location, version))

    def noted(self) -> tuple[dict[str, Read], set[tuple[str, int]], set[tuple[str, str]]]:
        """All that was taken down so far, for back_to()."""
        with self._lock:
            return dict(self._read), set(self._own), set(self._dropped)

    def back_to(self, noted: tuple[dict[str, Read], set[tuple[str, int]], set[tuple[str, str]]]) -> None:
        """What was committed and dropped since has not happened."""
        with self._lock:
            self._read, self._own, self._dropped = dict(noted[0]), set(noted[1]), set(noted[2])

    def forget(self, location: str) -> None:
        """What was read of a table is read anew."""
        with self._lock:
            self._read.pop(location, None)

    def committed(self, location: str, version: int) -> None:
        """Take down a commit of this work's own."""
        with self._lock:
            self._own.add((location, version))

    def is_own(self, location: str, version: int) -> bool:
        return (location, version) in self._own

    def dropped(self, location: str) -> None:
        """This work dropped a table: what it read of it before says nothing about the next of that name."""
        with self._lock:
            read = self._read.pop(location, None)
            if read is not None:
                self._dropped.add((location, read.table_id))
            self._own = {own for own in self._own if own[0] != location}

    def has_dropped(self, location: str, read: Read) -> bool:
        """Whether this work itself dropped the table that was read."""
        return (location, read.table_id) in self._dropped


class Pins:
    """The map location -> snapshot of one run (a dbt invocation, a Dagster step, a statement); None: the run reads no table there,
    though one is. Safe across threads.

    ``advice`` is what to do where a write was computed from what others have changed since.
    """

    advice = "read again and repeat"

    def __init__(self, load: Callable[..., Snapshot], *, log: WorkLog | None = None, advice: str | None = None) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._pinned: dict[str, Snapshot | None] = {}
        self._shared: dict[str, int] = {}
        self._log = log or WorkLog()
        self.advice = advice or self.advice

    @property
    def log(self) -> WorkLog:
        """What the piece of work that runs here has read and committed."""
        return self._log

    def snapshot(self, ref: TableRef, load: Callable[..., Snapshot] | None = None) -> Snapshot:
        """The snapshot that this run reads; the newest at the first call, by ``load`` where a session knows better how
        to reach the table. Where the tables of a lake share their versions, all are of the one that was first read. Raises TableNotFound,
        also for a table that is none to this run, VersionNotReadable for a table that another one has taken the place of since.
        """
        pinned = self._pin_of(ref, load)
        if pinned is None:
            self.log.note(ref.location, Read(NO_TABLE))
            raise TableNotFound(
                f"There is no table {ref} for this attempt: an earlier attempt of the same work made it, and this one reads and writes as if "
                "that had not happened."
            )
        return pinned

    def _pin_of(self, ref: TableRef, load: Callable[..., Snapshot] | None) -> Snapshot | None:
        with self._lock:
            is_pinned, pinned = ref.location in self._pinned, self._pinned.get(ref.location)
        if is_pinned:
            if pinned is not None and pinned.pin is not None:
                pinned.pin.check(self.advice)
            return pinned
        load = load or self._load
        loaded = load(ref)
        if loaded.shared is not None:
            lake, newest = loaded.shared
            with self._lock:
                at = self._shared.setdefault(lake, newest)
            if at != newest:  # others have committed to the lake since this run first read of it
                loaded = load(ref, at)
        read = self._read_of(loaded)
        with self._lock:
            return self._pinned.setdefault(ref.location, read)

    def _read_of(self, newest: Snapshot) -> Snapshot | None:
        """What this run reads of a table that it comes to first; None if the table is none to it."""
        return newest

    def hides(self, ref: TableRef) -> bool:
        """True if a table that is there is none to this run, which then has read that there is none."""
        with self._lock:
            is_hidden = ref.location in self._pinned and self._pinned[ref.location] is None
        if is_hidden:
            self.log.note(ref.location, Read(NO_TABLE))
        return is_hidden

    def hidden(self) -> Iterator[TableRef]:
        """The tables that hides() is true of, for whoever lists tables."""
        return iter(())

    def moved(self, ref: TableRef, snapshot: Snapshot | None) -> None:
        """This run committed to the table, or (None) dropped it."""
        with self._lock:
            if snapshot is None:
                self._pinned.pop(ref.location, None)
            else:
                self._pinned[ref.location] = snapshot
        if snapshot is None:
            self.log.dropped(ref.location)

    def pinned(self) -> dict[str, Snapshot | None]:
        """The snapshot of each location, for back_to()."""
        with self._lock:
            return dict(self._pinned)

    def back_to(self, pinned: dict[str, Snapshot | None]) -> None:
        """What this run committed since has not happened."""
        with self._lock:
            self._pinned = dict(pinned)

    def pin(self, snapshot: Snapshot) -> None:
        """Read a table at a version from now on."""
        with self._lock:
            self._pinned[snapshot.ref.location] = snapshot

    def renew(self, ref: TableRef) -> None:
        """The next read of a table is of its newest version: what this run computed of it is computed again."""
        with self._lock:
            before = self._pinned.pop(ref.location, None)
            if before is not None and before.shared is not None:
                self._shared.pop(before.shared[0], None)
        self.log.forget(ref.location)

    def versions(self) -> dict[str, int]:
        """The version of each location that this run has used."""
        with self._lock:
            return {location: pinned.version for location, pinned in self._pinned.items() if pinned is not None}
