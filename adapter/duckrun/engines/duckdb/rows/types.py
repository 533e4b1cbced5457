"""DuckDB and Delta types: casts that make a value storable, and sources that fit a column."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import duckdb

from duckrun.engines import fit
from duckrun.engines.fit import Kind
from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature, without_type
from duckrun.libraries import pa
from duckrun.sql.nested import list_of, map_of, part_of, struct_of
from duckrun.sql.quoting import quote_literal
from duckrun.sql.raising import raising
from duckrun.sql.typed import plain_type, with_parts
from duckrun.values.choices import SchemaMode
from duckrun.values.columns import refuse_twins
from duckrun.values.snapshot import TableRef

# Delta has no unsigned, 128-bit, nanosecond, UUID, enum or bit types (Delta protocol, Primitive
# Types).
_STORED_AS = {
    "utinyint": "SMALLINT",
    "usmallint": "INTEGER",
    "uinteger": "BIGINT",
    "ubigint": "DECIMAL(20,0)",
    "hugeint": "DECIMAL(38,0)",
    "uhugeint": "DECIMAL(38,0)",
    "uuid": "VARCHAR",
    "enum": "VARCHAR",
    "bit": "VARCHAR",
    "timestamp_s": "TIMESTAMP",
    "timestamp_ms": "TIMESTAMP",
    "timestamp_ns": "TIMESTAMP",  # a value that is not whole microseconds is an error
}
_REFUSED = {
    *("time", "time_ns", "time with time zone", "interval", "union", "bignum", "varint"),
    "geometry",
}
_NAIVE = ("timestamp", "timestamp_s", "timestamp_ms")

Types = Mapping[str, Any]
"""Column name -> DuckDBPyType, in order."""


def untyped(kind: Any, arrow: pa.DataType) -> Any:
    """DuckDB type of an Arrow type, with ``"NULL"`` for untyped parts (INTEGER in DuckDB)."""
    if pa.types.is_null(arrow):
        return duckdb.sqltypes.SQLNULL
    if not pa.types.is_nested(arrow) or kind.id not in ("list", "array", "map", "struct"):
        return kind
    children = dict(kind.children)
    if kind.id in ("list", "array"):
        item = untyped(children["child"], arrow.value_type)
        return kind if item is children["child"] else duckdb.list_type(item)
    if kind.id == "map":
        key, value = untyped(children["key"], arrow.key_type), untyped(children["value"], arrow.item_type)
        return kind if (key, value) == (children["key"], children["value"]) else duckdb.map_type(key, value)
    fields = {name: untyped(inner, arrow.field(name).type) for name, inner in kind.children}
    return kind if fields == children else duckdb.struct_type(fields)


@cache
def parsed_type(kind: str) -> Any:
    """Parse a DuckDB type name, cached because a parse takes as long as a small query."""
    return duckdb.type(kind)


def plain_types(schema: pa.Schema) -> dict[str, Any] | None:
    """DuckDB types of Arrow columns; None if a bind in DuckDB must tell one of them."""
    kinds = {field.name: plain_type(field.type) for field in schema}
    known = {name: parsed_type(kind) for name, kind in kinds.items() if kind is not None}
    return known if len(known) == len(kinds) else None


def spelled_by_duckdb(kind: str) -> str:
    """A type name as DuckDB prints it.

    Raises:
        InvalidConfig: DuckDB does not know the type.
    """
    try:
        return str(duckdb.type(kind))
    except duckdb.Error as error:
        raise InvalidConfig(f"DuckDB knows no type {kind!r}: {error}") from error


def refuse_variants_inside(ref: TableRef, columns: Iterable[str]) -> None:
    """Raise UnsupportedFeature for nested VARIANTs."""
    # DuckDB 1.5 reads a nested VARIANT, but cannot write it as Parquet.
    if named := ", ".join(sorted(columns)):
        raise UnsupportedFeature(
            f"Table {ref} has VARIANT inside of {named}, and DuckDB writes a VARIANT as a column of its own only",
            remedy="Run this with engine: spark",
        )


def has_variant_inside(kind: Any) -> bool:
    """True for a list, map or struct that contains VARIANT."""
    inner = [part for _, part in kind.children] if kind.id in ("list", "array", "map", "struct") else []
    return any(hasattr(part, "id") and (part.id == "variant" or has_variant_inside(part)) for part in inner)


def storable(name: str, kind: Any, *, nested: bool = False, native: bool = False) -> str:
    """DuckDB type as which Delta, or DuckLake (``native``), stores a column.

    Raises:
        SchemaMismatch: The format cannot store the type.
    """
    if kind.id == "null":
        raise without_type(name)
    if native and kind.id in ("union", "bignum", "varint"):
        raise SchemaMismatch(
            f"column {name!r} has the type {kind}, which DuckLake cannot store; cast it, for instance to VARCHAR"
        )
    # Values of nested timestamp_ns are not checked one by one, so the type is refused.
    if not native and (kind.id in _REFUSED or (nested and kind.id in ("timestamp_ns", "variant"))):
        raise SchemaMismatch(
            f"column {name!r} has the type {kind}, which Delta cannot store; cast it, for instance to "
            + ("TIMESTAMP" if kind.id == "timestamp_ns" else "VARCHAR")
        )
    if kind.id == "struct":
        refuse_twins(n for n, _ in kind.children)

    def part(field: str, inner: Any) -> str:
        return storable(f"{name}.{field}" if kind.id == "struct" else name, inner, nested=True, native=native)

    if (text := with_parts(kind, part)) is not None:
        return text
    # DuckLake's files lose the last digits of 128-bit integers.
    if native and kind.id not in ("enum", "bit", "hugeint", "uhugeint"):
        return str(kind)
    if kind.id == "varchar":  # JSON is an alias of VARCHAR
        return "VARCHAR"
    return _STORED_AS.get(kind.id, str(kind))


def whole_microseconds(value: str) -> str:
    """SQL that is true for NULL and for a TIMESTAMP_NS of whole microseconds.

    Delta can store no other.
    """
    return f"({value} IS NULL OR epoch_ns({value}) % 1000 = 0)"


def as_utc(value: str, kind: Any, depth: int = 0) -> str | None:
    """SQL of a value with its timestamps without zone converted to UTC, also inside nested types.

    None if it has none.

    >>> import duckdb
    >>> as_utc("t", duckdb.type("TIMESTAMP"))
    "timezone('UTC', CAST(t AS TIMESTAMP))"
    >>> as_utc("l", duckdb.type("TIMESTAMP[]"))
    "list_transform(l, lambda x0: timezone('UTC', CAST(x0 AS TIMESTAMP)))"
    """
    if kind.id in _NAIVE:
        return f"timezone('UTC', CAST({value} AS TIMESTAMP))"
    if kind.id == "timestamp_ns":
        message = f"{quote_literal('there is no microsecond for the time ')} || CAST({value} AS VARCHAR)"
        failing = f"CAST({raising(SchemaMismatch, message)} AS TIMESTAMP)"
        whole = f"CASE WHEN {whole_microseconds(value)} THEN CAST({value} AS TIMESTAMP) ELSE {failing} END"
        return f"timezone('UTC', {whole})"
    item = f"x{depth}"
    if kind.id in ("list", "array"):
        inner = as_utc(item, dict(kind.children)["child"], depth + 1)
        return None if inner is None else list_of(value, item, inner)
    if kind.id not in ("struct", "map"):
        return None
    whole, below = (value, depth) if kind.id == "struct" else (item, depth + 1)
    parts = {name: part_of(whole, name) for name, _ in kind.children}
    converted = {name: as_utc(parts[name], part, below) for name, part in kind.children}
    if not any(converted.values()):
        return None
    parts = {name: converted[name] or part for name, part in parts.items()}
    return struct_of(value, parts) if kind.id == "struct" else map_of(value, item, parts["key"], parts["value"])


_KINDS = {
    "null": "null",
    "tinyint": "int8",
    "smallint": "int16",
    "integer": "int32",
    "bigint": "int64",
    "utinyint": "uint8",
    "usmallint": "uint16",
    "uinteger": "uint32",
    "ubigint": "uint64",
    "hugeint": "int128",
    "uhugeint": "uint128",
    "timestamp": "naive",
    "varchar": "text",
    "array": "list",
}


def kind_of(kind: Any) -> Kind:
    """The neutral kind of a DuckDB type."""
    name, spelled = _KINDS.get(kind.id, kind.id), str(kind)
    if kind.id == "decimal":
        digits = dict(kind.children)
        return Kind(name, spelled, precision=int(digits["precision"]), scale=int(digits["scale"]))
    parts = kind.children if kind.id in ("list", "array", "map", "struct") else ()
    inner = tuple((part, kind_of(each)) for part, each in parts if part != "size" or kind.id != "array")
    return Kind(name, spelled, _STORED_AS.get(kind.id, spelled), inner)


def fit_all(
    source: Types,
    target: Types,
    schema_mode: SchemaMode,
    *,
    cast: Collection[str] = (),
    assigned: Collection[str] = (),
    native: bool = False,
    optional: Sequence[str] = (),
) -> dict[str, tuple[str | None, str]]:
    """Map each column of a table to (source column or None for NULL, type), new columns included.

    Args:
        source: Columns of the data.
        target: Columns of the table.
        schema_mode: How columns that the table lacks are treated.
        cast: Columns that only need to be castable.
        assigned: Columns that only need to be assignable.
        native: True for a format that stores DuckDB's types.
        optional: Columns that the rows may lack.

    Raises:
        SchemaMismatch: Columns are missing, new or of other types; the message lists them.
    """
    theirs, ours = ({name: kind_of(kind) for name, kind in types.items()} for types in (source, target))
    source_columns, new = fit.fit_all(theirs, ours, schema_mode, cast=cast, assigned=assigned, optional=optional)
    filled = {name: (column, str(target[name])) for name, column in source_columns.items()}
    return filled | {name: (name, storable(name, source[name], native=native)) for name in new}
