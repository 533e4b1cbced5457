"""persist_docs: the descriptions of a model as comments of its table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dbt.adapters.duckrun.environment import LakeEnvironment
from dbt.adapters.duckrun.model.config import column_comments

from duckrun.formats.commits import NewCommit
from duckrun.lake.lake import ViewDefinition
from duckrun.values.rows import Commit
from duckrun.values.snapshot import Snapshot, TableRef


def describe(env: LakeEnvironment, ref: TableRef, description: str | None, documented: Mapping[str, Any]) -> None:
    """Update the descriptions in a table by one metadata commit, only if they differ."""
    lake = env.lakes.of(ref)
    if isinstance(lake.definition(ref), ViewDefinition) or not lake.exists(ref):
        return
    present = lake.snapshot(ref)
    comments = column_comments(documented, present.schema.names)
    if lake.format.definition(present).described(description, comments) is None:
        return
    transaction = env.transaction(ref, f"describe/{ref}", rows=False)

    def attempt(snapshot: Snapshot | None) -> Commit:
        assert snapshot is not None, "the table was there a moment ago, and this process holds its lock"
        definition = lake.format.definition(snapshot).described(description, comments)
        if definition is None:
            return transaction.nothing(snapshot, "the table says so already")
        return transaction.commit(snapshot, NewCommit(None, definition))

    transaction.run(attempt, mode="describe", engine="none", rerun=lambda: "again")
    env.views_of(ref).moved(ref)
