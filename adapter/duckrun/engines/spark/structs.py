"""Structs whose fields differ from those of the type that they are cast to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from duckrun.engines.spark.sql import quote, text_literal
from duckrun.errors import SchemaMismatch

_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def type_text(kind: Any) -> str:
    """Return a Spark type in SQL."""
    # Unlike simpleString(), this quotes field names that are no plain SQL names.
    match kind.typeName():
        case "struct":
            names = [f.name if _PLAIN.fullmatch(f.name) else quote(f.name) for f in kind.fields]
            fields = [f"{name}:{type_text(f.dataType)}" for name, f in zip(names, kind.fields, strict=True)]
            return f"struct<{','.join(fields)}>"
        case "array":
            return f"array<{type_text(kind.elementType)}>"
        case "map":
            return f"map<{type_text(kind.keyType)},{type_text(kind.valueType)}>"
    return str(kind.simpleString())


def loosened(kind: Any) -> Any:
    """Return a type whose parts are all nullable."""
    # Spark casts to no other type. Delta checks NOT NULL when it writes.
    return kind.toNullable() if _is_nested(kind) else kind


def inner_types(kind: Any) -> list[Any]:
    """Return the types inside a nested Spark type, in their order."""
    parts = [getattr(kind, part) for part in ("elementType", "keyType", "valueType") if hasattr(kind, part)]
    return parts or [field.dataType for field in getattr(kind, "fields", ())]


def same_fields(source: Any, target: Any) -> bool:
    """True if both types have structs with the same fields in the same order."""
    # Spark casts one struct to another by position.
    if source.typeName() != target.typeName():
        return True
    if source.typeName() == "struct" and source.names != target.names:
        return False
    return all(map(same_fields, inner_types(source), inner_types(target)))


def by_name(value: str, source: Any, target: Any, depth: int = 0) -> str:
    """Return Spark SQL that casts a value to another type, matching struct fields by name.

    A field that the source lacks is NULL. Fields without names (``struct(1, 2)``) match by
    position.
    """
    if same_fields(source, target):
        return f"CAST({value} AS {type_text(target)})"
    item = f"x{depth}"
    if source.typeName() == "array":
        inner = by_name(item, source.elementType, target.elementType, depth + 1)
        return f"transform({value}, {item} -> {inner})"
    if source.typeName() == "map":
        for function, part in (("transform_keys", "keyType"), ("transform_values", "valueType")):
            theirs, ours = getattr(source, part), getattr(target, part)
            if not same_fields(theirs, ours):
                item = f"{part[0]}{depth}"
                inner = by_name(item, theirs, ours, depth + 1)
                value = f"{function}({value}, (k{depth}, v{depth}) -> {inner})"
        return f"CAST({value} AS {type_text(target)})"
    fields = _fields_for(source, target)
    parts = []
    for field in target.fields:
        source_field = fields.get(field.name.lower())
        part = f"CAST(NULL AS {type_text(field.dataType)})"
        if source_field is not None:
            part = by_name(f"{item}.{quote(source_field.name)}", source_field.dataType, field.dataType, depth + 1)
        parts.append(f"{text_literal(field.name)}, {part}")
    packed = f"CASE WHEN {item} IS NOT NULL THEN named_struct({', '.join(parts)}) END"
    # Wrapped in an array the value is computed once, not once per field.
    return f"CAST(element_at(transform(array({value}), {item} -> {packed}), 1) AS {type_text(target)})"


def _fields_for(source: Any, target: Any) -> dict[str, Any]:
    """Map the lowercase names of target fields to the fields of a source struct."""
    if len(source.fields) == len(target.fields) and source.names == [f"col{n + 1}" for n in range(len(source.fields))]:
        return {
            field.name.lower(): source_field for field, source_field in zip(target.fields, source.fields, strict=True)
        }
    return {field.name.lower(): field for field in source.fields}


def refuse_strangers(column: str, source: Any, target: Any) -> None:
    """Raise SchemaMismatch for a struct that shares no field with the target.

    All of its values would be lost.
    """
    if source.typeName() != target.typeName():
        return
    if source.typeName() == "struct":
        fields = _fields_for(source, target)
        shared = [(fields[f.name.lower()], f) for f in target.fields if f.name.lower() in fields]
        if not shared:
            raise SchemaMismatch(
                f"column {column}: a struct with the fields {', '.join(source.names)} has none of "
                f"{', '.join(target.names)}"
            )
        for theirs, ours in shared:
            refuse_strangers(f"{column}.{ours.name}", theirs.dataType, ours.dataType)
        return
    for inner, inner_target in zip(inner_types(source), inner_types(target), strict=True):
        refuse_strangers(column, inner, inner_target)


def shaped(column: str, value: str, source: Any, target: Any) -> str | None:
    """Return Spark SQL that matches the structs of a statement's value to the table's column.

    None if they match already, or cannot match.

    Raises:
        SchemaMismatch: A struct shares no field with the table's.
    """
    if same_fields(source, target) or not _is_shape(source, target):
        return None
    refuse_strangers(column, source, target)
    return by_name(value, source, loosened(target))


def _is_shape(source: Any, target: Any) -> bool:
    """True if both types are nested in the same way; Spark refuses others."""
    if source.typeName() != target.typeName():
        return "void" in (source.typeName(), target.typeName()) or not _is_nested(source) and not _is_nested(target)
    if source.typeName() == "struct":
        fields = _fields_for(source, target)
        return all(
            _is_shape(fields[f.name.lower()].dataType, f.dataType) for f in target.fields if f.name.lower() in fields
        )
    return all(map(_is_shape, inner_types(source), inner_types(target)))


def _is_nested(kind: Any) -> bool:
    return kind.typeName() in ("struct", "array", "map")


def with_types(schema: Any, kinds: Mapping[str, Any]) -> Any:
    """Return a schema with other types for some columns."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(f.name, kinds.get(f.name, f.dataType)) for f in schema.fields])


def types_in(fields: list[dict[str, Any]]) -> dict[str, Any]:
    """Return Spark's types of columns given as in Delta's log."""
    from pyspark.sql.types import StructType

    return {f.name: f.dataType for f in StructType.fromJson({"type": "struct", "fields": fields}).fields}
