"""In-commit timestamps: each commit contains its own time, which never goes back.

Source: Delta protocol, In-Commit Timestamps.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from duckrun.formats.delta.log_access import LogAccess
from duckrun.values.snapshot import Snapshot

if TYPE_CHECKING:
    from duckrun.formats.delta.definition import DeltaDefinition

log = logging.getLogger(__name__)

ENABLED = "delta.enableInCommitTimestamps"
FEATURE = "inCommitTimestamp"
VERSION, TIMESTAMP = "delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp"


def is_enabled(properties: Mapping[str, str]) -> bool:
    """True if each commit of a table contains its time."""
    return properties.get(ENABLED, "").lower() == "true"


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
    return max(now, last + 1)


def enabled(now: DeltaDefinition, before: Snapshot | None, version: int, moment: int) -> DeltaDefinition:
    """Return a definition that records since when commits contain timestamps.

    That is needed if this commit enables them on an existing table.
    """
    if before is None or not is_enabled(now.properties) or is_enabled(before.properties):
        return now
    return replace(now, properties={**now.properties, VERSION: str(version), TIMESTAMP: str(moment)})
