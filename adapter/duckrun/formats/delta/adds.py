"""The actions behind a version, letter by letter, for what deltalake's list of files leaves out: vectors, ids of rows, tags, and
files that are removed.

Source: Delta protocol, Action Reconciliation, Checkpoints.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import obstore
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from duckrun.errors import UnsupportedFeature
from duckrun.formats.delta.log import LOG, actions_in
from duckrun.values.snapshot import Snapshot

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from duckrun.formats.delta.delta import DeltaFormat

_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(?:parquet|json)$")
_UNLISTED = 4
"""Commits that are looked through before the log is listed for a checkpoint."""
_SKEW = 24 * 3_600_000
"""Milliseconds that the clock of a store may be behind those of writers."""


def listed(table: DeltaTable) -> pa.Table:
    """What deltalake says of each live file. Not by ``pa.table()``, which imports pandas to see whether it was given a frame."""
    return pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=False)).read_all()


def adds_of(form: DeltaFormat, snapshot: Snapshot, wanted: set[str]) -> dict[str, dict[str, Any]]:
    """The actions that added some live files, by their paths as the log spells them: from the commits, newest first, then from
    the newest checkpoint. Raises UnsupportedFeature where the log holds neither any more.
    """
    if not wanted:
        return {}
    found: dict[str, dict[str, Any]] = {}
    oldest, held = snapshot.version + 1, -1
    for commit in form.actions_back(snapshot.ref, snapshot.version):
        if oldest == snapshot.version + 1 - _UNLISTED:  # one listing tells where the rest can be read at once
            held, _ = newest_whole(
                (key["path"] for key in form.storage.keys(snapshot.ref.location, LOG)), 0, oldest - 1
            )
        if commit.version <= held:
            break
        oldest = commit.version
        for add in commit.adds:
            if add["path"] in wanted:
                found.setdefault(add["path"], add)
        if len(found) == len(wanted):
            return found
    for add in _checkpoint(form, snapshot, oldest - 1, wanted - found.keys()):
        found.setdefault(add["path"], add)
    if len(found) < len(wanted):
        raise UnsupportedFeature(
            f"Table {snapshot.ref}: the log does not hold the actions that added {len(wanted) - len(found)} of the files to remove, which "
            "have deletion vectors or ids of rows. Nothing was written. Run this with engine: spark."
        )
    return found


def deleted_rows(form: DeltaFormat, snapshot: Snapshot) -> dict[str, int]:
    """How many rows the deletion vector of each live file deletes, by the file's path as the log spells it; files without one are
    left out.

    From the actions, and from no vector: deltalake 1.6.6 reads each of these, and does not come back where they are many (512).
    """
    found: dict[str, int] = {}
    seen: set[str] = set()
    oldest, held = snapshot.version + 1, -1
    for commit in form.actions_back(snapshot.ref, snapshot.version):
        if oldest == snapshot.version + 1 - _UNLISTED:
            held, _ = newest_whole(
                (key["path"] for key in form.storage.keys(snapshot.ref.location, LOG)), 0, oldest - 1
            )
        if commit.version <= held:
            break
        oldest = commit.version
        for add in commit.adds:
            if add["path"] not in seen and add.get("deletionVector"):
                found[add["path"]] = int(add["deletionVector"]["cardinality"])
            seen.add(add["path"])
        seen.update(remove["path"] for remove in commit.removes)
    if oldest:
        for path, count in _marked_in_checkpoint(form, snapshot, oldest - 1):
            if path not in seen:
                found[path] = count
    return found


def removes_since(form: DeltaFormat, snapshot: Snapshot, moment: float) -> Iterator[Mapping[str, Any]]:
    """The actions that removed files at a moment (milliseconds since 1970) or later, a file maybe more than once: from the commits
    after the newest checkpoint and from those that are as young, and from that checkpoint.

    A checkpoint may drop removes that are older than the table's retention. (Delta protocol, Action Reconciliation.)
    """
    keys = {key["path"]: key["modified"] * 1000 for key in form.storage.keys(snapshot.ref.location, LOG)}
    held, paths = newest_whole(keys, 0, snapshot.version)
    for commit in form.actions_back(snapshot.ref, snapshot.version):
        if commit.version <= held and keys.get(f"{LOG}/{commit.version:020d}.json", 0) < moment - _SKEW:
            break
        yield from (remove for remove in commit.removes if (remove.get("deletionTimestamp") or 0) >= moment)
    for path in paths:
        yield from _removes_in(form, snapshot, path, moment)


def _removes_in(form: DeltaFormat, snapshot: Snapshot, path: str, moment: float) -> Iterator[Mapping[str, Any]]:
    """The removes since a moment in one file of a checkpoint, and in its sidecars."""
    raw = bytes(obstore.get(form.storage.store_at(snapshot.ref.location), path).bytes())
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
            yield from _removes_in(form, snapshot, f"{LOG}/_sidecars/{sidecar['path']}", moment)


def _kept(batch: pa.RecordBatch, moment: float) -> list[dict[str, Any]]:
    """The removes since a moment, and the sidecars, of many actions."""
    keep = pa.array([False] * len(batch))
    if "remove" in batch.schema.names:
        at = pc.struct_field(batch.column("remove"), "deletionTimestamp")
        keep = pc.fill_null(pc.greater_equal(at, int(moment)), False)
    if "sidecar" in batch.schema.names:
        keep = pc.or_(keep, pc.is_valid(batch.column("sidecar")))
    return batch.filter(keep).to_pylist()


def newest_whole(paths: Iterable[str], least: int, most: int) -> tuple[int, list[str]]:
    """The newest whole checkpoint between two versions, and its files; -1 and none where there is no such checkpoint."""
    versions: dict[int, list[re.Match[str]]] = {}
    for path in paths:
        match = _CHECKPOINT.search(path)
        if match and max(least, 0) <= int(match[1]) <= most:
            versions.setdefault(int(match[1]), []).append(match)
    for version in sorted(versions, reverse=True):
        single = [match for match in versions[version] if match[2] is None]
        by_count: dict[str, list[re.Match[str]]] = {}
        for match in versions[version]:
            if match[2] is not None:
                by_count.setdefault(match[3], []).append(match)
        whole = (parts for count, parts in by_count.items() if len(parts) == int(count))
        chosen = single[:1] or next(whole, [])
        if chosen:
            return version, [match.string for match in chosen]
    return -1, []


def _checkpoint(form: DeltaFormat, snapshot: Snapshot, least: int, wanted: set[str]) -> Iterator[dict[str, Any]]:
    """Some adds of the newest checkpoint that is no older than ``least`` and no newer than the snapshot."""
    store = form.storage.store_at(snapshot.ref.location)
    keys = (key["path"] for key in form.storage.keys(snapshot.ref.location, LOG))
    for path in newest_whole(keys, least, snapshot.version)[1]:
        raw = bytes(obstore.get(store, path).bytes())
        for action in _actions(raw, path, wanted):
            if action.get("add"):
                yield _as_committed(action["add"])
            elif action.get("sidecar"):
                name = action["sidecar"]["path"]
                inner = bytes(obstore.get(store, f"{LOG}/_sidecars/{name}").bytes())
                yield from (_as_committed(held["add"]) for held in _actions(inner, name, wanted) if held.get("add"))


def _marked_in_checkpoint(form: DeltaFormat, snapshot: Snapshot, least: int) -> Iterator[tuple[str, int]]:
    """The files with deletion vectors of the newest checkpoint that is no older than ``least``, and how many rows these delete."""
    store = form.storage.store_at(snapshot.ref.location)
    waiting = newest_whole(
        (key["path"] for key in form.storage.keys(snapshot.ref.location, LOG)), least, snapshot.version
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
        asked = [name for name in ("add.path", "add.deletionVector.cardinality", "sidecar.path") if name in columns]
        for row in (row for batch in file.iter_batches(columns=asked) for row in _with_vectors(batch)):
            yield row["path"], int(row["deletionVector"]["cardinality"])
        if "sidecar.path" in columns:
            sidecars = file.read(columns=["sidecar.path"]).column("sidecar").combine_chunks()
            names = pc.drop_null(pc.struct_field(sidecars, "path")).to_pylist()
            waiting.extend(f"{LOG}/_sidecars/{name}" for name in names)


def _with_vectors(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The adds of files with deletion vectors, of many actions."""
    if "add" not in batch.schema.names or batch.schema.field("add").type.get_field_index("deletionVector") < 0:
        return []
    adds = batch.column("add")
    counts = pc.struct_field(adds, ["deletionVector", "cardinality"])
    return adds.filter(pc.is_valid(counts)).to_pylist()


