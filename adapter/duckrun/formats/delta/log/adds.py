"""Add and remove actions of a version, exactly as the log writes them.

deltalake's list of files leaves out deletion vectors, row ids, tags, and removed files.

Source: Delta protocol, Action Reconciliation, Checkpoints.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from duckrun.errors import StorageError, UnsupportedFeature
from duckrun.formats.delta.log.access import LogAccess
from duckrun.formats.delta.log.checkpoints import actions_with_sidecars, newest_checkpoint, newest_whole
from duckrun.formats.delta.log.entries import LOG, CommitActions, entry
from duckrun.libraries import pa, pc
from duckrun.values.data_files import spelled
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot

_UNLISTED = 4
"""Number of commits that are read before the log is listed for a checkpoint."""
_SKEW = 24 * 3_600_000
"""Milliseconds that the clock of a store may be behind those of writers."""


def adds_of(logs: LogAccess, snapshot: Snapshot, wanted: set[str]) -> dict[str, dict[str, Any]]:
    """Return the actions that added some live files, by path as the log spells it.

    The newest commits are searched first, then the newest checkpoint.

    Raises:
        UnsupportedFeature: The log has neither the commits nor a checkpoint any more.
    """
    if not wanted:
        return {}
    adds: dict[str, dict[str, Any]] = {}
    oldest = snapshot.version + 1
    for commit in _since_checkpoint(logs, snapshot):
        oldest = commit.version
        # The newest action of a path wins, and these come newest first (Delta protocol, Action
        # Reconciliation).
        for add in commit.adds:
            if add["path"] in wanted:
                adds.setdefault(add["path"], add)
        if len(adds) == len(wanted):
            return adds
    for add in _in_checkpoint(logs, snapshot, oldest - 1, wanted - adds.keys()):
        adds.setdefault(add["path"], add)
    if len(adds) < len(wanted):
        raise UnsupportedFeature(
            f"Table {snapshot.ref}: the log does not hold the actions that added {len(wanted) - len(adds)} of the "
            "files to remove, which have deletion vectors or ids of rows",
            remedy="Run this with engine: spark",
        )
    return adds


def adds_in_order(logs: LogAccess, snapshot: Snapshot, files: Sequence[ScanFile]) -> list[dict[str, Any]]:
    """Return the actions that added some live files, in the order of the files; see adds_of()."""
    adds = adds_of(logs, snapshot, {spelled(file) for file in files})
    return [adds[spelled(file)] for file in files]


def first_ids(logs: LogAccess, snapshot: Snapshot, files: Sequence[ScanFile]) -> list[tuple[int, int]]:
    """See Format.

    Raises:
        StorageError: A file has no base row id (Delta protocol, Row Tracking).
    """
    ids = []
    for file, add in zip(files, adds_in_order(logs, snapshot, files), strict=True):
        if add.get("baseRowId") is None or add.get("defaultRowCommitVersion") is None:
            raise StorageError(
                f"Table {snapshot.ref} tracks its rows, and its log has no baseRowId of the file {file.path}, "
                "with which every file of such a table is added (Delta protocol, Row Tracking)",
                remedy="Take the writer to account that added it",
            )
        ids.append((int(add["baseRowId"]), int(add["defaultRowCommitVersion"])))
    return ids


def deleted_rows(logs: LogAccess, snapshot: Snapshot) -> dict[str, int]:
    """Return the number of rows that the deletion vector of each live file deletes.

    Files are keyed by path as the log spells it. Files without a vector are left out.
    """
    # The actions have the counts. deltalake 1.6.6 reads every vector for them, and hangs if there
    # are many (512).
    counts: dict[str, int] = {}
    seen: set[str] = set()
    oldest = snapshot.version + 1
    for commit in _since_checkpoint(logs, snapshot):
        oldest = commit.version
        for add in commit.adds:
            if add["path"] not in seen and add.get("deletionVector"):
                counts[add["path"]] = int(add["deletionVector"]["cardinality"])
            seen.add(add["path"])
        seen.update(remove["path"] for remove in commit.removes)
    if oldest:
        for path, count in _marked_in_checkpoint(logs, snapshot, oldest - 1):
            if path not in seen:
                counts[path] = count
    return counts


def removes_since(logs: LogAccess, snapshot: Snapshot, moment: float) -> Iterator[Mapping[str, Any]]:
    """Return the actions that removed files at or after a moment; a file may occur twice.

    They come from the commits after the newest checkpoint, older commits that are as young, and
    that checkpoint.

    Args:
        moment: Milliseconds since 1970.
    """
    # A checkpoint may drop removes that are older than the table's retention (Delta protocol,
    # Action Reconciliation).
    keys = {key["path"]: key["modified"] * 1000 for key in logs.storage.keys(snapshot.ref.location, LOG)}
    checkpoint, paths = newest_whole(keys, 0, snapshot.version)
    for commit in logs.actions_back(snapshot.ref, snapshot.version):
        if commit.version <= checkpoint and keys.get(entry(commit.version), 0) < moment - _SKEW:
            break
        # The writer's clock may have been behind.
        is_young = keys.get(entry(commit.version), 0) >= moment
        yield from (each for each in commit.removes if is_young or (each.get("deletionTimestamp") or 0) >= moment)
    columns = ("remove.path", "remove.deletionTimestamp", "remove.deletionVector")

    def are_young(removes: pa.Array) -> Any:
        return pc.greater_equal(pc.struct_field(removes, "deletionTimestamp"), int(moment))

    for remove in actions_with_sidecars(logs.storage, snapshot.ref, paths, columns, are_young):
        if (remove.get("deletionTimestamp") or 0) >= moment:
            yield {key: _present(value) for key, value in remove.items()}


def _since_checkpoint(logs: LogAccess, snapshot: Snapshot) -> Iterator[CommitActions]:
    """Yield the commits of a version, newest first, back to a checkpoint or to the log's start."""
    checkpoint = -1
    for count, commit in enumerate(logs.actions_back(snapshot.ref, snapshot.version)):
        # One listing tells where the rest can be read at once.
        if count == _UNLISTED:
            checkpoint, _ = newest_checkpoint(logs.storage, snapshot.ref, commit.version)
        if commit.version <= checkpoint:
            return
        yield commit


