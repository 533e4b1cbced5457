"""Registry of a table's change consumers, in its folder, so that maintenance can warn of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator

from duckrun.errors import DuckrunError
from duckrun.formats.format import Format
from duckrun.lake.lake import Lake
from duckrun.storage.storage import Storage
from duckrun.values.cursors import Offsets, hashed, offsets_path
from duckrun.values.frozen import frozen
from duckrun.values.snapshot import Snapshot, TableRef

log = logging.getLogger(__name__)

CONSUMERS = "_duckrun/consumers"


def register(storage: Storage, upstream: TableRef, consumer: str, output: TableRef) -> None:
    """Record in a table's folder that a consumer with another output table reads it."""
    place = storage.relative(output.location)
    note = json.dumps({"consumer": consumer, "output": place, "name": str(output), "reads": str(upstream)})
    path = f"{CONSUMERS}/{hashed(f'{consumer} {place}')}.json"
    if storage.read_at(upstream.location, path) is None:
        storage.put_new(upstream.location, path, note.encode())


@frozen
class Reading:
    """Progress of a consumer in a table."""

    consumer: str
    output: str
    version: int
    """Last version that it has read."""


def consumers_of(lake: Lake, snapshot: Snapshot) -> Iterator[Reading]:
    """Yield the consumers of a table whose outputs are readable and in the same storage."""
    location, seen = snapshot.ref.location, set[tuple[str, str]]()
    for key in list(lake.storage.keys(location, CONSUMERS)):
        raw = lake.storage.read_at(location, key["path"])
        note = json.loads(raw) if raw is not None else {}
        output = lake.output_at(lake.storage.absolute(note["output"])) if note else None
        # An older version has recorded the same consumer under another file name.
        if output is None or (note["consumer"], output.location) in seen or not lake.format.exists(output):
            continue
        seen.add((note["consumer"], output.location))
        holds = lake.format.counter(output, note["consumer"]).holds
        path = "" if holds is None else offsets_path(note["consumer"], holds)
        raw = lake.storage.read_at(output.location, path) if path else None
        read = None if raw is None else Offsets.from_json(raw, f"{output.location}/{path}").ranges.get(note["reads"])
        if read is not None and read.table_id == snapshot.table_id:
            yield Reading(note["consumer"], note["name"], read.to_version)


def stranded(lake: Lake, snapshot: Snapshot, removed: Collection[str], *, dry_run: bool) -> tuple[str, ...]:
    """Return warnings about consumers whose unread changes lose files or log entries."""
    if not removed:
        return ()
    would = "would be" if dry_run else "are"
    return tuple(
        f"{each.consumer} has read table {snapshot.ref} up to version {each.version}, and files or entries of the log "
        f"that tell what has changed since {would} gone: {each.output} needs a full refresh, or its next run before "
        "the removal."
        for each in consumers_of(lake, snapshot)
        if _needs(lake.format, snapshot, each.version, set(removed))
    )


def warn_of_left_behind(lake: Lake, snapshot: Snapshot) -> None:
    """Warn of consumers with unread commits that have left the log after its retention."""
    try:
        for each in consumers_of(lake, snapshot):
            if each.version < snapshot.version and lake.format.fingerprint(snapshot.ref, each.version + 1) is None:
                log.warning(
                    "%s has read table %s up to version %s, and the log no longer holds what came "
"next: %s needs a full refresh",
                    each.consumer, snapshot.ref, each.version, each.output,
                )  # fmt: skip
    except (DuckrunError, OSError, ValueError) as error:  # the commit stands without
        log.warning("table %s: who reads its changes cannot be told: %s", snapshot.ref, error)


def _needs(form: Format, snapshot: Snapshot, after: int, removed: Collection[str]) -> bool:
    try:
        commits = form.commits_between(snapshot.ref, after, snapshot.version)
    except DuckrunError:  # the log does not hold them any more
        return True
    paths = {file.file.path for commit in commits for file in commit.files}
    paths |= {file.path for commit in commits for file in commit.feed}
    return bool(paths & set(removed))
