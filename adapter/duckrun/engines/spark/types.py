"""Spark types and Delta types: which Arrow table Spark can take, and which source fits which column."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from duckrun.engines import fit
from duckrun.engines.fit import Kind, assignable, castable, fits, text_pattern
from duckrun.engines.spark.errors import RAISED
from duckrun.engines.spark.sql import quote
from duckrun.engines.spark.structs import by_name, loosened, same_fields
from duckrun.errors import SchemaMismatch, without_type
from duckrun.values.columns import refuse_twins
from duckrun.values.rows import SchemaMode


def storable_arrow(name: str, kind: pa.DataType) -> pa.DataType:
    """The Arrow type as which Spark takes a column and Delta stores it. Raises SchemaMismatch where there is none."""
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
        if kind.unit == "ns" and kind.tz is None:
            return pa.timestamp("us")
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
    """A table that Spark takes without loss. Raises SchemaMismatch that names the column which has no such form."""
    fields = [pa.field(field.name, storable_arrow(field.name, field.type)) for field in table.schema]
    schema = pa.schema(fields)
    if table.schema.equals(schema):
        return table
    columns = []
    for field, column in zip(fields, table.columns, strict=True):
        try:
            columns.append(column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaMismatch(f"column {field.name!r} has a value that Delta cannot store: {error}") from error
    return pa.Table.from_arrays(columns, schema=schema)


def as_utc(value: str, kind: Any, depth: int = 0) -> str | None:
    """Spark SQL of a value with the timestamps without zone in it, also inside of nested types, taken as UTC and made
    instants; None where there are none. The session's time zone has no part in it.
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
        made = value if keys is None else f"transform_keys({value}, ({item}k, {item}v) -> {keys})"
        return made if values is None else f"transform_values({made}, ({item}k, {item}v) -> {values})"
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
    """A Spark type as the rule of what fits knows it."""
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


def holds_untyped(kind: Any) -> bool:
    """True for the type of nothing but NULL, and one that holds it."""
    return holds(kind, "void")


def holds(kind: Any, name: str) -> bool:
    """True for a Spark type of that name, and one that holds it."""
    return any(each.typeName() == name for each in _with_inner(kind))


def _with_inner(kind: Any) -> Iterator[Any]:
    """A Spark type, and those that it holds."""
    yield kind
    inner = [field.dataType for field in getattr(kind, "fields", ())]
    inner += [getattr(kind, part) for part in ("elementType", "keyType", "valueType") if hasattr(kind, part)]
    for each in inner:
        yield from _with_inner(each)


def taking_types(frame: Any, target: Any) -> Any:
    """The same Spark frame; a column of nothing but NULL, which has no type of its own, takes that of the table's column."""
    from pyspark.sql import functions as F

    targets = {field.name.lower(): field.dataType for field in target.fields}
    for field in frame.schema.fields:
        kind = targets.get(field.name.lower())
        if kind is not None and holds_untyped(field.dataType) and fits(kind_of(field.dataType), kind_of(kind)):
            frame = frame.withColumn(field.name, F.col(quote(field.name)).cast(kind))
    return frame


def check_new_table(schema: Any, partition_by: Sequence[str] = ()) -> None:
    """Raise SchemaMismatch unless a Spark schema can be that of a new table with these partition columns."""
    if not schema.names:
        raise SchemaMismatch("the rows have no columns")
    refuse_twins(schema.names)
    for field in schema.fields:
        _check_new_column(field.name, field.dataType)
    present = {name.lower() for name in schema.names}
    missing = [column for column in partition_by if column.lower() not in present]
    if missing:
        raise SchemaMismatch(
            f"the partition column {', '.join(missing)} is missing in the data, which has {', '.join(schema.names)}"
        )
    if len(set(partition_by)) == len(schema.names):
        raise SchemaMismatch("every column is a partition column; a table needs one that it is not partitioned by")


def _check_new_column(name: str, kind: Any) -> None:
    """Raise SchemaMismatch for a type that a table's column cannot have."""
    from pyspark.sql.types import UserDefinedType

    if holds_untyped(kind):
        raise without_type(name)
    # Delta for Spark writes it into the log as a type of its own, with which no other reader opens the table.
    if any(isinstance(each, UserDefinedType) for each in _with_inner(kind)):
        raise SchemaMismatch(
            f"column {name!r} has a user-defined type ({kind.typeName()}), which only Spark reads. Turn a vector of spark.ml into "
            "an array with pyspark.ml.functions.vector_to_array(), or leave the column out"
        )


