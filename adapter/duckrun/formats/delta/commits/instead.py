"""Commits that roll back an older attempt of the same work, within one log entry.

Source: Delta protocol, Add File and Remove File.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from duckrun.errors import VersionNotReadable
from duckrun.formats.commits import CommitRecord, NewCommit
from duckrun.formats.delta.commits.checks import refuse_wrong
from duckrun.formats.delta.commits.commit import write_commit
from duckrun.formats.delta.commits.marks import marked
from duckrun.formats.delta.commits.operations import operation_of
from duckrun.formats.delta.commits.restore import named
from duckrun.formats.delta.definition.definition import DeltaDefinition
from duckrun.formats.delta.definition.expressions import never_back
from duckrun.formats.delta.files.scan_sql import scan_sql
from duckrun.formats.delta.log.adds import adds_in_order
from duckrun.formats.delta.versions.changes import missing_files
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.values.data_paths import spelled
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot, TableRef


def made_by(snapshot: Snapshot, version: int) -> bool:
    """See Format."""
    return version == 0


def untouched(tables: TableAccess, snapshot: Snapshot, records: Sequence[CommitRecord]) -> Sequence[ScanFile] | None:
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
    return scan_sql(then, files=files)


def commit(
    tables: TableAccess, ref: TableRef, snapshot: Snapshot | None, new: NewCommit, *, over: Snapshot | None = None
) -> int:
    """See Format. The resulting table is ``snapshot`` changed by ``new``, without ``over``."""
    if over is None or snapshot is None:
        return write_commit(tables, ref, snapshot, new)
    operation = operation_of(new, snapshot)
    refuse_wrong(ref, snapshot, new, operation)
    current, wanted = named(tables, over), named(tables, snapshot)
    gone = {spelled(file) for file in new.removes} | {spelled(mark.file) for mark in new.marks}
    remaining = {key: file for key, file in wanted.items() if key[0] not in gone}
    back = [file for key, file in remaining.items() if key not in current]
    returns = adds_in_order(tables, snapshot, back)
    returns += [after for _, after in marked(tables, snapshot, new) if after is not None]
    # Readers compute the change feed from added and removed files. The attempt's own feed files
    # only describe changes of ``snapshot``.
    instead = replace(
        new,
        definition=_definition(tables, snapshot, over, new),
        removes=[file for key, file in current.items() if key not in remaining],
        marks=(),
        feed=(),
        rows=(None, None, None),
        blind=False,
    )
    return write_commit(tables, ref, over, instead, operation=operation, returns=returns)


def _definition(tables: TableAccess, snapshot: Snapshot, over: Snapshot, new: NewCommit) -> DeltaDefinition | None:
    """Return the newest definition with the changes that the commit makes to the snapshot's."""
    if new.definition is None:
        return None
    then, now, after = tables.definition(snapshot), tables.definition(over), cast(DeltaDefinition, new.definition)
    changed = {key: value for key, value in after.properties.items() if then.properties.get(key) != value}
    gone = then.properties.keys() - after.properties.keys()
    properties = {key: value for key, value in {**now.properties, **changed}.items() if key not in gone}
    fields = after.fields if after.fields != then.fields else now.fields
    return never_back(replace(now, fields=fields, properties=properties, description=after.description), now)
