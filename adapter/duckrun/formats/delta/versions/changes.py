"""Changes of a range of commits: added and removed files, with deletion vectors and change feed.

Source: Delta protocol, Add File and Remove File, Add CDC File, Deletion Vectors (Derived Fields),
Row Tracking.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from duckrun.errors import VersionNotReadable
from duckrun.formats.delta.definition.mapping import physical_names
from duckrun.formats.delta.files.logged import scan_file
from duckrun.formats.delta.files.vectors import read_vector
from duckrun.formats.delta.log.adds import adds_of
from duckrun.formats.delta.log.entries import CommitActions
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.libraries import np
from duckrun.storage.parallel import at_once
from duckrun.values.changes import CommitChange, Counted
from duckrun.values.data_files import decoded, is_absolute, place_of, spelled
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot, TableRef

FEED_FOLDER = "_change_data"


def commits_between(tables: TableAccess, ref: TableRef, after: int, to: int) -> list[CommitChange]:
    """See Format."""
    commits = at_once(lambda version: tables.actions(ref, version), range(after + 1, to + 1))
    present = [actions for actions in commits if actions is not None]
    if len(present) < len(commits):
        missing = next((v for v in range(to, after, -1) if commits[v - after - 1] is None), after)
        raise VersionNotReadable(
            f"Table {ref}: the log no longer holds the commit of version {missing}, so that what changed since version "
            f"{after} cannot be read from its commits."
        )
    return [_change(tables, ref, actions) for actions in present]


def _change(tables: TableAccess, ref: TableRef, actions: CommitActions) -> CommitChange:
    files = (*actions.adds, *actions.removes)
    # A remove may lack them (Delta protocol, Add File and Remove File, extendedFileMetadata).
    lacking = {remove["path"] for remove in actions.removes if remove.get("partitionValues") is None}
    known = _partition_values(tables, ref, actions.version, lacking) if lacking else {}
    record = actions.record()
    return CommitChange(
        version=actions.version,
        timestamp=record.timestamp,
        operation=record.operation,
        files=tuple(_counted(_file(add, known), 1, add) for add in actions.adds)
        + tuple(_counted(_file(remove, known), -1, remove) for remove in actions.removes),
        # Readers of a commit with such files read nothing else of it (Delta protocol, Reader
        # Requirements for AddCDCFile).
        feed=tuple(_file(cdc, known) for cdc in actions.feed),
        # OPTIMIZE and the like: the same rows in other files (dataChange false).
        moves=bool(files) and not any(action.get("dataChange", True) for action in files),
        redefines=actions.changes_metadata,
    )


def _partition_values(
    tables: TableAccess, ref: TableRef, version: int, paths: set[str]
) -> dict[str, Mapping[str, str | None]]:
    """Return partition values of files whose remove action has only a path."""
    before = tables.snapshot(ref, version - 1)
    if not before.partition_columns:
        return {}
    wanted = {decoded(path) for path in paths}
    return {file.path: _by_stored_name(before, file) for file in before.files() if file.path in wanted}


def _by_stored_name(snapshot: Snapshot, file: ScanFile) -> dict[str, str | None]:
    """Return the partition values of a file by physical column name, which no renaming changes."""
    names = physical_names(snapshot.stored_schema)
    return {names.get(name, name): value for name, value in file.partition_values.items()}


def _counted(file: ScanFile, count: int, action: Mapping[str, Any]) -> Counted:
    ids = action.get("baseRowId"), action.get("defaultRowCommitVersion")
    return Counted(file, count, _token(action.get("deletionVector")), *ids)


def _file(action: Mapping[str, Any], known: Mapping[str, Mapping[str, str | None]]) -> ScanFile:
    values = action.get("partitionValues")
    return scan_file({**action, "partitionValues": known.get(decoded(action["path"])) if values is None else values})


def _token(vector: Mapping[str, Any] | None) -> Hashable | None:
    """Return a deletion vector's descriptor as a hashable value. vector_rows() converts it back."""
    return None if vector is None else tuple(sorted((key, value) for key, value in vector.items() if value is not None))


def vector_rows(tables: TableAccess, ref: TableRef, vectors: Iterable[Hashable]) -> dict[Hashable, Any]:
    """See Format."""
    wanted: list[Any] = list(vectors)
    read = at_once(lambda token: read_vector(tables, ref, dict(token)), wanted)
    return {token: np.fromiter(rows, np.uint64, len(rows)) for token, rows in zip(wanted, read, strict=True)}


def state_change(tables: TableAccess, before: Snapshot | None, after: Snapshot) -> CommitChange:
    """See Format."""
    files = (*_state(tables, after, 1), *(() if before is None else _state(tables, before, -1)))
    return CommitChange(after.version, None, "states", files)


def _state(tables: TableAccess, snapshot: Snapshot, count: int) -> Iterable[Counted]:
    files = snapshot.files()
    tracked = "rowTracking" in snapshot.writer_features
    marked = {spelled(file) for file in files if file.deletion_vector or tracked}
    adds = adds_of(tables, snapshot, marked)
    for file in files:
        add = adds.get(spelled(file), {})
        file = replace(file, partition_values=_by_stored_name(snapshot, file))
        yield _counted(file, count, add)


def missing_files(tables: TableAccess, ref: TableRef, files: Sequence[ScanFile]) -> list[ScanFile]:
    """See Format."""

    def gone(file: ScanFile) -> bool:
        location, name = ref.location, file.path
        if is_absolute(name):
            location, _, name = place_of(ref.location, file).rpartition("/")
        return not tables.storage.has(location, name)

    return [file for file, is_gone in zip(files, at_once(gone, files), strict=True) if is_gone]
