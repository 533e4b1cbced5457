"""Checkpoints of a Delta log: the newest complete one, and the actions in its files.

Source: Delta protocol, Checkpoints, Last Checkpoint File, V2 Checkpoint Table Feature.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import obstore

from duckrun.formats.delta.log.entries import LOG, actions_in
from duckrun.libraries import pa, pq
from duckrun.storage.storage import Storage
from duckrun.values.snapshot import Snapshot

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


def newest_checkpoint(storage: Storage, snapshot: Snapshot) -> tuple[int, list[str]]:
    """Return the newest checkpoint up to a snapshot's version, and its files.

    Returns:
        Version -1 and no files if there is no checkpoint.
    """
    keys = (key["path"] for key in storage.keys(snapshot.ref.location, LOG))
    return newest_whole(keys, 0, snapshot.version)


def checkpoint_actions(
    storage: Storage, snapshot: Snapshot, paths: Iterable[str], name: str
) -> Iterator[dict[str, Any]]:
    """Yield the actions of one kind in the files of a checkpoint.

    Sidecars are not read, so adds and removes may be missing.
    """
    for path in paths:
        raw = bytes(obstore.get(storage.store_at(snapshot.ref.location), path).bytes())
        if path.endswith(".json"):
            actions = actions_in(raw, path)
            yield from (action[name] for action in actions if name in action)
            continue
        file = pq.ParquetFile(pa.BufferReader(raw))
        if name in file.schema_arrow.names:
            for batch in file.iter_batches(columns=[name]):
                yield from (row for row in batch.column(name).drop_null().to_pylist())


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
