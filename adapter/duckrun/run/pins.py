"""Pinned versions of a run, and a log of its reads.

A run pins each table at first use; only its own commits move the pin. The reads behind a write
decide whether it may go on top of another writer's commit. So every reader records them: a Frame
carries its own, and a piece of work (a Dagster step, a dbt node) has one log of them.

Of a publish, a run sees all tables or none (see LaterPublishes).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from types import MappingProxyType

from duckrun.errors import TableNotFound, VersionNotReadable
from duckrun.lake.lake import Lake
from duckrun.lake.lakes import Lakes
from duckrun.run.work_log import Read, WorkLog
from duckrun.storage.storage import Storage
from duckrun.values.branches import PENDING, PLAN, PUBLISHED, PUBLISHES
from duckrun.values.frozen import frozen
from duckrun.values.rows import NO_TABLE
from duckrun.values.snapshot import Pin, Snapshot, TableRef
from duckrun.values.upkeep import WEEK


@frozen
class Reads:
    """Tables that rows are computed from."""

    newest: Mapping[str, Read] = field(default_factory=lambda: MappingProxyType({}))
    """Reads of newest versions, by location.

    Rows of a named version never change and are not included.
    """
    pins: frozenset[Pin] = frozenset()
    """Tables and versions to read when the rows are computed, including named versions."""

    @classmethod
    def of(cls, snapshot: Snapshot, read: Read | None = None) -> Reads:
        """Return the reads of a snapshot; ``read`` is set if it is the newest."""
        pin = snapshot.pin
        newest = {} if read is None else {snapshot.ref.location: read}
        return cls(newest, frozenset() if pin is None else frozenset((pin,)))

    def computed(self) -> Reads:
        """Return the reads of rows that are already computed, and so read no table any more."""
        return Reads(self.newest)

    def check(self) -> None:
        """Raise VersionNotReadable or TableNotFound if a pinned table was replaced or dropped."""
        for pin in self.pins:
            pin.check("read the table again, by sql() or table(name).toDF()")


NOTHING = Reads()


def together(*many: Reads) -> Reads:
    """Return the union of the reads of several sources."""
    newest: dict[str, Read] = {}
    for reads in many:
        for location, read in reads.newest.items():
            newest[location] = read.with_(newest.get(location))
    return Reads(newest, frozenset().union(*(reads.pins for reads in many)))


class Pins:
    """Snapshots of one run (a dbt invocation, Dagster step or statement), by location. Thread-safe.

    None hides an existing table from the run. ``advice`` is the remedy for a write whose input
    others have changed.

    Args:
        lakes: Lakes that the run reads.
        log: Log of its reads and commits.
        of_statement: The run is one statement. In an object store it does not look for publishes,
            which would cost each statement three requests.
    """

    advice = "read again and repeat"

    def __init__(self, lakes: Lakes, *, log: WorkLog | None = None, of_statement: bool = False) -> None:
        self._lakes = lakes
        self._of_statement = of_statement
        self._publishes: dict[str, LaterPublishes] = {}
        self._renewed: set[str] = set()
        self._lock = threading.Lock()
        self._pinned: dict[str, Snapshot | None] = {}
        self._shared: dict[str, int] = {}
        self._log = log or WorkLog()

    @property
    def log(self) -> WorkLog:
        """Reads and commits of the work that runs here."""
        return self._log

    def snapshot(self, ref: TableRef, load: Callable[..., Snapshot] | None = None) -> Snapshot:
        """Return the snapshot that this run reads, pinned at the first call.

        Tables of a lake with shared versions are all pinned at the version that was first read.

        Args:
            load: Opens the table, for a session that knows better how to.

        Raises:
            TableNotFound: No such table, or it is hidden from this run.
            VersionNotReadable: Another table has replaced the pinned one.
        """
        pinned = self._pin_of(ref, load)
        if pinned is None:
            self.log.note(ref.location, Read(NO_TABLE))
            raise TableNotFound(
                f"There is no table {ref} for this attempt: an earlier attempt of the same work made "
                "it, and this one reads and writes as if "
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
        load = load or self._lakes.snapshot
        publishes = None if ref.location in self._renewed else self._publishes_of(self._lakes.of(ref))
        loaded = load(ref)
        if publishes is not None:
            loaded = self._before(publishes, loaded, load)
        if loaded.shared is not None:
            lake, newest = loaded.shared
            with self._lock:
                at = self._shared.setdefault(lake, newest)
            if at != newest:  # others have committed to the lake since this run first read of it
                loaded = load(ref, at)
        read = self._read_of(loaded)
        with self._lock:
            return self._pinned.setdefault(ref.location, read)

    def _publishes_of(self, lake: Lake) -> LaterPublishes | None:
        """Return the publishes of a lake since this run first read it; None without a look."""
        if lake.format.logs is None or (self._of_statement and not lake.storage.is_local):
            return None
        if lake.root not in self._publishes:
            first = LaterPublishes(lake.storage)
            with self._lock:
                self._publishes.setdefault(lake.root, first)
        return self._publishes[lake.root]

    def _before(self, publishes: LaterPublishes, newest: Snapshot, load: Callable[..., Snapshot]) -> Snapshot:
        """Return the table before the publishes that this run does not see."""
        ref = newest.ref
        versions = publishes.versions_before(ref)
        if not versions or not self._lakes.of(ref).is_of_main(ref):
            return newest
        whole = [version for version in versions if version is not None]
        if len(whole) < len(versions):
            raise TableNotFound(
                f"There is no table {ref} for this run: a publish has made it since the run began to read this lake."
            )
        return load(ref, min(whole)) if min(whole) < newest.version else newest

    def _read_of(self, newest: Snapshot) -> Snapshot | None:
        """Return the snapshot to pin for a table at first use; None hides the table."""
        return newest

    def hides(self, ref: TableRef) -> bool:
        """True if an existing table is hidden from this run.

        This records that the run saw no table.
        """
        with self._lock:
            is_hidden = ref.location in self._pinned and self._pinned[ref.location] is None
        if is_hidden:
            self.log.note(ref.location, Read(NO_TABLE))
        return is_hidden

    def hidden(self) -> Iterator[TableRef]:
        """Yield the hidden tables, for listings of tables."""
        return iter(())

    def moved(self, ref: TableRef, snapshot: Snapshot | None) -> None:
        """Record that this run committed to the table, or (None) dropped it."""
        with self._lock:
            if snapshot is None:
                self._pinned.pop(ref.location, None)
            else:
                self._pinned[ref.location] = snapshot
        if snapshot is None:
            self.log.dropped(ref.location)

    def savepoint(self) -> Callable[[], None]:
        """Return a function that restores the pins, after a rollback of this run's commits."""
        with self._lock:
            pinned = dict(self._pinned)

        def restore() -> None:
            with self._lock:
                self._pinned = pinned

        return restore

    def pin(self, snapshot: Snapshot) -> None:
        """Pin a table at a version from now on."""
        with self._lock:
            self._pinned[snapshot.ref.location] = snapshot

    def renew(self, ref: TableRef) -> None:
        """Unpin a table, so that the next read takes its newest version for a retry."""
        with self._lock:
            before = self._pinned.pop(ref.location, None)
            if before is not None and before.shared is not None:
                self._shared.pop(before.shared[0], None)
            self._renewed.add(ref.location)
        self.log.forget(ref.location)


