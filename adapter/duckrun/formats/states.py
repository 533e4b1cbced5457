"""What reads the states of a lake's tables for change queries, where files and commits alone do not say what changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from duckrun.values.changes import Between, LakeFunction, OwnFunction, StateRows
from duckrun.values.snapshot import Snapshot, TableRef


class StateReader(Protocol):
    """The states of a lake's tables, for a format whose files alone do not say what a table held: it reads the rows of each itself."""

    def begun(self, snapshot: Snapshot) -> int:
        """The first version of the lake that has the table; before it there is none, which is no error."""

    def has_table(self, snapshot: Snapshot, version: int) -> bool:
        """True if the table, or another one in its place, is there at a version of the lake."""

    def first(self, snapshot: Snapshot, after: int) -> int:
        """The first version behind one that has the table, or another one in its place."""

    def again(self, snapshot: Snapshot, version: int) -> Snapshot:
        """The same table at another version of the lake, whatever its name was then. Raises VersionNotReadable."""

    def read_at(self, snapshot: Snapshot) -> int:
        """The version of the lake at which a snapshot was read; its own may be an older one, which reads the same."""

    def at_time(self, ref: TableRef, timestamp: str) -> int:
        """The newest version of the lake at or before a time (ISO 8601), whether it has the table or not."""

    def since_time(self, ref: TableRef, timestamp: str) -> int:
        """The first version of the lake that is no older than a time (ISO 8601)."""

    def refuse_unreadable(self, ref: TableRef, after: int, to: int, *, each: bool) -> None:
        """Raise VersionNotReadable, with the oldest beginning that works, where a version that a range needs is gone: its ends, or
        ``each`` one in it.
        """

    def rows(self, steps: Sequence[Between], to: Snapshot, columns: Sequence[str]) -> Sequence[StateRows]:
        """What to read so that the rows of each step sum up to its difference, in the columns and types of ``to``. No data file is opened."""

    def whole(self, snapshot: Snapshot) -> StateRows:
        """All rows of a version, each of which counts once."""

    def sql(
        self,
        to: Snapshot,
        states: Sequence[StateRows],
        *,
        weight: str,
        step: str,
        row_id: str | None = None,
        row_commit: str | None = None,
    ) -> str | None:
        """The rows as DuckDB's SQL behind FROM, with how often each counts, in which step, and if asked its id and the version that wrote it;
        None where there is nothing to read.
        """

    def own_sql(self, function: OwnFunction, to: Snapshot, first: int, last: int) -> str:
        """What the format itself says changed in a table, both versions included, as DuckDB's SQL behind FROM."""

    def lake_sql(self, function: LakeFunction) -> str:
        """What the format itself says of the lake, as DuckDB's SQL behind FROM."""
