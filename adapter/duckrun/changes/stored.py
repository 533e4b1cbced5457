"""Columns of a version as its files have them, and the older types that compare with newer ones."""

from __future__ import annotations

from duckrun.formats.format import Format
from duckrun.libraries import pa
from duckrun.values.snapshot import Snapshot
from duckrun.values.stored import schema_of_files

_INTEGERS = ("int8", "int16", "int32", "int64")


def stored_schema(form: Format, snapshot: Snapshot) -> pa.Schema:
    """Return the schema of a version by physical names."""
    stored = () if form.logs is None else form.logs.stored_columns(snapshot.schema)
    return schema_of_files(snapshot.schema, stored)


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """True if every value of the old type is a value of the new one.

    Source: Delta protocol, Type Widening (Supported Type Changes).
    """
    if old == new:
        return True
    a, b = str(old), str(new)
    if a in _INTEGERS:
        return (
            b == "double" or pa.types.is_decimal(new) or (b in _INTEGERS and _INTEGERS.index(a) <= _INTEGERS.index(b))
        )
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    if a == "float" or pa.types.is_date(old):
        return b == "double" or (pa.types.is_date(old) and pa.types.is_timestamp(new) and new.tz is None)
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        later = {child.name: child.type for child in new}
        return all(child.name not in later or widens(child.type, later[child.name]) for child in old)
    if pa.types.is_list(old) and pa.types.is_list(new):
        return widens(old.value_type, new.value_type)
    if pa.types.is_map(old) and pa.types.is_map(new):
        return widens(old.key_type, new.key_type) and widens(old.item_type, new.item_type)
    return {a, b} <= {"string", "large_string"} or {a, b} <= {"binary", "large_binary"}
