"""Commits that landed in another table's log.

Their table was dropped and created again during the write. An entry is written to a path, not to a
table, and that log accepts any entry with a number that it lacks. So each commit checks afterwards
that the log is still the one it started from. It removes an entry that landed elsewhere.
"""

from __future__ import annotations

from contextlib import suppress

from duckrun.errors import CommitConflict, DuckrunError, TableNotFound, VersionNotReadable, note_commit
from duckrun.formats.commits import CommitTaken
from duckrun.formats.delta.commits.restore import restore
from duckrun.formats.delta.log.checkpoints import newest_whole
from duckrun.formats.delta.log.entries import LOG, CommitActions, entry
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.values.snapshot import Snapshot, TableRef


def check_landed(tables: TableAccess, snapshot: Snapshot | None, version: int | None, commit_id: str) -> None:
    """Raise CommitConflict if a commit's table was dropped meanwhile, after removing the entry.

    Args:
        tables: Access to the table.
        snapshot: Version that the commit started from; None for a new table.
        version: Version of the commit; None if no commit was seen after the snapshot's.
        commit_id: Identity of the commit: its ``txnId``, or the token in its note.

    Raises:
        CommitConflict: The message tells what is left of the commit.
    """
    if snapshot is None or tables.newest.has(snapshot):
        return
    ref = snapshot.ref
    names = () if version is None else {key["path"] for key in tables.storage.keys(ref.location, LOG)}
    # An entry behind a gap, with no entry or checkpoint before it, makes the log unreadable.
    if version is None or entry(version - 1) in names or newest_whole(names, version - 1, version)[0] >= 0:
        if not _is_another_table(snapshot):
            return
        version = _landed(tables, ref, version, commit_id)
        left = "" if version is None else f". {_taken_back(tables, ref, version)}"
    else:
        actions = tables.actions(ref, version)
        if actions is not None and _is(actions, commit_id):
            tables.storage.remove_files(ref.location, [entry(version)])
        left = ""
    raise CommitConflict(
        f"Table {ref} was dropped while this write from its version {snapshot.version} ran, and what is there now is "
        f"another table or none{left}",
        remedy="Run it again",
    )


def _is_another_table(snapshot: Snapshot) -> bool:
    pin = snapshot.pin
    assert pin is not None, "tables of this format have versions of their own"
    try:
        with suppress(VersionNotReadable):  # the log was cleaned up
            # Not the newest version: a commit may have brought the old definition, with its id.
            return pin.find(pin.version, None).table_id != pin.table_id
        pin.check("")
    except (VersionNotReadable, TableNotFound):
        return True
    return False


def _is(actions: CommitActions, commit_id: str) -> bool:
    return commit_id in (actions.info.get("txnId"), actions.note.get("token"))


def _landed(tables: TableAccess, ref: TableRef, version: int | None, commit_id: str) -> int | None:
    """Return the version of the commit in the current log; None if it is not there."""
    if version is None:
        newest = tables.latest_version(ref)
        log = () if newest is None else tables.actions_back(ref, newest)
        return next((actions.version for actions in log if _is(actions, commit_id)), None)
    actions = tables.actions(ref, version)
    return version if actions is not None and _is(actions, commit_id) else None


def _taken_back(tables: TableAccess, ref: TableRef, version: int) -> str:
    """Roll back a version if it is the newest; return a sentence about the result."""
    before = version - 1
    note_commit(f"version {version} of table {ref}")
    try:
        now = tables.snapshot(ref)
        if now.version == version:
            note = {"engine": "duckdb", "mode": "restore", "writer": "staged"}
            note["reason"] = f"version {version} was a commit to a table that was dropped"
            undone = restore(tables, now, before, note, None)
            note_commit(f"version {undone} of table {ref}")
            return f"It landed in the new table as version {version}, and version {undone} takes it back"
        why = f"version {now.version} stands on it"
    except (DuckrunError, CommitTaken) as error:
        why = str(error)
    return (
        f"It landed in the new table as version {version}, and is not taken back: {why}. "
        f"Restore version {before} to take it out"
    )
