"""Restore of an older version by a commit of Duckrun.

deltalake's restore spells paths differently and knows fewer features.
Source: Delta protocol, Add File and Remove File.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from duckrun.errors import VersionNotReadable
from duckrun.formats.commits import NewCommit
from duckrun.formats.delta.commits.commit import write_commit
from duckrun.formats.delta.commits.operations import restore as operation
from duckrun.formats.delta.definition import expressions, mapping
from duckrun.formats.delta.definition.definition import DeltaDefinition
from duckrun.formats.delta.log.adds import adds_in_order, adds_of
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.values.data_files import is_absolute, place_of
from duckrun.values.data_paths import spelled
from duckrun.values.rows import AppTransaction, ScanFile
from duckrun.values.snapshot import Snapshot
from duckrun.values.tables import RestoreSpec


def restore(tables: TableAccess, now: Snapshot, version: int, note: dict[str, Any], app: AppTransaction | None) -> int:
    """Restore a version and return the new one.

    Raises:
        VersionNotReadable: A file of the version is gone.
        UnsupportedFeature: The log lacks an action, or the table has an unknown feature.
        CommitTaken: Another commit took the version.
    """
    then = tables.snapshot(now.ref, version)
    current, wanted = named(tables, now), named(tables, then)
    removes = [file for key, file in current.items() if key not in wanted]
    missing = [file for key, file in wanted.items() if key not in current]
    _refuse_gone(tables, now, then, missing)
    spec = RestoreSpec(then.version)
    before = tables.definition(now)
    definition = expressions.never_back(_with_marks(tables.definition(then), before), before)
    new = NewCommit(spec, definition, removes=removes, rows=(None, None, None), writer="staged", note=note, app=app)
    returns = adds_in_order(tables, then, missing)
    return write_commit(tables, now.ref, now, new, operation=operation(then.version), returns=returns)


def _with_marks(then: DeltaDefinition, now: DeltaDefinition) -> DeltaDefinition:
    """Return a definition whose highest column id does not go back."""
    # An id is never given to a second column: files of other versions still have it.
    numbers = [int(each.properties[mapping.MAX_ID]) for each in (then, now) if mapping.MAX_ID in each.properties]
    if not then.is_mapped or not numbers:
        return then
    return replace(then, properties={**then.properties, mapping.MAX_ID: str(max(numbers))})


def named(tables: TableAccess, snapshot: Snapshot) -> dict[tuple[str, str], ScanFile]:
    """Return the files of a version by identity: path in the log, and deletion vector."""
    files = snapshot.files()
    vectors = adds_of(tables, snapshot, {spelled(file) for file in files if file.deletion_vector})
    return {(spelled(f), str(vectors.get(spelled(f), {}).get("deletionVector"))): f for f in files}


def _refuse_gone(tables: TableAccess, now: Snapshot, then: Snapshot, files: list[ScanFile]) -> None:
    here = {key["path"] for key in tables.storage.keys(now.ref.location)}
    for file in files:
        there = Path(place_of(now.ref.location, file)).is_file() if is_absolute(file.path) else file.path in here
        if not there and "://" not in file.path:  # files in other stores are not checked
            raise VersionNotReadable(
                f"Cannot restore table {now.ref} to version {then.version}: its file {file.path} is gone. Files that "
                "vacuum removed cannot come back; choose a newer version."
            )