class LaterPublishes:
    """Publishes of a lake that end after this object is made.

    A run makes one before it first reads the lake, and reads each of their tables at the version
    before. So it sees all tables of a publish, or none.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._began = time.time()
        self._ended = frozenset(self._names(PUBLISHES))
        self._before: dict[str, dict[str, int | None]] = {}

    def _names(self, folder: str) -> list[str]:
        return self._storage.list_names(folder)[1]

    def versions_before(self, ref: TableRef) -> list[int | None]:
        """Return the version of a table before each of these publishes; None without a table.

        The caller has opened the newest version before, so no commit of a publish is overlooked.

        Raises:
            VersionNotReadable: The lake may have removed the record of one of these publishes.
        """
        if time.time() - self._began > WEEK.total_seconds() and self._has_later():
            raise VersionNotReadable(
                f"Table {ref}: this run began to read the lake more than a week ago, and branches were published since "
                "whose records are gone, so it could read one table from before a publish and another from after it",
                remedy="Begin a new run",
            )
        # In this order: a publish writes its record before it removes its plan.
        plans = [name.removesuffix(PLAN) for name in self._names(PENDING) if name.endswith(PLAN)]
        ids = {*plans, *(name.removesuffix(".json") for name in {*self._names(PUBLISHES)} - self._ended)}
        later = (self._versions(id) for id in sorted(ids) if f"{id}.json" not in self._ended)
        name = str(replace(ref, catalog=None))
        return [before[name] for before in later if name in before]

    def _has_later(self) -> bool:
        """True if a branch was published since, also without its record."""
        return any(key["modified"] > self._began for key in self._storage.keys(f"{self._storage.root}/{PUBLISHED}"))

    def _versions(self, id: str) -> dict[str, int | None]:
        """Return the versions before a publish, by table."""
        if id not in self._before:
            plan, record = (self._storage.read(path) for path in (f"{PENDING}/{id}{PLAN}", f"{PUBLISHES}/{id}.json"))
            if plan is not None and record is None:
                tables = json.loads(plan).get("tables", ())
                self._before[id] = {f"{each['schema']}.{each['name']}": each["before"] for each in tables}
            else:
                record = record or self._storage.read(f"{PUBLISHES}/{id}.json")
                self._before[id] = {} if record is None else json.loads(record).get("before", {})
        return self._before[id]
