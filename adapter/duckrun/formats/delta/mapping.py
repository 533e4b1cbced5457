"""Column mapping: the names and numbers that a table's columns have in its files.

Source: Delta protocol, Column Mapping.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.formats.delta.types import DeltaType
from duckrun.values.stored import StoredColumn

if TYPE_CHECKING:
    from duckrun.formats.delta.definition import DeltaDefinition

MODE = "delta.columnMapping.mode"
MAX_ID = "delta.columnMapping.maxColumnId"
ID, PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"
_LIST, _MAP = ("element",), ("key", "value")


def is_mapped(properties: Mapping[str, str]) -> bool:
    """True if the files of a table know columns by names or numbers of their own."""
    return properties.get(MODE, "none").lower() != "none"


def stored_columns(schema: pa.Schema) -> tuple[StoredColumn, ...]:
    """The columns of a mapped table as its files have them; none where files and table say the same."""
    if not any(PHYSICAL.encode() in (field.metadata or {}) for field in schema):
        return ()
    return tuple(map(_stored, schema))


def _stored(field: pa.Field) -> StoredColumn:
    said = field.metadata or {}
    number = said.get(ID.encode())
    kind, parts = _parts(field.type)
    return StoredColumn(field.name, physical(field), None if number is None else int(number), parts, kind)


def _parts(kind: pa.DataType) -> tuple[str, tuple[StoredColumn, ...]]:
    if pa.types.is_struct(kind):
        return "struct", tuple(map(_stored, kind))
    if pa.types.is_map(kind):
        held = zip(_MAP, (kind.key_type, kind.item_type), strict=True)
        return "map", tuple(_inner(name, each) for name, each in held)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return "list", (_inner(_LIST[0], kind.value_type),)
    return "", ()


def _inner(name: str, kind: pa.DataType) -> StoredColumn:
    inner, parts = _parts(kind)
    return StoredColumn(name, name, None, parts, inner)


def physical(field: pa.Field) -> str:
    """The name of a column in the files."""
    return (field.metadata or {}).get(PHYSICAL.encode(), field.name.encode()).decode()


def physical_of(field: Mapping[str, Any]) -> str:
    """The name in the files of a column, or of a field, as the log's schema has it."""
    return str(field["metadata"].get(PHYSICAL, field["name"]))


def turned_on(before: DeltaDefinition, mode: str) -> DeltaDefinition:
    """A definition that maps its columns from now on: those that it has keep their names in the files. Raises InvalidConfig for the
    mode ``id``, which files written before have no numbers for, UnsupportedFeature for one that takes the mapping away.
    """
    now = before.properties.get(MODE, "none").lower()
    if mode == now:
        return before
    if now != "none":
        raise UnsupportedFeature(
            f"{MODE} is {now} and cannot become {mode}: the names of the table are not those of its files. Write the table anew "
            "(CREATE OR REPLACE TABLE … AS SELECT), or run this with engine: spark"
        )
    if mode == "id":
        raise InvalidConfig(
            f"{MODE} cannot become id on a table that exists: its files have no numbers of columns (Delta protocol, Column "
            "Mapping). Use name, or make the table with it"
        )
    return assigned(replace(before, properties={**before.properties, MODE: mode}), named=lambda name: name)


def assigned(now: DeltaDefinition, named: Callable[[str], str] | None = None) -> DeltaDefinition:
    """A definition in which every column of a mapped table has a name and a number of its own; the same where none lacks them."""
    if not is_mapped(now.properties):
        return now
    new_name = named or (lambda name: f"col-{uuid.uuid4()}")
    highest = max([int(now.properties.get(MAX_ID, 0)), *_numbers(now.fields)])

    def of_field(field: dict[str, Any]) -> dict[str, Any]:
        nonlocal highest
        said = dict(field["metadata"])
        if ID not in said:
            highest += 1
            said[ID] = highest
        said.setdefault(PHYSICAL, new_name(field["name"]))
        return {**field, "metadata": said, "type": _each_field(field["type"], of_field)}

    fields = tuple(map(of_field, now.fields))
    properties = {**now.properties, MAX_ID: str(highest)}
    return (
        now
        if fields == now.fields and properties == now.properties
        else replace(now, fields=fields, properties=properties)
    )


def carried(now: DeltaDefinition, before: DeltaDefinition) -> DeltaDefinition:
    """A definition whose columns have the names and numbers of those of the same name and type in another one."""
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
    said = {**field["metadata"], **{key: old["metadata"][key] for key in (ID, PHYSICAL)}}
    return {**field, "metadata": said, "type": _type_like(field["type"], old["type"])}


def _same_shape(kind: DeltaType, old: DeltaType) -> bool:
    return kind == old if isinstance(kind, str) or isinstance(old, str) else kind["type"] == old["type"]


def _type_like(kind: DeltaType, old: DeltaType) -> DeltaType:
    if isinstance(kind, str) or isinstance(old, str) or kind["type"] != old["type"]:
        return kind
    if kind["type"] == "struct":
        known = {field["name"].lower(): field for field in old["fields"]}
        return {**kind, "fields": [_like(field, known.get(field["name"].lower())) for field in kind["fields"]]}
    return {
        **kind,
        **{key: _type_like(kind[key], old[key]) for key in ("elementType", "keyType", "valueType") if key in kind},
    }


def _each_field(kind: DeltaType, change: Callable[[dict[str, Any]], dict[str, Any]]) -> DeltaType:
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        return {**kind, "fields": [change(field) for field in kind["fields"]]}
    return {
        **kind,
        **{key: _each_field(kind[key], change) for key in ("elementType", "keyType", "valueType") if key in kind},
    }


def _numbers(fields: Iterable[Mapping[str, Any]]) -> Iterable[int]:
    for field in fields:
        if ID in field["metadata"]:
            yield int(field["metadata"][ID])
        yield from _numbers(_fields_in(field["type"]))


def _fields_in(kind: DeltaType) -> list[dict[str, Any]]:
    if isinstance(kind, str):
        return []
    if kind["type"] == "struct":
        return list(kind["fields"])
    return [field for key in ("elementType", "keyType", "valueType") if key in kind for field in _fields_in(kind[key])]
