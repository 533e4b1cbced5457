"""An older version made the newest again: by deltalake, or by a commit of our own for tables whose paths it would spell in another way.

Source: Delta protocol, Add File and Remove File.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake.exceptions import CommitFailedError, DeltaError

from duckrun.errors import UnsupportedFeature, VersionNotReadable
from duckrun.formats.commits import CommitTaken, NewCommit
from duckrun.formats.delta.adds import adds_of
from duckrun.formats.delta.commit import write_commit
from duckrun.formats.delta.data_paths import respelled, spelled
from duckrun.formats.delta.log import commit_properties
from duckrun.formats.delta.operations import restore as operation
from duckrun.values.data_files import is_absolute, place
from duckrun.values.rows import AppTransaction, ScanFile
from duckrun.values.snapshot import Snapshot
from duckrun.values.tables import RestoreSpec

if TYPE_CHECKING:
    from duckrun.formats.delta.delta import DeltaFormat


def restore(
    form: DeltaFormat, snapshot: Snapshot, version: int, note: dict[str, Any], app: AppTransaction | None
) -> int:
    """The version committed. Raises VersionNotReadable where a file is gone, UnsupportedFeature, CommitTaken."""
    then = form.snapshot(snapshot.ref, version)
    if respelled([*snapshot.files(), *then.files()]):
        return _by_own_commit(form, snapshot, then, note, app)
    table = form.take_handle(snapshot)
    try:
        table.restore(version, protocol_downgrade_allowed=False, commit_properties=commit_properties(app, note))
    except CommitFailedError as error:
        if "Unsupported table features" in str(error):
            raise UnsupportedFeature(
                f"Table {snapshot.ref} cannot be restored here: {str(error).rstrip('.')}. Spark's own statement does it: "
                f"RESTORE TABLE delta.`{snapshot.ref.location}` TO VERSION AS OF {version}"
            ) from error
        raise CommitTaken(str(error)) from error
    except DeltaError as error:
        raise VersionNotReadable(
            f"Cannot restore table {snapshot.ref} to version {version}: {str(error).rstrip(chr(46))}. "
            "Files that vacuum removed cannot come back; choose a newer version."
        ) from error
    return table.version()


def _by_own_commit(
    form: DeltaFormat, now: Snapshot, then: Snapshot, note: dict[str, Any], app: AppTransaction | None
) -> int:
    """The version committed, for a table whose paths deltalake would spell in another way."""
    held, wanted = _named(form, now), _named(form, then)
    removes = [file for key, file in held.items() if key not in wanted]
    missing = [file for key, file in wanted.items() if key not in held]
    _refuse_gone(form, now, then, missing)
    added = adds_of(form, then, {spelled(file) for file in missing})
    spec = RestoreSpec(then.version)
    new = NewCommit(spec, form.definition(then), removes=removes, rows=(None, None, None), writer="delta_rs")
    returns = [added[spelled(file)] for file in missing]
    return write_commit(form, now.ref, now, new, note, app, operation=operation(then.version), returns=returns)


def _named(form: DeltaFormat, snapshot: Snapshot) -> dict[tuple[str, str], ScanFile]:
    """The files of a version by what tells them apart: the path as it is spelled, and the deletion vector."""
    files = snapshot.files()
    vectors = adds_of(form, snapshot, {spelled(file) for file in files if file.deletion_vector})
    return {(spelled(f), str(vectors.get(spelled(f), {}).get("deletionVector"))): f for f in files}


def _refuse_gone(form: DeltaFormat, now: Snapshot, then: Snapshot, files: list[ScanFile]) -> None:
    here = {key["path"] for key in form.storage.keys(now.ref.location)}
    for file in files:
        there = Path(place(now.ref, file)).is_file() if is_absolute(file.path) else file.path in here
        if not there and "://" not in file.path:
            raise VersionNotReadable(
                f"Cannot restore table {now.ref} to version {then.version}: its file {file.path} is gone. Files that vacuum removed "
                "cannot come back; choose a newer version."
            )
