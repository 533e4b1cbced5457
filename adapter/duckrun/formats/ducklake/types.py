"""Types of DuckLake's columns, which are DuckDB's, as text: which a DuckLake stores, and which widen to which.

Source: the DuckLake specification 1.0, Data Types, Type Promotion.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.sql.names import quote_identifier
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
"""Type that a DuckLake cannot store -> what to use. Its files hold whole numbers of 128 bits as DOUBLE, so that their last digits are lost, and a
time with a zone as one in UTC; at one in nanoseconds DuckDB 1.5.5 ends with an internal error.
"""
_SIGNED = {
    exp.DataType.Type.UTINYINT: "SMALLINT",
    exp.DataType.Type.USMALLINT: "INT",
    exp.DataType.Type.UINT: "BIGINT",
    exp.DataType.Type.UBIGINT: "DECIMAL(20, 0)",
}
_OUTER = {
    "variant": "DuckDB writes it as a column of its own alone",
    "interval": "DuckLake's files hold it to the millisecond, which is looked at in columns of their own alone",
}
"""Type that cannot lie inside of another -> why."""
_WIDER = {
    "TINYINT": ("SMALLINT", "INTEGER", "BIGINT"),
    "SMALLINT": ("INTEGER", "BIGINT"),
    "INTEGER": ("BIGINT",),
    "UTINYINT": ("USMALLINT", "UINTEGER", "UBIGINT", "SMALLINT", "INTEGER", "BIGINT"),
    "USMALLINT": ("UINTEGER", "UBIGINT", "INTEGER", "BIGINT"),
    "UINTEGER": ("UBIGINT", "BIGINT"),
    "FLOAT": ("DOUBLE",),
}
"""Type -> the types that hold each of its values, to which DuckLake widens. Source: DuckLake specification, Type Promotion."""


@lru_cache(maxsize=512)
def arrow_types(types: tuple[str, ...]) -> tuple[pa.DataType, ...]:
    """DuckDB's types as it gives them to Arrow; of VARIANT, which it does not give, the parts."""
    with duckdb.connect(config={"threads": "1"}) as alone:
        alone.execute("SET TimeZone = 'UTC'")
        columns = ", ".join(f"CAST(NULL AS {in_arrow(duckdb.type(kind))}) AS c{i}" for i, kind in enumerate(types))
        schema = alone.execute(f"SELECT {columns} LIMIT 0").to_arrow_table().schema
    return tuple(f.type for f in schema)


def type_in(text: str, dialect: str, column: str) -> str:
    """A type in some dialect's SQL as DuckDB's. Raises SchemaMismatch for one that DuckLake cannot store, InvalidConfig for none."""
    if re.search(r"\bcollate\b", text, re.IGNORECASE):
        raise SchemaMismatch(f"column {column!r}: DuckLake has no collations; leave COLLATE out")
    if re.search(r"\bnot\s+null\b", text, re.IGNORECASE):
        raise UnsupportedFeature(
            f"column {column!r} has NOT NULL inside of its type {text}, which DuckLake does not have; leave it out"
        )
    try:
        said = text if dialect == "duckdb" else exp.DataType.build(text, dialect=dialect).sql(dialect="duckdb")
        kind = duckdb.type(said)
    except (duckdb.Error, SqlglotError) as error:
        raise InvalidConfig(f"column {column!r}: {text!r} is no type: {str(error).splitlines()[0]}") from error
    refuse_type(column, kind)
    return str(kind)


def in_spark(kind: Any) -> str:
    """A DuckDB type in Spark's SQL, as text that type_in() reads: whole numbers without a sign as ones with it that hold them all, since Spark
    has none; the others by the names that sqlglot reads there.
    """

    def spelled(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.DataType):
            return node
        if node.this == exp.DataType.Type.TIME:  # which sqlglot takes for a TIMESTAMP
            return exp.DataType(this=exp.DataType.Type.USERDEFINED, kind="TIME")
        return exp.DataType.build(_SIGNED[node.this]) if node.this in _SIGNED else node

    return exp.DataType.build(str(kind), dialect="duckdb").transform(spelled).sql(dialect="spark")


def refuse_type(column: str, kind: Any, *, inside: bool = False) -> None:
    """Raise SchemaMismatch for a type, or a part of one, that DuckLake does not have, or of which it loses a part of the values."""
    if kind.id in _INSTEAD:
        raise SchemaMismatch(
            f"column {column!r} has the type {kind}, which DuckLake cannot store; use {_INSTEAD[kind.id]}"
        )
    if kind.id == "geometry" and str(kind) != "GEOMETRY":
        raise SchemaMismatch(
            f"column {column!r} has the type {kind}, and DuckLake keeps no coordinate system of a column; use GEOMETRY, and say it in the comment"
        )
    if inside and kind.id in _OUTER:
        raise SchemaMismatch(
            f"column {column!r} has the type {kind} inside of another type: {_OUTER[kind.id]}; make it a column, or VARCHAR"
        )
    if kind.id in ("list", "map", "struct"):
        for name, inner in kind.children:
            refuse_type(f"{column}.{name}", inner, inside=True)


def widens(old: str, new: str) -> bool:
    """True if DuckLake changes a column of one type to the other."""
    return _widens(duckdb.type(old), duckdb.type(new))


def _widens(old: Any, new: Any) -> bool:
    if str(new) in _WIDER.get(str(old), ()):
        return True
    decimals = [re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", str(kind)) for kind in (old, new)]
    if decimals[0] and decimals[1]:
        (p, s), (q, t) = ((int(d[1]), int(d[2])) for d in decimals if d is not None)
        return t >= s and q - t >= p - s
    if old.id != new.id or old.id not in ("struct", "list", "map"):
        return False
    there = dict(new.children)
    return all(name in there and (kind == there[name] or _widens(kind, there[name])) for name, kind in old.children)


def with_new_fields(old: str, new: str) -> str:
    """A type with the fields of structs that another one has besides, also inside of lists and maps; they stand behind those that are there."""
    if old == new:
        return old
    return str(duckdb.type(_with_new_fields(duckdb.type(old), duckdb.type(new))))


def _with_new_fields(old: Any, new: Any) -> str:
    if old.id != new.id or old.id not in ("struct", "list", "map"):
        return str(old)
    if old.id == "list":
        return f"{_with_new_fields(dict(old.children)['child'], dict(new.children)['child'])}[]"
    if old.id == "map":
        sides = [
            _with_new_fields(mine, theirs) for (_, mine), (_, theirs) in zip(old.children, new.children, strict=True)
        ]
        return f"MAP({sides[0]}, {sides[1]})"
    incoming = {name.lower(): (name, kind) for name, kind in new.children}
    fields = [
        (name, _with_new_fields(kind, incoming[name.lower()][1]) if name.lower() in incoming else str(kind))
        for name, kind in old.children
    ]
    there = {name.lower() for name, _ in fields}
    fields += [(name, str(kind)) for lower, (name, kind) in incoming.items() if lower not in there]
    return f"STRUCT({', '.join(f'{quote_identifier(name)} {kind}' for name, kind in fields)})"


def refuse_narrowing(column: str, old: str, new: str) -> None:
    """Raise SchemaMismatch for a new type to which DuckLake does not widen the old one."""
    if new != old and not widens(old, new):
        raise SchemaMismatch(
            f"column {column} cannot become {new}: DuckLake only widens types, and {old} holds values that it does not"
        )
