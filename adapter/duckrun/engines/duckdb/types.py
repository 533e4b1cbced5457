"""DuckDB types and Delta types: which cast makes a value storable, and which source fits which column."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from duckrun.engines import fit
from duckrun.engines.fit import Kind
from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature, without_type
from duckrun.sql.names import quote_identifier, quote_literal
from duckrun.sql.raising import raising
from duckrun.values.columns import refuse_twins
from duckrun.values.rows import SchemaMode
from duckrun.values.snapshot import TableRef

# Delta has no unsigned, 128-bit, nanosecond or textual-only types (Delta protocol, Primitive Types).
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
    "timestamp_ns": "TIMESTAMP",  # value by value: one that is no whole number of microseconds is an error
}
_REFUSED = {
    *("time", "time_ns", "time with time zone", "interval", "union", "bignum", "varint"),
    "geometry",
}
_NAIVE = ("timestamp", "timestamp_s", "timestamp_ms")

Types = Mapping[str, Any]
"""Column name -> DuckDBPyType, in order."""


def untyped(kind: Any, arrow: pa.DataType) -> Any:
    """The DuckDB type of an Arrow type, with ``"NULL"`` in the places that hold nothing but NULL, for which DuckDB has INTEGER."""
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


def spelled_by_duckdb(kind: str) -> str:
    """A type of DuckDB's SQL in the words in which DuckDB shows it. Raises InvalidConfig for a word that it does not know."""
    try:
        return str(duckdb.type(kind))
    except duckdb.Error as error:
        raise InvalidConfig(f"DuckDB knows no type {kind!r}: {error}") from error


@contextmanager
def arrow_types_spelled() -> Iterator[Callable[[pa.Schema], list[str]]]:
    """What DuckDB shows for the types of an Arrow schema, by an instance of its own: to open one takes longer than to ask it."""
    with duckdb.connect() as alone:
        yield lambda schema: [str(kind) for kind in alone.from_arrow(schema.empty_table()).types]


def refuse_variants_inside(ref: TableRef, columns: Iterable[str]) -> None:
    """Raise UnsupportedFeature for a table that has VARIANT inside of some columns, which DuckDB 1.5 reads and does not write as Parquet."""
    if named := ", ".join(sorted(columns)):
        raise UnsupportedFeature(
            f"Table {ref} has VARIANT inside of {named}, and DuckDB writes a VARIANT as a column of its own only. Nothing was written. Run "
            "this with engine: spark."
        )


def has_variant_inside(kind: Any) -> bool:
    """True for a list, a map or a struct with VARIANT in it."""
    inner = [part for _, part in kind.children] if kind.id in ("list", "array", "map", "struct") else []
    return any(hasattr(part, "id") and (part.id == "variant" or has_variant_inside(part)) for part in inner)


def storable(name: str, kind: Any, *, nested: bool = False, native: bool = False) -> str:
    """The DuckDB type as which a column is stored in Delta, or (``native``) in DuckLake. Raises SchemaMismatch for a type that it does not have."""
    if kind.id == "null":
        raise without_type(name)
    if native and kind.id in ("union", "bignum", "varint"):
        raise SchemaMismatch(
            f"column {name!r} has the type {kind}, which DuckLake cannot store; cast it, for instance to VARCHAR"
        )
    if not native and (
        kind.id in _REFUSED or (nested and kind.id in ("timestamp_ns", "variant"))
    ):  # the values inside of others are not looked at
        raise SchemaMismatch(
            f"column {name!r} has the type {kind}, which Delta cannot store; cast it, for instance to "
            + ("TIMESTAMP" if kind.id == "timestamp_ns" else "VARCHAR")
        )
    if kind.id in ("list", "array"):
        return storable(name, dict(kind.children)["child"], nested=True, native=native) + "[]"
    if kind.id == "map":
        key, value = (
            storable(name, dict(kind.children)[part], nested=True, native=native) for part in ("key", "value")
        )
        return f"MAP({key}, {value})"
    if kind.id == "struct":
        refuse_twins(n for n, _ in kind.children)
        fields = ", ".join(
            f"{quote_identifier(n)} {storable(f'{name}.{n}', t, nested=True, native=native)}" for n, t in kind.children
        )
        return f"STRUCT({fields})"
    if native and kind.id not in (
        "enum",
        "bit",
        "hugeint",
        "uhugeint",
    ):  # the last digits of these are lost in DuckLake's files
        return str(kind)
    if kind.id == "varchar":  # JSON is a name for VARCHAR
        return "VARCHAR"
    return _STORED_AS.get(kind.id, str(kind))


