"""Checkpoints of a Delta log: the newest complete one, and the actions in its files.

Source: Delta protocol, Checkpoints, Last Checkpoint File, V2 Checkpoint Table Feature.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
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
    files: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    for path in paths:
        match = _CHECKPOINT.search(path)
        if match and max(least, 0) <= int(match[1]) <= most:
            files[int(match[1]), int(match[3] or 1)].append(path)
    # A checkpoint in parts counts once all of its parts exist: its writer may have died (Delta
    # protocol, Checkpoint Naming Scheme).
    whole = [(version, parts) for version, parts in files if 0 < parts <= len(files[version, parts])]
    if not whole:
        return -1, []
    version, parts = max(whole, key=lambda each: (each[0], -each[1]))
    return version, files[version, parts][:parts]


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
