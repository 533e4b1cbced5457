"""DuckDB types and literals for Arrow types and for texts in a log."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable
from functools import cache
from typing import Any

from duckrun.libraries import pa
from duckrun.sql.quoting import quote_identifier, quote_literal


def sql_type(kind: pa.DataType) -> str:
    """Return the DuckDB type of an Arrow type.

    Raises:
        KeyError: for a type that DuckDB lacks.
    """
    plain = _TYPES.get(str(kind))
    if plain is not None:
        return plain
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP WITH TIME ZONE" if kind.tz else "TIMESTAMP"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"{sql_type(kind.value_type)}[]"
    if pa.types.is_map(kind):
        return f"MAP({sql_type(kind.key_type)}, {sql_type(kind.item_type)})"
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'{quote_identifier(child.name)} {sql_type(child.type)}' for child in kind)})"
    raise KeyError(str(kind))


def sql_types(fields: Iterable[pa.Field], variants: Container[str] = ()) -> dict[str, str]:
    """Return column -> DuckDB type of Arrow columns; VARIANT for the named variants.

    Raises:
        KeyError: for a type that DuckDB lacks.
    """
    return {field.name: "VARIANT" if field.name in variants else sql_type(field.type) for field in fields}


_PLAIN = {
    "int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "float": "FLOAT", "double": "DOUBLE",
    "uint8": "UTINYINT", "uint16": "USMALLINT", "uint32": "UINTEGER", "uint64": "UBIGINT", "bool": "BOOLEAN",
    "string": "VARCHAR", "large_string": "VARCHAR", "string_view": "VARCHAR", "binary": "BLOB", "large_binary": "BLOB",
    "binary_view": "BLOB", "date32[day]": "DATE",
}  # fmt: skip
"""Arrow types that DuckDB reads as a single type in each instance."""
_TYPES = {**_PLAIN, "time64[us]": "TIME", "month_day_nano_interval": "INTERVAL", "null": '"NULL"'}
_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(\d+)\)")


def plain_type(kind: pa.DataType) -> str | None:
    """Return the type that DuckDB gives a column of an Arrow type; None if DuckDB must tell."""
    if pa.types.is_dictionary(kind):
        return "VARCHAR" if plain_type(kind.value_type) == "VARCHAR" else None
    is_microseconds = pa.types.is_timestamp(kind) and kind.unit == "us"
    if is_microseconds or (pa.types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision):
        return sql_type(kind)
    return _PLAIN.get(str(kind))


def arrow_type(kind: str) -> pa.DataType | None:
    """Return the Arrow type of a DuckDB type, with instants in UTC; None if DuckDB must tell."""
    decimal = _DECIMAL.fullmatch(kind)
    return _arrow_types().get(kind) if decimal is None else pa.decimal128(*map(int, decimal.groups()))


@cache
def _arrow_types() -> dict[str, pa.DataType]:
    whole = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
    others = [pa.bool_(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32()]
    return {sql_type(kind): kind for kind in (*whole, *others, pa.timestamp("us"), pa.timestamp("us", "UTC"))}


def in_arrow(kind: Any) -> str:
    """Return a DuckDB type that has an Arrow form.

    VARIANT becomes the struct of its parts, as other readers see it.
    """
    if kind.id == "variant":
        return 'STRUCT("metadata" BLOB, "value" BLOB)'
    text = with_parts(kind, lambda _, inner: in_arrow(inner)) or str(kind)
    return f"{text[:-1]}{dict(kind.children)['size']}]" if kind.id == "array" else text


def with_parts(kind: Any, part: Callable[[str, Any], str]) -> str | None:
    """Return a nested DuckDB type with other types inside; None for a type without parts.

    An array becomes a list.

    Args:
        kind: DuckDB type.
        part: Returns the type of a part, from its name and its present type.
    """
    parts = dict(kind.children) if kind.id in ("list", "array", "map", "struct") else {}
    if kind.id in ("list", "array"):
        return f"{part('child', parts['child'])}[]"
    if kind.id == "map":
        return f"MAP({part('key', parts['key'])}, {part('value', parts['value'])})"
    if kind.id == "struct":
        return f"STRUCT({', '.join(f'{quote_identifier(name)} {part(name, each)}' for name, each in parts.items())})"
    return None


def partition_literal(value: str | None, kind: str) -> str:
    """Return SQL of a partition value from the log, cast to its type."""
    if value is None:
        return f"CAST(NULL AS {kind})"
    if kind == "BLOB":
        return f"from_hex('{value.encode('latin-1').hex()}')"
    if kind == "TIMESTAMP WITH TIME ZONE" and "+" not in value and not value.endswith("Z"):
        value += "+00"
    return f"CAST({quote_literal(value)} AS {kind})"
