"""SQL of rows in the form of a table's files, whose columns may have physical names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from duckrun.sql.nested import list_of, map_of, part_of, struct_of
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.values.stored import StoredColumn


def as_stored(sql: str, columns: Mapping[str, Any], stored: Sequence[StoredColumn]) -> str:
    """SELECT of a query's columns (name -> DuckDB type) by physical name and in physical form.

    Returns the query unchanged if the table has no physical names and no variants.
    """
    known = {column.name: column for column in stored}
    variants = {name for name, kind in columns.items() if str(kind) == "VARIANT"}
    if not known and not variants:
        return sql
    names = []
    for name in columns:
        value, column = quote_identifier(name), known.get(name)
        # A plain COPY shreds a variant, which needs a table feature, and writes NULL as a variant.
        if name in variants:
            value = f"CASE WHEN {value} IS NOT NULL THEN variant_to_parquet_variant({value}) END"
        elif column is not None:
            value = _value(column, value)
        names.append(f"{value} AS {quote_identifier(name if column is None else column.stored)}")
    return f"SELECT {', '.join(names)} FROM ({sql})"


def _value(column: StoredColumn, value: str, depth: int = 0) -> str:
    """A column's value in physical form."""
    if not column.is_renamed:
        return value
    # A struct is built field by field, because a cast matches fields by name.
    if column.kind == "struct":
        parts = {part.stored: _value(part, part_of(value, part.name), depth) for part in column.parts}
        return struct_of(value, parts)
    item = f"stored{depth}"
    if column.kind == "list":
        return list_of(value, item, _value(column.parts[0], item, depth + 1))
    key, item_value = (
        _value(part, part_of(item, of), depth + 1) for part, of in zip(column.parts, ("key", "value"), strict=True)
    )
    return map_of(value, item, key, item_value)


def field_ids(stored: Iterable[StoredColumn], columns: Iterable[str]) -> str | None:
    """COPY's FIELD_IDS for some columns; None if they have no ids."""
    written = set(columns)
    entries = _entries(column for column in stored if column.name in written)
    return f"FIELD_IDS {{{entries}}}" if entries else None


def _entries(columns: Iterable[StoredColumn]) -> str:
    entries = ((column.stored, _entry(column)) for column in columns)
    return ", ".join(f"{quote_literal(name)}: {entry}" for name, entry in entries if entry)


def _entry(column: StoredColumn) -> str:
    inner = _entries(column.parts)
    if not inner:
        return "" if column.id is None else str(column.id)
    own_id = "" if column.id is None else f"__duckdb_field_id: {column.id}, "
    return f"{{{own_id}{inner}}}"
