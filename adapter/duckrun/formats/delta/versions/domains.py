"""Domain metadata of a table: configurations by systems and users, beside the table metadata.

The columns of liquid clustering are one of them. Source: Delta protocol, Domain Metadata, Clustered
Table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from duckrun.formats.delta.definition.definition import DeltaDefinition
from duckrun.formats.delta.definition.mapping import physical_of
from duckrun.formats.delta.definition.protocol import CLUSTERING, DOMAINS
from duckrun.formats.delta.log.access import LogAccess
from duckrun.formats.delta.log.checkpoints import checkpoint_actions, newest_checkpoint
from duckrun.formats.delta.versions.newest import state_of
from duckrun.values.snapshot import Snapshot

CLUSTERING_PROVIDER = "liquid"
ROW_ID_MARK = "rowIdHighWaterMark"
"""Key of the highest row id in the domain of row tracking. Source: Delta protocol, Row Tracking."""
_CLUSTERING, _COLUMNS = "delta.clustering", "clusteringColumns"


def domains_of(logs: LogAccess, snapshot: Snapshot) -> dict[str, str]:
    """Return the configuration of each domain of a version that was not removed."""
    if DOMAINS not in snapshot.writer_features:
        return {}
    known = state_of(snapshot)
    if known.domains is None:
        configurations: dict[str, str | None] = {}
        for action in _actions(logs, snapshot):
            # The newest action of a domain wins, and a removed one stays removed (Delta protocol,
            # Domain Metadata).
            configurations.setdefault(action["domain"], None if action.get("removed") else action["configuration"])
        known.domains = {domain: text for domain, text in configurations.items() if text is not None}
    return dict(known.domains)


def _actions(logs: LogAccess, snapshot: Snapshot) -> Iterator[Mapping[str, Any]]:
    """Yield the domain actions, newest first: from commits, then from the newest checkpoint."""
    checkpoint, paths = newest_checkpoint(logs.storage, snapshot.ref, snapshot.version)
    for commit in logs.actions_back(snapshot.ref, snapshot.version):
        if commit.version <= checkpoint:
            break
        yield from reversed(commit.domains)
    yield from checkpoint_actions(logs.storage, snapshot.ref, paths, DOMAINS)


def action_of(domain: str, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the action that sets the configuration of a domain."""
    text = json.dumps(configuration, separators=(",", ":"))
    return {DOMAINS: {"domain": domain, "configuration": text, "removed": False}}


# -- liquid clustering


def clustered_by(
    logs: LogAccess, snapshot: Snapshot, definition: DeltaDefinition
) -> tuple[tuple[str, ...], ...] | None:
    """Return the paths of the clustering columns; None for a table without liquid clustering."""
    if CLUSTERING not in snapshot.writer_features:
        return None
    configuration = domains_of(logs, snapshot).get(_CLUSTERING)
    # The table may list the feature and have no clustering columns yet.
    if configuration is None:
        return None
    return tuple(_logical(definition.fields, tuple(path)) for path in json.loads(configuration)[_COLUMNS])


def _logical(fields: Sequence[Mapping[str, Any]], stored: tuple[str, ...]) -> tuple[str, ...]:
    """Return the logical path of a column, given its physical path."""
    for field in fields:
        if physical_of(field) == stored[0]:
            return (field["name"], *(_logical(field["type"]["fields"], stored[1:]) if stored[1:] else ()))
    return stored


def clustering_action(definition: DeltaDefinition) -> dict[str, Any]:
    """Return the action that records the clustering columns."""
    # Physical names, which no renaming changes (Delta protocol, Clustered Table). delta-spark
    # repeats the name of the domain.
    stored = [_stored(definition.fields, path) for path in definition.cluster_by or ()]
    return action_of(_CLUSTERING, {_COLUMNS: stored, "domainName": _CLUSTERING})


def _stored(fields: Sequence[Mapping[str, Any]], path: tuple[str, ...]) -> list[str]:
    field = next(f for f in fields if f["name"] == path[0])
    return [physical_of(field), *(_stored(field["type"]["fields"], path[1:]) if path[1:] else ())]