def whole_microseconds(value: str) -> str:
    """SQL of whether a TIMESTAMP_NS is NULL or a whole number of microseconds, which is what Delta stores."""
    return f"({value} IS NULL OR epoch_ns({value}) % 1000 = 0)"


def as_utc(value: str, kind: Any, depth: int = 0) -> str | None:
    """SQL of a value with the timestamps without zone in it, also inside of nested types, taken as UTC and given that zone;
    None where there are none.

    >>> import duckdb
    >>> as_utc("t", duckdb.type("TIMESTAMP")), as_utc("l", duckdb.type("TIMESTAMP[]"))
    ("timezone('UTC', CAST(t AS TIMESTAMP))", "list_transform(l, lambda x0: timezone('UTC', CAST(x0 AS TIMESTAMP)))")
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
        return None if inner is None else f"list_transform({value}, lambda {item}: {inner})"
    if kind.id == "struct":
        return _fields_as_utc(value, kind.children, depth)
    if kind.id == "map":
        entry = _fields_as_utc(item, kind.children, depth + 1)
        return (
            None if entry is None else f"map_from_entries(list_transform(map_entries({value}), lambda {item}: {entry}))"
        )
    return None


def _fields_as_utc(value: str, children: Sequence[tuple[str, Any]], depth: int) -> str | None:
    """A struct of the same fields; a NULL stays one."""
    fields = {name: f"struct_extract({value}, {quote_literal(name)})" for name, _ in children}
    made = {name: as_utc(fields[name], kind, depth) for name, kind in children}
    if not any(made.values()):
        return None
    packed = ", ".join(f"{quote_identifier(name)} := {sql or fields[name]}" for name, sql in made.items())
    return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({packed}) END"


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
    """A DuckDB type as the rule of what fits knows it."""
    name, spelled = _KINDS.get(kind.id, kind.id), str(kind)
    if kind.id == "decimal":
        digits = dict(kind.children)
        return Kind(name, spelled, precision=int(digits["precision"]), scale=int(digits["scale"]))
    parts = kind.children if kind.id in ("list", "array", "map", "struct") else ()
    inner = tuple((part, kind_of(each)) for part, each in parts if part != "size" or kind.id != "array")
    return Kind(name, spelled, _STORED_AS.get(kind.id, spelled), inner)


def store_all(source: Types, *, native: bool = False) -> dict[str, str]:
    """The stored type of each column of a new table: with those of Delta, or (``native``) nearly all of DuckDB's. Raises
    SchemaMismatch; a table has at least one column.
    """
    if not source:
        raise SchemaMismatch("the rows have no columns")
    refuse_twins(source)
    return {name: storable(name, kind, native=native) for name, kind in source.items()}


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
    """How each column of a table is filled, the new ones too: column -> (column of the source or None for NULL, type).
    Those in ``cast`` need only be castable, those ``assigned`` only assignable; the rows may lack those that are ``optional``. Raises SchemaMismatch that lists the missing, the new and the differently typed columns.
    """
    theirs, ours = ({name: kind_of(kind) for name, kind in types.items()} for types in (source, target))
    may_miss = optional if schema_mode == "fail" else None
    found, new = fit.fit_all(theirs, ours, schema_mode, cast=cast, assigned=assigned, optional=may_miss)
    filled = {name: (column, str(target[name])) for name, column in found.items()}
    return filled | {name: (name, storable(name, source[name], native=native)) for name in new}
