"""Cache of the newest known version of each table, advanced commit by commit.

A log is opened once. A later version follows from the cached one: minus the files that its commit
removed, plus those that it added (Delta protocol, Action Reconciliation). This works while commits
contain only plain actions; otherwise the log is opened again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from deltalake.exceptions import DeltaError

from duckrun.errors import DuckrunError
from duckrun.formats.delta.definition.protocol import WRITTEN
from duckrun.formats.delta.files.logged import LoggedFiles
from duckrun.formats.delta.log.entries import ENTRY, LOG, CommitActions, entry, mark_at, mark_of, parse_commit
from duckrun.storage.storage import Storage, Written
from duckrun.values.frozen import frozen
from duckrun.values.snapshot import Snapshot, TableRef

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from duckrun.formats.delta.definition.definition import DeltaDefinition
    from duckrun.formats.delta.definition.protocol import Protocol

log = logging.getLogger(__name__)

# With this property, transactions expire by time and not by commits.
_NOT_PLAIN = ("delta.setTransactionRetentionDuration",)
_KEPT = 64
_KEPT_OPEN = 4
_FARTHEST = 100
"""Commits after which a log is opened again.

Readers treat a table with that many commits since its checkpoint in another way.
"""


@dataclass
class Known:
    """State of one version that its Snapshot does not contain."""

    mark: str
    """Identity of the version's commit, among all commits with that number."""
    opened_at: int
    """Version at which the log was opened."""
    under: str | None = None
    """Mark of the version before, if this one was derived from it."""
    is_own: bool = False
    """True if this process committed the version."""
    apps: Mapping[str, int | None] = field(default_factory=dict)
    """Versions that applications have committed; None for an application without one."""
    has_all_apps: bool = False
    """True if ``apps`` has all applications of the log."""
    listing: tuple[LoggedFiles, tuple[CommitActions, ...]] | None = None
    """Files of some version and the commits since; None if they were never requested."""
    definition: DeltaDefinition | None = None
    protocol: Protocol | None = None
    domains: Mapping[str, str] | None = None
    """Configurations of domains; None if they were never requested."""
    adds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Actions that added the files of recent writes, by path."""

    def files(self, read: Callable[[], LoggedFiles]) -> LoggedFiles:
        """Return the files; call ``read`` if they do not follow from the known listing."""
        listed, since = self.listing or (None, ())
        files = listed.after(since) if listed is not None and since else listed
        if files is None:
            files = read()
        self.listing = (files, ())
        return files

    def after(self, mark: str, actions: CommitActions) -> Known:
        """Return the state after one more commit."""
        apps = {**self.apps, **{app.app_id: app.version for app in actions.transactions}}
        listing = None if self.listing is None else (self.listing[0], (*self.listing[1], actions))
        changed = {each["domain"]: each["configuration"] for each in actions.domains}
        domains = None if self.domains is None else {**self.domains, **changed}
        touched = {action["path"] for action in (*actions.adds, *actions.removes)} if self.adds else ()
        adds = {path: add for path, add in self.adds.items() if path not in touched}
        return replace(
            self, mark=mark, under=self.mark, is_own=False, apps=apps, listing=listing, domains=domains, adds=adds
        )


@frozen
class Opened:
    """State that the format attaches to a snapshot."""

    known: Known | None
    """Known state of the version; None if the version was opened on its own."""
    reserved: list[DeltaTable] | None = None
    """Exclusive handle of the log for the one write that starts here; None for a read.

    The handle is at this version or an older one.
    """
    wrote: list[tuple[bytes, str]] = field(default_factory=list)
    """Commit that was written on top of the snapshot, with its mark."""
    is_caught_up: bool = False
    """True if a write that lost its version has just read the log up to here."""


class Newest:
    """Newest known versions of one format's tables.

    Safe across threads: a handle serves one write at a time.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[Snapshot, list[DeltaTable]]] = {}
        self._looked: tuple[tuple[str, int, str], DeltaTable] | None = None
        self._first: dict[str, tuple[bytes, str]] = {}

    def opened(self, snapshot: Snapshot, handle: DeltaTable, *, to_write: bool) -> Snapshot:
        """Cache a newest version that was just opened, if later commits can be applied to it.

        The handle goes to this write, or is cached for the next one.
        """
        mark = self._mark(snapshot.ref, snapshot.version) if is_plain(snapshot) else None
        if mark is None:
            return replace(snapshot, opened=Opened(None, [handle])) if to_write else snapshot
        return self.begun(snapshot, Known(mark, snapshot.version), [handle], to_write=to_write)

    def begun(self, snapshot: Snapshot, known: Known, handles: list[DeltaTable], *, to_write: bool) -> Snapshot:
        """Cache a newest version with its known state. The handles go to a write, or are cached."""
        cached = replace(snapshot, opened=Opened(known))
        self.keep(cached, [] if to_write else handles)
        return replace(snapshot, opened=Opened(known, handles)) if to_write else cached

    def find(self, ref: TableRef, *, to_write: bool = False) -> Snapshot | None:
        """Return the newest version of a table; None if the log has to be opened."""
        with self._lock:
            before, _ = self._kept.get(ref.location, (None, []))
        if before is None:
            return None
        newest = self._forward(before)
        with self._lock:
            now, handles = self._kept.get(ref.location, (None, []))
            if now is before and newest is None:
                del self._kept[ref.location]
            elif now is before and newest is not None:
                self._kept[ref.location] = (newest, handles)
            handle = [handles.pop()] if handles and to_write and now is before else []
        if newest is None:
            self._tell_of_replaced(before)
            return None
        return replace(newest, ref=ref, opened=Opened(newest.opened.known, handle if to_write else None))

    def _tell_of_replaced(self, cached: Snapshot) -> None:
        """Warn if a commit of this process is no longer in a log that has the commit before it."""
        # For local paths, Hadoop checks that an entry is missing and then renames Spark's file over
        # it. Source: writeInternal() of io.delta.storage.HDFSLogStore, FileContext.rename().
        known = known_of(cached)
        if known is None or not known.is_own or known.under is None:
            return
        ref, version = cached.ref, cached.version
        if self._mark(ref, version) not in (None, known.mark) and self._mark(ref, version - 1) == known.under:
            log.warning(
                "table %s: another writer has replaced version %s, which this session committed, by a commit of its "
                "own: the changes of the replaced commit are lost. Write them again, and let one writer at a time use "
                "this table, as the other one does not respect the log.",
                ref,
                version,
            )

    def at(self, ref: TableRef, version: int) -> Snapshot | None:
        """Return a version by its number, if it is the newest known one."""
        with self._lock:
            cached, _ = self._kept.get(ref.location, (None, []))
        if cached is None or cached.version != version:
            return None
        newest = self._forward(cached, version)
        return None if newest is None else replace(newest, ref=ref)

    def look(self, snapshot: Snapshot, known: Known, open_log: Callable[[], DeltaTable]) -> DeltaTable:
        """Return a shared handle of a version for reading, which nobody may advance.

        It is the last such handle, the cached one for the next write, or a new one.
        """
        key = (snapshot.ref.location, snapshot.version, known.mark)
        with self._lock:
            if self._looked is not None and self._looked[0] == key:
                return self._looked[1]
            cached, handles = self._kept.get(snapshot.ref.location, (None, []))
            same = cached is not None and cached.opened.known.mark == known.mark
            spare = handles.pop() if same and handles else None
        handle = moved(spare, snapshot.version) or open_log()
        self._looked = (key, handle)
        return handle

    def keep(self, snapshot: Snapshot, spare: Sequence[DeltaTable] = ()) -> None:
        """Cache a version as the newest one."""
        with self._lock:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            self._kept.pop(snapshot.ref.location, None)
            self._kept[snapshot.ref.location] = (snapshot, list(spare))
            # Only the last few handles stay, since each holds the list of the table's files.
            cached = [handles for _, handles in self._kept.values() if handles]
            for handles in cached[:-_KEPT_OPEN]:
                handles.clear()

    def committed(self, before: Snapshot, version: int) -> Snapshot | None:
        """Return the version that a write made on top of ``before``, with the write's handle."""
        try:
            newest = self._forward(before, version)
        except DuckrunError:  # the commit stands all the same
            newest = None
        if newest is None:
            return None
        handles = before.opened.reserved or []
        known = replace(newest.opened.known, is_own=True)
        return replace(newest, opened=Opened(known, [handles.pop()] if handles else []))

    def wrote(self, ref: TableRef, before: Snapshot | None, body: bytes, written: Written) -> None:
        """Remember a commit that was written on a snapshot, to save reading it from the log."""
        mark = mark_of(body) if self._storage.is_local else written.e_tag
        if before is None and mark is not None and not self._storage.is_local:
            self._first[ref.location] = (body, mark)
        elif before is not None and isinstance(before.opened, Opened) and mark is not None:
            before.opened.wrote[:] = [(body, mark)]

    def first(self, ref: TableRef) -> tuple[bytes, str] | None:
        """Return, once, the commit that made a table in a store, with its mark."""
        return self._first.pop(ref.location, None)

    def forget(self, location: str) -> None:
        """Forget the cached version of a table, whose log is another one now."""
        with self._lock:
            self._kept.pop(location, None)
            self._first.pop(location, None)

    def has(self, snapshot: Snapshot) -> bool:
        """True if the log is known to still have the snapshot's commit.

        False also if nothing is known about the snapshot.
        """
        known = known_of(snapshot)
        if known is None:
            mark = snapshot.long_log
            return mark is not None and mark == mark_at(self._storage, snapshot.ref.location, snapshot.version)
        return self._has(snapshot.ref, snapshot.version, known, self._present(snapshot.ref, snapshot.version, known))

    def advanced(self, before: Snapshot, version: int) -> DeltaTable | None:
        """Return the handle of a write that began on a long log, at the version that it made."""
        opened = before.opened if before.long_log is not None else None
        handles = opened.reserved if isinstance(opened, Opened) else None
        return moved(handles.pop(), version) if handles else None

    # -- from one version to the next

    def since(self, before: Snapshot) -> list[tuple[CommitActions, Snapshot]] | None:
        """Return the commits after a version, each with the snapshot that it made.

        The last snapshot gets the handle of the write that started from ``before``.

        Returns:
            None if the log has to be opened.
        """
        steps = self._steps(before, None)
        if steps:
            actions, last = steps[-1]
            self._bring_forward(replace(last, opened=Opened(last.opened.known)))
            opened = Opened(last.opened.known, before.opened.reserved or [], is_caught_up=True)
            steps[-1] = (actions, replace(last, opened=opened))
        return steps

    def _bring_forward(self, snapshot: Snapshot) -> None:
        """Advance the cached version to one that the log was just read up to."""
        with self._lock:
            newest, handles = self._kept.get(snapshot.ref.location, (None, []))
            if newest is not None and newest.version < snapshot.version:
                self._kept[snapshot.ref.location] = (snapshot, handles)

    def _forward(self, before: Snapshot, version: int | None = None) -> Snapshot | None:
        """Return the snapshot of ``version`` or the newest, derived from the commits since."""
        steps = self._steps(before, version)
        if steps is None:
            return None
        return steps[-1][1] if steps else replace(before, opened=Opened(before.opened.known))

    def _steps(self, before: Snapshot, version: int | None) -> list[tuple[CommitActions, Snapshot]] | None:
        """Return the commits up to ``version`` or the newest, each with its snapshot.

        Returns:
            None if plain commits do not tell the whole state.
        """
        if not isinstance(before.opened, Opened) or before.opened.known is None:
            return None
        known = before.opened.known
        wrote = before.opened.wrote if version == before.version + 1 else []
        commits = wrote or self._since(before.ref, before.version, known, version)
        if commits is None:
            return None
        steps = []
        for number, (body, mark) in enumerate(commits, before.version + 1):
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
        """Return the commits after a version, up to ``version`` or all, each with its mark.

        Returns:
            None if the log lacks a known commit, or a commit up to ``version``.
        """
        present = self._present(ref, before, known)
        if not self._has(ref, before, known, present):
            return None
        commits: list[tuple[bytes, str]] = []
        while version is None or before + len(commits) < version:
            number = before + 1 + len(commits)
            mark = None if present is None else present.get(number)
            if present is not None and mark is None:
                break
            body = self._storage.read_at(ref.location, entry(number))
            if body is None:
                break
            commits.append((body, mark or mark_of(body)))
        return commits if version is None or before + len(commits) == version else None

    def _present(self, ref: TableRef, version: int, known: Known) -> Mapping[int, str] | None:
        """Return the marks of a version's commit and of those after it; None on a local disk."""
        return None if self._storage.is_local else self._listed(ref, version - (known.under is not None))

    def _has(self, ref: TableRef, version: int, known: Known, present: Mapping[int, str] | None) -> bool:
        """True if the log still has the commits that are known."""
        if known.mark != self._mark(ref, version, present):
            return False
        return known.under is None or known.under == self._mark(ref, version - 1, present)

    def _mark(self, ref: TableRef, version: int, present: Mapping[int, str] | None = None) -> str | None:
        """Return the identity of a version's commit; None if the log lacks it.

        Another table with as many versions may have taken the same location.
        """
        if not self._storage.is_local:
            return (self._listed(ref, version) if present is None else present).get(version)
        return mark_at(self._storage, ref.location, version)

    def _listed(self, ref: TableRef, version: int) -> dict[int, str]:
        """Return the entity tags of the commits from a version on, by one listing."""
        tags = {}
        for key in self._storage.keys(ref.location, LOG, after=entry(version).removesuffix(".json")):
            name = ENTRY.fullmatch(key["path"])
            if name and key["e_tag"]:
                tags[int(name[1])] = str(key["e_tag"])
        return tags


def moved(handle: DeltaTable | None, version: int) -> DeltaTable | None:
    """Return an exclusive handle advanced to a version; None if that is not possible."""
    if handle is not None and handle.version() < version:
        with suppress(DeltaError):
            handle.update_incremental()
    return handle if handle is not None and handle.version() == version else None


def is_plain(snapshot: Snapshot) -> bool:
    """True if the state of later versions follows from plain commits."""
    features = snapshot.reader_features | snapshot.writer_features
    return not snapshot.long_log and features <= WRITTEN and not any(name in snapshot.properties for name in _NOT_PLAIN)


def state_of(snapshot: Snapshot) -> Known:
    """Return the known state of a snapshot, or an empty one that nothing caches."""
    return known_of(snapshot) or Known("", snapshot.version)


def known_of(snapshot: Snapshot) -> Known | None:
    """Return the known state of a snapshot; None if it was opened on its own."""
    return snapshot.opened.known if isinstance(snapshot.opened, Opened) else None


def is_caught_up(snapshot: Snapshot) -> bool:
    """True if a write that lost its version has just read the log up to this snapshot."""
    return isinstance(snapshot.opened, Opened) and snapshot.opened.is_caught_up
