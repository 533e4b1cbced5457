"""Protocol of the writers of a whole commit, and the values that they take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

import duckdb

from duckrun.engines.duckdb.rows.computed import Computed
from duckrun.engines.duckdb.rows.fitted import Filled
from duckrun.engines.duckdb.rows.places import Numbered
from duckrun.engines.duckdb.rows.reads import Read
from duckrun.engines.duckdb.rows.source import Rows
from duckrun.engines.duckdb.rows.streams import Streams
from duckrun.engines.duckdb.writers.delta_rs import DeltaRs
from duckrun.formats.commits import NewCommit, RowCounts
from duckrun.run.transaction import Transaction
from duckrun.values.frozen import frozen
from duckrun.values.rows import Commit, MemoryShares, WriteSpec
from duckrun.values.snapshot import Snapshot

REPLACED = "rows are replaced in one commit"


WriteRows = Callable[[Rows | None, Snapshot | None], Commit]
"""Writes rows to the table of a snapshot, in an attempt that a writer has prepared."""


@frozen
class WholeRows:
    """All rows of a table, for a write that creates or overwrites it."""

    spec: WriteSpec
    rows: Rows
    stored: Mapping[str, str]
    """Columns of the table and their DuckDB types."""
    partition_by: tuple[str, ...]
    """Partition keys of the table."""
    computed: Computed | None
    """Computed columns that the table keeps; None for a new definition."""

    @property
    def filled(self) -> Filled:
        return {name: (name if name in self.rows.types else None, kind) for name, kind in self.stored.items()}


@frozen
class RowChanges:
    """Rows that one commit deletes, updates and inserts."""

    table: Numbered
    """Table with file and row number of each row."""
    changes: str
    """Computed table with file and row number of each changed row; NULL for a new row."""
    added: Callable[[], Rows | None]
    """Returns the rows to add, for a writer that adds inserted and updated rows alike."""
    reason: str
    """Text for the commit."""
    counts: RowCounts
    """Inserted, updated and deleted rows; None for a count that the writer derives."""
    old: str = "'delete'"
    """SQL over a row of the changes: the change type of the old row."""
    new: Callable[[], Sequence[tuple[str, Rows]]] = tuple
    """Returns pairs of change type and new rows, for the change feed and for statements."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Next number of each identity column, if the added rows do not tell."""


class TableWriter(Protocol):
    """Writer of one write, over all of its attempts. The format's role decides the class."""

    transaction: Transaction
    """Transaction of the table."""
    streams: Streams
    """Source of the write, if it is a stream."""
    updates_from_changes: bool
    """True if statements take the values of updated rows from the table of the changes."""

    @property
    def delta_rs(self) -> DeltaRs | None:
        """delta_rs as alternative; None if the format has no files of its own."""

    @property
    def shares(self) -> MemoryShares:
        """Memory that the write may use."""

    def attempt(
        self, rows: Rows | None, cursor: duckdb.DuckDBPyConnection, snapshot: Snapshot | None, write: WriteRows
    ) -> Commit:
        """Run one attempt: prepare the rows and the snapshot, then call ``write``."""

    def check(self, snapshot: Snapshot) -> None:
        """Raise InvalidConfig or UnsupportedFeature if the existing table cannot be written."""

    def write_all(self, whole: WholeRows, snapshot: Snapshot | None) -> Commit:
        """Create a table, or replace all rows of one, and its definition if that changes."""

    def append(self, rows: Rows, snapshot: Snapshot) -> Commit:
        """Add rows that fit the table."""

    def swap_files(
        self, snapshot: Snapshot, rows: Rows | None, predicate: str | None, cursor: duckdb.DuckDBPyConnection
    ) -> NewCommit | None:
        """Replace whole files by rows, without a search for the rows in them.

        Args:
            snapshot: The table.
            rows: Rows to add; None deletes only.
            predicate: Rows to remove. With None a delete removes all rows, and a replace those in
                the partitions of the new rows.
            cursor: Cursor of the write.

        Returns:
            None if the rows must be found first; see ``rewrite()``.
        """

    def rewrite(self, rows: RowChanges) -> NewCommit:
        """Write changed rows, for a ``commit()`` after it."""

    def commit(self, snapshot: Snapshot, new: NewCommit, read: Callable[[], Read]) -> Commit:
        """Make a commit whose files are staged, or whose rows a transaction has.

        Args:
            snapshot: Version that the commit was computed from.
            new: The commit.
            read: Rows of other writers that would have changed this commit. It is called only if
                such rows may have been committed meanwhile.
        """
