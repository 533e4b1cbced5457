"""Column mapping: physical names and ids of a table's columns.

Source: Delta protocol, Column Mapping.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from duckrun.libraries import pa
from duckrun.values.stored import StoredColumn

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
    # Only columns and fields of structs have physical names, not elements, keys and values (Delta
    # protocol, Column Mapping).
    inner, parts = _parts(kind)
    return StoredColumn(name, name, None, parts, inner)


def physical(field: pa.Field) -> str:
    """Return the physical name of a column."""
    name: bytes = (field.metadata or {}).get(PHYSICAL.encode(), field.name.encode())
    return name.decode()


def physical_names(schema: pa.Schema) -> dict[str, str]:
    """Return the physical names of columns, by name."""
    return {field.name: physical(field) for field in schema}


def is_renamed(schema: pa.Schema) -> bool:
    """True if a column has another physical name."""
    return any(name != stored for name, stored in physical_names(schema).items())


def physical_of(field: Mapping[str, Any]) -> str:
    """Return the physical name of a column or field of the log's schema."""
    return str(field["metadata"].get(PHYSICAL, field["name"]))