def _actions(raw: bytes, path: str, wanted: set[str]) -> Iterator[dict[str, Any]]:
    """The adds of some files, and the sidecars, of one file of a checkpoint."""
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
            if add is not None:  # a map comes as pairs
                row["add"] = {
                    key: dict(held) if key in ("partitionValues", "tags") else _present(held)
                    for key, held in add.items()
                    if held is not None
                }
            yield row


def _present(held: Any) -> Any:
    """A value of a checkpoint as a commit would have it: of a struct, the fields that are there."""
    return {key: inner for key, inner in held.items() if inner is not None} if isinstance(held, dict) else held


def _as_committed(add: Mapping[str, Any]) -> dict[str, Any]:
    """An action of a checkpoint as a commit has it: without the columns that only a checkpoint has. Statistics that are in these
    alone become text, but for bounds whose type is not JSON's (dates, times, decimals): none is right for every file.

    Source: Delta protocol, Checkpoint Schema (stats_parsed, partitionValues_parsed).
    """
    found = {key: held for key, held in add.items() if key not in ("stats_parsed", "partitionValues_parsed")}
    if found.get("stats") is None and add.get("stats_parsed") is not None:
        found["stats"] = json.dumps(_in_json(add["stats_parsed"]), ensure_ascii=False)
    return found


def _in_json(held: Mapping[str, Any]) -> dict[str, Any]:
    inner = {key: _in_json(value) if isinstance(value, Mapping) else value for key, value in held.items()}
    return {
        key: value
        for key, value in inner.items()
        if isinstance(value, str | int | Mapping) or isinstance(value, float) and math.isfinite(value)
    }


def newest_checkpoint(form: DeltaFormat, snapshot: Snapshot) -> tuple[int, list[str]]:
    """The version of the newest checkpoint that is no newer than a snapshot, and its files; -1 and none where there is none."""
    keys = (key["path"] for key in form.storage.keys(snapshot.ref.location, LOG))
    return newest_whole(keys, 0, snapshot.version)


def checkpoint_actions(
    form: DeltaFormat, snapshot: Snapshot, paths: Iterable[str], name: str
) -> Iterator[dict[str, Any]]:
    """The actions of one kind in the files of a checkpoint; none of those that may lie in sidecars, which are adds and removes."""
    for path in paths:
        raw = bytes(obstore.get(form.storage.store_at(snapshot.ref.location), path).bytes())
        if path.endswith(".json"):
            actions = actions_in(raw, path)
            yield from (action[name] for action in actions if name in action)
            continue
        file = pq.ParquetFile(pa.BufferReader(raw))
        if name in file.schema_arrow.names:
            for batch in file.iter_batches(columns=[name]):
                yield from (row for row in batch.column(name).drop_null().to_pylist())
