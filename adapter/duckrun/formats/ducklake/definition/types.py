"""DuckDB types as DuckLake columns: types that it stores, and types that it widens.

Source: the DuckLake specification 1.0, Data Types, Type Promotion.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.formats.nested import Field
from duckrun.sql.quoting import quote_identifier
from duckrun.sql.typed import in_arrow

_INSTEAD = {
    "enum": "VARCHAR",
    "union": "a STRUCT",
    "array": "a list",
    "bit": "VARCHAR",
    "bignum": "VARCHAR",
    "varint": "VARCHAR",
    "hugeint": "DECIMAL(38, 0)",
    "uhugeint": "DECIMAL(38, 0)",
    "time with time zone": "TIME, or TIMESTAMP WITH TIME ZONE",
    "time_ns": "TIME",
}
"""Type that a DuckLake cannot store -> replacement.

DuckLake's files store 128-bit integers as DOUBLE, which loses their last digits, and a time with a
zone in UTC. For a time in nanoseconds DuckDB 1.5.5 ends with an internal error.
"""
_SIGNED = {
    exp.DataType.Type.UTINYINT: "SMALLINT",
    exp.DataType.Type.USMALLINT: "INT",
    exp.DataType.Type.UINT: "BIGINT",
    exp.DataType.Type.UBIGINT: "DECIMAL(20, 0)",
}
"""Unsigned type -> signed type that holds all its values. Spark has no unsigned types."""
_OUTER = {
    "variant": "DuckDB writes it as a column of its own alone",
    "interval": "DuckLake's files hold it to the millisecond, which is looked at in columns of their own alone",
}
"""Type that cannot be nested in another -> reason."""
_WIDER = {
    "TINYINT": ("SMALLINT", "INTEGER", "BIGINT"),
    "SMALLINT": ("INTEGER", "BIGINT"),
    "INTEGER": ("BIGINT",),
    "UTINYINT": ("USMALLINT", "UINTEGER", "UBIGINT", "SMALLINT", "INTEGER", "BIGINT"),
    "USMALLINT": ("UINTEGER", "UBIGINT", "INTEGER", "BIGINT"),
    "UINTEGER": ("UBIGINT", "BIGINT"),
    "FLOAT": ("DOUBLE",),
}
"""Type -> wider types that DuckLake converts it to.

