"""Net change of a line: the difference of its head from its base.

The commits of a line are read once, so this costs as much as the branch has files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from duckrun.formats.commits import READS, CommitRecord, sums_of
from duckrun.formats.delta.definition.definition import DeltaDefinition
from duckrun.formats.delta.log.entries import ROW_TRACKING, CommitActions
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.values.branches import Line
from duckrun.values.snapshot import Snapshot, TableRef

_CLUSTERING = "delta.clustering"


@dataclass(frozen=True)
class NetChange:
    """Net change of a line."""

    base: Snapshot | None
    head: Snapshot
    removes: Mapping[str, dict[str, Any]]
    """Removes of files that the base has, by path in the log."""
    adds: Mapping[str, dict[str, Any]]
    """Adds of files, by path. A file of the base is here and in ``removes`` with another vector."""
    definition: DeltaDefinition | None
    """Definition of the head; None if it is that of the base."""
    transactions: Mapping[str, int]
    """Last version of each application."""
    domains: Mapping[str, Mapping[str, Any]]
    """Last action of each domain that no other part of a commit writes."""
    records: tuple[CommitRecord, ...]

    @property
    def data_change(self) -> bool:
        """False if the commits only move rows to other files."""
        files = [file for record in self.records for file in (*record.added, *record.removed)]
        return not files or any(file.changes_rows for file in files)

    @property
    def replaces_files(self) -> bool:
        """True if added files may have rows of removed files, so that a change feed must tell."""
        return (
            self.data_change
            and not self.adds.keys() <= self.removes.keys()
            and bool(self.removes.keys() - self.adds.keys())
        )

    @property
    def reads(self) -> tuple[str, ...] | None:
        """Conditions on the rows of main that the line depends on; None if it may be any row."""
        conditions: list[str] = []
        for record in self.records:
            # A commit that only moved rows depends on none.
            reads = record.note.get(READS, None if record.changes_rows else [])
            if reads is None:
                return None
            conditions += reads
        return tuple(dict.fromkeys(conditions))

    @property
    def rows(self) -> dict[str, int]:
        """Numbers of rows inserted, updated and deleted, where all commits tell them."""
        return sums_of(self.records)


def actions_of(tables: TableAccess, ref: TableRef, line: Line, newest: int) -> list[CommitActions]:
    """Return the commits of a line, oldest first."""
    commits = (tables.actions(ref, version) for version in range(line.base + 1, newest + 1))
    return [actions for actions in commits if actions is not None]


def net_change(tables: TableAccess, ref: TableRef, line: Line) -> NetChange:
    """Return the net change of a line."""
    head = tables.snapshot(ref)
    base = tables.snapshot(ref, line.base) if line.base >= 0 else None
    commits = actions_of(tables, ref, line, head.version)
    first: dict[str, dict[str, Any] | None] = {}
    last: dict[str, dict[str, Any] | None] = {}
    for commit in commits:
        for remove in commit.removes:
            first.setdefault(remove["path"], remove)
            last[remove["path"]] = None
        for add in commit.adds:
            first.setdefault(add["path"], None)
            last[add["path"]] = add
    same = {path for path, add in last.items() if add is not None and _is_same(first[path], add)}
    removes = {path: remove for path, remove in first.items() if remove is not None and path not in same}
    adds = {path: add for path, add in last.items() if add is not None and path not in same}
    definition = tables.definition(head)
    is_same = base is not None and definition == tables.definition(base)
    return NetChange(
        base,
        head,
        removes,
        adds,
        None if is_same else definition,
        {app.app_id: app.version for commit in commits for app in commit.transactions},
        {
            action["domain"]: action
            for commit in commits
            for action in commit.domains
            if action["domain"] not in (ROW_TRACKING, _CLUSTERING)
        },
        tuple(commit.record() for commit in commits),
    )


def _is_same(remove: Mapping[str, Any] | None, add: Mapping[str, Any]) -> bool:
    """True if a file comes back as the base has it."""
    return remove is not None and vector_of(remove) == vector_of(add)


def vector_of(action: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return the identity of an action's deletion vector; None without one."""
    vector = action.get("deletionVector")
    return None if not vector else tuple(vector.get(key) for key in ("storageType", "pathOrInlineDv", "offset"))
