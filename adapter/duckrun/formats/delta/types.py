"""SQL types as Delta writes them in its log, and which of them can become which. (Delta protocol, Schema Serialization
Format, Type Widening.)
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature

DeltaType = str | dict[str, Any]
"""A primitive's name, or the object of a struct, array or map."""

_T = exp.DataType.Type
_PRIMITIVES = {
    "boolean": (_T.BOOLEAN,),
    "byte": (_T.TINYINT,),
    "short": (_T.SMALLINT, _T.UTINYINT),
    "integer": (_T.INT, _T.USMALLINT, _T.MEDIUMINT),
    "long": (_T.BIGINT, _T.UINT),
    "decimal(20,0)": (_T.UBIGINT,),
    "decimal(38,0)": (_T.INT128, _T.UINT128),
    "float": (_T.FLOAT,),
    "double": (_T.DOUBLE,),
    "string": (_T.TEXT, _T.VARCHAR, _T.CHAR, _T.NCHAR, _T.NVARCHAR, _T.JSON, _T.UUID, _T.BIT),
    "binary": (_T.VARBINARY, _T.BINARY, _T.BLOB),
    "date": (_T.DATE,),
    "timestamp": (_T.TIMESTAMPTZ, _T.TIMESTAMPLTZ),
    "variant": (_T.VARIANT,),
    "timestamp_ntz": (_T.TIMESTAMP, _T.TIMESTAMPNTZ, _T.TIMESTAMP_S, _T.TIMESTAMP_MS, _T.DATETIME),
}
_DELTA = {kind: name for name, kinds in _PRIMITIVES.items() for kind in kinds}
_INTEGERS = {"byte": 3, "short": 5, "integer": 10, "long": 20}
"""Integer type -> the digits that a decimal needs to hold it (Delta protocol, Type Widening)."""
_DEFAULT_DECIMAL = {"spark": (10, 0)}


def delta_type(text: str, dialect: str, column: str) -> DeltaType:
    """The Delta type of an SQL type. Raises SchemaMismatch for one that Delta does not have, InvalidConfig for no type.

    >>> delta_type("TIMESTAMP", "duckdb", "at"), delta_type("TIMESTAMP", "spark", "at"), delta_type("INT", "spark", "n")
    ('timestamp_ntz', 'timestamp', 'integer')
    """
    try:
        parsed = exp.DataType.build(text, dialect=dialect)
    except SqlglotError as error:
        raise InvalidConfig(f"column {column!r}: {text!r} is no type of {dialect} SQL") from error
    return _of(parsed, dialect, column, text)


def _of(parsed: Any, dialect: str, column: str, text: str) -> DeltaType:
    kind = parsed.this if isinstance(parsed, exp.DataType) else None
    inner = parsed.expressions if isinstance(parsed, exp.DataType) else []
    if kind == _T.DECIMAL:
        digits = [int(p.name) for p in inner] or list(_DEFAULT_DECIMAL.get(dialect, (18, 3)))
        precision, scale = (*digits, 0)[:2]
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            raise SchemaMismatch(f"column {column!r}: {text} is no decimal that Delta can store (1 to 38 digits)")
        return f"decimal({precision},{scale})"
    if kind in (_T.ARRAY, _T.LIST):
        return {"type": "array", "elementType": _of(inner[0], dialect, column, text), "containsNull": True}
    if kind == _T.MAP:
        key, value = (_of(part, dialect, column, text) for part in inner)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if kind == _T.STRUCT:
        for part in inner:
            if any(isinstance(c.kind, exp.NotNullColumnConstraint) for c in part.args.get("constraints") or ()):
                raise UnsupportedFeature(
                    f"column {column!r}: {part.name} inside {text} is NOT NULL, which only the column itself can be here"
                )
        fields = [field(part.name, _of(part.args["kind"], dialect, f"{column}.{part.name}", text)) for part in inner]
        return {"type": "struct", "fields": fields}
    if kind in _DELTA:
        return _DELTA[kind]
    raise SchemaMismatch(f"column {column!r} has the type {text}, which Delta cannot store")


