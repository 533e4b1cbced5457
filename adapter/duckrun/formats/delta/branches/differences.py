"""Differences of the files of a branch's versions from those of main at the fork.

They follow from the branch's own commits, whatever the size of the table.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache

from duckrun.formats.delta.files.logged import names_of_parts, scan_file
from duckrun.formats.delta.files.scan_sql import Difference
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.values.branches import Line
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot

_FEW = 200
"""Number of main's files up to which reading each by its name is faster than main's log."""


@dataclass(frozen=True)
class _Changed:
    """Files that the commits of a line changed up to a version."""

    log: str
    base: Snapshot
    """Main's version."""
    version: int
    live: dict[str, ScanFile | None] = field(default_factory=dict)
    """Added files by path in the log; None for a removed one."""
    gone: dict[str, ScanFile] = field(default_factory=dict)
    """Files of main that they removed, also to add them with another deletion vector."""


class Differences:
    """Differences of tables in a branch from main. Commits are read once."""

    def __init__(self, tables: TableAccess) -> None:
        self._tables = tables
        self._changed: dict[str, _Changed] = {}

    def of(self, snapshot: Snapshot, line: Line) -> Difference | None:
        """Return the difference of a version from main.

        Returns:
            None if the branch shares few files with main, or has changed the table's definition.
        """
        if line.base < 0 or len(snapshot.files()) <= _FEW:
            return None
        changed = self._after(snapshot, line)
        if changed is None:
            return None
        new = [file for file in changed.live.values() if file is not None]
        if len(snapshot.files()) - len(new) <= _FEW:
            return None
        # Bounds of main's other files are not read.
        base = replace(changed.base, find_rounded=lambda _: snapshot.rounded())
        return Difference(base, list(changed.gone.values()), new)

    def _after(self, snapshot: Snapshot, line: Line) -> _Changed | None:
        """Return the changed files; None if a commit changes the definition, or is missing."""
        location, log, names = snapshot.ref.location, f"{line.folder}/{line.log}", names_of_parts(snapshot)
        known = self._changed.get(location)
        if known is None or known.log != log or known.version > snapshot.version:
            known = _Changed(log, _base(snapshot, line), line.base)
        live, gone = dict(known.live), dict(known.gone)
        for version in range(known.version + 1, snapshot.version + 1):
            actions = self._tables.actions(snapshot.ref, version)
            if actions is None or actions.changes_metadata:
                return None
            for remove in actions.removes:
                if remove["path"] not in live:
                    gone[remove["path"]] = scan_file(remove, names)
                live[remove["path"]] = None
            for add in actions.adds:
                live[add["path"]] = scan_file(add, names)
        changed = self._changed[location] = _Changed(log, known.base, snapshot.version, live, gone)
        return changed


def _base(snapshot: Snapshot, line: Line) -> Snapshot:
    """Return main's version, which has the definition of a version of the branch."""
    base = replace(snapshot, version=line.base, opened=None, long_log=None)
    legacy = cache(base.legacy)
    return replace(base, find_legacy=lambda _: legacy())
