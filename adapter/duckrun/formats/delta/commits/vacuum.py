"""Removal of files that no version within the retention needs.

These are data files, deletion vectors, change feed files, and stray files. deltalake's own vacuum
takes the files of live vectors for strays. It also refuses tables with features that it cannot
write.
Source: Delta protocol, Vacuum Protocol Check, Add CDC File; delta-spark's VacuumCommand, which
removes the same files.
"""

from __future__ import annotations

import posixpath
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from duckrun.display.progress import tracked
from duckrun.errors import CommitConflict, UnsupportedFeature, removing
from duckrun.formats.delta.definition.protocol import WRITTEN
from duckrun.formats.delta.definition.retention import file_retention
from duckrun.formats.delta.files.vectors import vector_file
from duckrun.formats.delta.log.adds import adds_of, removes_since
from duckrun.formats.delta.log.entries import COPY, LOG, actions_in
from duckrun.formats.delta.log.lines import lines_at
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.values.branches import BRANCHES, Line
from duckrun.values.data_files import decoded, is_absolute, spelled
from duckrun.values.snapshot import Snapshot
from duckrun.values.tables import VacuumSpec

_KNOWN = WRITTEN | {
    "allowColumnDefaults", "checkpointProtection", "clustering", "columnMapping", "domainMetadata", "generatedColumns",
    "icebergCompatV1", "icebergCompatV2", "identityColumns", "inCommitTimestamp", "invariants of columns",
    "materializePartitionColumns", "rowTracking", "typeWidening", "typeWidening-preview", "v2Checkpoint",
    "vacuumProtocolCheck", "variantShredding-preview", "variantType", "variantType-preview",
}  # fmt: skip
"""Features whose files are all named by adds, removes and deletion vectors."""
_CHANGES, _ICEBERG = "_change_data", "metadata"


def vacuum(tables: TableAccess, snapshot: Snapshot, spec: VacuumSpec) -> tuple[str, ...]:
    """Remove files that no version within the retention needs, or list them with ``dry_run``.

    A file goes if it was removed from the table, and last modified, before the retention. Names
    that start with an underscore or a dot stay, except change feed files. Tables inside the folder
    stay, too.

    Raises:
        InvalidConfig: The retention is below the table's.
        UnsupportedFeature: A feature may have unknown files.
    """
    if unknown := sorted((snapshot.reader_features | snapshot.writer_features) - _KNOWN):
        raise UnsupportedFeature(
            f"vacuum of table {snapshot.ref}: it has the table feature {', '.join(unknown)}, of which this "
            "release does not know what files belong to it",
            remedy="Run VACUUM with the engine that made the table",
        )
    before = time.time() * 1000 - file_retention(snapshot, spec)
    keys = list(tables.storage.keys(snapshot.ref.location))
    lines = lines_at(tables.storage, snapshot.ref.location, [key["path"] for key in keys])
    # After ``before``: commits in between are young, or live. After the lines: files of a branch
    # that is published meanwhile are those of a line, or live.
    snapshot = tables.snapshot(snapshot.ref)
    needed = _needed(tables, snapshot, before)
    for folder, line in lines.items():
        needed.update(_of_line(tables, snapshot, folder, line))
        log = f"{BRANCHES}/{folder}/_log"
        needed.update(_added_by(tables, snapshot, [key["path"] for key in keys if key["path"].startswith(log)]))
    copies = (f"{LOG}/", COPY, f"{BRANCHES}/")
    logs = (key["path"].partition(f"/{LOG}/") for key in keys if not key["path"].startswith(copies))
    inner = tuple({f"{folder}/" for folder, separator, _ in logs if separator})
    gone = sorted(
        path
        for path, modified in ((key["path"], key["modified"]) for key in keys)
        # A young file that the log does not name may be staged for a later commit.
        if modified * 1000 < before
        and path not in needed
        and not _is_hidden(path, snapshot.partition_columns, lines)
        and not path.startswith(inner)
    )
    if not spec.dry_run:
        with removing():
            tables.storage.remove_files(snapshot.ref.location, tracked(gone, f"vacuum {snapshot.ref}", "files"))
    return tuple(gone)


def _needed(tables: TableAccess, snapshot: Snapshot, before: float) -> set[str]:
    """Return paths of files that some version since a moment has, relative to the table's folder.

    They include the files of deletion vectors.
    """
    files = snapshot.files()
    needed = {path for file in files for path in _below(file.path)}
    marked = {spelled(file) for file in files if file.deletion_vector}
    actions: list[Mapping[str, Any]] = list(adds_of(tables, snapshot, marked).values())
    actions += removes_since(tables, snapshot, before)
    for action in actions:
        needed.update(_files_of(snapshot, action))
    return needed


def _files_of(snapshot: Snapshot, action: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of the file and the deletion vector of an action."""
    yield from _below(decoded(action["path"]))
    vector = vector_file(snapshot.ref, action["deletionVector"]) if action.get("deletionVector") else None
    if vector is not None:
        yield from _below(decoded(vector) if is_absolute(vector) else vector)


def _added_by(tables: TableAccess, snapshot: Snapshot, entries: Sequence[str]) -> Iterator[str]:
    """Yield the paths of the files that log entries add.

    A branch adds files outside of its folder if it restores a version.
    """
    for entry in entries:
        raw = tables.storage.read_at(snapshot.ref.location, entry)
        for action in actions_in(raw or b"", entry):
            if "add" in action:
                yield from _files_of(snapshot, action["add"])


def _of_line(tables: TableAccess, snapshot: Snapshot, folder: str, line: Line) -> Iterator[str]:
    """Yield paths of main's files that a branch reads, and the table's newest version does not.

    Raises:
        CommitConflict: The log no longer tells them.
    """
    later: set[tuple[str, str]] = set()
    for version in range(line.base + 1, snapshot.version + 1) if line.base >= 0 else ():
        actions = tables.actions(snapshot.ref, version)
        if actions is None:
            raise CommitConflict(
                f"vacuum of table {snapshot.ref}: branch {folder.rpartition('-')[0]} reads version {line.base}, and "
                "the log no longer tells which files that has",
                remedy="publish or discard the branch first",
            )
        for remove in actions.removes:
            if _identity(remove) in later:
                continue  # the branch's version did not have it yet
            yield from _files_of(snapshot, remove)
        later.update(map(_identity, actions.adds))


def _identity(action: Mapping[str, Any]) -> tuple[str, str]:
    return action["path"], str(action.get("deletionVector"))


def _below(path: str) -> Iterator[str]:
    """Yield the paths in the table's folder that a path of the log may mean."""
    # Each end of an absolute path may be meant, since one folder has many spellings (``s3a://``,
    # ``file:/``, links).
    if not is_absolute(path):
        yield posixpath.normpath(path)
        return
    parts = path.split("/")
    yield from ("/".join(parts[at:]) for at in range(1, len(parts)))


def _is_hidden(path: str, partition_columns: tuple[str, ...], lines: Collection[str]) -> bool:
    """True for files that belong to others, by the rules of Spark's vacuum.

    Data files of a published branch belong to the table, whatever its folder is called.
    """
    first, *_ = parts = path.split("/")
    if first == BRANCHES:
        if len(parts) < 3 or parts[1] in lines or parts[2].startswith("_log"):
            return True
        first, *_ = parts = parts[2:]
    if first.startswith(COPY):
        return False
    if first == _ICEBERG and len(parts) > 1:
        return True
    ours = (_CHANGES, "_delta_index", *(f"{column}=" for column in partition_columns))
    return any(part.startswith(("_", ".")) and not part.startswith(ours) for part in parts)
