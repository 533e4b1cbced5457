"""DuckLake's types as Spark reads them from files, and as users see them.

Source: the DuckLake specification 1.0, Data Types; Spark's ParquetToSparkSchemaConverter. Measured
with PySpark 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from duckrun.engines.spark.sql import quote
from duckrun.errors import UnsupportedFeature
from duckrun.values.lake_files import LakeColumn, NamedColumn

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

FIELD_ID = "parquet.field.id"
"""Metadata key of a field by which Spark finds it in a file."""

_KINDS = {
    "boolean": "boolean",
    "int8": "byte",
    "int16": "short",
    "int32": "integer",
    "int64": "long",
    "uint8": "short",
    "uint16": "integer",
    "uint32": "long",
    "uint64": "decimal(20,0)",
    "float32": "float",
    "float64": "double",
    "varchar": "string",
    "json": "string",
    "blob": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamp_s": "timestamp_ntz",
    "timestamp_ms": "timestamp_ntz",
    "timestamptz": "timestamp",
    "uuid": "binary",
    "variant": "variant",
}
"""Spark type, by its name in JSON, that holds each value of a DuckLake type as stored in a file."""


def is_read(column: LakeColumn) -> bool:
    """True for a column that Spark can read."""
    if column.inner:
        return all(is_read(each) for each in column.inner)
    return column.type in _KINDS or column.type.startswith("decimal")


def refuse(column: LakeColumn, table: str) -> None:
    """Raise UnsupportedFeature for a column that Spark cannot read."""
    if not is_read(column):
        raise UnsupportedFeature(
            f"Table {table}: Spark has no type for column {column.name}, which is {_said(column)}: read the table "
            "with engine: duckdb, make a view that casts the column (to VARCHAR), or name the other columns in "
            "scan(columns=…)."
        )


def _said(column: LakeColumn) -> str:
    """Return the part of a type that Spark lacks."""
    for each in column.inner:
        if not is_read(each):
            return f"{column.sql_type} with {_said(each)}"
    return column.sql_type


def kind_in_file(
    column: LakeColumn,
    names: NamedColumn | None = None,
    *,
    by_name: bool = False,
    shown: bool = False,
    stored: Mapping[int, str] = MappingProxyType({}),
) -> DataType:
    """Return a column's type with the field ids or names that identify its parts in a file.

    Args:
        names: Names of the column's parts in the file, if it has no field ids.
        by_name: Use these names instead of field ids.
        shown: Use the table's names, and the types that users see.
        stored: Types in the file that differ from the table's, by column id.
    """
    from pyspark.sql import types as T

    def inner(each: LakeColumn) -> DataType:
        return kind_in_file(each, _inside(names).get(each.id), by_name=by_name, shown=shown, stored=stored)

    if column.type == "list":
        return T.ArrayType(inner(column.inner[0]))
    if column.type == "map":
        return T.MapType(inner(column.inner[0]), inner(column.inner[1]))
    if column.type == "struct":
        fields = []
        for each in column.inner:
            named = _inside(names).get(each.id)
            if shown:
                fields.append(T.StructField(each.name, inner(each)))
            elif by_name:
                name = named.source if named is not None else f"__duckrun_absent_{each.id}"
                fields.append(T.StructField(name, inner(each)))
            else:
                fields.append(T.StructField(placeholder(each), inner(each), True, {FIELD_ID: each.id}))
        return T.StructType(fields)
    if shown and column.type == "uuid":
        return T.StringType()
    word = stored.get(column.id, column.type)
    # A decimal has the same name in both. Spark would parse SQL on the server, or in the JVM.
    return T._parse_datatype_json_value(_KINDS.get(word, word))


def placeholder(column: LakeColumn) -> str:
    """Return the read name of a column or field that Spark finds by its id."""
    # No column of a user has such a name. If another column of the file had the same name, Spark's
    # reader would take both for one.
    return f"__duckrun_{column.id}"


def _inside(names: NamedColumn | None) -> Mapping[int, NamedColumn]:
    return {} if names is None else names.inner


def as_shown(value: str, column: LakeColumn, kind: DataType, depth: int = 0) -> str:
    """Return Spark SQL of a file's value as users see it: UUIDs as text, also in nested types."""
    item = f"x{depth}"
    inside: Any = kind
    if not _has_uuid(column):
        return value
    if column.type == "uuid":
        text = f"lower(hex({value}))"
        parts = ", ".join(
            f"substring({text}, {at}, {size})" for at, size in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
        )
        return f"CASE WHEN {value} IS NOT NULL THEN concat_ws('-', {parts}) END"
    if column.type == "list":
        return f"transform({value}, {item} -> {as_shown(item, column.inner[0], inside.elementType, depth + 1)})"
    if column.type == "map":
        kinds = (inside.keyType, inside.valueType)
        key, item_of = (
            as_shown(f"{item}{part}", each, inner_kind, depth + 1)
            for part, each, inner_kind in zip("kv", column.inner, kinds, strict=True)
        )
        return (
            f"transform_values(transform_keys({value}, ({item}k, {item}v) -> {key}), ({item}k, {item}v) -> {item_of})"
        )
    packed = ", ".join(
        f"{as_shown(f'{value}.{quote(field.name)}', each, field.dataType, depth)} AS {quote(each.name)}"
        for each, field in zip(column.inner, inside.fields, strict=True)
    )
    return f"CASE WHEN {value} IS NOT NULL THEN struct({packed}) END"


def _has_uuid(column: LakeColumn) -> bool:
    return column.type == "uuid" or any(map(_has_uuid, column.inner))
