"""Branches of a session's lake: list, compare, publish, discard."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from duckrun.branches import diff as diffs, publish as publishes, registry
from duckrun.branches.lake import BranchLake
from duckrun.engines.duckdb.rows.reads import may_hold
from duckrun.errors import DuckrunError
from duckrun.formats.branches import RowAccess
from duckrun.formats.format import Format
from duckrun.lake.lake import Lake
from duckrun.sessions.opened import Opened
from duckrun.values.branches import Branch, BranchDiff, BranchList, Published, TableDiff, check_branch_name
from duckrun.values.rows import ScanFile, StagedFile
from duckrun.values.snapshot import Snapshot, TableRef

log = logging.getLogger(__name__)


class Branches:
    """Branches of a session's lake.

    Args:
        session: A session of the lake, or of a branch of it.
        rows_of: Returns the changed rows of a table of a branch.
    """

    def __init__(self, session: Opened, rows_of: Callable[[Branch, TableDiff], Any]) -> None:
        self._session = session
        self._rows_of = rows_of

    @property
    def _main(self) -> Lake:
        """The lake itself, also in a session of a branch."""
        self._session.ensure_open()
        lake = self._session.lake
        return lake.main if isinstance(lake, BranchLake) else lake

    def all(self) -> BranchList:
        """Return the branches of the lake, by name."""
        return diffs.branches(self._main)

    def diff(self, name: str) -> BranchDiff:
        """Return the difference of a branch from main."""
        main = self._main
        publishes.refuse_no_branches(main)
        branch = registry.existing(main.storage, check_branch_name(name))
        return BranchDiff(name, diffs.diff(main, branch), partial(self._rows_of, branch))

    def publish(self, name: str) -> Published:
        """Commit the net changes of a branch to main."""
        return publishes.publish(self._main, check_branch_name(name), row_access(self._session))

    def rebase(self, name: str) -> dict[str, int]:
        """Let the tables of a branch continue from main's newest versions."""
        return publishes.rebase(self._main, check_branch_name(name), row_access(self._session))

    def discard(self, name: str) -> tuple[str, ...]:
        """Remove a branch; return the tables that it had changed."""
        return publishes.discard(self._main, check_branch_name(name), row_access(self._session))


def finish_publishes(session: Opened, lake: Lake) -> None:
    """Finish publishes of a lake whose process has ended, before a session's first write.

    In an object store only a session of a branch looks for them: it would cost each session a
    request.
    """
    if lake.format.logs is None or lake.read_only or not (lake.storage.is_local or isinstance(lake, BranchLake)):
        return
    try:
        publishes.recover_alone(lake.main if isinstance(lake, BranchLake) else lake, row_access(session))
    except DuckrunError as error:  # it is no reason to refuse another write
        log.warning("lake %s has an unfinished publish, which cannot be finished now: %s", lake.root, error)


def row_access(session: Opened) -> RowAccess:
    """Return the access to rows by the DuckDB engine of a session."""
    return RowAccess(partial(_sees, session), partial(_net_feed, session))


def _net_feed(session: Opened, form: Format, ref: TableRef, base: int, head: int) -> Sequence[StagedFile]:
    """Write the net changes of a branch's table (see formats.branches.Feeds)."""
    from duckrun.changes.changes import Changes, ChangeSpec  # few sessions publish such a table

    changes = Changes(form, ref, ChangeSpec("min_delta", base, head))
    if changes.to.variants:  # values that cannot be compared: readers take the changes from the files
        return ()
    return session.embedded.net_feed(form, changes.to, changes.rows(session.embedded))


def _sees(
    session: Opened, snapshot: Snapshot, files: Sequence[ScanFile], other: Snapshot | None, predicate: str
) -> bool:
    """True if files may hold rows of a predicate (see formats.branches.Sees)."""
    return may_hold(session.embedded.cursor(), predicate, snapshot, files, other)
