"""Deletion vectors that a commit writes for rows to delete.

Source: Delta protocol, Deletion Vectors; Add File and Remove File (a file is removed with its old
vector and added with its new one).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from duckrun.formats.commits import CommitTaken, NewCommit
from duckrun.formats.delta.files.vectors import read_vector, write_vectors
from duckrun.formats.delta.log.entries import append_only
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.values.data_files import spelled
from duckrun.values.snapshot import Snapshot

REPEATED = ("path", "partitionValues", "size", "tags", "deletionVector", "baseRowId", "defaultRowCommitVersion")
"""Fields of an add that its remove repeats."""


def marked(
    tables: TableAccess, snapshot: Snapshot | None, new: NewCommit
) -> list[tuple[Mapping[str, Any], dict[str, Any] | None]]:
    """Return pairs of (old add, new add with deletion vector), one per file with deleted rows.

    The new add is None if every row is deleted.

    Raises:
        CommitTaken: A file is gone, or a row to delete is deleted already.
    """
    if not new.marks:
        return []
    assert snapshot is not None, "only a table that is there has rows to mark"
    refuse_append_only(snapshot, new)
    live = snapshot.files().named({spelled(mark.file) for mark in new.marks})
    gone = [spelled(mark.file) for mark in new.marks if spelled(mark.file) not in live]
    if gone:
        raise CommitTaken(f"version {snapshot.version} of table {snapshot.ref}, which has {gone[0]} no longer")
    actions = tables.adds_of(snapshot, [mark.file for mark in new.marks])
    _write(tables, snapshot, new, actions)
    pairs: list[tuple[Mapping[str, Any], dict[str, Any] | None]] = []
    for mark, add in zip(new.marks, actions, strict=True):
        # Named keys only: a checkpoint may hold statistics in columns of its own.
        repeated = (*REPEATED, "modificationTime", "clusteringProvider")
        same = {key: add[key] for key in repeated if add.get(key) is not None}
        # The bounds still hold, but no row may be at them. With a vector, the protocol requires the
        # number of rows. Source: Delta protocol, Per-file Statistics (numRecords, tightBounds).
        stats = add.get("stats")
        figures = {"numRecords": mark.file.rows} if stats is None else json.loads(stats)
        text = json.dumps({**figures, "tightBounds": False}, ensure_ascii=False)
        _, vector = new.vectors[add["path"]]
        pairs.append((add, None if vector is None else {**same, "deletionVector": vector, "stats": text}))
    return pairs


def _write(tables: TableAccess, snapshot: Snapshot, new: NewCommit, actions: Sequence[Mapping[str, Any]]) -> None:
    """Write the vectors that no earlier attempt has written for the same file and old vector.

    Raises:
        CommitTaken: A row to delete is deleted already.
    """
    vectors = dict[str, Any]()
    for mark, add in zip(new.marks, actions, strict=True):
        path, old = add["path"], add.get("deletionVector")
        if path in new.vectors and new.vectors[path][0] == old:
            continue
        rows = read_vector(tables, snapshot.ref, old)
        deleted = len(rows)
        # The new vector replaces the old one, so it holds the rows of both (Delta protocol,
        # Deletion Vectors).
        rows |= mark.rows
        if len(rows) < deleted + len(mark.rows):
            raise CommitTaken(f"version {snapshot.version} of table {snapshot.ref}, where a row to change is deleted")
        new.vectors[path] = (old, None)
        if mark.file.rows is None or len(rows) < mark.file.rows:
            vectors[path] = rows
    folder = tables.files_folder(snapshot.ref)
    for path, vector in zip(vectors, write_vectors(tables, snapshot.ref, list(vectors.values()), folder), strict=True):
        new.vectors[path] = (new.vectors[path][0], vector)


def refuse_append_only(snapshot: Snapshot, new: NewCommit) -> None:
    if new.data_change and snapshot.is_append_only:
        raise append_only(snapshot.ref)
