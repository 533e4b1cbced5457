"""Spark types and Delta types: storable Arrow tables, and fitting source columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from duckrun.engines import fit
from duckrun.engines.fit import Kind, assignable, castable, fits, text_pattern
from duckrun.engines.spark.errors import RAISED
from duckrun.engines.spark.sql import quote
from duckrun.engines.spark.structs import by_name, inner_types, loosened, same_fields
from duckrun.engines.tabular.values import exactly
from duckrun.errors import SchemaMismatch, without_type
from duckrun.values.choices import SchemaMode
from duckrun.values.columns import refuse_twins, refuse_unstorable
from duckrun.values.partition_values import partition_columns


def storable_arrow(name: str, kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type that Spark reads and Delta stores for a column.

    Raises:
        SchemaMismatch: Delta has no such type.
    """
    t = pa.types
    if t.is_dictionary(kind):
        return storable_arrow(name, kind.value_type)
    if t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind):
        return pa.string()
    if t.is_fixed_size_binary(kind) or t.is_binary(kind) or t.is_large_binary(kind) or t.is_binary_view(kind):
        return pa.binary()
    unsigned = {
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20),
    }
    if kind in unsigned:
        return unsigned[kind]
    if t.is_float16(kind):
        return pa.float32()
    if t.is_decimal256(kind) and kind.precision > 38:
        raise SchemaMismatch(f"column {name!r} has the type {kind}, and Delta stores decimals of up to 38 digits")
    if t.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if t.is_date(kind):
        return pa.date32()
    if t.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if t.is_map(kind):
        return pa.map_(storable_arrow(name, kind.key_type), storable_arrow(name, kind.item_type))
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind) or t.is_list_view(kind):
        return pa.list_(storable_arrow(name, kind.value_type))
    if t.is_struct(kind):
        return pa.struct([pa.field(f.name, storable_arrow(f"{name}.{f.name}", f.type)) for f in kind])
    if t.is_time(kind) or t.is_duration(kind) or t.is_interval(kind) or t.is_union(kind):
        raise SchemaMismatch(
            f"column {name!r} has the type {kind}, which Delta cannot store; cast it, for instance to string"
        )
    return kind


def storable_table(table: pa.Table) -> pa.Table:
    """Return a table that Spark reads without loss.

    Raises:
        SchemaMismatch: Delta cannot store a column. The error names it.
    """
    refuse_unstorable(table.schema)
    schema = pa.schema([pa.field(field.name, storable_arrow(field.name, field.type)) for field in table.schema])
    return table if table.schema.equals(schema) else exactly(table, schema)


def as_utc(value: str, kind: Any, depth: int = 0) -> str | None:
    """Return Spark SQL that turns timestamps without time zone into instants, as UTC.

    That includes those in nested types. None if there are none. The session's time zone is not
    used.
    """
    item, name = f"x{depth}", kind.typeName()
    if name == "timestamp_ntz":
        parts = ", ".join(f"{part}({value})" for part in ("year", "month", "day", "hour", "minute"))
        return f"make_timestamp_ltz({parts}, CAST(extract(SECOND FROM {value}) AS DECIMAL(16, 6)), 'UTC')"
    if name == "array":
        inner = as_utc(item, kind.elementType, depth + 1)
        return None if inner is None else f"transform({value}, {item} -> {inner})"
    if name == "map":
        keys = as_utc(f"{item}k", kind.keyType, depth + 1)
        values = as_utc(f"{item}v", kind.valueType, depth + 1)
        if keys is None and values is None:
            return None
        with_keys = value if keys is None else f"transform_keys({value}, ({item}k, {item}v) -> {keys})"
        return with_keys if values is None else f"transform_values({with_keys}, ({item}k, {item}v) -> {values})"
    if name == "struct":
        fields = {field.name: f"{value}.{quote(field.name)}" for field in kind.fields}
        packs = {field.name: as_utc(fields[field.name], field.dataType, depth) for field in kind.fields}
        if not any(packs.values()):
            return None
        packed = ", ".join(f"{packs[n] or fields[n]} AS {quote(n)}" for n in fields)
        return f"CASE WHEN {value} IS NOT NULL THEN struct({packed}) END"
    return None


