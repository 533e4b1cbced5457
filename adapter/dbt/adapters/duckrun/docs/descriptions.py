"""persist_docs: the descriptions of a model in the comments of its Delta table."""

from __future__ import annotations

from collections.abc import Mapping

from dbt.adapters.duckrun.environment import LakeEnvironment

from duckrun.formats.format import NewCommit
from duckrun.values.rows import Commit
from duckrun.values.snapshot import Snapshot, TableRef


def describe(env: LakeEnvironment, ref: TableRef, description: str | None, comments: Mapping[str, str]) -> None:
    """Bring the descriptions in a Delta table up to date, by one metadata commit, and only if they differ."""
    lake = env.lakes.of(ref)
    if documented(lake.snapshot(ref), description, comments):
        return
    transaction = env.transaction(ref, f"describe/{ref}", rows=False)

    def attempt(snapshot: Snapshot | None) -> Commit:
        assert snapshot is not None, "the table was there a moment ago, and this process holds its lock"
        definition = lake.format.described(snapshot, description, comments)
        if definition is None:
            return transaction.nothing(snapshot, "the table says so already")
        return transaction.commit(snapshot, NewCommit(None, definition))

    transaction.run(attempt, mode="describe", engine="none")
    env.views_of(ref).moved(ref)


def documented(snapshot: Snapshot, description: str | None, comments: Mapping[str, str]) -> bool:
    """Whether a table says already what its model says."""
    if description is not None and description != snapshot.description:
        return False
    comments_now = {
        field.name.lower(): (field.metadata or {}).get(b"comment", b"").decode() for field in snapshot.schema
    }
    return all(comments_now.get(name.lower(), comment) == comment for name, comment in comments.items())
