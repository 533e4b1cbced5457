"""Reader of historic table states, for formats whose files and commits do not tell what changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from duckrun.values.changes import Between, LakeFunction, OwnFunction, StateRows, WeighedRead
from duckrun.values.snapshot import Snapshot, TableRef


class StateReader(Protocol):
    """Reader of a table's rows at any version of its lake.

    A format provides one if data files alone do not define a table's rows. Change queries then
    compare states instead of files.
    """

    def has_table(self, snapshot: Snapshot, version: int) -> bool:
        """True if a version of the lake has the table, or another table of the same name."""

    def first(self, snapshot: Snapshot, after: int) -> int:
        """Return the first version after ``after`` that has the table or another of its name."""

    def again(self, snapshot: Snapshot, version: int) -> Snapshot:
        """Return the same table at another version of the lake, whatever its name was then.

        Raises:
            VersionNotReadable: The version has expired or does not exist yet.
        """

    def read_at(self, snapshot: Snapshot) -> int:
        """Return the lake version at which a snapshot was read.

        The snapshot's own version may be older. Both have the same rows.
        """

    def at_time(self, ref: TableRef, timestamp: str) -> int:
        """Return the newest lake version at or before a time (ISO 8601).

        The version need not have the table.
        """

    def since_time(self, ref: TableRef, timestamp: str) -> int:
        """Return the first lake version at or after a time (ISO 8601)."""

    def refuse_unreadable(self, ref: TableRef, after: int, to: int, *, each: bool) -> None:
        """Raise VersionNotReadable if a version that a range needs has expired.

        The error names the oldest start that works.

        Args:
            each: Require every version of the range, not only its two ends.
        """

    def rows(self, steps: Sequence[Between], to: Snapshot, columns: Sequence[str]) -> Sequence[StateRows]:
        """Plan the reads whose signed rows add up to the difference of each step.

        Opens no data file.

        Args:
            steps: Ranges of versions to compare.
            to: Snapshot that defines the names and types of the columns.
            columns: Columns to read.
        """

    def whole(self, snapshot: Snapshot) -> StateRows:
        """Plan a read of all rows of a version, each with multiplicity 1."""

    def sql(self, to: Snapshot, read: WeighedRead) -> str | None:
        """Return a FROM clause of DuckDB SQL for the ``states`` of a read; None without any."""

    def own_sql(self, function: OwnFunction, to: Snapshot, first: int, last: int) -> str:
        """Return a FROM clause of DuckDB SQL that calls a change function of the format itself.

        Both ends of the range are included.
        """

    def lake_sql(self, function: LakeFunction) -> str:
        """Return a FROM clause of DuckDB SQL that calls a lake-wide function of the format."""
