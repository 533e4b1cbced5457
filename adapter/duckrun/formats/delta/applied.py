"""Which application transactions were committed to a Delta table: what its log says of them (Delta protocol, Transaction Identifiers)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duckrun.formats.delta.log import CommitActions
from duckrun.formats.delta.newest import known_of
from duckrun.values.cursors import Counter
from duckrun.values.rows import AppTransaction, Commit
from duckrun.values.snapshot import Snapshot, TableRef

if TYPE_CHECKING:
    from duckrun.formats.delta.delta import DeltaFormat


def app_version(form: DeltaFormat, ref: TableRef, app_id: str) -> int | None:
    return form.handle(ref).transaction_version(app_id)


def find_commit(form: DeltaFormat, ref: TableRef, app: AppTransaction, newest: Snapshot | None = None) -> Commit | None:
    """See Format. Where the log has been cleaned up since, the commit says so instead of its counts."""
    newest = newest or form.snapshot(ref)
    committed = _newest(form, newest, app.app_id)
    if committed is None or committed < app.version:
        return None
    for found in form.actions_back(ref, newest.version):
        if app in found.transactions:
            return found.record().as_commit(ref)
    return Commit(
        table=str(ref),
        location=ref.location,
        version=newest.version,
        mode="unknown",
        engine="unknown",
        writer="none",
        reason=f"the commit of {app.app_id} is no longer in the log; this is the newest version",
    )


def counter(form: DeltaFormat, ref: TableRef, consumer: str, newest: Snapshot | None = None) -> Counter:
    """See Format. Source: Delta protocol, Transaction Identifiers; a RESTORE leaves them as they are."""
    newest = newest or form.snapshot(ref)
    highest = _newest(form, newest, consumer)
    if highest is None:
        return Counter()
    version = newest.version
    while version >= 0:
        found = form.actions(ref, version)
        if found is None or str(found.info.get("operation", "")).upper() == "CLONE":  # the rows are another table's
            return Counter(highest=highest, known=False)
        for each in found.transactions:
            if each.app_id == consumer:
                return Counter(each.version, highest)
        version = _before(form, ref, found)
    return Counter(highest=highest)


def _before(form: DeltaFormat, ref: TableRef, commit: CommitActions) -> int:
    """The version whose rows a commit goes on from: of a RESTORE that which it brings back."""
    if str(commit.info.get("operation", "")).upper() != "RESTORE":
        return commit.version - 1
    said = commit.info.get("operationParameters") or {}
    version = said.get("version")
    if version is not None:
        return int(version)
    return form.snapshot(ref, timestamp=str(said.get("timestamp") or said.get("datetime"))).version


def _newest(form: DeltaFormat, snapshot: Snapshot, app_id: str) -> int | None:
    known = known_of(snapshot)
    if known is None:
        return form.handle_of(snapshot).transaction_version(app_id)
    if app_id not in known.apps:
        known.apps = {**known.apps, app_id: form.handle_of(snapshot).transaction_version(app_id)}
    return known.apps[app_id]
