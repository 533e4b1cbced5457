"""Data versions: ``<table id>@<version>``, of the last version that changed the table's rows.

Versions of a branch have the id of the branch as suffix: main and other branches count on from the
same base.

Dagster compares data versions to tell which assets are stale. A commit that only rewrites files
(compaction) or only changes metadata (a comment) changes no rows. It makes nothing downstream
stale. Source: Delta protocol, Add File and Remove File (``dataChange``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from duckrun.formats.commits import CommitRecord, FileChange
from duckrun.lake.lake import Lake
from duckrun.values.rows import Commit
from duckrun.values.snapshot import Snapshot
from duckrun_dagster.metadata import key_finder
from duckrun_dagster.partitions.partitions import PartitionSlice

_ROWS_CHANGED = ("files_added", "files_removed", "files_marked", "rows_inserted", "rows_updated", "rows_deleted")
Touches = Callable[[FileChange], bool]


def data_version(
    lake: Lake,
    snapshot: Snapshot,
    *,
    commit: Commit | None = None,
    partition: PartitionSlice | None = None,
    column: str | None = None,
    known: str | None = None,
    log: Iterable[CommitRecord] | None = None,
) -> str:
    """Return ``<table id>@<version>`` of the newest commit up to ``snapshot`` that changed rows.

    Args:
        lake: The lake of the table.
        snapshot: The version to look back from.
        commit: The commit that made the snapshot; saves reading the log.
        partition: Count only commits that touched files of these partitions, if the table is
            partitioned by ``column``.
        column: The column that holds the partition.
        known: An earlier data version. It stays until a later commit changes rows, even if the log
            in between has been cleaned up.
        log: The commits, newest first, if the caller has read them already.
    """

    def text(version: int) -> str:
        return f"{snapshot.table_id}@{version}{lake.branch_suffix(snapshot.ref, version)}"

    if commit is not None and any(getattr(commit, figure) for figure in _ROWS_CHANGED):
        return text(commit.version)
    touches = _touching(snapshot, partition, column)
    since = _version_of(known, snapshot)
    oldest = snapshot.version
    for record in log if log is not None else lake.format.records_back(snapshot.ref, snapshot.version):
        if since is not None and record.version <= since:
            break
        oldest = record.version
        if any(file.changes_rows and touches(file) for file in (*record.added, *record.removed)):
            return text(oldest)
    return text(oldest if since is None else since)


class LogBackwards:
    """The commits of a table back from a snapshot, each read once, on demand."""

    def __init__(self, lake: Lake, snapshot: Snapshot) -> None:
        self._rest = lake.format.records_back(snapshot.ref, snapshot.version)
        self._read: list[CommitRecord] = []

    def __iter__(self) -> Iterator[CommitRecord]:
        yield from self._read
        for record in self._rest:
            self._read.append(record)
            yield record


def _touching(snapshot: Snapshot, partition: PartitionSlice | None, column: str | None) -> Touches:
    """Return a test whether a file may hold rows of the partition."""
    name = next((c for c in snapshot.partition_columns if column is not None and c.lower() == column.lower()), None)
    if partition is None or name is None:
        return lambda file: True
    key_of = key_finder(partition, snapshot.schema.field(name).type)

    def touches(file: FileChange) -> bool:
        if not file.partition_values:  # not in the log, so the file may hold any partition
            return True
        try:
            return key_of(file.partition_values.get(name)) is not None
        except ValueError:
            return True

    return touches


def _version_of(known: str | None, snapshot: Snapshot) -> int | None:
    table, _, version = (known or "").rpartition("@")
    return int(version) if table == snapshot.table_id and version.isdigit() else None
