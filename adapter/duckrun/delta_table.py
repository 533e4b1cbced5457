"""Table: one table of a session by Spark's own names, which is what DeltaTable is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from duckrun.errors import TableNotFound
from duckrun.frame import Frame
from duckrun.specs import Commit, ReadSpec
from duckrun.table import Snapshot, TableRef
from duckrun.transaction import Transaction

if TYPE_CHECKING:
    from duckrun.session import Session


class Table:
    """One table of a session: its state, its past, and the way back."""

    def __init__(self, session: Session, ref: TableRef) -> None:
        self.session = session
        self.ref = ref

    def __repr__(self) -> str:
        return f"Table({self.ref} at {self.ref.location})"

    def snapshot(self, version: int | None = None, timestamp: str | None = None) -> Snapshot:
        """The table at a version, at a time (ISO 8601), or now. Raises VersionNotReadable."""
        return self.session.lake.snapshot(self.ref, version, timestamp)

    def toDF(self, version: int | None = None, timestamp: str | None = None) -> Frame:
        """The rows at a version, at a time, or now: lazy."""
        return self.session.scan(self.ref, ReadSpec(version=version, timestamp=timestamp))

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The commits, newest first: version, timestamp (ms since 1970), operation, operationParameters, ..."""
        return self.session.lake.format.history(self.ref, limit)

    def detail(self) -> dict[str, Any]:
        """What Spark's DESCRIBE DETAIL gives: id, location, partitionColumns, numFiles, sizeInBytes, ..."""
        return self.session.lake.format.detail(self.ref)

    def restoreToVersion(self, version: int) -> Commit:
        """Make the table what it was at a version, as a new commit. Raises VersionNotReadable, ReadOnlyLake."""
        lake = self.session.lake
        lake.ensure_writable(self.ref)
        transaction = Transaction(lake, self.ref, pins=self.session._pins)

        def attempt(snapshot: Snapshot | None) -> Commit:
            if snapshot is None:
                raise TableNotFound(f"There is no table {self.ref} to restore.")
            lake.snapshot(self.ref, version)
            if version == snapshot.version:
                return Commit(
                    str(self.ref), self.ref.location, version, "restore", "duckdb", "none", "the table is at that version",
                    rows_inserted=0, rows_updated=0, rows_deleted=0, files_added=0, files_removed=0, bytes_added=0,
                )  # fmt: skip
            new = lake.format.restore(snapshot, version, transaction.note(reason=f"restored to version {version}"))
            return lake.format.commit_at(self.ref, new, mode="restore", engine="duckdb", writer="delta_rs")

        return transaction.run(attempt, mode="restore", engine="duckdb")
