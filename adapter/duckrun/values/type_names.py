"""Delta protocol names of column types, from their Arrow form in a snapshot.

Source: Delta protocol, Schema Serialization Format.
"""

from __future__ import annotations

from duckrun.libraries import pa

_NAMES = {
    "bool": "boolean", "int8": "byte", "int16": "short", "int32": "integer", "int64": "long", "float": "float",
    "double": "double", "string": "string", "large_string": "string", "string_view": "string", "binary": "binary",
    "large_binary": "binary", "binary_view": "binary", "date32[day]": "date", "null": "void",
}  # fmt: skip


def type_name(kind: pa.DataType) -> str:
    """Return the Delta name of a type; Arrow's own for a type that no table has.

    >>> nested = pa.list_(pa.struct([("a", pa.string())]))
    >>> type_name(pa.int64()), type_name(pa.decimal128(10, 2)), type_name(nested)
    ('long', 'decimal(10,2)', 'array<struct<a:string>>')
    """
    if pa.types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{type_name(field.type)}' for field in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return f"array<{type_name(kind.value_type)}>"
    return _NAMES.get(str(kind), str(kind))
