"""Writes that a newer attempt of a piece of work makes again: what becomes of the commits of an older attempt.

Such a write reads and writes its table as if the older attempt's commits had not happened. What is taken back and what is
added are one commit. Source: docs/reliability.md, Reruns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from duckrun.errors import CommitConflict, VersionNotReadable
from duckrun.formats.commits import CommitRecord
from duckrun.formats.format import Format
from duckrun.sql.names import SIDES, columns_of
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
"""How a write is made again: over its earlier commit (it gives the same table), in the place of the rows that were added, as that of a
new table, or from the table as it was before."""


def rerun_of(spec: RowSpec) -> Rerun:
    """How a write is made again whose source does not read the target, which the spec does not tell."""
    if spec.read_version == NO_TABLE:
        return "create"
    if isinstance(spec, WriteSpec):
        kinds: Mapping[str, Rerun] = {"append": "append", "error": "create", "ignore": "create", "safeappend": "base"}
        return kinds.get(spec.mode, "again")
    if isinstance(spec, MergeSpec):
        texts = (text for clause in spec.clauses for text in clause.expressions)
        reads = any(side != "source" for text in texts for side, _ in columns_of(text, spec.dialect, SIDES))
        return "base" if reads else "again"
    return "again" if isinstance(spec, DeleteInsertSpec) else "base"


class NotTakenBack(CommitConflict):
    """The commit of an older attempt cannot be taken back: ``why``."""

    why = ""


class ToTakeBack(Exception):
    """A commit of an older attempt is to be taken back, which whoever carries out the write cannot do in its own commit."""


def newest_of(form: Format, snapshot: Snapshot, app: WorkTransaction) -> CommitRecord | None:
    """The last commit of a write, by any attempt; None where there is none, or the log no longer has it."""
    newest = form.counter(snapshot.ref, app.app_id, snapshot).highest
    if newest is None:
        return None
    commit = form.find_commit(snapshot.ref, AppTransaction(app.app_id, newest), snapshot)
    return None if commit is None else form.record(snapshot.ref, commit.version)


def of_older_attempts(form: Format, snapshot: Snapshot, app: WorkTransaction) -> list[CommitRecord]:
    """The commits of older attempts that changed rows, oldest first, without those that this attempt took back before."""
    found, retracted, ordinal = [], -1, 0
    while True:
        record = newest_of(form, snapshot, app.nth(ordinal))
        if record is None and ordinal >= app.ordinal:
            break
        if record is not None and record.note.get("attempt") == app.attempt:
            retracted = max(retracted, record.note.get("retracted", {}).get("version", -1))
        elif record is not None and record.changes_rows:
            found.append(record)
        ordinal += 1
    return sorted((each for each in found if each.version > retracted), key=lambda each: each.version)


def is_made_by(form: Format, snapshot: Snapshot, record: CommitRecord) -> bool:
    """True if there was no table before a commit, and before those that it took back."""
    before = record.note.get("before")
    return form.made_by(snapshot, record.version) if before is None else bool(before == NO_TABLE)


def version_before(record: CommitRecord) -> int | None:
    """The version of the table before a commit, and before those that it took back; None where no version is that."""
    if "retracted" in record.note and "before" not in record.note:
        return None
    return int(record.note.get("before", record.version - 1))


def as_before(form: Format, snapshot: Snapshot, app: WorkTransaction) -> Snapshot | None:
    """What an attempt reads of the table that it writes: the version before the commits of older attempts, None if they made the
    table. The newest version if that cannot be read, or others have put rows into the table that they made.
    """
    records = of_older_attempts(form, snapshot, app)
    if not records:
        return snapshot
    if is_made_by(form, snapshot, records[0]):
        own = {each.version for each in records}
        since = form.records_after(snapshot.ref, records[0].version)
        return snapshot if any(each.changes_rows and each.version not in own for each in since) else None
    version = version_before(records[0])
    try:
        base = snapshot if version is None else form.snapshot(snapshot.ref, version)
    except VersionNotReadable:
        return snapshot
    return base if base.table_id == snapshot.table_id and base.schema == snapshot.schema else snapshot
