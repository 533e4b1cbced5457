"""Column types as Delta writes them in its log, and the type changes that it allows.

Source: Delta protocol, Schema Serialization Format, Type Widening.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from deltalake import Schema

from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.formats import nested
from duckrun.formats.nested import Field
from duckrun.libraries import exp, pa, sqlglot
from duckrun.sql import char_types
from duckrun.values.tables import ColumnSpec

DeltaType = str | dict[str, Any]
"""Name of a primitive type, or the JSON object of a struct, array or map."""

# Delta has no unsigned and no 128-bit integers: these map to the next wider type.
_PRIMITIVES = {
    "boolean": ("BOOLEAN",),
    "byte": ("TINYINT",),
    "short": ("SMALLINT", "UTINYINT"),
    "integer": ("INT", "USMALLINT", "MEDIUMINT"),
    "long": ("BIGINT", "UINT"),
    "decimal(20,0)": ("UBIGINT",),
    "decimal(38,0)": ("INT128", "UINT128"),
    "float": ("FLOAT",),
    "double": ("DOUBLE",),
    "string": ("TEXT", "VARCHAR", "CHAR", "NCHAR", "NVARCHAR", "JSON", "UUID", "BIT"),
    "binary": ("VARBINARY", "BINARY", "BLOB"),
    "date": ("DATE",),
    "timestamp": ("TIMESTAMPTZ", "TIMESTAMPLTZ"),
    "variant": ("VARIANT",),
    "timestamp_ntz": ("TIMESTAMP", "TIMESTAMPNTZ", "TIMESTAMP_S", "TIMESTAMP_MS", "DATETIME"),
}
_DELTA = {kind: name for name, kinds in _PRIMITIVES.items() for kind in kinds}
_INTEGERS = {"byte": 3, "short": 5, "integer": 10, "long": 20}
"""Integer type -> digits that a decimal needs to hold it (Delta protocol, Type Widening)."""
_DEFAULT_DECIMAL = {"spark": (10, 0)}
_KEYS = {"array": ("list", {"element": "elementType"}), "map": ("map", {"key": "keyType", "value": "valueType"})}
_LIMITED = ("char(", "varchar(")


class DeltaTypes:
    """Delta's types as trees of fields."""

    def parts(self, kind: DeltaType) -> tuple[str, list[Field]]:
        """See Types."""
        if isinstance(kind, str):
            return "", []
        if kind["type"] == "struct":
            return "struct", list(kind["fields"])
        shape, keys = _KEYS[kind["type"]]
        return shape, [{"name": name, "type": kind[key]} for name, key in keys.items()]

    def rebuilt(self, kind: Any, parts: Sequence[Field]) -> DeltaType:
        """See Types."""
        if kind["type"] == "struct":
            return {**kind, "fields": list(parts)}
        _, keys = _KEYS[kind["type"]]
        return {**kind, **{key: part["type"] for key, part in zip(keys.values(), parts, strict=True)}}

    def spelled(self, kind: DeltaType) -> str:
        """See Types."""
        return spelled(kind)


TYPES = DeltaTypes()


def delta_type(text: str, dialect: str, column: str) -> DeltaType:
    """Return the Delta type of an SQL type.

    >>> delta_type("TIMESTAMP", "duckdb", "at"), delta_type("TIMESTAMP", "spark", "at")
    ('timestamp_ntz', 'timestamp')

    Raises:
        SchemaMismatch: Delta has no such type.
        InvalidConfig: The text is no type.
    """
    return without_limits(limited_type(text, dialect, column))


def limited_type(text: str, dialect: str, column: str) -> DeltaType:
    """Return the Delta type of an SQL type, with ``char(n)`` and ``varchar(n)`` of Spark's SQL.

    Raises:
        SchemaMismatch: Delta has no such type.
        InvalidConfig: The text is no type.
    """
    try:
        parsed = exp.DataType.build(text, dialect=dialect)
    except sqlglot.errors.SqlglotError as error:
        raise InvalidConfig(f"column {column!r}: {text!r} is no type of {dialect} SQL") from error
    return _of(parsed, dialect, column, text)


