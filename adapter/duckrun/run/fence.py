"""Fence of a write: what others have committed since the rows to write were read.

A commit that changes no row (a compaction, a property) does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from duckrun.errors import SourceOutdated, VersionNotReadable
from duckrun.formats.commits import CommitRecord
from duckrun.lake.lake import Lake
from duckrun.run.pins import Pins, Reads
from duckrun.run.work_log import Read, WorkLog
from duckrun.values.rows import NO_TABLE
from duckrun.values.snapshot import Snapshot, TableRef


@dataclass(eq=False)
class Fence:
    """Commits to one table, compared with the reads behind the rows of a write to it."""

    lake: Lake
    """Lake of the table."""
    ref: TableRef
    pins: Pins | None
    """Versions that the run around the write reads."""
    reads: Reads | None
    """Inputs of the rows; None if there are none."""
    log: WorkLog
    """Reads and commits of the piece of work around the write."""
    sees: Callable[[CommitRecord, str], bool] | None
    """Tells whether a commit changed rows of a condition. Without it, any commit may have."""
    _versions: dict[int, Snapshot] = field(default_factory=dict)
    """Cached versions of the table that the write has read."""
    _records: dict[int, CommitRecord] = field(default_factory=dict)
    """Cached commits that it has read."""
    _judged: tuple[Read, int] | None = None
    """A read, and the version up to which others' commits are known not to affect it."""

    def commits_after(self, version: int) -> list[CommitRecord]:
        """Return the commits after a version, oldest first."""
        past: list[CommitRecord] = []
        while (record := self._records.get(version + 1 + len(past))) is not None:
            past.append(record)
        known = self._versions.get(version + len(past))
        logs = self.lake.format.logs
        steps = None if known is None or logs is None else logs.caught_up(known)
        if steps is None:
            self._versions.clear()  # another table may have come to the place
            self._records.clear()
            return self.lake.format.records_after(self.ref, version)
        for record, after in steps:
            self._records[record.version], self._versions[record.version] = record, after
        return [*past, *(record for record, _ in steps)]

    def version(self, number: int) -> Snapshot:
        """Return a version of the table, cached if this fence has read it before."""
        return self._versions.get(number) or self.lake.format.snapshot(self.ref, number)

    def known(self, number: int) -> Snapshot | None:
        """Return a version of the table if it is cached."""
        return self._versions.get(number)

    def remember(self, snapshot: Snapshot) -> None:
        """Cache a version of the table."""
        self._versions[snapshot.version] = snapshot

    def read(self) -> Read | None:
        """Return the reads of the target behind the rows, by their source and by the run."""
        if self.reads is None:
            return None
        ran = None if self.pins is None else self.pins.log.read(self.ref.location)
        source = self.reads.newest.get(self.ref.location)
        return ran if source is None else source.with_(ran)

    def outdated_by(self, others: Sequence[CommitRecord]) -> bool:
        """True if commits of others changed rows that the rows to write were computed from.

        A commit that changes no row (a compaction, a property) does not count.
        """
        read = self.read()
        return read is not None and bool(self._changes(read, others))

    def _changes(self, read: Read, others: Sequence[CommitRecord]) -> list[CommitRecord]:
        return [
            other
            for other in others
            if other.changes_rows
            and not self.log.is_own(self.ref.location, other.version)
            and self.is_seen(read, other)
        ]

    def is_seen(self, read: Read, other: CommitRecord) -> bool:
        if read.predicates is None or self.sees is None:
            return True
        return any(self.sees(other, predicate) for predicate in sorted(read.predicates))

    def _is_another(self, snapshot: Snapshot, read: Read) -> bool:
        """True if a snapshot belongs to another table of the same name."""
        if self.lake.format.transactions is not None:
            return True
        if self.log.has_dropped(self.ref.location, read) or read.version > snapshot.version:
            return False  # the version says it
        try:  # Spark's CREATE OR REPLACE TABLE may change the id within one log
            return self.version(read.version).table_id != read.table_id
        except VersionNotReadable:
            return True

    def refuse_outdated(self, snapshot: Snapshot | None, mode: str) -> None:
        """Raise SourceOutdated if the table is not what the rows to write were computed from.

        No log is read while the version is the same.
        """
        read = self.read()
        if read is None:
            return
        newest = NO_TABLE if snapshot is None else snapshot.version
        if snapshot is not None and read.table_id not in ("", snapshot.table_id) and self._is_another(snapshot, read):
            raise self._outdated(read, mode, "another table has its name now")
        since = NO_TABLE if self.log.has_dropped(self.ref.location, read) else read.version
        if self._judged is not None and self._judged[0] == read and since < self._judged[1] <= newest:
            since = self._judged[1]  # no commit is judged twice, however often the race is lost
        if newest == since:
            return
        if newest < since:
            raise self._outdated(
                read, mode, "that table is gone" if snapshot is None else f"it is at version {newest} now"
            )
        commits = self.commits_after(since)
        others = [other for other in commits if not self.log.is_own(self.ref.location, other.version)]
        changes = self._changes(read, others)
        if changes:
            named = ", ".join(f"{other.version} ({other.operation})" for other in changes[:5])
            raise self._outdated(read, mode, f"version {named} has changed its rows since")
        if not self.lake.format.tells_since(self.ref, since, newest, commits):
            raise self._outdated(read, mode, f"the log no longer says what changed since, up to version {newest}")
        if (
            since != NO_TABLE
            and any(other.changes_metadata for other in others)
            and self._has_other_columns(read, snapshot)
        ):
            raise self._outdated(read, mode, f"it has other columns at version {newest}")
        if snapshot is not None:
            self._judged = (read, newest)

    def _has_other_columns(self, read: Read, snapshot: Snapshot | None) -> bool:
        try:
            before = self.lake.snapshot(self.ref, read.version)
        except VersionNotReadable:
            return True
        after = self.lake.snapshot(self.ref) if snapshot is None else snapshot
        return before.schema != after.schema or before.partition_columns != after.partition_columns

    def _outdated(self, read: Read, mode: str, why: str) -> SourceOutdated:
        advice = Pins.advice if self.pins is None else self.pins.advice
        seen = (
            f"from version {read.version} of that table" if read.version != NO_TABLE else "when there was no such table"
        )
        return SourceOutdated(
            f"{mode} on table {self.ref} was computed {seen}, and {why}", remedy=advice, version=read.version
        )