def _in_checkpoint(logs: LogAccess, snapshot: Snapshot, least: int, wanted: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the wanted adds of the newest checkpoint between ``least`` and the snapshot."""
    _, paths = newest_checkpoint(logs.storage, snapshot.ref, snapshot.version, least)

    def is_wanted(adds: pa.Array) -> Any:
        names = pc.struct_field(adds, "path")
        return pc.is_in(names, pa.array(sorted(wanted), names.type))

    for add in actions_with_sidecars(logs.storage, snapshot.ref, paths, ["add"], is_wanted):
        if add["path"] in wanted:
            yield _as_committed(add)


def _marked_in_checkpoint(logs: LogAccess, snapshot: Snapshot, least: int) -> Iterator[tuple[str, int]]:
    """Yield files with deletion vectors and the number of rows that these delete.

    They come from the newest checkpoint between ``least`` and the snapshot.
    """
    _, paths = newest_checkpoint(logs.storage, snapshot.ref, snapshot.version, least)

    def has_vector(adds: pa.Array) -> Any:
        if adds.type.get_field_index("deletionVector") < 0:
            return pa.array([False] * len(adds))
        return pc.is_valid(pc.struct_field(adds, ["deletionVector", "cardinality"]))

    columns = ("add.path", "add.deletionVector.cardinality")
    for add in actions_with_sidecars(logs.storage, snapshot.ref, paths, columns, has_vector):
        if add.get("deletionVector"):
            yield add["path"], int(add["deletionVector"]["cardinality"])


def _present(value: Any) -> Any:
    """Return a value of a checkpoint as a commit has it: without the NULL fields of a struct."""
    return {key: inner for key, inner in value.items() if inner is not None} if isinstance(value, dict) else value


def _as_committed(add: Mapping[str, Any]) -> dict[str, Any]:
    """Return an add of a checkpoint as a commit has it.

    Columns that only checkpoints have are left out. Statistics that exist only there become text,
    except bounds whose type JSON lacks (dates, times, decimals).

    Source: Delta protocol, Checkpoint Schema (stats_parsed, partitionValues_parsed).
    """
    committed = {
        key: dict(value) if key in ("partitionValues", "tags") else _present(value)  # Parquet has a map as pairs
        for key, value in add.items()
        if value is not None and key not in ("stats_parsed", "partitionValues_parsed")
    }
    if committed.get("stats") is None and add.get("stats_parsed") is not None:
        committed["stats"] = json.dumps(_in_json(add["stats_parsed"]), ensure_ascii=False)
    return committed


def _in_json(parsed: Mapping[str, Any]) -> dict[str, Any]:
    inner = {key: _in_json(value) if isinstance(value, Mapping) else value for key, value in parsed.items()}
    return {
        key: value
        for key, value in inner.items()
        if isinstance(value, str | int | Mapping) or isinstance(value, float) and math.isfinite(value)
    }
