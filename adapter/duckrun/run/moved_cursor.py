"""A commit of a consumer's offsets alone: it has read on, and nothing was to be written."""

from __future__ import annotations

from duckrun.formats.commits import NewCommit
from duckrun.run.transaction import Transaction
from duckrun.values.rows import Commit, WriterName, WriteSpec
from duckrun.values.snapshot import Snapshot


def move_cursor(transaction: Transaction) -> Commit:
    """Commit the application transaction of a frame to its table, with no row."""
    spec = WriteSpec("append", app=transaction.app, existing=True)

    def attempt(snapshot: Snapshot | None) -> Commit:
        transaction.check_fence(snapshot, spec)
        writer: WriterName = "ducklake" if transaction.lake.format.transacts else "staged"
        return transaction.commit(snapshot, NewCommit(spec, writer=writer, reason="the cursor moves", blind=True))

    return transaction.run(attempt, mode="cursor", engine="duckdb")
