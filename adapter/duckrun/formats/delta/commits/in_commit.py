"""In-commit timestamps: each commit contains its own time, which never goes back.

Source: Delta protocol, In-Commit Timestamps.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from duckrun.formats.delta.definition.definition import DeltaDefinition
from duckrun.formats.delta.definition.properties import IN_COMMIT, IN_COMMIT_TIME, IN_COMMIT_VERSION, is_on
from duckrun.formats.delta.log.access import LogAccess
from duckrun.values.snapshot import Snapshot

log = logging.getLogger(__name__)


def stamp(logs: LogAccess, snapshot: Snapshot | None, now: int) -> int:
    """Return the timestamp of the next commit, in milliseconds since 1970.

    It is the current time, or one more than the last commit's if that is ahead.
    """
    before = None if snapshot is None else logs.actions(snapshot.ref, snapshot.version)
    if before is None:
        return now
    last = int(before.info.get("inCommitTimestamp") or before.info.get("timestamp") or 0)
    if last > now:
        log.warning(
            "table %s: the in-commit timestamp of version %s is %.1f s ahead of this clock; the next one goes on "
            "from it",
            before.version if snapshot is None else snapshot.ref, before.version, (last - now) / 1000,
        )  # fmt: skip
    # Timestamps must grow with each version, whatever the clocks of the writers say (Delta
    # protocol, In-Commit Timestamps, Writer Requirements).
    return max(now, last + 1)


def enabled(now: DeltaDefinition, before: Snapshot | None, version: int, moment: int) -> DeltaDefinition:
    """Return a definition that records since when commits contain timestamps.

    That is needed if this commit enables them on an existing table.
    """
    if before is None or not is_on(now.properties, IN_COMMIT) or is_on(before.properties, IN_COMMIT):
        return now
    return replace(now, properties={**now.properties, IN_COMMIT_VERSION: str(version), IN_COMMIT_TIME: str(moment)})
