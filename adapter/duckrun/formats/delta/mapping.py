"""Column mapping: physical names and ids of a table's columns.

Source: Delta protocol, Column Mapping.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.formats import nested
from duckrun.formats.delta.types import TYPES, DeltaType
from duckrun.formats.nested import Field
from duckrun.libraries import pa
from duckrun.values.stored import StoredColumn

if TYPE_CHECKING:
    from duckrun.formats.delta.definition import DeltaDefinition

MODE = "delta.columnMapping.mode"
MAX_ID = "delta.columnMapping.maxColumnId"
ID, PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"
_LIST, _MAP = ("element",), ("key", "value")


def is_mapped(properties: Mapping[str, str]) -> bool:
    """True if the files of a table have physical names or ids for columns."""
    return properties.get(MODE, "none").lower() != "none"


def stored_columns(schema: pa.Schema) -> tuple[StoredColumn, ...]:
    """Return the physical columns of a mapped table; none if no column is mapped."""
    if not any(PHYSICAL.encode() in (field.metadata or {}) for field in schema):
        return ()
    return tuple(map(_stored, schema))


def _stored(field: pa.Field) -> StoredColumn:
    metadata = field.metadata or {}
    number = metadata.get(ID.encode())
    kind, parts = _parts(field.type)
    return StoredColumn(field.name, physical(field), None if number is None else int(number), parts, kind)


def _parts(kind: pa.DataType) -> tuple[str, tuple[StoredColumn, ...]]:
    if pa.types.is_struct(kind):
        return "struct", tuple(map(_stored, kind))
    if pa.types.is_map(kind):
        sides = zip(_MAP, (kind.key_type, kind.item_type), strict=True)
        return "map", tuple(_inner(name, each) for name, each in sides)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return "list", (_inner(_LIST[0], kind.value_type),)
    return "", ()


def _inner(name: str, kind: pa.DataType) -> StoredColumn:
    inner, parts = _parts(kind)
    return StoredColumn(name, name, None, parts, inner)


def physical(field: pa.Field) -> str:
    """Return the physical name of a column."""
    name: bytes = (field.metadata or {}).get(PHYSICAL.encode(), field.name.encode())
    return name.decode()


def physical_of(field: Mapping[str, Any]) -> str:
    """Return the physical name of a column or field of the log's schema."""
    return str(field["metadata"].get(PHYSICAL, field["name"]))


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
    return assigned(replace(before, properties={**before.properties, MODE: mode}), named=lambda name: name)


def assigned(now: DeltaDefinition, named: Callable[[str], str] | None = None) -> DeltaDefinition:
    """Return a definition with a physical name and an id for each column of a mapped table.

    It is the same object if none lacks them.
    """
    if not is_mapped(now.properties):
        return now
    new_name = named or (lambda name: f"col-{uuid.uuid4()}")
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
    properties = {**now.properties, MAX_ID: str(highest)}
    return (
        now
        if fields == now.fields and properties == now.properties
        else replace(now, fields=fields, properties=properties)
    )


def carried(now: DeltaDefinition, before: DeltaDefinition) -> DeltaDefinition:
    """Return a definition with the physical names and ids of another one, by name and type."""
    if not is_mapped(now.properties):
        return now if not is_mapped(before.properties) else _without(now)
    old = {field["name"].lower(): field for field in before.fields}
    fields = tuple(_like(field, old.get(field["name"].lower())) for field in now.fields)
    highest = max(int(each.properties.get(MAX_ID, 0)) for each in (now, before))
    return assigned(replace(now, fields=fields, properties={**now.properties, MAX_ID: str(highest)}))


def _without(now: DeltaDefinition) -> DeltaDefinition:
    return replace(now, properties={key: value for key, value in now.properties.items() if key != MAX_ID})


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
