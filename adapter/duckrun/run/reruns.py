"""Writes by a newer attempt of a piece of work, and the rollback of an older attempt's commits.

Such a write reads and writes its table as if the older attempt's commits had not happened. The
rollback and the new rows are one commit. Source: docs/reliability.md, Reruns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from duckrun.errors import CommitConflict, VersionNotReadable
from duckrun.formats.commits import CommitRecord
from duckrun.formats.format import Format
from duckrun.sql.on_demand import sql_names
from duckrun.sql.plain_names import SIDES
from duckrun.values.rows import (
    NO_TABLE,
    AppTransaction,
    DeleteInsertSpec,
    MergeSpec,
    RowSpec,
    WorkTransaction,
    WriteSpec,
)
from duckrun.values.snapshot import Snapshot

Rerun = Literal["again", "append", "create", "base"]
"""Strategy of a rerun.

``again`` writes over the earlier commit, with the same result. ``append`` replaces the rows that it
added. ``create`` repeats the write of a new table. ``base`` starts from the table before it.
"""


def rerun_of(spec: RowSpec) -> Rerun:
    """Return the rerun strategy of a write whose source does not read the target.

    The spec alone cannot tell whether the source does.
    """
    if spec.read_version == NO_TABLE:
        return "create"
    if isinstance(spec, WriteSpec):
        kinds: Mapping[str, Rerun] = {"append": "append", "error": "create", "ignore": "create", "safeappend": "base"}
        return kinds.get(spec.mode, "again")
    if isinstance(spec, MergeSpec):
        texts = (text for clause in spec.clauses for text in clause.expressions)
        reads = any(side != "source" for text in texts for side, _ in sql_names.columns_of(text, spec.dialect, SIDES))
        return "base" if reads else "again"
    return "again" if isinstance(spec, DeleteInsertSpec) else "base"


class NotTakenBack(CommitConflict):
    """The commit of an older attempt cannot be rolled back; ``why`` gives the reason."""

    why = ""


class ToTakeBack(Exception):
    """An older attempt's commit needs a rollback that this writer cannot put into its commit."""


def newest_of(form: Format, snapshot: Snapshot, app: WorkTransaction) -> CommitRecord | None:
    """Return the last commit of a write, by any attempt; None if the log has none."""
    newest = form.counter(snapshot.ref, app.app_id, snapshot).highest
    return None if newest is None else record_of(form, snapshot, AppTransaction(app.app_id, newest))


def record_of(form: Format, snapshot: Snapshot, app: AppTransaction) -> CommitRecord | None:
    """Return the commit of an application transaction; None if the log has none."""
    commit = form.find_commit(snapshot.ref, app, snapshot)
    return None if commit is None else form.record(snapshot.ref, commit.version)


def of_older_attempts(form: Format, snapshot: Snapshot, app: WorkTransaction) -> list[CommitRecord]:
    """Return the row-changing commits of older attempts, oldest first, that still stand."""
    records, retracted, ordinal = [], -1, 0
    while True:
        record = newest_of(form, snapshot, app.nth(ordinal))
        if record is None and ordinal >= app.ordinal:
            break
        if record is not None and record.note.get("attempt") == app.attempt:
            retracted = max(retracted, record.note.get("retracted", {}).get("version", -1))
        elif record is not None and record.changes_rows:
            records.append(record)
        ordinal += 1
    return sorted((each for each in records if each.version > retracted), key=lambda each: each.version)


def is_made_by(snapshot: Snapshot, record: CommitRecord) -> bool:
    """True if a commit, or the commits that it rolled back, created the table."""
    before = record.note.get("before")
    return snapshot.begun == record.version if before is None else bool(before == NO_TABLE)


def version_before(record: CommitRecord) -> int | None:
    """Return the version before a commit and the commits that it rolled back.

    None if there is none.
    """
    if "retracted" in record.note and "before" not in record.note:
        return None
    return int(record.note.get("before", record.version - 1))


def as_before(form: Format, snapshot: Snapshot, app: WorkTransaction) -> Snapshot | None:
    """Return the snapshot that an attempt reads of the table that it writes.

    This is the version before the commits of older attempts, or None if they created the table. The
    newest version serves if that one is unreadable, or if others wrote rows into the created table.
    """
    records = of_older_attempts(form, snapshot, app)
    if not records:
        return snapshot
    if is_made_by(snapshot, records[0]):
        versions = {each.version for each in records}
        since = form.records_after(snapshot.ref, records[0].version)
        return snapshot if any(each.changes_rows and each.version not in versions for each in since) else None
    version = version_before(records[0])
    try:
        base = snapshot if version is None else form.snapshot(snapshot.ref, version)
    except VersionNotReadable:
        return snapshot
    return base if base.table_id == snapshot.table_id and base.schema == snapshot.schema else snapshot
