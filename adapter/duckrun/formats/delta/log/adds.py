"""Add and remove actions of a version, exactly as the log writes them.

deltalake's list of files leaves out deletion vectors, row ids, tags, and removed files.

Source: Delta protocol, Action Reconciliation, Checkpoints.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import obstore

from duckrun.errors import UnsupportedFeature
from duckrun.formats.delta.log.access import LogAccess
from duckrun.formats.delta.log.checkpoints import newest_whole
from duckrun.formats.delta.log.entries import LOG, actions_in
from duckrun.libraries import pa, pc, pq
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
    oldest, checkpoint = snapshot.version + 1, -1
    for commit in logs.actions_back(snapshot.ref, snapshot.version):
        # One listing tells where the rest can be read at once.
        if oldest == snapshot.version + 1 - _UNLISTED:
            checkpoint, _ = newest_whole(
                (key["path"] for key in logs.storage.keys(snapshot.ref.location, LOG)), 0, oldest - 1
            )
        if commit.version <= checkpoint:
            break
        oldest = commit.version
        for add in commit.adds:
            if add["path"] in wanted:
                adds.setdefault(add["path"], add)
        if len(adds) == len(wanted):
            return adds
    for add in _checkpoint(logs, snapshot, oldest - 1, wanted - adds.keys()):
        adds.setdefault(add["path"], add)
    if len(adds) < len(wanted):
        raise UnsupportedFeature(
            f"Table {snapshot.ref}: the log does not hold the actions that added {len(wanted) - len(adds)} of the "
            "files to remove, which have deletion vectors or ids of rows",
            remedy="Run this with engine: spark",
        )
    return adds


def deleted_rows(logs: LogAccess, snapshot: Snapshot) -> dict[str, int]:
    """Return the number of rows that the deletion vector of each live file deletes.

    Files are keyed by path as the log spells it. Files without a vector are left out.
    """
    # The actions have the counts. deltalake 1.6.6 reads every vector for them, and hangs if there
    # are many (512).
    counts: dict[str, int] = {}
    seen: set[str] = set()
    oldest, checkpoint = snapshot.version + 1, -1
    for commit in logs.actions_back(snapshot.ref, snapshot.version):
        if oldest == snapshot.version + 1 - _UNLISTED:
            checkpoint, _ = newest_whole(
                (key["path"] for key in logs.storage.keys(snapshot.ref.location, LOG)), 0, oldest - 1
            )
        if commit.version <= checkpoint:
            break
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
        if commit.version <= checkpoint and keys.get(f"{LOG}/{commit.version:020d}.json", 0) < moment - _SKEW:
            break
        yield from (remove for remove in commit.removes if (remove.get("deletionTimestamp") or 0) >= moment)
    for path in paths:
        yield from _removes_in(logs, snapshot, path, moment)


def _removes_in(logs: LogAccess, snapshot: Snapshot, path: str, moment: float) -> Iterator[Mapping[str, Any]]:
    """Yield the removes since a moment in one file of a checkpoint, and in its sidecars."""
    raw = bytes(obstore.get(logs.storage.store_at(snapshot.ref.location), path).bytes())
    if path.endswith(".json"):
        actions = actions_in(raw, path)
    else:
        file = pq.ParquetFile(pa.BufferReader(raw))
        parts = ("remove.path", "remove.deletionTimestamp", "remove.deletionVector", "sidecar.path")
        columns = [part for part in parts if part.partition(".")[0] in file.schema_arrow.names]
        actions = (
            [row for batch in file.iter_batches(columns=columns) for row in _kept(batch, moment)] if columns else []
        )
    for action in actions:
        remove, sidecar = action.get("remove"), action.get("sidecar")
        if remove is not None and (remove.get("deletionTimestamp") or 0) >= moment:
            yield {key: _present(value) for key, value in remove.items()}
        elif sidecar is not None:
            yield from _removes_in(logs, snapshot, f"{LOG}/_sidecars/{sidecar['path']}", moment)


def _kept(batch: pa.RecordBatch, moment: float) -> list[dict[str, Any]]:
    """Return the removes since a moment, and the sidecars, among actions."""
    keep = pa.array([False] * len(batch))
    if "remove" in batch.schema.names:
        at = pc.struct_field(batch.column("remove"), "deletionTimestamp")
        keep = pc.fill_null(pc.greater_equal(at, int(moment)), False)
    if "sidecar" in batch.schema.names:
        keep = pc.or_(keep, pc.is_valid(batch.column("sidecar")))
    actions: list[dict[str, Any]] = batch.filter(keep).to_pylist()
    return actions


def _checkpoint(logs: LogAccess, snapshot: Snapshot, least: int, wanted: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the wanted adds of the newest checkpoint between ``least`` and the snapshot."""
    store = logs.storage.store_at(snapshot.ref.location)
    keys = (key["path"] for key in logs.storage.keys(snapshot.ref.location, LOG))
    for path in newest_whole(keys, least, snapshot.version)[1]:
        raw = bytes(obstore.get(store, path).bytes())
        for action in _actions(raw, path, wanted):
            if action.get("add"):
                yield _as_committed(action["add"])
            elif action.get("sidecar"):
                name = action["sidecar"]["path"]
                inner = bytes(obstore.get(store, f"{LOG}/_sidecars/{name}").bytes())
                yield from (_as_committed(row["add"]) for row in _actions(inner, name, wanted) if row.get("add"))


