"""Conversion of pyarrow and PySpark schemas into columns of a table to create."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.sessions.opened import Opened
from duckrun.values.columns import comment_of, refuses_inner_nulls
from duckrun.values.tables import ColumnSpec


def columns_of(session: Opened, cols: Any, what: str) -> list[ColumnSpec]:
    """Return the columns of a schema, or of a list of its fields, with types in Spark's SQL.

    Args:
        what: Name of the argument, for messages.

    Raises:
        InvalidConfig: ``cols`` is no schema.
        SchemaMismatch: Delta lacks a type.
        UnsupportedFeature: A nested field refuses NULL.
    """
    listed = list(cols) if isinstance(cols, Iterable) else []  # a schema of either library lists its fields
    if isinstance(cols, pa.Schema) or (listed and all(isinstance(field, pa.Field) for field in listed)):
        return _columns(session, _of_arrow(session, pa.schema(listed)))
    if listed and all(hasattr(field, "jsonValue") for field in listed):
        return _columns(session, _of_spark(field.jsonValue() for field in listed))
    raise InvalidConfig(f"{what} is {said(cols)}; give a schema or a list of fields, of pyarrow or PySpark.")


def sql_type(session: Opened, kind: Any, column: str, what: str) -> str:
    """Return a type in Spark's SQL; text is returned unchanged. Raises as columns_of()."""
    if isinstance(kind, str):
        return kind
    if isinstance(kind, pa.DataType):
        return columns_of(session, pa.schema([(column, kind)]), what)[0].type
    if hasattr(kind, "jsonValue"):
        field = {"name": column, "type": kind.jsonValue(), "nullable": True, "metadata": {}}
        return _columns(session, _of_spark([field]))[0].type
    raise InvalidConfig(f"{what} is {said(kind)}; give SQL as text, such as 'BIGINT', or a type of pyarrow or PySpark.")


def columns_in(text: str, what: str) -> list[ColumnSpec]:
    """Parse a list of columns in Spark's SQL, ``day DATE, n INT``. Raises InvalidConfig."""
    try:
        columns = exp.DataType.build(f"STRUCT<{text}>", dialect="spark").expressions
    except SqlglotError as error:
        raise InvalidConfig(f"{what} is {text!r}, which is no list of columns with their types.") from error
    if not columns or not all(isinstance(column, exp.ColumnDef) and column.args.get("kind") for column in columns):
        raise InvalidConfig(f"{what} is {text!r}; each column has a name and a type, as in 'day DATE, n INT'.")
    return [ColumnSpec(column.name, column.args["kind"].sql(dialect="spark")) for column in columns]


def said(value: Any) -> str:
    """Return a value with its type, for messages."""
    return f"{value!r}, a {type(value).__name__}"


def _columns(session: Opened, fields: Iterable[Mapping[str, Any]]) -> list[ColumnSpec]:
    spelled = session.lake.format.spelled
    return [ColumnSpec(f["name"], spelled(f["type"]), f["nullable"], f["metadata"].get("comment")) for f in fields]


def _of_arrow(session: Opened, schema: pa.Schema) -> list[Mapping[str, Any]]:
    """Return Arrow columns as the log stores them, with the schema's own NOT NULL and comments."""
    for field in schema:
        _refuse_strict(field.name, refuses_inner_nulls(field.type))
    stored = session.embedded.schema_of(schema.empty_table())
    return [
        {**logged, "nullable": field.nullable, "metadata": {"comment": comment_of(field)}}
        for logged, field in zip(session.lake.format.fields_of(stored), schema, strict=True)
    ]


def _of_spark(fields: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return Spark's columns, whose JSON form is that of the log."""
    listed = list(fields)
    for field in listed:
        _refuse_strict(field["name"], _strict_in_json(field["type"]))
    return listed


def _refuse_strict(column: str, strict: bool) -> None:
    if strict:
        raise UnsupportedFeature(
            f"Column {column!r}: something inside its type may not be NULL, which CREATE TABLE does "
            "not say here. Let it be nullable; "
            "NOT NULL is for the column itself."
        )


def _strict_in_json(kind: Any) -> bool:
    """True if a nested field of a type in the log's JSON form refuses NULL."""
    if isinstance(kind, str):
        return False
    if not all(kind.get(key, True) for key in ("containsNull", "valueContainsNull")):
        return True
    if any(not field["nullable"] for field in kind.get("fields", ())):
        return True
    inside = [field["type"] for field in kind.get("fields", ())]
    inside += [kind[key] for key in ("elementType", "keyType", "valueType") if key in kind]
    return any(map(_strict_in_json, inside))
