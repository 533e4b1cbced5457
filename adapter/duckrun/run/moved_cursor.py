"""Commit of a consumer's offsets alone, when it has read on but has nothing to write."""

from __future__ import annotations

from duckrun.formats.commits import NewCommit
from duckrun.run.transaction import Transaction
from duckrun.values.rows import Commit, WriteSpec
from duckrun.values.snapshot import Snapshot


def move_cursor(transaction: Transaction) -> Commit:
    """Commit the application transaction to the consumer's table, without rows."""
    spec = WriteSpec("append", app=transaction.app, existing=True)

    def attempt(snapshot: Snapshot | None) -> Commit:
        transaction.check_fence(snapshot, spec)
        writer = transaction.lake.format.writer
        return transaction.commit(snapshot, NewCommit(spec, writer=writer, reason="the cursor moves", blind=True))

    return transaction.run(attempt, mode="cursor", engine="duckdb")
