"""Spark's CHAR(n) and VARCHAR(n), which Delta stores as strings.

The declared type stands in the field's metadata. A reader pads CHAR with spaces. A writer stores
values unchanged. It fails for a longer value, even if only spaces exceed the length. Source:
Spark's CharVarcharUtils, and Delta's constraint DELTA_EXCEED_CHAR_VARCHAR_LIMIT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from duckrun.errors import SchemaMismatch
from duckrun.libraries import exp, pa, sqlglot
from duckrun.sql.nested import list_of, map_of, part_of, struct_of
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.sql.raising import raising

TYPE = "__CHAR_VARCHAR_TYPE_STRING"
"""Key of a field's metadata that holds the declared type, in Spark's SQL."""
_KEY = TYPE.encode()
_LIMITED = ("CHAR", "VARCHAR")
Leaf = Callable[[str, bool, int], str | None]
"""Return SQL of a string value from (SQL, is it CHAR, length); None for an unchanged value."""


def is_limited(field: pa.Field) -> bool:
    """Return True for a column that is, or contains in a struct, a CHAR(n) or VARCHAR(n)."""
    if _KEY in (field.metadata or {}):
        return True
    return pa.types.is_struct(field.type) and any(map(is_limited, field.type))


def limited(fields: Iterable[pa.Field]) -> list[pa.Field]:
    """Return the columns that are, or contain in a struct, a CHAR(n) or VARCHAR(n)."""
    return [field for field in fields if is_limited(field)]


def is_padded(field: pa.Field) -> bool:
    """Return True for a column that contains a CHAR(n): readers pad its values."""
    return padded("x", field) is not None


def padded(value: str, field: pa.Field) -> str | None:
    """Return DuckDB's SQL of a value as Spark reads it; None if Spark reads the stored value."""
    return _of_field(value, field, _pad)


def padded_columns(fields: Iterable[pa.Field]) -> dict[str, str]:
    """Return DuckDB's SQL of each column that contains a CHAR(n), as Spark reads it, by name."""
    values = {field.name: padded(quote_identifier(field.name), field) for field in limited(fields)}
    return {name: value for name, value in values.items() if value is not None}


def fitting(value: str, field: pa.Field) -> str | None:
    """Return DuckDB's SQL of a value that fails if it is too long.

    None for a column without limits.
    """

    def fit(part: str, is_char: bool, length: int) -> str:
        kind = f"{'CHAR' if is_char else 'VARCHAR'}({length})"
        message = f"{quote_literal(f'column {field.name} is {kind} and cannot hold the value ')} || left({part}, 100)"
        failing = f"CAST({raising(SchemaMismatch, message)} AS VARCHAR)"
        return f"CASE WHEN length({part}) > {length} THEN {failing} ELSE {part} END"

    return _of_field(value, field, fit)


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
    parts = {f.name: _of_field(part_of(value, f.name), f, leaf, depth) for f in field.type}
    return _struct(value, parts)


def _of_type(value: str, kind: exp.DataType, leaf: Leaf, depth: int) -> str | None:
    item, inner = f"c{depth}", kind.expressions
    match kind.this.name:
        case limited if limited in _LIMITED and inner:
            return leaf(value, limited == "CHAR", int(inner[0].name))
        case "ARRAY" | "LIST":
            changed = _of_type(item, inner[0], leaf, depth + 1)
            return None if changed is None else list_of(value, item, changed)
        case "MAP":
            key, of_key = part_of(item, "key"), part_of(item, "value")
            changed_key, changed = (
                _of_type(part, type_of_part, leaf, depth + 1)
                for part, type_of_part in zip((key, of_key), inner, strict=True)
            )
            return map_of(value, item, changed_key or key, changed or of_key) if changed_key or changed else None
        case "STRUCT":
            parts = {p.name: _of_type(part_of(value, p.name), p.args["kind"], leaf, depth) for p in inner}
            return _struct(value, parts)
    return None


def _struct(value: str, parts: dict[str, str | None]) -> str | None:
    """Return SQL of a struct with some fields replaced; NULL stays NULL."""
    if not any(parts.values()):
        return None
    return struct_of(value, {name: sql or part_of(value, name) for name, sql in parts.items()})


@lru_cache(maxsize=256)
def _type(text: str) -> exp.DataType | None:
    """Parse a declared type; None for a text that is no type."""
    try:
        kind = exp.DataType.build(text, dialect="spark")
    except sqlglot.errors.SqlglotError:
        return None
    return kind if isinstance(kind, exp.DataType) else None
