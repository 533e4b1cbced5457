"""Application transactions that were committed to a Delta table, from its log.

Source: Delta protocol, Transaction Identifiers.
"""

from __future__ import annotations

from duckrun.formats.commits import commit_of
from duckrun.formats.delta.log.entries import CommitActions
from duckrun.formats.delta.versions.newest import state_of
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.values.cursors import Counter
from duckrun.values.rows import AppTransaction, Commit
from duckrun.values.snapshot import Snapshot, TableRef


def find_commit(
    tables: TableAccess, ref: TableRef, app: AppTransaction, newest: Snapshot | None = None
) -> Commit | None:
    """See Format. If the log no longer has the commit, the result says so instead of its counts."""
    newest = newest or tables.snapshot(ref)
    committed = _newest(tables, newest, app.app_id)
    if committed is None or committed < app.version:
        return None
    for actions in tables.actions_back(ref, newest.version):
        if app in actions.transactions:
            return actions.record().as_commit(ref)
    reason = f"the commit of {app.app_id} is no longer in the log; this is the newest version"
    return commit_of(ref, newest.version, {}, reason=reason)


def counter(tables: TableAccess, ref: TableRef, consumer: str, newest: Snapshot | None = None) -> Counter:
    """See Format. Source: Delta protocol, Transaction Identifiers."""
    newest = newest or tables.snapshot(ref)
    highest = _newest(tables, newest, consumer)
    if highest is None:
        return Counter()
    version = newest.version
    while version >= 0:
        actions = tables.actions(ref, version)
        if actions is None or str(actions.info.get("operation", "")).upper() == "CLONE":  # rows of another table
            return Counter(highest=highest, known=False)
        # The newest commit with the id tells its number: each one replaces the number before.
        for each in actions.transactions:
            if each.app_id == consumer:
                return Counter(each.version, highest)
        version = _before(tables, ref, actions)
    return Counter(highest=highest)


def _before(tables: TableAccess, ref: TableRef, commit: CommitActions) -> int:
    """Return the version that a commit continues; for a RESTORE, the one that it restores.

    A RESTORE leaves the transactions of the log unchanged.
    """
    if str(commit.info.get("operation", "")).upper() != "RESTORE":
        return commit.version - 1
    parameters = commit.info.get("operationParameters") or {}
    version = parameters.get("version")
    if version is not None:
        return int(version)
    return tables.snapshot(ref, timestamp=str(parameters.get("timestamp") or parameters.get("datetime"))).version


def _newest(tables: TableAccess, snapshot: Snapshot, app_id: str) -> int | None:
    known = state_of(snapshot)
    if app_id not in known.apps:
        known.apps = {**known.apps, app_id: tables.handle_of(snapshot).transaction_version(app_id)}
    return known.apps[app_id]