def field(name: str, kind: DeltaType, nullable: bool = True, comment: str | None = None) -> dict[str, Any]:
    """A column as the log's schema has it."""
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {"comment": comment} if comment else {}}


def spelled(kind: DeltaType) -> str:
    """A type for messages, in the words of Spark's SQL."""
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
    """True if a type is a primitive, or holds it inside."""
    if isinstance(kind, str):
        return kind == primitive
    inner = [f["type"] for f in kind.get("fields", ())]
    inner += [kind[key] for key in ("elementType", "keyType", "valueType") if key in kind]
    return any(holds(part, primitive) for part in inner)


def with_new_fields(old: DeltaType, new: DeltaType) -> DeltaType:
    """A type with the fields that structs inside of another have besides, last; the type itself where there are none.

    >>> spelled(with_new_fields(delta_type("STRUCT(a INT)", "duckdb", "s"), delta_type("STRUCT(b INT, A INT)", "duckdb", "s")))
    'struct<a:int,b:int>'
    """
    if isinstance(old, str) or isinstance(new, str) or old["type"] != new["type"]:
        return old
    if old["type"] == "struct":
        theirs = {f["name"].lower(): f for f in new["fields"]}
        fields = []
        for f in old["fields"]:
            found = theirs.pop(f["name"].lower(), None)
            fields.append(f if found is None else {**f, "type": with_new_fields(f["type"], found["type"])})
        return {**old, "fields": [*fields, *(field(f["name"], f["type"]) for f in theirs.values())]}
    inner = "elementType" if old["type"] == "array" else "valueType"
    return {**old, inner: with_new_fields(old[inner], new[inner])}


def is_required(kind: DeltaType) -> bool:
    """True if some part of a type may not be NULL."""
    if isinstance(kind, str):
        return False
    if kind["type"] == "struct":
        return any(not f["nullable"] or is_required(f["type"]) for f in kind["fields"])
    return is_required(kind["elementType" if kind["type"] == "array" else "valueType"])


def required_as(new: DeltaType, old: DeltaType) -> DeltaType:
    """A type whose parts may not be NULL where those of the same name in another type may not."""
    if isinstance(new, str) or isinstance(old, str) or new["type"] != old["type"] or not is_required(old):
        return new
    if new["type"] == "struct":
        before = {f["name"].lower(): f for f in old["fields"]}
        fields = []
        for f in new["fields"]:
            same = before.get(f["name"].lower(), f)
            fields.append({**f, "nullable": same["nullable"], "type": required_as(f["type"], same["type"])})
        return {**new, "fields": fields}
    inner = "elementType" if new["type"] == "array" else "valueType"
    return {**new, inner: required_as(new[inner], old[inner])}


def _decimal(kind: DeltaType) -> tuple[int, int] | None:
    if not isinstance(kind, str) or not kind.startswith("decimal("):
        return None
    precision, scale = kind[len("decimal(") : -1].split(",")
    return int(precision), int(scale)


def widens(old: DeltaType, new: DeltaType) -> bool:
    """True if the new type holds every value of the old one, by the protocol's list of type changes.

    >>> widens("integer", "long"), widens("long", "integer"), widens("decimal(5,2)", "decimal(7,3)")
    (True, False, True)
    """
    if not isinstance(old, str) or not isinstance(new, str):
        return False
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


def is_integer(kind: str) -> bool:
    """True for a whole number of any width."""
    return kind in _INTEGERS


def widenings(kind: DeltaType) -> str:
    """What a type can become, for messages."""
    if isinstance(kind, str) and kind in _INTEGERS:
        names = [spelled(n) for n in _INTEGERS if _INTEGERS[n] > _INTEGERS[kind]]
        names += ["double"] if kind != "long" else []
        return ", ".join([*names, f"decimal({20 if kind == 'long' else 10},0) and wider"])
    if _decimal(kind) is not None:
        return "a decimal with as many digits or more on each side of the point"
    return {"float": "double", "date": "timestamp_ntz"}.get(str(kind), "nothing else")