_KINDS = {
    "void": "null",
    "byte": "int8",
    "short": "int16",
    "integer": "int32",
    "long": "int64",
    "timestamp_ntz": "naive",
    "string": "text",
    "varchar": "text",
    "char": "text",
    "array": "list",
}


def kind_of(kind: Any) -> Kind:
    """Return a Spark type in the form that the fit rules use."""
    word, spelled = kind.typeName(), kind.simpleString()
    parts: dict[str, Any] = {}
    if word == "array":
        parts = {"child": kind.elementType}
    elif word == "map":
        parts = {"key": kind.keyType, "value": kind.valueType}
    elif word == "struct":
        parts = {field.name: field.dataType for field in kind.fields}
    elif word == "decimal":
        return Kind(word, spelled, precision=kind.precision, scale=kind.scale)
    return Kind(_KINDS.get(word, word), spelled, inner=tuple((part, kind_of(inner)) for part, inner in parts.items()))


def holds(kind: Any, name: str) -> bool:
    """True for a Spark type of that name, and for types that contain it.

    ``void`` is the type of NULL.
    """
    return any(each.typeName() == name for each in _with_inner(kind))


def _with_inner(kind: Any) -> Iterator[Any]:
    """Yield a Spark type and the types that it contains."""
    yield kind
    for each in inner_types(kind):
        yield from _with_inner(each)


def taking_types(frame: Any, target: Any) -> Any:
    """Return the frame with its untyped columns, all NULL, cast to the table's types."""
    from pyspark.sql import functions as F

    for field, kind in pairs(frame, target):
        if holds(field.dataType, "void") and fits(kind_of(field.dataType), kind_of(kind)):
            frame = frame.withColumn(field.name, F.col(quote(field.name)).cast(kind))
    return frame


def check_new_table(schema: Any, partition_by: Sequence[str] = ()) -> tuple[str, ...]:
    """Check the schema of a new table, and return its partition columns as the schema spells them.

    Raises:
        SchemaMismatch: There are no columns, or one is ambiguous or of an impossible type. Or a
            partition column is missing, or all columns are partition columns.
    """
    if not schema.names:
        raise SchemaMismatch("the rows have no columns")
    refuse_twins(schema.names)
    for field in schema.fields:
        _check_new_column(field.name, field.dataType)
    spelled = partition_columns(partition_by, schema.names)
    if len(set(spelled)) == len(schema.names):
        raise SchemaMismatch("every column is a partition column; a table needs one that it is not partitioned by")
    return spelled


def _check_new_column(name: str, kind: Any) -> None:
    """Raise SchemaMismatch for a type that a table's column cannot have."""
    from pyspark.sql.types import UserDefinedType

    if holds(kind, "void"):
        raise without_type(name)
    # Delta for Spark writes its own type into the log, and then no other reader opens the table.
    if any(isinstance(each, UserDefinedType) for each in _with_inner(kind)):
        raise SchemaMismatch(
            f"column {name!r} has a user-defined type ({kind.typeName()}), which only Spark reads. Turn a vector of "
            "spark.ml into an array with pyspark.ml.functions.vector_to_array(), or leave the column out"
        )


def is_mapped(properties: Mapping[str, str]) -> bool:
    """True for a table with column mapping."""
    return properties.get("delta.columnMapping.mode", "none").lower() != "none"


def oddly_named(columns: Sequence[str], properties: Mapping[str, str]) -> bool:
    """True if Spark would refuse a column's name in CREATE, although it reads such tables."""
    if is_mapped(properties):
        return False
    return any(set(name) & set(" ,;{}()\n\t=") for name in columns)


