"""Access to the rows of branches for a publish, and publishes that a session finishes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from duckrun.branches import publish as publishes
from duckrun.branches.lake import BranchLake
from duckrun.engines.duckdb.rows.reads import may_hold
from duckrun.errors import DuckrunError
from duckrun.formats.branches import RowAccess
from duckrun.formats.format import Format
from duckrun.lake.lake import Lake
from duckrun.sessions.opened import Opened
from duckrun.values.rows import ScanFile, StagedFile
from duckrun.values.snapshot import Snapshot, TableRef

log = logging.getLogger(__name__)


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
