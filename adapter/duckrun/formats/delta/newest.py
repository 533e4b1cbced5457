"""The newest version that is known of each table, brought forward by the commits since and not read anew.

A log is opened once. From then on a version is the one before it, less the files that its commit removed and with those that it added,
as long as the commit holds nothing but plain actions (Delta protocol, Action Reconciliation); else the log is opened again.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from duckrun.errors import DuckrunError
from duckrun.formats.delta.files import LoggedFiles
from duckrun.formats.delta.log import LOG, CommitActions, entry, parse_commit
from duckrun.formats.delta.protocol import WRITTEN
from duckrun.storage.storage import Storage, Written
from duckrun.values.snapshot import Snapshot, TableRef

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from duckrun.formats.delta.definition import DeltaDefinition
    from duckrun.formats.delta.protocol import Protocol

_NOT_PLAIN = ("delta.setTransactionRetentionDuration",)
_KEPT = 64
_KEPT_OPEN = 4
_COMMIT = re.compile(r"/(\d{20})\.json$")
_FARTHEST = 100
"""Commits after which a log is opened all the same: readers treat a table with as many since its checkpoint in another way."""


@dataclass
class Known:
    """What is known of one version beside its Snapshot. ``mark`` tells its commit from any other of its number, ``under`` that of the
    version before, which this one was put on; ``opened_at`` is the version at which the log was opened. ``apps`` are the versions that applications have committed, None for one that has none.
    ``listing`` are the files of some version and the commits since, None where nobody has asked for files.
    """

    mark: str
    opened_at: int
    under: str | None = None
    apps: Mapping[str, int | None] = field(default_factory=dict)
    listing: tuple[LoggedFiles, tuple[CommitActions, ...]] | None = None
    definition: DeltaDefinition | None = None
    protocol: Protocol | None = None
    domains: Mapping[str, str] | None = None
    """What the log says under names of systems; None where nobody has asked."""

    def files(self, read: Callable[[], LoggedFiles]) -> LoggedFiles:
        """The files, by ``read`` where they do not follow from what is known."""
        files = None if self.listing is None else self.listing[0].after(self.listing[1])
        if files is None:
            files = read()
        self.listing = (files, ())
        return files

    def after(self, mark: str, actions: CommitActions) -> Known:
        """What is known once one more commit is there."""
        apps = {**self.apps, **{app.app_id: app.version for app in actions.transactions}}
        listing = None if self.listing is None else (self.listing[0], (*self.listing[1], actions))
        said = {each["domain"]: each["configuration"] for each in actions.domains}
        domains = None if self.domains is None else {**self.domains, **said}
        return replace(self, mark=mark, under=self.mark, apps=apps, listing=listing, domains=domains)


@dataclass(frozen=True)
class Opened:
    """What the format holds of a snapshot: what is ``known`` of its version, and for the one write that begins from it (None: it is to
    be read) a handle of its log, at this version or an older one, which nobody else has. ``wrote`` is the commit that was put on it.
    """

    known: Known | None
    own: list[DeltaTable] | None = None
    wrote: list[tuple[bytes, str]] = field(default_factory=list)


class Newest:
    """The newest known versions of one format's tables. Safe across threads: a handle is given to one write at a time."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[Snapshot, list[DeltaTable]]] = {}
        self._looked: tuple[tuple[str, int, str], DeltaTable] | None = None

    def opened(self, snapshot: Snapshot, handle: DeltaTable, *, to_write: bool) -> Snapshot:
        """A newest version that was just opened, kept if commits to come can be applied to it. The handle is the write's, or that of
        the next one.
        """
        mark = self._mark(snapshot.ref, snapshot.version) if _is_plain(snapshot) else None
        if mark is None:
            return replace(snapshot, opened=Opened(None, [handle])) if to_write else snapshot
        known = Known(mark, snapshot.version)
        kept = replace(snapshot, opened=Opened(known))
        self.keep(kept, [] if to_write else [handle])
        return replace(snapshot, opened=Opened(known, [handle])) if to_write else kept

    def find(self, ref: TableRef, *, to_write: bool = False) -> Snapshot | None:
        """The newest version of a table; None where that takes an opening of the log."""
        with self._lock:
            before, _ = self._kept.get(ref.location, (None, []))
        if before is None:
            return None
        found = self._forward(before)
        with self._lock:
            now, own = self._kept.get(ref.location, (None, []))
            if now is before and found is None:
                del self._kept[ref.location]
            elif now is before and found is not None:
                self._kept[ref.location] = (found, own)
            given = [own.pop()] if own and to_write and now is before else []
        if found is None:
            return None
        return replace(found, ref=ref, opened=Opened(found.opened.known, given if to_write else None))

    def at(self, ref: TableRef, version: int) -> Snapshot | None:
        """A version by its number, where it is the newest that is known."""
        with self._lock:
            kept, _ = self._kept.get(ref.location, (None, []))
        if kept is None or kept.version != version:
            return None
        found = self._forward(kept, version)
        return None if found is None else replace(found, ref=ref)

    def look(self, snapshot: Snapshot, known: Known, anew: Callable[[], DeltaTable]) -> DeltaTable:
        """A handle of a version to look at, which nobody moves: the last one again, that of the next write, or a new one."""
        key = (snapshot.ref.location, snapshot.version, known.mark)
        with self._lock:
            if self._looked is not None and self._looked[0] == key:
                return self._looked[1]
            kept, own = self._kept.get(snapshot.ref.location, (None, []))
            same = kept is not None and kept.opened.known.mark == known.mark
            held = own.pop() if same and own else None
        handle = moved(held, snapshot.version) or anew()
        self._looked = (key, handle)
        return handle

    def keep(self, snapshot: Snapshot, own: Sequence[DeltaTable] = ()) -> None:
        """Keep a version as the newest one. Of the handles only the last few stay: each holds the list of the table's files."""
        with self._lock:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            self._kept.pop(snapshot.ref.location, None)
            self._kept[snapshot.ref.location] = (snapshot, list(own))
            held = [handles for _, handles in self._kept.values() if handles]
            for handles in held[:-_KEPT_OPEN]:
                handles.clear()

    def committed(self, before: Snapshot, version: int) -> Snapshot | None:
        """The version that a write just made, beginning from another one; it has the handle that the write had."""
        try:
            found = self._forward(before, version)
        except DuckrunError:  # the commit stands all the same
            found = None
        if found is None:
            return None
        own = before.opened.own or []
        return replace(found, opened=Opened(found.opened.known, [own.pop()] if own else []))

    def wrote(self, before: Snapshot | None, body: bytes, written: Written) -> None:
        """Remember the commit that was put on a snapshot, so that nobody reads it in the log."""
        mark = _hash(body) if self._storage.is_local else written.e_tag
        if before is not None and isinstance(before.opened, Opened) and mark is not None:
            before.opened.wrote[:] = [(body, mark)]

    def has(self, snapshot: Snapshot) -> bool:
        """True if the log is known to have a snapshot's commit still; False also where nothing is known of it."""
        known = known_of(snapshot)
        return known is not None and self._has(
            snapshot.ref, snapshot.version, known, self._present(snapshot.ref, snapshot.version, known)
        )

    # -- from one version to the next

    def since(self, before: Snapshot) -> list[tuple[CommitActions, Snapshot]] | None:
        """The commits after a version, each with the snapshot that it made; None where the log has to be opened. The last snapshot has
        the handle of the write that began from ``before``.
        """
        steps = self._steps(before, None)
        if steps:
            actions, last = steps[-1]
            self._bring_forward(replace(last, opened=Opened(last.opened.known)))
            steps[-1] = (actions, replace(last, opened=Opened(last.opened.known, before.opened.own or [])))
        return steps

    def _bring_forward(self, snapshot: Snapshot) -> None:
        """Go on from a version that the log was just read up to, so that nobody reads those commits again."""
        with self._lock:
            newest, own = self._kept.get(snapshot.ref.location, (None, []))
            if newest is not None and newest.version < snapshot.version:
                self._kept[snapshot.ref.location] = (snapshot, own)

    def _forward(self, before: Snapshot, version: int | None = None) -> Snapshot | None:
        """A snapshot at a later version (None: the newest), if it follows from the commits since."""
        steps = self._steps(before, version)
        if steps is None:
            return None
        return steps[-1][1] if steps else replace(before, opened=Opened(before.opened.known))

    def _steps(self, before: Snapshot, version: int | None) -> list[tuple[CommitActions, Snapshot]] | None:
        """The commits after a version up to another one (None: the newest), each with its snapshot; None where they do not tell all of it."""
        if not isinstance(before.opened, Opened) or before.opened.known is None:
            return None
        known = before.opened.known
        wrote = before.opened.wrote if version == before.version + 1 else []
        found = wrote or self._since(before.ref, before.version, known, version)
        if found is None:
            return None
        steps = []
        for number, (body, mark) in enumerate(found, before.version + 1):
            try:
                actions = parse_commit(number, body)
            except (ValueError, KeyError, TypeError, AttributeError):
                return None
            if not actions.is_plain or number - known.opened_at >= _FARTHEST:
                return None
            known = known.after(mark, actions)
            steps.append((actions, replace(before, version=number, opened=Opened(known))))
        return steps

    def _since(self, ref: TableRef, before: int, known: Known, version: int | None) -> list[tuple[bytes, str]] | None:
        """The commits after a version, up to another one or all, each with its mark; None where the log has not, or no longer, what is
        known to be in it, or not all up to that version.
        """
        present = self._present(ref, before, known)
        if not self._has(ref, before, known, present):
            return None
        found: list[tuple[bytes, str]] = []
        while version is None or before + len(found) < version:
            number = before + 1 + len(found)
            mark = None if present is None else present.get(number)
            if present is not None and mark is None:
                break
            body = self._storage.read_at(ref.location, entry(number))
            if body is None:
                break
            found.append((body, mark or _hash(body)))
        return found if version is None or before + len(found) == version else None

    def _present(self, ref: TableRef, version: int, known: Known) -> Mapping[int, str] | None:
        """The commits of an object store that tell whether a version is the one that is known, and those after it."""
        return None if self._storage.is_local else self._listed(ref, version - (known.under is not None))

    def _has(self, ref: TableRef, version: int, known: Known, present: Mapping[int, str] | None) -> bool:
        """True if the log has what is known to be in it."""
        if known.mark != self._mark(ref, version, present):
            return False
        return known.under is None or known.under == self._mark(ref, version - 1, present)

    def _mark(self, ref: TableRef, version: int, present: Mapping[int, str] | None = None) -> str | None:
        """What tells the commit of a version from any other: another table may have come to the place, with as many versions."""
        if not self._storage.is_local:
            return (self._listed(ref, version) if present is None else present).get(version)
        body = self._storage.read_at(ref.location, entry(version))
        return None if body is None else _hash(body)

    def _listed(self, ref: TableRef, version: int) -> dict[int, str]:
        """The commits from a version on, each with its entity tag, by one listing."""
        found = {}
        for key in self._storage.keys(ref.location, LOG, after=entry(version).removesuffix(".json")):
            name = _COMMIT.search(key["path"])
            if name and key["e_tag"]:
                found[int(name[1])] = str(key["e_tag"])
        return found


def moved(handle: DeltaTable | None, version: int) -> DeltaTable | None:
    """A handle that is nobody else's, moved forward to a version; None where it cannot be."""
    if handle is not None and handle.version() < version:
        with suppress(DeltaError):
            handle.update_incremental()
    return handle if handle is not None and handle.version() == version else None


def _is_plain(snapshot: Snapshot) -> bool:
    features = snapshot.reader_features | snapshot.writer_features
    return not snapshot.long_log and features <= WRITTEN and not any(name in snapshot.properties for name in _NOT_PLAIN)


def _hash(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def known_of(snapshot: Snapshot) -> Known | None:
    """What is known beside a snapshot; None where it was opened for itself."""
    return snapshot.opened.known if isinstance(snapshot.opened, Opened) else None
