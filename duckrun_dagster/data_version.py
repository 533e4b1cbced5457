"""What Dagster compares to tell whether a table's rows may have changed: the table's id, and the version that last did.

A commit that only rewrites files (compaction), or that changes only what the table says of itself (a comment), changes no
rows, and so makes nothing downstream stale. Source: Delta protocol, Add File and Remove File (``dataChange``).
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
    """``<table id>@<version>`` of the newest commit up to ``snapshot`` that changed rows.

    ``commit`` is the one that made the snapshot, which saves reading the log. With ``partition``, and ``column``, which
    holds it, commits that touched files of other partitions only do not count, where the table is laid out by that
    column. ``known`` is the data version of an earlier look: it stays until a commit after it changes rows, also when the
    log that would tell is cleaned up by now. ``log`` is the commits from the newest back, for who has read them already.
    """
    if commit is not None and any(getattr(commit, figure) for figure in _ROWS_CHANGED):
        return f"{snapshot.table_id}@{commit.version}"
    touches = _touching(snapshot, partition, column)
    since = _version_of(known, snapshot)
    oldest = snapshot.version
    for record in log if log is not None else lake.format.records_back(snapshot.ref, snapshot.version):
        if since is not None and record.version <= since:
            break
        oldest = record.version
        if changes_rows(record, touches):
            return f"{snapshot.table_id}@{oldest}"
    return f"{snapshot.table_id}@{oldest if since is None else since}"


class LogBackwards:
    """The commits of a table from a snapshot back, each read once and when it is first needed."""

    def __init__(self, lake: Lake, snapshot: Snapshot) -> None:
        self._rest = lake.format.records_back(snapshot.ref, snapshot.version)
        self._read: list[CommitRecord] = []

    def __iter__(self) -> Iterator[CommitRecord]:
        yield from self._read
        for record in self._rest:
            self._read.append(record)
            yield record


def changes_rows(record: CommitRecord, touches: Touches = lambda file: True) -> bool:
    """Whether a commit added or removed rows, in files that ``touches`` names."""
    return any(file.changes_rows and touches(file) for file in (*record.added, *record.removed))


def _touching(snapshot: Snapshot, partition: PartitionSlice | None, column: str | None) -> Touches:
    """Whether a file may hold rows of the partition; one whose partition values are not in the log may."""
    name = next((c for c in snapshot.partition_columns if column is not None and c.lower() == column.lower()), None)
    if partition is None or name is None:
        return lambda file: True
    key_of = key_finder(partition, snapshot.schema.field(name).type)

    def touches(file: FileChange) -> bool:
        if not file.partition_values:
            return True
        try:
            return key_of(file.partition_values.get(name)) is not None
        except ValueError:
            return True

    return touches


def _version_of(known: str | None, snapshot: Snapshot) -> int | None:
    table, _, version = (known or "").rpartition("@")
    return int(version) if table == snapshot.table_id and version.isdigit() else None
