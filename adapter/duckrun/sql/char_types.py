"""Spark's CHAR(n) and VARCHAR(n), which Delta stores as strings with their type in the field's metadata.

A reader pads CHAR with spaces. A writer stores values as they are, and fails for one that is longer, be it by spaces alone.
Source: Spark's CharVarcharUtils, and Delta's constraint DELTA_EXCEED_CHAR_VARCHAR_LIMIT.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckrun.errors import SchemaMismatch
from duckrun.sql.names import quote_identifier, quote_literal
from duckrun.sql.raising import raising

TYPE = "__CHAR_VARCHAR_TYPE_STRING"
"""The key of a field's metadata with the type that it was declared with, in Spark's SQL."""
_KEY = TYPE.encode()
_LIMITED = (exp.DataType.Type.CHAR, exp.DataType.Type.VARCHAR)
Leaf = Callable[[str, bool, int], str | None]
"""SQL of a string value: of the value, whether it is CHAR, and its length. None where it stays as it is."""


def is_limited(field: pa.Field) -> bool:
    """True for a column of CHAR(n) or VARCHAR(n), or with one inside."""
    if _KEY in (field.metadata or {}):
        return True
    return pa.types.is_struct(field.type) and any(map(is_limited, field.type))


def is_padded(field: pa.Field) -> bool:
    """True for a column that reads otherwise than its files have it: CHAR(n), or with one inside."""
    return padded("x", field) is not None


def padded(value: str, field: pa.Field) -> str | None:
    """DuckDB's SQL of a value as Spark reads it; None where that is the value as it is stored."""
    return _of_field(value, field, _pad)


def fitting(value: str, field: pa.Field) -> str | None:
    """DuckDB's SQL of a value, which fails if it is too long. None for a column without limits."""

    def fit(part: str, is_char: bool, length: int) -> str:
        kind = f"{'CHAR' if is_char else 'VARCHAR'}({length})"
        message = f"{quote_literal(f'column {field.name} is {kind} and cannot hold the value ')} || left({part}, 100)"
        failing = f"CAST({raising(SchemaMismatch, message)} AS VARCHAR)"
        return f"CASE WHEN length({part}) > {length} THEN {failing} ELSE {part} END"

    return _of_field(value, field, fit)


def declared(kind: str, dialect: str) -> str | None:
    """The type that a column's metadata has where it is declared so in Spark's SQL; None for a type without limits."""
    if dialect != "spark":
        return None
    found = _type(kind)
    limited = found is not None and any(k.this in _LIMITED and k.expressions for k in found.find_all(exp.DataType))
    return kind if limited else None


def holds_all(before: str | None, after: str) -> bool:
    """True if a VARCHAR(n) became one that is not shorter, by the types of Spark's SQL."""
    old, new = None if before is None else _type(before), _type(after)
    varchar = exp.DataType.Type.VARCHAR
    if old is None or new is None or (old.this, new.this) != (varchar, varchar):
        return False
    return int(new.expressions[0].name) >= int(old.expressions[0].name)


def _pad(value: str, is_char: bool, length: int) -> str | None:
    if not is_char:
        return None
    return f"CASE WHEN length({value}) < {length} THEN rpad({value}, {length}, ' ') ELSE {value} END"


def _of_field(value: str, field: pa.Field, leaf: Leaf, depth: int = 0) -> str | None:
    text = (field.metadata or {}).get(_KEY)
    kind = None if text is None else _type(text.decode())
    if kind is not None:
        return _of_type(value, kind, leaf, depth)
    if not pa.types.is_struct(field.type):
        return None
    parts = {f.name: _of_field(_part(value, f.name), f, leaf, depth) for f in field.type}
    return _struct(value, parts)


def _of_type(value: str, kind: exp.DataType, leaf: Leaf, depth: int) -> str | None:
    item, inner = f"c{depth}", kind.expressions
    match kind.this:
        case limited if limited in _LIMITED and inner:
            return leaf(value, limited == exp.DataType.Type.CHAR, int(inner[0].name))
        case exp.DataType.Type.ARRAY | exp.DataType.Type.LIST:
            made = _of_type(item, inner[0], leaf, depth + 1)
            return None if made is None else f"list_transform({value}, lambda {item}: {made})"
        case exp.DataType.Type.MAP:
            entry = {
                name: _of_type(_part(item, name), part, leaf, depth + 1)
                for name, part in zip(("key", "value"), inner, strict=True)
            }
            made = _struct(item, entry)
            entries = f"list_transform(map_entries({value}), lambda {item}: {made})"
            return None if made is None else f"CASE WHEN {value} IS NOT NULL THEN map_from_entries({entries}) END"
        case exp.DataType.Type.STRUCT:
            parts = {p.name: _of_type(_part(value, p.name), p.args["kind"], leaf, depth) for p in inner}
            return _struct(value, parts)
    return None


def _part(value: str, name: str) -> str:
    return f"struct_extract({value}, {quote_literal(name)})"


def _struct(value: str, parts: dict[str, str | None]) -> str | None:
    """A struct with some other parts; a NULL stays one."""
    if not any(parts.values()):
        return None
    packed = ", ".join(f"{quote_identifier(n)} := {sql or _part(value, n)}" for n, sql in parts.items())
    return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({packed}) END"


@lru_cache(maxsize=256)
def _type(text: str) -> exp.DataType | None:
    """The declared type; None for a text that is no type."""
    try:
        kind = exp.DataType.build(text, dialect="spark")
    except SqlglotError:
        return None
    return kind if isinstance(kind, exp.DataType) else None