def _marked_in_checkpoint(logs: LogAccess, snapshot: Snapshot, least: int) -> Iterator[tuple[str, int]]:
    """Yield files with deletion vectors and the number of rows that these delete.

    They come from the newest checkpoint between ``least`` and the snapshot.
    """
    store = logs.storage.store_at(snapshot.ref.location)
    waiting = newest_whole(
        (key["path"] for key in logs.storage.keys(snapshot.ref.location, LOG)), least, snapshot.version
    )[1]
    for path in waiting:
        raw = bytes(obstore.get(store, path).bytes())
        if path.endswith(".json"):
            for action in actions_in(raw, path):
                vector = action.get("add", {}).get("deletionVector")
                if vector:
                    yield action["add"]["path"], int(vector["cardinality"])
                if "sidecar" in action:
                    waiting.append(f"{LOG}/_sidecars/{action['sidecar']['path']}")
            continue
        file = pq.ParquetFile(pa.BufferReader(raw))
        columns = [file.schema.column(i).path for i in range(len(file.schema))]
        wanted = [name for name in ("add.path", "add.deletionVector.cardinality", "sidecar.path") if name in columns]
        for row in (row for batch in file.iter_batches(columns=wanted) for row in _with_vectors(batch)):
            yield row["path"], int(row["deletionVector"]["cardinality"])
        if "sidecar.path" in columns:
            sidecars = file.read(columns=["sidecar.path"]).column("sidecar").combine_chunks()
            names = pc.drop_null(pc.struct_field(sidecars, "path")).to_pylist()
            waiting.extend(f"{LOG}/_sidecars/{name}" for name in names)


def _with_vectors(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the adds of files with deletion vectors, among actions."""
    if "add" not in batch.schema.names or batch.schema.field("add").type.get_field_index("deletionVector") < 0:
        return []
    adds = batch.column("add")
    counts = pc.struct_field(adds, ["deletionVector", "cardinality"])
    with_vectors: list[dict[str, Any]] = adds.filter(pc.is_valid(counts)).to_pylist()
    return with_vectors


def _actions(raw: bytes, path: str, wanted: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the wanted adds, and the sidecars, of one file of a checkpoint."""
    if path.endswith(".json"):
        actions = actions_in(raw, path)
        yield from (a for a in actions if "add" not in a or a["add"]["path"] in wanted)
        return
    file = pq.ParquetFile(pa.BufferReader(raw))
    columns = [name for name in ("add", "sidecar") if name in file.schema_arrow.names]
    for batch in file.iter_batches(columns=columns):
        keep = None
        for name in columns:
            paths = pc.struct_field(batch.column(name), "path")
            some = pc.is_in(paths, pa.array(sorted(wanted), paths.type)) if name == "add" else pc.is_valid(paths)
            keep = some if keep is None else pc.or_(keep, some)
        for row in batch.filter(keep).to_pylist() if keep is not None else ():
            add = row.get("add")
            if add is not None:  # Parquet returns a map as pairs
                row["add"] = {
                    key: dict(value) if key in ("partitionValues", "tags") else _present(value)
                    for key, value in add.items()
                    if value is not None
                }
            yield row


def _present(value: Any) -> Any:
    """Return a value of a checkpoint as a commit has it: without the NULL fields of a struct."""
    return {key: inner for key, inner in value.items() if inner is not None} if isinstance(value, dict) else value


def _as_committed(add: Mapping[str, Any]) -> dict[str, Any]:
    """Return an action of a checkpoint in the logs of a commit.

    Columns that only checkpoints have are left out. Statistics that exist only there become text,
    except bounds whose type JSON lacks (dates, times, decimals).

    Source: Delta protocol, Checkpoint Schema (stats_parsed, partitionValues_parsed).
    """
    committed = {key: value for key, value in add.items() if key not in ("stats_parsed", "partitionValues_parsed")}
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
