"""Commits of Duckrun that bring files of an older version back.

deltalake's restore spells paths differently and knows fewer features.
Source: Delta protocol, Add File and Remove File.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from duckrun.errors import VersionNotReadable
from duckrun.formats.commits import CommitRecord, NewCommit
from duckrun.formats.delta.commits.checks import refuse_wrong
from duckrun.formats.delta.commits.commit import prepared_commit, written
from duckrun.formats.delta.commits.marks import marked
from duckrun.formats.delta.commits.operations import Operation, operation_of
from duckrun.formats.delta.definition import expressions, mapping
from duckrun.formats.delta.definition.definition import DeltaDefinition
from duckrun.formats.delta.definition.properties import IN_COMMIT_TIME, IN_COMMIT_VERSION
from duckrun.formats.delta.files.scan_sql import scan_sql
from duckrun.formats.delta.log.adds import adds_in_order, adds_of
from duckrun.formats.delta.versions.changes import missing_files
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.values.data_files import is_absolute, place_of, spelled
from duckrun.values.rows import AppTransaction, ScanFile
from duckrun.values.snapshot import ReadAs, Snapshot, TableRef
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
    operation = Operation("RESTORE", {"version": str(then.version)})
    return written(tables, prepared_commit(tables, now.ref, now, new, operation=operation, returns=returns))


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


# -- rollbacks of an older attempt of the same work, within the entry of the next commit


def untouched(snapshot: Snapshot, records: Sequence[CommitRecord]) -> Sequence[ScanFile] | None:
    """See Format."""
    names = {file.name for record in records for file in record.added}
    files = snapshot.files().named(names)
    whole = len(files) == len(names) and not any(each.deletion_vector for each in files.values())
    return tuple(files.values()) if whole else None


def added_rows(tables: TableAccess, snapshot: Snapshot, record: CommitRecord) -> str | None:
    """See Format."""
    try:
        then = tables.snapshot(snapshot.ref, record.version)
    except VersionNotReadable:
        return None
    files = tuple(then.files().named({file.name for file in record.added}).values())
    if not files or then.schema.names != snapshot.schema.names or missing_files(tables, snapshot.ref, files):
        return None
    return scan_sql(then, ReadAs(files=files))


def commit(
    tables: TableAccess, ref: TableRef, snapshot: Snapshot | None, new: NewCommit, *, over: Snapshot | None = None
) -> int:
    """See Format. The resulting table is ``snapshot`` changed by ``new``, without ``over``."""
    if over is None or snapshot is None:
        return written(tables, prepared_commit(tables, ref, snapshot, new))
    operation = operation_of(new, snapshot)
    refuse_wrong(ref, snapshot, new, operation)
    current, wanted = named(tables, over), named(tables, snapshot)
    gone = {spelled(file) for file in new.removes} | {spelled(mark.file) for mark in new.marks}
    remaining = {key: file for key, file in wanted.items() if key[0] not in gone}
    back = [file for key, file in remaining.items() if key not in current]
    returns = adds_in_order(tables, snapshot, back)
    returns += [after for _, after in marked(tables, snapshot, new) if after is not None]
    definition = cast(DeltaDefinition | None, new.definition)
    # Readers compute the change feed from added and removed files. The attempt's own feed files
    # only describe changes of ``snapshot``.
    instead = replace(
        new,
        definition=definition and changed_definition(tables, snapshot, over, definition),
        removes=[file for key, file in current.items() if key not in remaining],
        marks=(),
        feed=(),
        rows=(None, None, None),
        blind=False,
    )
    return written(tables, prepared_commit(tables, ref, over, instead, operation=operation, returns=returns))


PARTS = ("fields", "partition_columns", "cluster_by", "description", "requested")
"""Parts of a definition that change as a whole; properties change one by one."""


def changed_definition(
    tables: TableAccess, snapshot: Snapshot, over: Snapshot, after: DeltaDefinition
) -> DeltaDefinition:
    """Return the definition of ``over`` with the changes from that of ``snapshot`` to ``after``."""
    then, now = tables.definition(snapshot), tables.definition(over)
    changed = {key: value for key, value in after.properties.items() if then.properties.get(key) != value}
    since = {key: now.properties[key] for key in (IN_COMMIT_VERSION, IN_COMMIT_TIME) if key in now.properties}
    gone = then.properties.keys() - after.properties.keys()
    properties = {key: value for key, value in {**now.properties, **changed, **since}.items() if key not in gone}
    parts = {part: getattr(after, part) for part in PARTS if getattr(after, part) != getattr(then, part)}
    return expressions.never_back(replace(now, **parts, properties=properties), now)
