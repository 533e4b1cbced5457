"""Physical names, column ids and names of row-id columns that a definition gives to its columns.

Source: Delta protocol, Column Mapping, Row Tracking.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.formats import nested
from duckrun.formats.delta.definition.definition import DeltaDefinition
from duckrun.formats.delta.definition.mapping import ID, MAX_ID, MODE, PHYSICAL, is_mapped
from duckrun.formats.delta.definition.properties import ROW_COMMIT, ROW_ID, ROW_TRACKING, is_on
from duckrun.formats.delta.definition.types import TYPES, DeltaType
from duckrun.formats.nested import Field


def turned_on(before: DeltaDefinition, mode: str) -> DeltaDefinition:
    """Return a definition that maps its columns from now on.

    The present columns keep their names as physical names.

    Raises:
        InvalidConfig: The mode is ``id``, which present files have no column ids for.
        UnsupportedFeature: The table is mapped already, in another mode.
    """
    now = before.properties.get(MODE, "none").lower()
    if mode == now:
        return before
    if now != "none":
        raise UnsupportedFeature(
            f"{MODE} is {now} and cannot become {mode}: the names of the table are not those of its files. Write the "
            "table anew (CREATE OR REPLACE TABLE … AS SELECT), or run this with engine: spark"
        )
    if mode == "id":
        raise InvalidConfig(
            f"{MODE} cannot become id on a table that exists: its files have no numbers of columns (Delta protocol, "
            "Column Mapping). Use name, or make the table with it"
        )
    # The present files know the columns by these names.
    return assigned(replace(before, properties={**before.properties, MODE: mode}), named=lambda name: name)


def assigned(now: DeltaDefinition, named: Callable[[str], str] | None = None) -> DeltaDefinition:
    """Return a definition with a physical name and an id for each column of a mapped table.

    It is the same object if none lacks them.
    """
    if not is_mapped(now.properties):
        return now
    new_name = named or (lambda name: f"col-{uuid.uuid4()}")
    # The property remembers ids of dropped columns, too: none is given again (Delta protocol,
    # Column Mapping, Writer Requirements).
    highest = max([int(now.properties.get(MAX_ID, 0)), *_numbers(now.fields)])

    def of_field(field: dict[str, Any]) -> dict[str, Any]:
        nonlocal highest
        metadata = dict(field["metadata"])
        if ID not in metadata:
            highest += 1
            metadata[ID] = highest
        metadata.setdefault(PHYSICAL, new_name(field["name"]))
        return {**field, "metadata": metadata, "type": nested.with_each_field(TYPES, field["type"], of_field)}

    fields = tuple(map(of_field, now.fields))
    after = replace(now, fields=fields, properties={**now.properties, MAX_ID: str(highest)})
    return now if after == now else after


def carried(now: DeltaDefinition, before: DeltaDefinition) -> DeltaDefinition:
    """Return a definition with the physical names and ids of another one, by name and type."""
    if not is_mapped(now.properties):
        # A table that maps no longer has no highest id either.
        return replace(now, properties={key: value for key, value in now.properties.items() if key != MAX_ID})
    old = {field["name"].lower(): field for field in before.fields}
    fields = tuple(_like(field, old.get(field["name"].lower())) for field in now.fields)
    highest = max(int(each.properties.get(MAX_ID, 0)) for each in (now, before))
    return assigned(replace(now, fields=fields, properties={**now.properties, MAX_ID: str(highest)}))


def _like(field: dict[str, Any], old: Mapping[str, Any] | None) -> dict[str, Any]:
    if old is None or ID not in old["metadata"] or not _same_shape(field["type"], old["type"]):
        return field
    metadata = {**field["metadata"], **{key: old["metadata"][key] for key in (ID, PHYSICAL)}}
    return {**field, "metadata": metadata, "type": _type_like(field["type"], old["type"])}


def _same_shape(kind: DeltaType, old: DeltaType) -> bool:
    return kind == old if isinstance(kind, str) or isinstance(old, str) else kind["type"] == old["type"]


def _type_like(kind: DeltaType, old: DeltaType) -> DeltaType:
    def pair(part: Field, before: Field) -> Field:
        if "metadata" in part:
            return _like(part, before)
        return {**part, "type": _type_like(part["type"], before["type"])}

    carried_kind: DeltaType = nested.paired(TYPES, kind, old, pair)
    return carried_kind


def _numbers(fields: Iterable[Mapping[str, Any]]) -> Iterable[int]:
    for field in fields:
        for each in (field, *nested.fields_in(TYPES, field["type"])):
            if ID in each["metadata"]:
                yield int(each["metadata"][ID])


def numbered(definition: DeltaDefinition) -> DeltaDefinition:
    """Return a definition with the physical names and column ids that it lacks.

    If the table tracks its rows, it also has names for the columns of row ids.
    """
    now = assigned(definition)
    if not is_on(now.properties, ROW_TRACKING) or (ROW_ID in now.properties and ROW_COMMIT in now.properties):
        return now
    # A column of the table may have any plain name, and these must differ from all of them (Delta
    # protocol, Row Tracking, Writer Requirements).
    names = {ROW_ID: f"_row-id-col-{uuid.uuid4()}", ROW_COMMIT: f"_row-commit-version-col-{uuid.uuid4()}"}
    return replace(now, properties={**names, **now.properties})
