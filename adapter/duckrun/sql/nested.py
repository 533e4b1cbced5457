"""DuckDB SQL that rebuilds a nested value from converted parts; NULL stays NULL."""

from __future__ import annotations

from collections.abc import Mapping

from duckrun.sql.quoting import quote_identifier, quote_literal


def part_of(value: str, name: str) -> str:
    """Return SQL of a field of a struct, or of the key or value of a map's entry."""
    return f"struct_extract({value}, {quote_literal(name)})"


def list_of(value: str, item: str, inside: str) -> str:
    """Return SQL of a list whose items, called ``item``, are converted."""
    return f"list_transform({value}, lambda {item}: {inside})"


def map_of(value: str, item: str, key: str, of_key: str) -> str:
    """Return SQL of a map whose entries, called ``item``, have a converted key and value."""
    entries = list_of(f"map_entries({value})", item, f"struct_pack(key := {key}, value := {of_key})")
    return f"CASE WHEN {value} IS NOT NULL THEN map_from_entries({entries}) END"


def struct_of(value: str, fields: Mapping[str, str]) -> str:
    """Return SQL of a struct that has these fields, which are computed from a struct.

    >>> print(struct_of("s", {"n": part_of("s", "old")}))
    CASE WHEN s IS NOT NULL THEN struct_pack("n" := struct_extract(s, 'old')) END
    """
    packed = ", ".join(f"{quote_identifier(name)} := {field}" for name, field in fields.items())
    return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({packed}) END"
