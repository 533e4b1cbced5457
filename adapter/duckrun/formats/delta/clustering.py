"""Liquid clustering: the columns by whose values rows are to lie near each other, in a domain of the log.

Source: Delta protocol, Clustered Table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from duckrun.errors import InvalidConfig, SchemaMismatch
from duckrun.formats.delta.adds import adds_of
from duckrun.formats.delta.data_paths import spelled
from duckrun.formats.delta.domains import FEATURE as DOMAINS, action_of, domains_of
from duckrun.formats.delta.mapping import physical_of
from duckrun.formats.delta.statistics import Statistics
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot

if TYPE_CHECKING:
    from duckrun.formats.delta.definition import DeltaDefinition
    from duckrun.formats.delta.delta import DeltaFormat

FEATURE = "clustering"
FEATURES = frozenset({FEATURE, DOMAINS})
PROVIDER = "liquid"
_DOMAIN, _COLUMNS = "delta.clustering", "clusteringColumns"
_UNORDERED = ("binary", "boolean")


def clustered_by(
    form: DeltaFormat, snapshot: Snapshot, definition: DeltaDefinition
) -> tuple[tuple[str, ...], ...] | None:
    """The columns that a table is clustered by, each the names on the way to it; None for a table without clustering."""
    if FEATURE not in snapshot.writer_features:
        return None
    said = domains_of(form, snapshot).get(_DOMAIN)
    if said is None:
        return None
    return tuple(_logical(definition.fields, tuple(path)) for path in json.loads(said)[_COLUMNS])


def _logical(fields: Sequence[Mapping[str, Any]], stored: tuple[str, ...]) -> tuple[str, ...]:
    """The names in the table of a column that files know by others."""
    for field in fields:
        if physical_of(field) == stored[0]:
            return (field["name"], *(_logical(field["type"]["fields"], stored[1:]) if stored[1:] else ()))
    return stored


def action(definition: DeltaDefinition) -> dict[str, Any]:
    """The action that says what a table is clustered by."""
    stored = [_stored(definition.fields, path) for path in definition.cluster_by or ()]
    return action_of(_DOMAIN, {_COLUMNS: stored, "domainName": _DOMAIN})


def _stored(fields: Sequence[Mapping[str, Any]], path: tuple[str, ...]) -> list[str]:
    field = next(f for f in fields if f["name"] == path[0])
    return [physical_of(field), *(_stored(field["type"]["fields"], path[1:]) if path[1:] else ())]


def chosen(definition: DeltaDefinition, asked: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The columns to cluster by, by names in which a dot goes into a struct. Raises SchemaMismatch for one that is not there,
    InvalidConfig for a table with partitions, and for columns without an order or without statistics.
    """
    if asked and definition.partition_columns:
        raise InvalidConfig(
            f"a table is partitioned ({', '.join(definition.partition_columns)}) or clustered ({', '.join(asked)}), not both "
            "(Delta protocol, Clustered Table)"
        )
    found = tuple(_path(definition, name) for name in asked)
    counted = set(Statistics(definition.schema, definition.properties).wanted)
    for path in found:
        kind = _type(definition.fields, path)
        if not isinstance(kind, str) or kind in _UNORDERED:
            raise InvalidConfig(f"rows cannot be clustered by {'.'.join(path)}, whose type has no bounds in the log")
        if path not in counted:
            raise InvalidConfig(
                f"rows cannot be clustered by {'.'.join(path)}, which has no statistics: delta.dataSkippingStatsColumns or "
                "delta.dataSkippingNumIndexedCols leave it out"
            )
    if len(found) > 4:
        raise InvalidConfig(f"rows are clustered by 4 columns at most, and these are {len(found)}")
    return found


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


def unclustered(form: DeltaFormat, snapshot: Snapshot, files: Sequence[ScanFile]) -> Iterator[ScanFile]:
    """See Format."""
    adds = adds_of(form, snapshot, {spelled(file) for file in files})
    return (file for file in files if adds[spelled(file)].get("clusteringProvider") != PROVIDER)