def fit_all(
    source: Any,
    target: Any,
    schema_mode: SchemaMode,
    *,
    checked: bool,
    optional: Collection[str] = (),
    cast: Collection[str] = (),
) -> tuple[dict[str, str | None], list[str]]:
    """Match the columns of two Spark schemas.

    Args:
        checked: The session is ANSI, so a narrowing cast raises if a value does not fit.
        optional: Columns that the source may lack.
        cast: Source columns that may be cast to the target's type.

    Returns:
        The source column of each target column (None: NULL), and the new columns.

    Raises:
        SchemaMismatch: Columns are missing, new or of other types. The error lists them.
    """
    theirs, ours = ({field.name: kind_of(field.dataType) for field in schema.fields} for schema in (source, target))
    filled, new = fit.fit_all(theirs, ours, schema_mode, checked=checked, optional=optional, cast=cast)
    for name in new:
        _check_new_column(name, source[name].dataType)
    return filled, new


def casts_to(frame: Any, target: Any, cast: Collection[str], assigned: Collection[str] = ()) -> dict[str, Any]:
    """Return the columns of a Spark frame that need a cast to the table's types, with the cast.

    Args:
        cast: Columns to cast only if the value keeps its meaning.
        assigned: Columns to cast as INSERT does.
    """
    from pyspark.sql import functions as F

    columns = {}
    for field, kind in pairs(frame, target):
        if fits(kind_of(field.dataType), kind_of(kind)):
            continue
        if field.name in assigned and assignable(kind_of(field.dataType), kind_of(kind)):
            columns[field.name] = F.expr(by_name(quote(field.name), field.dataType, loosened(kind)))
        elif field.name in cast and castable(kind_of(field.dataType), kind_of(kind)):
            columns[field.name] = cast_to(field.name, field.name, frame.schema, kind)
    return columns


def pairs(frame: Any, target: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the columns of a frame that a schema has too, each with its type there."""
    targets = {field.name.lower(): field.dataType for field in target.fields}
    for field in frame.schema.fields:
        if field.name.lower() in targets:
            yield field, targets[field.name.lower()]


def with_casts(frame: Any, casts: Mapping[str, Any]) -> Any:
    """Return the frame with some columns replaced."""
    return frame.withColumns(dict(casts)) if casts else frame  # Connect refuses an empty mapping


def structs_by_name(frame: Any, target: Any) -> Any:
    """Return the frame with structs in the table's form.

    That concerns structs that lack fields, or have them in another order.
    """
    from pyspark.sql import functions as F

    return with_casts(
        frame,
        {
            field.name: F.expr(by_name(quote(field.name), field.dataType, loosened(kind)))
            for field, kind in pairs(frame, target)
            if not same_fields(field.dataType, kind) and fits(kind_of(field.dataType), kind_of(kind), partly=True)
        },
    )


def cast_to(name: str, column_name: str | None, schema: Any, target: Any) -> Any:
    """Return a column of the rows cast to the table's type.

    A value that does not fit raises an error that names the column.

    Args:
        name: Column of the table.
        column_name: Column of the rows; None for NULL.
        schema: Columns of the rows.
        target: The table's type.
    """
    from pyspark.sql import functions as F

    if column_name is None:
        return F.lit(None).cast(target)
    source, target, column = schema[column_name].dataType, loosened(target), F.col(quote(column_name))
    if source.simpleString() == target.simpleString():
        return column.cast(target)
    if not same_fields(source, target):
        return F.expr(by_name(quote(column_name), source, target))
    tried = _exactly(column, kind_of(source), kind_of(target), target)
    message = [F.lit(f"{RAISED}column {name} cannot hold the value "), F.left(column.cast("string"), F.lit(100))]
    failing = F.raise_error(F.concat(*message, F.lit(f" as {target.simpleString()}"))).cast(target)
    return F.when(column.isNull() | tried.isNotNull(), tried).otherwise(failing)


def _exactly(column: Any, source: Kind, target: Kind, kind: Any) -> Any:
    """Return a cast that is NULL if a value does not fit or would change its meaning."""
    from pyspark.sql import functions as F

    tried = column.try_cast(kind)
    if fits(source, target) or target.name == "text":
        return tried
    if source.name != "text":
        return F.when(tried == column, tried)
    text = F.trim(column)
    return F.when(text.rlike(f"^({text_pattern(target)})$"), text.try_cast(kind))
