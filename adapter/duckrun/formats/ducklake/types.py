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

_REFUSED = {"enum", "union", "array", "bit", "bignum", "varint", "hugeint", "uhugeint"}
"""Types that a DuckLake cannot store; its files hold whole numbers of 128 bits as DOUBLE, so that their last digits are lost."""
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
    """DuckDB's types as it gives them to Arrow."""
    with duckdb.connect(config={"threads": "1"}) as alone:
        alone.execute("SET TimeZone = 'UTC'")
        columns = ", ".join(f"CAST(NULL AS {kind}) AS c{i}" for i, kind in enumerate(types))
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


def refuse_type(column: str, kind: Any) -> None:
    """Raise SchemaMismatch for a type, or a part of one, that DuckLake does not have."""
    if kind.id in _REFUSED:
        raise SchemaMismatch(
            f"column {column!r} has the type {kind}, which DuckLake cannot store; use "
            + (
                "DECIMAL(38, 0)"
                if "hugeint" in kind.id
                else "a list"
                if kind.id == "array"
                else "VARCHAR"
                if kind.id != "union"
                else "a STRUCT"
            )
        )
    if kind.id in ("list", "map", "struct"):
        for name, inner in kind.children:
            refuse_type(f"{column}.{name}", inner)


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


def refuse_narrowing(column: str, old: str, new: str) -> None:
    """Raise SchemaMismatch for a new type to which DuckLake does not widen the old one."""
    if new != old and not widens(old, new):
        raise SchemaMismatch(
            f"column {column} cannot become {new}: DuckLake only widens types, and {old} holds values that it does not"
        )
