"""Protocol of a format in a branch, and what a branch's line tells those who publish it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from duckrun.errors import CommitConflict, InvalidConfig, LostRows, UnsupportedFeature
from duckrun.formats.commits import CommitRecord
from duckrun.formats.format import Format
from duckrun.storage.storage import Storage
from duckrun.values.branches import Line
from duckrun.values.rows import ScanFile, StagedFile
from duckrun.values.snapshot import Snapshot, TableRef

REFUSALS = (CommitConflict, InvalidConfig, LostRows, UnsupportedFeature)
"""Errors of a commit that it would meet again if it was repeated."""

Sees = Callable[[Snapshot, Sequence[ScanFile], Snapshot | None, str], bool]
"""Tells whether files of a version may hold rows of a predicate (DuckDB's SQL).

With another version, only rows count that the files do not have there.
"""

Feeds = Callable[[Format, TableRef, int, int], Sequence[StagedFile]]
"""Writes the net changes of rows between two versions of a format's table, as files of its feed."""


@dataclass(frozen=True)
class RowAccess:
    """Access to rows that a publish needs from an engine."""

    sees: Sees
    feed: Feeds


@dataclass(frozen=True)
class PlannedTable:
    """One table of a publish, as its record describes it."""

    schema: str
    name: str
    location: str
    change: str
    """``changed``, ``created``, ``replaced`` or ``dropped``."""
    before: int | None
    """Main's version when the publish was validated; None if there was no table."""
    feed: tuple[str, ...] = ()
    """Files of the change feed, as JSON. They are written before a process decides to commit."""

    @property
    def ref(self) -> TableRef:
        return TableRef(self.schema, self.name, self.location)


class BranchTables(Format, Protocol):
    """Format of a lake in a branch."""

    storage: Storage

    def close(self) -> None:
        """Remove local copies of logs."""

    def line(self, ref: TableRef) -> Line | None:
        """Return the line of a table; None for a table without a fork."""

    def change(self, ref: TableRef, line: Line) -> str | None:
        """Return what the line does to main's table, as in PlannedTable; None for nothing."""

    def commits(self, ref: TableRef, line: Line) -> list[CommitRecord]:
        """Return the commits of the branch to a table, oldest first."""

    def app_versions(self, ref: TableRef, line: Line) -> Mapping[str, int]:
        """Return the last version of each application that the branch has committed to a table."""

    def schema_changes(self, ref: TableRef, line: Line) -> tuple[str, ...]:
        """Return the differences of columns, partitions and constraints from the base, in words."""

    def conflicts(self, main: Format, ref: TableRef, line: Line, sees: Sees) -> list[str]:
        """Return why main's table cannot take the net change of a line; empty if it can.

        All checks of its commit are made, also those that each commit makes.
        """

    def net_feed(self, main: Format, ref: TableRef, line: Line, feed: Feeds) -> Sequence[StagedFile]:
        """Write the change feed of a line's net change; empty if readers need none.

        Main's files tell their own changes, except if a file replaces others.
        """

    def publish(self, main: Format, table: PlannedTable, line: Line, id: str, sees: Sees) -> int | None:
        """Commit the net change of a line to main's table, once, and return the version.

        Returns:
            None if the table is dropped.

        Raises:
            CommitConflict: Main's table has changed meanwhile, and cannot take it.
        """

    def rebase(self, main: Format, ref: TableRef, line: Line, id: str, sees: Sees) -> int | None:
        """Let a line continue from main's newest version, with its net change as one commit.

        The caller holds the lock of publishes, and has sealed the line.

        Returns:
            The version in the branch; None if there is nothing to do.

        Raises:
            CommitConflict: Main's table cannot take the net change.
        """

    def seal(self, ref: TableRef, line: Line, id: str) -> Line:
        """End the line: no commit may follow.

        Returns:
            The line, or the one that has taken its place meanwhile.

        Raises:
            CommitConflict: Another publish has sealed it.
        """

    def unseal(self, ref: TableRef, line: Line, id: str) -> None:
        """Let commits follow again, if this publish has sealed the line."""

    def forget(self, ref: TableRef) -> None:
        """Remove the file of a line, so that the table is main's."""
