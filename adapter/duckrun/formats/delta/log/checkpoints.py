"""Checkpoints of a Delta log: the newest complete one, and the actions in its files.

Source: Delta protocol, Checkpoints, Last Checkpoint File, V2 Checkpoint Table Feature.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

import obstore

from duckrun.formats.delta.log.entries import LOG, actions_in
from duckrun.libraries import pa, pc, pq
from duckrun.storage.storage import Storage
from duckrun.values.snapshot import TableRef

_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(?:parquet|json)$")


def newest_whole(paths: Iterable[str], least: int, most: int) -> tuple[int, list[str]]:
    """Return the newest complete checkpoint between two versions, and its files.

    Returns:
        Version -1 and no files if there is no such checkpoint.
    """
    versions: dict[int, list[re.Match[str]]] = {}
    for path in paths:
        match = _CHECKPOINT.search(path)
        if match and max(least, 0) <= int(match[1]) <= most:
            versions.setdefault(int(match[1]), []).append(match)
    for version in sorted(versions, reverse=True):
        # A checkpoint in parts counts once all of its parts exist: its writer may have died (Delta
        # protocol, Checkpoint Naming Scheme).
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


def newest_checkpoint(storage: Storage, ref: TableRef, most: int, least: int = 0) -> tuple[int, list[str]]:
    """Return the newest complete checkpoint between two versions of a log; see newest_whole()."""
    return newest_whole((key["path"] for key in storage.keys(ref.location, LOG)), least, most)


def rows_in(
    storage: Storage, ref: TableRef, path: str, columns: Sequence[str], keep: Callable[[pa.RecordBatch], Any]
) -> Iterator[dict[str, Any]]:
    """Yield rows of one file of a checkpoint: an action by its name, beside NULL for all others.

    Args:
        columns: Columns to read, such as ``remove.path``; a JSON file is read whole.
        keep: Tells which rows of a Parquet file to return. A JSON file returns all of them.
    """
    raw = bytes(obstore.get(storage.store_at(ref.location), path).bytes())
    if path.endswith(".json"):
        yield from actions_in(raw, path)
        return
    file = pq.ParquetFile(pa.BufferReader(raw))
    present = [name for name in columns if name.partition(".")[0] in file.schema_arrow.names]
    for batch in file.iter_batches(columns=present) if present else ():
        yield from batch.filter(keep(batch)).to_pylist()


def actions_with_sidecars(
    storage: Storage, ref: TableRef, paths: Iterable[str], columns: Sequence[str], keep: Callable[[pa.Array], Any]
) -> Iterator[dict[str, Any]]:
    """Yield adds or removes in the files of a checkpoint, and in the sidecars that these name.

    Source: Delta protocol, V2 Checkpoint Table Feature (Sidecar Files).

    Args:
        columns: Columns of one kind of action.
        keep: Tells which actions of a Parquet file to return. A JSON file returns all of them.
    """
    name = columns[0].partition(".")[0]

    def wanted(batch: pa.RecordBatch) -> Any:
        masks = [keep(batch.column(name))] if name in batch.schema.names else []
        if "sidecar" in batch.schema.names:
            masks.append(pc.is_valid(pc.struct_field(batch.column("sidecar"), "path")))
        return reduce(pc.or_, [pc.fill_null(mask, False) for mask in masks])

    waiting = list(paths)
    for path in waiting:
        for row in rows_in(storage, ref, path, [*columns, "sidecar.path"], wanted):
            if row.get("sidecar"):
                waiting.append(f"{LOG}/_sidecars/{row['sidecar']['path']}")
            elif row.get(name):
                yield row[name]


def checkpoint_actions(storage: Storage, ref: TableRef, paths: Iterable[str], name: str) -> Iterator[dict[str, Any]]:
    """Yield the actions of one kind in the files of a checkpoint.

    Sidecars are not read, so adds and removes may be missing.
    """
    for path in paths:
        rows = rows_in(storage, ref, path, [name], lambda batch: pc.is_valid(batch.column(name)))
        yield from (row[name] for row in rows if name in row)


def last_checkpoint(storage: Storage, location: str) -> int:
    """Return the version of the newest checkpoint by the log's hint.

    Source: Delta protocol, Last Checkpoint File (the hint is optional).

    Returns:
        -1 if there is no readable hint. The writer of the next checkpoint replaces it.
    """
    hint = storage.read_at(location, f"{LOG}/_last_checkpoint")
    try:
        return -1 if hint is None else int(json.loads(hint)["version"])
    except (KeyError, TypeError, ValueError):
        return -1
