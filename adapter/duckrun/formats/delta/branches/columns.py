"""Differences of two definitions of a table, in words for a user."""

from __future__ import annotations

from collections.abc import Iterator

from duckrun.formats.delta.definition.definition import DeltaDefinition
from duckrun.formats.delta.definition.types import spelled


def changes_of_columns(before: DeltaDefinition, after: DeltaDefinition) -> Iterator[str]:
    """Yield the differences of columns, partitions, constraints and properties, one text each."""
    old, new = ({field["name"]: field for field in each.fields} for each in (before, after))
    for name in new.keys() - old.keys():
        yield f"column {name} {spelled(new[name]['type'])} added"
    for name in old.keys() - new.keys():
        yield f"column {name} dropped"
    for name in old.keys() & new.keys():
        if old[name]["type"] != new[name]["type"]:
            yield f"column {name}: {spelled(old[name]['type'])} to {spelled(new[name]['type'])}"
        elif old[name] != new[name]:
            yield f"column {name} redefined"
    if before.partition_columns != after.partition_columns:
        yield f"partitioned by ({', '.join(after.partition_columns)})"
    for name in sorted(before.properties.keys() | after.properties.keys()):
        if before.properties.get(name) != after.properties.get(name):
            yield f"property {name}: {before.properties.get(name)} to {after.properties.get(name)}"
