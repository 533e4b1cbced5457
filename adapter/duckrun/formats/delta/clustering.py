"""Liquid clustering: rows with similar values in the clustering columns lie near each other.

The columns are in a domain of the log. Source: Delta protocol, Clustered Table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from duckrun.errors import InvalidConfig, SchemaMismatch
from duckrun.formats.delta.adds import adds_of
from duckrun.formats.delta.definition import DeltaDefinition
from duckrun.formats.delta.domains import action_of, domains_of
from duckrun.formats.delta.log_access import LogAccess
from duckrun.formats.delta.mapping import physical_of
from duckrun.formats.delta.protocol import CLUSTERING
from duckrun.formats.delta.statistics import Statistics
from duckrun.values.data_paths import spelled
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot

PROVIDER = "liquid"
_DOMAIN, _COLUMNS = "delta.clustering", "clusteringColumns"
_UNORDERED = ("binary", "boolean")


def clustered_by(
    logs: LogAccess, snapshot: Snapshot, definition: DeltaDefinition
) -> tuple[tuple[str, ...], ...] | None:
    """Return the paths of the clustering columns; None for a table without liquid clustering."""
    if CLUSTERING not in snapshot.writer_features:
        return None
    configuration = domains_of(logs, snapshot).get(_DOMAIN)
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
    stored = [_stored(definition.fields, path) for path in definition.cluster_by or ()]
    return action_of(_DOMAIN, {_COLUMNS: stored, "domainName": _DOMAIN})


def _stored(fields: Sequence[Mapping[str, Any]], path: tuple[str, ...]) -> list[str]:
    field = next(f for f in fields if f["name"] == path[0])
    return [physical_of(field), *(_stored(field["type"]["fields"], path[1:]) if path[1:] else ())]


def chosen(definition: DeltaDefinition, columns: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the paths of the columns to cluster by. A dot in a name leads into a struct.

    Raises:
        SchemaMismatch: A column is missing.
        InvalidConfig: The table is partitioned, a type has no order, or a column has no statistics.
    """
    if columns and definition.partition_columns:
        raise InvalidConfig(
            f"a table is partitioned ({', '.join(definition.partition_columns)}) or clustered ({', '.join(columns)}), "
            "not both (Delta protocol, Clustered Table)"
        )
    paths = tuple(_path(definition, name) for name in columns)
    counted = set(Statistics(definition.schema, definition.properties).wanted)
    for path in paths:
        kind = _type(definition.fields, path)
        if not isinstance(kind, str) or kind in _UNORDERED:
            raise InvalidConfig(f"rows cannot be clustered by {'.'.join(path)}, whose type has no bounds in the log")
        if path not in counted:
            raise InvalidConfig(
                f"rows cannot be clustered by {'.'.join(path)}, which has no statistics: "
                "delta.dataSkippingStatsColumns or delta.dataSkippingNumIndexedCols leave it out"
            )
    if len(paths) > 4:  # the limit of delta-spark
        raise InvalidConfig(f"rows are clustered by 4 columns at most, and these are {len(paths)}")
    return paths


def _path(definition: DeltaDefinition, name: str) -> tuple[str, ...]:
    whole = next((f["name"] for f in definition.fields if f["name"].lower() == name.lower()), None)
    if whole is not None:
        return (whole,)
    path: list[str] = []
    fields: Sequence[Mapping[str, Any]] = definition.fields
    for part in name.split("."):
        field = next((f for f in fields if f["name"].lower() == part.lower()), None)
        if field is None:
            raise SchemaMismatch(f"cluster_by names {name}; the columns are {', '.join(definition.names)}")
        path.append(field["name"])
        kind = field["type"]
        fields = kind["fields"] if isinstance(kind, dict) and kind["type"] == "struct" else ()
    return tuple(path)


def _type(fields: Sequence[Mapping[str, Any]], path: tuple[str, ...]) -> Any:
    kind: Any = next(f["type"] for f in fields if f["name"] == path[0])
    return _type(kind["fields"], path[1:]) if path[1:] else kind


def unclustered(logs: LogAccess, snapshot: Snapshot, files: Sequence[ScanFile]) -> Iterator[ScanFile]:
    """See Format."""
    adds = adds_of(logs, snapshot, {spelled(file) for file in files})
    return (file for file in files if adds[spelled(file)].get("clusteringProvider") != PROVIDER)
