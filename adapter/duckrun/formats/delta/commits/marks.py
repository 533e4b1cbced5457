"""Deletion vectors that a commit writes for rows to delete.

Source: Delta protocol, Deletion Vectors; Add File and Remove File (a file is removed with its old
vector and added with its new one).
"""

from __future__ import annotations

import json
from typing import Any

from duckrun.formats.commits import CommitTaken, NewCommit
from duckrun.formats.delta.files.vectors import read_vector, write_vectors
from duckrun.formats.delta.log.adds import adds_in_order
from duckrun.formats.delta.log.entries import append_only
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.values.data_files import spelled
from duckrun.values.snapshot import Snapshot

REPEATED = ("path", "partitionValues", "size", "tags", "deletionVector", "baseRowId", "defaultRowCommitVersion")
"""Fields of an add that its remove repeats."""


def marked(
    tables: TableAccess, snapshot: Snapshot | None, new: NewCommit
) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
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
    actions = adds_in_order(tables, snapshot, [mark.file for mark in new.marks])
    vectors = []
    for mark, add in zip(new.marks, actions, strict=True):
        rows = read_vector(tables, snapshot.ref, add.get("deletionVector"))
        deleted = len(rows)
        # The new vector replaces the old one, so it holds the rows of both (Delta protocol,
        # Deletion Vectors).
        rows.update(mark.rows)
        if len(rows) < deleted + len(mark.rows):
            raise CommitTaken(f"version {snapshot.version} of table {snapshot.ref}, where a row to change is deleted")
        vectors.append(rows)
    whole = [
        mark.file.rows is not None and len(v) >= mark.file.rows for mark, v in zip(new.marks, vectors, strict=True)
    ]
    written = iter(write_vectors(tables, snapshot.ref, [v for v, none in zip(vectors, whole, strict=True) if not none]))
    pairs: list[tuple[dict[str, Any], dict[str, Any] | None]] = []
    for mark, add, none in zip(new.marks, actions, whole, strict=True):
        # Named keys only: a checkpoint may hold statistics in columns of its own.
        repeated = (*REPEATED, "modificationTime", "clusteringProvider")
        same = {key: add[key] for key in repeated if add.get(key) is not None}
        # The bounds still hold, but no row may be at them. With a vector, the protocol requires the
        # number of rows. Source: Delta protocol, Per-file Statistics (numRecords, tightBounds).
        stats = add.get("stats")
        figures = {"numRecords": mark.file.rows} if stats is None else json.loads(stats)
        text = json.dumps({**figures, "tightBounds": False}, ensure_ascii=False)
        pairs.append((add, None if none else {**same, "deletionVector": next(written), "stats": text}))
    return pairs


def refuse_append_only(snapshot: Snapshot, new: NewCommit) -> None:
    if new.data_change and snapshot.is_append_only:
        raise append_only(snapshot.ref)
