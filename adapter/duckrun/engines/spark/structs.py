"""Structs whose fields are others than those of the type that they are to have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from duckrun.engines.spark.sql import quote

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


def by_name(column: Any, source: Any, target: Any) -> Any:
    """A value in another type, field by field of the same name; a field that the source has not is NULL."""
    from pyspark.sql import functions as F

    if same_fields(source, target):
        return column.cast(target)
    match source.typeName():
        case "array":
            return F.transform(column, lambda item: by_name(item, source.elementType, target.elementType))
        case "map":
            values = F.transform_values(column, lambda key, item: by_name(item, source.valueType, target.valueType))
            return values.cast(target)
    given = {field.name.lower(): field for field in source.fields}
    fields = []
    for field in target.fields:
        found = given.get(field.name.lower())
        value = F.lit(None).cast(field.dataType)
        if found is not None:
            value = by_name(column.getField(found.name), found.dataType, field.dataType)
        fields.append(value.alias(field.name))
    return F.when(column.isNotNull(), F.struct(*fields)).cast(target)


def with_types(schema: Any, kinds: Mapping[str, Any]) -> Any:
    """A schema in which some columns have other types."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(f.name, kinds.get(f.name, f.dataType)) for f in schema.fields])


def types_in(fields: list[dict[str, Any]]) -> dict[str, Any]:
    """Spark's types of columns that are given as Delta's log has them."""
    from pyspark.sql.types import StructType

    return {f.name: f.dataType for f in StructType.fromJson({"type": "struct", "fields": fields}).fields}