def oddly_named(columns: Sequence[str], properties: Mapping[str, str]) -> bool:
    """True for a column whose name Spark refuses in a definition of its own, although it reads and writes such a table."""
    if properties.get("delta.columnMapping.mode", "none") != "none":
        return False
    return any(set(name) & set(" ,;{}()\n\t=") for name in columns)


def fit_all(
    source: Any,
    target: Any,
    schema_mode: SchemaMode,
    *,
    checked: bool,
    optional: Sequence[str] | None = None,
    cast: Collection[str] = (),
) -> tuple[dict[str, str | None], list[str]]:
    """Target column -> source column (None: NULL), and the new columns, for two Spark schemas. ``checked``: the session is
    ANSI, so that a narrowing cast raises where a value does not fit.

    Raises SchemaMismatch that lists the missing, the new and the differently typed columns.
    """
    theirs, ours = ({field.name: kind_of(field.dataType) for field in schema.fields} for schema in (source, target))
    filled, new = fit.fit_all(theirs, ours, schema_mode, checked=checked, optional=optional, cast=cast)
    for name in new:
        _check_new_column(name, source[name].dataType)
    return filled, new


def casts_to(frame: Any, target: Any, cast: Collection[str], assigned: Collection[str] = ()) -> dict[str, Any]:
    """Columns of a Spark frame in the table's types: those that would not fit as they are.

    Those in ``cast`` are castable without a change of what they say, those ``assigned`` are cast as an INSERT casts them.
    """
    from pyspark.sql import functions as F

    targets = {field.name.lower(): field.dataType for field in target.fields}
    columns = {}
    for field in frame.schema.fields:
        kind = targets.get(field.name.lower())
        if kind is None or fits(kind_of(field.dataType), kind_of(kind)):
            continue
        if field.name in assigned and assignable(kind_of(field.dataType), kind_of(kind)):
            columns[field.name] = F.expr(by_name(quote(field.name), field.dataType, loosened(kind)))
        elif field.name in cast and castable(kind_of(field.dataType), kind_of(kind)):
            columns[field.name] = cast_to(field.name, field.name, field.dataType, kind)
    return columns


def with_casts(frame: Any, casts: Mapping[str, Any]) -> Any:
    """The same Spark frame with some columns replaced."""
    return frame.withColumns(dict(casts)) if casts else frame  # Connect's refuses an empty mapping


def structs_by_name(frame: Any, target: Any) -> Any:
    """The same Spark frame, with structs that have fewer fields than the table's, or another order, in the table's form."""
    from pyspark.sql import functions as F

    targets = {field.name.lower(): field.dataType for field in target.fields}
    columns = {}
    for field in frame.schema.fields:
        kind = targets.get(field.name.lower())
        if kind is None or same_fields(field.dataType, kind):
            continue
        if fits(kind_of(field.dataType), kind_of(kind), partly=True):
            columns[field.name] = F.expr(by_name(quote(field.name), field.dataType, loosened(kind)))
    return frame.withColumns(columns) if columns else frame


def cast_to(name: str, given: str, source: Any, target: Any) -> Any:
    """A column of the rows in the table's type; a value that has no place in it fails, and says in which column."""
    from pyspark.sql import functions as F

    target, column = loosened(target), F.col(quote(given))
    if source.simpleString() == target.simpleString():
        return column.cast(target)
    if not same_fields(source, target):
        return F.expr(by_name(quote(given), source, target))
    tried = _exactly(column, kind_of(source), kind_of(target), target)
    message = [F.lit(f"{RAISED}column {name} cannot hold the value "), F.left(column.cast("string"), F.lit(100))]
    failing = F.raise_error(F.concat(*message, F.lit(f" as {target.simpleString()}"))).cast(target)
    return F.when(column.isNull() | tried.isNotNull(), tried).otherwise(failing)


def _exactly(column: Any, source: Kind, target: Kind, kind: Any) -> Any:
    """A cast that is NULL where a value has no place, or would say something else; a type that fits has none of the latter."""
    from pyspark.sql import functions as F

    tried = column.try_cast(kind)
    if fits(source, target) or target.name == "text":
        return tried
    if source.name != "text":
        return F.when(tried == column, tried)
    text = F.trim(column)
    return F.when(text.rlike(f"^({text_pattern(target)})$"), text.try_cast(kind))