def _of(parsed: Any, dialect: str, column: str, text: str) -> DeltaType:
    kind = parsed.this.name if isinstance(parsed, exp.DataType) else None
    inner = parsed.expressions if isinstance(parsed, exp.DataType) else []
    if kind == "DECIMAL":
        # DuckDB's DECIMAL without digits is DECIMAL(18,3).
        digits = [int(p.name) for p in inner] or list(_DEFAULT_DECIMAL.get(dialect, (18, 3)))
        precision, scale = (*digits, 0)[:2]
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            raise SchemaMismatch(f"column {column!r}: {text} is no decimal that Delta can store (1 to 38 digits)")
        return f"decimal({precision},{scale})"
    if kind in ("ARRAY", "LIST"):
        return {"type": "array", "elementType": _of(inner[0], dialect, column, text), "containsNull": True}
    if kind == "MAP":
        key, value = (_of(part, dialect, column, text) for part in inner)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if kind == "STRUCT":
        for part in inner:
            if any(isinstance(c.kind, exp.NotNullColumnConstraint) for c in part.args.get("constraints") or ()):
                raise UnsupportedFeature(
                    f"column {column!r}: {part.name} inside {text} is NOT NULL, which only the column itself can be "
                    "here"
                )
        fields = [field(part.name, _of(part.args["kind"], dialect, f"{column}.{part.name}", text)) for part in inner]
        return {"type": "struct", "fields": fields}
    if kind in ("CHAR", "VARCHAR") and inner and dialect == "spark":
        return f"{kind.lower()}({inner[0].name})"
    if kind in _DELTA:
        return _DELTA[kind]
    raise SchemaMismatch(f"column {column!r} has the type {text}, which Delta cannot store")


def field(name: str, kind: DeltaType, nullable: bool = True, comment: str | None = None) -> dict[str, Any]:
    """Return a column in the form of the log's schema."""
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {"comment": comment} if comment else {}}


