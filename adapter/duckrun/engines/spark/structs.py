"""Structs whose fields are others than those of the type that they are to have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from duckrun.engines.spark.sql import quote, text_literal
from duckrun.errors import SchemaMismatch

_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def type_text(kind: Any) -> str:
    """A Spark type in SQL. ``simpleString()`` says the names of fields as they are, which is no SQL where one has a blank in it."""
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
    """A type whose parts may all be NULL: Spark casts to no other, and Delta checks what a table does not take as it writes."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    match kind.typeName():
        case "struct":
            return StructType([StructField(f.name, loosened(f.dataType), True, f.metadata) for f in kind.fields])
        case "array":
            return ArrayType(loosened(kind.elementType), True)
        case "map":
            return MapType(loosened(kind.keyType), loosened(kind.valueType), True)
    return kind


def same_fields(source: Any, target: Any) -> bool:
    """True for types whose structs have the same fields in the same order, which is how Spark casts one to the other."""
    if source.typeName() != target.typeName():
        return True
    if source.typeName() == "struct":
        pairs = list(zip(source.fields, target.fields, strict=False))
        same = len(source.fields) == len(target.fields) and all(a.name == b.name for a, b in pairs)
        return same and all(same_fields(a.dataType, b.dataType) for a, b in pairs)
    parts = [part for part in ("elementType", "keyType", "valueType") if hasattr(source, part)]
    return all(same_fields(getattr(source, part), getattr(target, part)) for part in parts)


def by_name(value: str, source: Any, target: Any, depth: int = 0) -> str:
    """Spark SQL of a value in another type, field by field of the same name; a field that the source has not is NULL.

    Fields without names (``struct(1, 2)``) go by their position.
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
    given = _fields_for(source, target)
    parts = []
    for field in target.fields:
        found = given.get(field.name.lower())
        part = f"CAST(NULL AS {type_text(field.dataType)})"
        if found is not None:
            part = by_name(f"{item}.{quote(found.name)}", found.dataType, field.dataType, depth + 1)
        parts.append(f"{text_literal(field.name)}, {part}")
    packed = f"CASE WHEN {item} IS NOT NULL THEN named_struct({', '.join(parts)}) END"
    # As the item of a list the value is computed once, and not for each field.
    return f"CAST(element_at(transform(array({value}), {item} -> {packed}), 1) AS {type_text(target)})"


def _fields_for(source: Any, target: Any) -> dict[str, Any]:
    """The fields of a struct by the names, in small letters, of those that they become."""
    if len(source.fields) == len(target.fields) and source.names == [f"col{n + 1}" for n in range(len(source.fields))]:
        return {field.name.lower(): given for field, given in zip(target.fields, source.fields, strict=True)}
    return {field.name.lower(): field for field in source.fields}


def refuse_strangers(column: str, source: Any, target: Any) -> None:
    """Raise SchemaMismatch for a struct none of whose fields the table's has: all of its values would be lost."""
    if source.typeName() != target.typeName():
        return
    if source.typeName() == "struct":
        given = _fields_for(source, target)
        shared = [(given[f.name.lower()], f) for f in target.fields if f.name.lower() in given]
        if not shared:
            raise SchemaMismatch(
                f"column {column}: a struct with the fields {', '.join(source.names)} has none of {', '.join(target.names)}"
            )
        for theirs, ours in shared:
            refuse_strangers(f"{column}.{ours.name}", theirs.dataType, ours.dataType)
    for part in ("elementType", "keyType", "valueType"):
        if hasattr(source, part):
            refuse_strangers(column, getattr(source, part), getattr(target, part))


def shaped(column: str, value: str, source: Any, target: Any) -> str | None:
    """Spark SQL of a value that a statement gives a column, with its structs in the table's form. None where they are, or have no form.

    Raises SchemaMismatch for a struct that shares no field with the table's.
    """
    if same_fields(source, target) or not _is_shape(source, target):
        return None
    refuse_strangers(column, source, target)
    return by_name(value, source, loosened(target))


def _is_shape(source: Any, target: Any) -> bool:
    """True for types that are nested alike: others are Spark's to refuse."""
    if source.typeName() != target.typeName():
        return "void" in (source.typeName(), target.typeName()) or not _is_nested(source) and not _is_nested(target)
    if source.typeName() == "struct":
        given = _fields_for(source, target)
        return all(
            _is_shape(given[f.name.lower()].dataType, f.dataType) for f in target.fields if f.name.lower() in given
        )
    parts = [part for part in ("elementType", "keyType", "valueType") if hasattr(source, part)]
    return all(_is_shape(getattr(source, part), getattr(target, part)) for part in parts)


def _is_nested(kind: Any) -> bool:
    return kind.typeName() in ("struct", "array", "map")


def with_types(schema: Any, kinds: Mapping[str, Any]) -> Any:
    """A schema in which some columns have other types."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(f.name, kinds.get(f.name, f.dataType)) for f in schema.fields])


def types_in(fields: list[dict[str, Any]]) -> dict[str, Any]:
    """Spark's types of columns that are given as Delta's log has them."""
    from pyspark.sql.types import StructType

    return {f.name: f.dataType for f in StructType.fromJson({"type": "struct", "fields": fields}).fields}
