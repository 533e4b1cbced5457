"""Liquid clustering of a version: its columns, from a domain of the log, and its files.

Source: Delta protocol, Clustered Table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from duckrun.formats.delta.definition.definition import DeltaDefinition
from duckrun.formats.delta.definition.mapping import physical_of
from duckrun.formats.delta.definition.protocol import CLUSTERING
from duckrun.formats.delta.log.access import LogAccess
from duckrun.formats.delta.versions.domains import action_of, domains_of
from duckrun.values.snapshot import Snapshot

PROVIDER = "liquid"
_DOMAIN, _COLUMNS = "delta.clustering", "clusteringColumns"


def clustered_by(
    logs: LogAccess, snapshot: Snapshot, definition: DeltaDefinition
) -> tuple[tuple[str, ...], ...] | None:
    """Return the paths of the clustering columns; None for a table without liquid clustering."""
    if CLUSTERING not in snapshot.writer_features:
        return None
    configuration = domains_of(logs, snapshot).get(_DOMAIN)
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


def action(definition: DeltaDefinition) -> dict[str, Any]:
    """Return the action that records the clustering columns."""
    # Physical names, which no renaming changes (Delta protocol, Clustered Table). delta-spark
    # repeats the name of the domain.
    stored = [_stored(definition.fields, path) for path in definition.cluster_by or ()]
    return action_of(_DOMAIN, {_COLUMNS: stored, "domainName": _DOMAIN})


def _stored(fields: Sequence[Mapping[str, Any]], path: tuple[str, ...]) -> list[str]:
    field = next(f for f in fields if f["name"] == path[0])
    return [physical_of(field), *(_stored(field["type"]["fields"], path[1:]) if path[1:] else ())]
