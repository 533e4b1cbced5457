"""Liquid clustering: rows with similar values in the clustering columns lie near each other.

Source: Delta protocol, Clustered Table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from duckrun.errors import InvalidConfig, SchemaMismatch
from duckrun.formats.delta.definition.definition import DeltaDefinition
from duckrun.formats.delta.definition.statistics import Statistics
from duckrun.formats.delta.definition.types import DeltaType
from duckrun.formats.nested import part_of

_UNORDERED = ("binary", "boolean")


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
    kinds = [_path_and_type(definition, name) for name in columns]
    counted = set(Statistics(definition.schema, definition.properties).wanted)
    for path, kind in kinds:
        if not isinstance(kind, str) or kind in _UNORDERED:
            raise InvalidConfig(f"rows cannot be clustered by {'.'.join(path)}, whose type has no bounds in the log")
        if path not in counted:
            raise InvalidConfig(
                f"rows cannot be clustered by {'.'.join(path)}, which has no statistics: "
                "delta.dataSkippingStatsColumns or delta.dataSkippingNumIndexedCols leave it out"
            )
    if len(columns) > 4:  # the limit of delta-spark
        raise InvalidConfig(f"rows are clustered by 4 columns at most, and these are {len(columns)}")
    return tuple(path for path, _ in kinds)


def _path_and_type(definition: DeltaDefinition, name: str) -> tuple[tuple[str, ...], DeltaType]:
    """Return the path of a column in the table's spelling, and its type."""
    whole = part_of(definition.fields, name)
    if whole is not None:
        return (whole["name"],), whole["type"]
    path: list[str] = []
    kind: DeltaType = ""
    fields: Sequence[dict[str, Any]] = definition.fields
    for part in name.split("."):
        field = part_of(fields, part)
        if field is None:
            raise SchemaMismatch(f"cluster_by names {name}; the columns are {', '.join(definition.names)}")
        path.append(field["name"])
        kind = field["type"]
        fields = kind["fields"] if isinstance(kind, dict) and kind["type"] == "struct" else ()
    return tuple(path), kind