Source: DuckLake specification, Type Promotion.
"""


@lru_cache(maxsize=512)
def arrow_types(types: tuple[str, ...]) -> tuple[pa.DataType, ...]:
    """Convert DuckDB types to Arrow. DuckDB does not export VARIANT, which becomes its parts."""
    with duckdb.connect(config={"threads": "1"}) as alone:
        alone.execute("SET TimeZone = 'UTC'")
        columns = ", ".join(f"CAST(NULL AS {in_arrow(duckdb.type(kind))}) AS c{i}" for i, kind in enumerate(types))
        schema = alone.execute(f"SELECT {columns} LIMIT 0").to_arrow_table().schema
    return tuple(f.type for f in schema)


def type_in(text: str, dialect: str, column: str) -> str:
    """Translate a type from a SQL dialect to DuckDB.

    Raises:
        SchemaMismatch: DuckLake cannot store the type.
        UnsupportedFeature: NOT NULL appears inside of the type.
        InvalidConfig: The text is not a type.
    """
    if re.search(r"\bcollate\b", text, re.IGNORECASE):
        raise SchemaMismatch(f"column {column!r}: DuckLake has no collations; leave COLLATE out")
    if re.search(r"\bnot\s+null\b", text, re.IGNORECASE):
        raise UnsupportedFeature(
            f"column {column!r} has NOT NULL inside of its type {text}, which DuckLake does not have; leave it out"
        )
    try:
        sql = text if dialect == "duckdb" else exp.DataType.build(text, dialect=dialect).sql(dialect="duckdb")
        kind = duckdb.type(sql)
    except (duckdb.Error, SqlglotError) as error:
        raise InvalidConfig(f"column {column!r}: {text!r} is no type: {str(error).splitlines()[0]}") from error
    refuse_type(column, kind)
    return str(kind)


def in_spark(kind: Any) -> str:
    """Translate a DuckDB type to Spark SQL that ``type_in()`` can read.

    An unsigned integer becomes a signed type that holds all its values.
    """

    def spelled(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.DataType):
            return node
        if node.this == exp.DataType.Type.TIME:  # sqlglot would write TIMESTAMP.
            return exp.DataType(this=exp.DataType.Type.USERDEFINED, kind="TIME")
        return exp.DataType.build(_SIGNED[node.this]) if node.this in _SIGNED else node

    return exp.DataType.build(str(kind), dialect="duckdb").transform(spelled).sql(dialect="spark")


def refuse_type(column: str, kind: Any, *, inside: bool = False) -> None:
    """Raise SchemaMismatch for a type that DuckLake cannot store without loss, at any depth."""
    if kind.id in _INSTEAD:
        raise SchemaMismatch(
            f"column {column!r} has the type {kind}, which DuckLake cannot store; use {_INSTEAD[kind.id]}"
        )
    if kind.id == "geometry" and str(kind) != "GEOMETRY":
        raise SchemaMismatch(
            f"column {column!r} has the type {kind}, and DuckLake keeps no coordinate system of a column; "
            "use GEOMETRY, and say it in the comment"
        )
    if inside and kind.id in _OUTER:
        raise SchemaMismatch(
            f"column {column!r} has the type {kind} inside of another type: {_OUTER[kind.id]}; "
            "make it a column, or VARCHAR"
        )
    if kind.id in ("list", "map", "struct"):
        for name, inner in kind.children:
            refuse_type(f"{column}.{name}", inner, inside=True)


def widens(old: str, new: str) -> bool:
    """True if DuckLake can change a column from one type to the other."""
    return _widens(duckdb.type(old), duckdb.type(new))


def _widens(old: Any, new: Any) -> bool:
    if str(new) in _WIDER.get(str(old), ()):
        return True
    decimals = [re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", str(kind)) for kind in (old, new)]
    if decimals[0] and decimals[1]:
        (p, s), (q, t) = ((int(d[1]), int(d[2])) for d in decimals if d is not None)
        # A decimal widens if neither its scale nor its integer digits shrink.
        return t >= s and q - t >= p - s
    if old.id != new.id or old.id not in ("struct", "list", "map"):
        return False
    there = dict(new.children)
    return all(name in there and (kind == there[name] or _widens(kind, there[name])) for name, kind in old.children)


class DuckLakeTypes:
    """DuckDB's types, as text, as trees of fields."""

    def parts(self, kind: str) -> tuple[str, list[Field]]:
        """See Types."""
        parsed = duckdb.type(kind)
        if parsed.id not in ("struct", "list", "map"):
            return "", []
        names = {"list": ["element"], "map": ["key", "value"]}.get(parsed.id, [name for name, _ in parsed.children])
        inner = [str(child) for _, child in parsed.children]
        return parsed.id, [{"name": name, "type": text} for name, text in zip(names, inner, strict=True)]

    def rebuilt(self, kind: str, parts: Sequence[Field]) -> str:
        """See Types."""
        shape, inner = duckdb.type(kind).id, [part["type"] for part in parts]
        if shape == "list":
            text = f"{inner[0]}[]"
        elif shape == "map":
            text = f"MAP({inner[0]}, {inner[1]})"
        else:
            fields = (f"{quote_identifier(part['name'])} {part['type']}" for part in parts)
            text = f"STRUCT({', '.join(fields)})"
        return str(duckdb.type(text))

    def spelled(self, kind: str) -> str:
        """See Types."""
        return kind


TYPES = DuckLakeTypes()