def spelled(kind: DeltaType) -> str:
    """Return a type in Spark SQL, for messages."""
    if isinstance(kind, str):
        return {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{spelled(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{spelled(kind['keyType'])},{spelled(kind['valueType'])}>"
    return f"struct<{','.join(_name(f['name']) + ':' + spelled(f['type']) for f in kind['fields'])}>"


def _name(name: str) -> str:
    return name if name.isidentifier() else "`" + name.replace("`", "``") + "`"


def holds(kind: DeltaType, primitive: str) -> bool:
    """True if a type is a primitive, or contains it."""
    return primitive in nested.inside(TYPES, kind)


def is_required(kind: DeltaType) -> bool:
    """True if some field inside a type is NOT NULL."""
    return any(not field["nullable"] for field in nested.fields_in(TYPES, kind))


def required_as(new: DeltaType, old: DeltaType) -> DeltaType:
    """Return a type with the NOT NULL fields of another type, matched by name."""

    def pair(part: Field, before: Field) -> Field:
        kind = required_as(part["type"], before["type"])
        return (
            {**part, "type": kind, "nullable": before["nullable"]} if "nullable" in before else {**part, "type": kind}
        )

    kind: DeltaType = nested.paired(TYPES, new, old, pair)
    return kind


# -- limits of strings. Spark records CHAR(n) and VARCHAR(n) in the metadata of the column, as the
# SQL of the whole type (Spark's CharVarcharUtils).


def without_limits(kind: DeltaType) -> DeltaType:
    """Return a type with strings in place of ``char(n)`` and ``varchar(n)``."""
    if isinstance(kind, str):
        return "string" if kind.startswith(_LIMITED) else kind
    inner = [{**part, "type": without_limits(part["type"])} for part in TYPES.parts(kind)[1]]
    return TYPES.rebuilt(kind, inner)


def with_limits(column: Mapping[str, Any]) -> Field:
    """Return a column whose type, instead of its metadata, has the limits of strings.

    >>> column = field("c", "string") | {"metadata": {char_types.TYPE: "varchar(3)"}}
    >>> with_limits(column)
    {'name': 'c', 'type': 'varchar(3)', 'nullable': True, 'metadata': {}}
    """
    metadata = {key: value for key, value in column["metadata"].items() if key != char_types.TYPE}
    text = column["metadata"].get(char_types.TYPE)
    if text is None:
        # A field that Spark's ALTER added has its limits in its own metadata.
        kind = nested.with_each_field(TYPES, column["type"], with_limits)
    else:
        kind = _limited_as(column["type"], limited_type(text, "spark", column["name"]))
    return {**column, "type": kind, "metadata": metadata}


def _limited_as(kind: DeltaType, limited: DeltaType) -> DeltaType:
    if kind == "string" and isinstance(limited, str) and limited.startswith(_LIMITED):
        return limited

    def pair(part: Field, other: Field) -> Field:
        return {**part, "type": _limited_as(part["type"], other["type"])}

    both: DeltaType = nested.paired(TYPES, kind, limited, pair)
    return both


def stored(column: Mapping[str, Any]) -> Field:
    """Return a column as the log stores it: the limits of its strings are in its metadata."""
    kind = without_limits(column["type"])
    if kind == column["type"]:
        return dict(column)
    return {
        **column,
        "type": kind,
        "metadata": {**column["metadata"], char_types.TYPE: spelled(column["type"])},
    }


# -- wider types


def _decimal(kind: DeltaType) -> tuple[int, int] | None:
    if not isinstance(kind, str) or not kind.startswith("decimal("):
        return None
    precision, scale = kind[len("decimal(") : -1].split(",")
    return int(precision), int(scale)


def widens(old: DeltaType, new: DeltaType) -> bool:
    """True if the new type holds every value of the old one, by the protocol's type changes.

    >>> widens("integer", "long"), widens("long", "integer"), widens("decimal(5,2)", "decimal(7,3)")
    (True, False, True)
    """
    if not isinstance(old, str) or not isinstance(new, str):
        # Only the limits of strings may change inside a type.
        pairs = list(zip(nested.inside(TYPES, old), nested.inside(TYPES, new), strict=False))
        texts = [(a, b) for a, b in pairs if isinstance(a, str) and isinstance(b, str) and a != b]
        same = without_limits(old) == without_limits(new)
        return same and bool(texts) and all(widens(a, b) for a, b in texts)
    if old.startswith(_LIMITED):
        return new == "string" or (
            old.startswith("varchar") and new.startswith("varchar") and _length(new) > _length(old)
        )
    wider = _decimal(new)
    if old in _INTEGERS:
        if wider is not None:
            return wider[0] - wider[1] >= (20 if old == "long" else 10)
        if new == "double":
            return old != "long"
        return new in _INTEGERS and _INTEGERS[new] > _INTEGERS[old]
    narrow = _decimal(old)
    if narrow is not None and wider is not None:
        return wider != narrow and wider[1] >= narrow[1] and wider[0] - wider[1] >= narrow[0] - narrow[1]
    return (old, new) in (("float", "double"), ("date", "timestamp_ntz"))


def _length(kind: str) -> int:
    return int(kind[kind.index("(") + 1 : -1])


def is_integer(kind: str) -> bool:
    """True for an integer type."""
    return kind in _INTEGERS


def widenings(kind: DeltaType) -> str:
    """Return the types that a type can become, for messages."""
    if isinstance(kind, str) and kind in _INTEGERS:
        names = [spelled(n) for n in _INTEGERS if _INTEGERS[n] > _INTEGERS[kind]]
        names += ["double"] if kind != "long" else []
        return ", ".join([*names, f"decimal({20 if kind == 'long' else 10},0) and wider"])
    if _decimal(kind) is not None:
        return "a decimal with as many digits or more on each side of the point"
    if isinstance(kind, str) and kind.startswith(_LIMITED):
        return "string" if kind.startswith("char") else "a longer varchar, or string"
    return {"float": "double", "date": "timestamp_ntz"}.get(str(kind), "nothing else")


def opened_field(column: ColumnSpec, dialect: str) -> dict[str, Any]:
    """Return a column whose type has the limits of its strings; see ``stored()``."""
    kind = limited_type(column.type, dialect, column.name)
    return field(column.name, kind, column.nullable, column.comment)


def fields_of(schema: pa.Schema, types: Mapping[str, str] = MappingProxyType({})) -> list[dict[str, Any]]:
    """Return Arrow columns in the form of the log's schema.

    Args:
        types: DuckDB types of columns that Arrow has no type for.
    """
    fields = json.loads(Schema.from_arrow(schema).to_json())["fields"]
    return [{**f, "type": "variant"} if types.get(f["name"]) == "VARIANT" else f for f in fields]
