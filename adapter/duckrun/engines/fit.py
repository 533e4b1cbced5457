"""Rules that decide which rows fit a table, shared by both engines through neutral type kinds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from duckrun.errors import SchemaMismatch, unfitting_columns
from duckrun.sql.on_demand import sql_names
from duckrun.sql.plain_names import SIDES
from duckrun.values.choices import SchemaMode
from duckrun.values.rows import MergeSpec

_INTEGERS = ("int8", "int16", "int32", "int64")
_WIDER = ("uint8", "uint16", "uint32", "uint64", "int128", "uint128")


@dataclass(frozen=True)
class Kind:
    """A type of one engine in neutral terms."""

    name: str
    """``null``, ``int8`` … ``uint128``, ``float``, ``double``, ``decimal``, ``date``, ``naive`` (a
    timestamp without zone), ``text``, ``list``, ``map``, ``struct``, or the engine's word for
    another type.
    """
    spelled: str
    """The type in the engine's SQL."""
    stored: str = ""
    """The engine's SQL for the type as which Delta stores it."""
    inner: tuple[tuple[str, Kind], ...] = ()
    """Kinds of the nested types, by name."""
    precision: int = 0
    scale: int = 0


def fits(source: Kind, target: Kind, *, checked: bool = True, partly: bool = False) -> bool:
    """True if every value of the source type becomes one value of the target type.

    Args:
        source: Type of the data.
        target: Type of the table.
        checked: True if the engine's cast raises for a value that does not fit. If False, only
            types whose values always fit are accepted.
        partly: True if structs may lack fields.
    """
    if source.name == "null" or target.spelled in (source.spelled, source.stored):
        return True
    a, b = source.name, target.name
    if a in (*_INTEGERS, *_WIDER):
        if b in _INTEGERS:
            return checked or (a in _INTEGERS and _INTEGERS.index(a) <= _INTEGERS.index(b))
        return b in ("float", "double", "decimal")
    if a == "float":
        return b == "double"
    if a == "decimal":
        if b == "decimal":
            wide = target.precision - target.scale >= source.precision - source.scale
            return target.scale >= source.scale and (checked or wide)
        return b in ("float", "double")
    if a == "date":
        return b == "naive"
    if a == b and a in ("list", "map", "struct"):
        theirs, ours = dict(source.inner), dict(target.inner)
        if partly and a == "struct":
            theirs, ours = ({name.lower(): kind for name, kind in parts.items()} for parts in (theirs, ours))
            named = set(theirs) <= set(ours)
        else:
            named = list(theirs) == list(ours)
        return named and all(fits(theirs[part], ours[part], checked=checked, partly=partly) for part in theirs)
    return a == b == "text"


_NUMBERS = (*_INTEGERS, *_WIDER, "float", "double", "decimal")
_WRITTEN_ALIKE = (*_INTEGERS, *_WIDER, "decimal", "boolean", "date", "naive")
"""Types whose values every engine converts to the same text."""
_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TEXTS = {
    **dict.fromkeys(_INTEGERS, "[+-]?[0-9]+"),
    **dict.fromkeys(("float", "double"), r"[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?"),
    "date": _DATE,
    "naive": f"{_DATE}[ T][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}([.][0-9]{{1,6}})?",
    "boolean": "true|false|TRUE|FALSE|True|False",
}
"""Type -> pattern of the texts that every engine parses as the same value."""


def text_pattern(target: Kind) -> str | None:
    """Regular expression of the texts that are values of a type; None if no text is cast to it."""
    if target.name == "decimal":
        return f"[+-]?[0-9]+([.][0-9]{{0,{target.scale}}}0*)?"
    return _TEXTS.get(target.name)


def castable(source: Kind, target: Kind) -> bool:
    """True if a value-checked cast gives the same result on every engine.

    Such a cast does not change a value: '7' and 7.0 are integers, 'seven' and 7.5 are not.
    """
    a, b = source.name, target.name
    if a == "text":
        return text_pattern(target) is not None
    if a in _NUMBERS and b in _NUMBERS:
        return True
    return (a in _WRITTEN_ALIKE and b == "text") or (a, b) == ("naive", "date")


def assignable(source: Kind, target: Kind, *, partly: bool = False) -> bool:
    """True for types that an INSERT casts.

    These are simple types, and nested types whose structs have the same fields in any order. With
    ``partly``, structs may lack fields.
    """
    if fits(source, target, partly=partly):
        return True
    nested = ("list", "map", "struct")
    if source.name not in nested and target.name not in nested:
        return True
    if source.name != target.name:
        return False
    theirs, ours = ({name.lower(): kind for name, kind in parts.inner} for parts in (source, target))
    named = set(theirs) <= set(ours) if partly else set(theirs) == set(ours)
    return named and all(assignable(theirs[part], ours[part], partly=partly) for part in theirs)


def columns_in_expressions(spec: MergeSpec, columns: Collection[str]) -> set[str]:
    """Source columns that an expression of a merge names.

    Such an expression sees the source's values before the cast to the table's types.
    """
    texts = [text for clause in spec.clauses for text in clause.expressions]
    named = {
        name.lower()
        for text in (spec.on, *texts)
        if text is not None
        for side, name in sql_names.columns_of(text, spec.dialect, SIDES)
        if side != "target"
    }
    return {name for name in columns if name.lower() in named}


def castable_columns(spec: MergeSpec, columns: Collection[str]) -> set[str]:
    """Source columns whose type may differ from the table's: keys, and columns in no expression."""
    keys = {key.lower() for key in spec.keys}
    named = columns_in_expressions(spec, columns)
    return {name for name in columns if name.lower() in keys or name not in named}


def assigned_columns(spec: MergeSpec, columns: Collection[str]) -> set[str]:
    """Source columns that are cast as an INSERT casts them."""
    # Not the keys: a rounded key would match another row.
    keys = {key.lower() for key in spec.keys}
    return {name for name in columns if spec.casts and name.lower() not in keys}


def fit_all(
    source: Mapping[str, Kind],
    target: Mapping[str, Kind],
    schema_mode: SchemaMode,
    *,
    checked: bool = True,
    optional: Collection[str] = (),
    cast: Collection[str] = (),
    assigned: Collection[str] = (),
) -> tuple[dict[str, str | None], list[str]]:
    """Map each column of a table to the source column that fills it.

    Args:
        source: Columns of the data.
        target: Columns of the table.
        schema_mode: How columns that the table lacks are treated.
        checked: As for fits().
        optional: Columns that the data may lack. Once the schema may change, it may lack any.
        cast: Columns that only need to be castable.
        assigned: Columns that only need to be assignable.

    Returns:
        Target column -> source column (None: NULL), and the columns that are new.

    Raises:
        SchemaMismatch: Columns are missing, new or of other types; the message lists them.
    """
    by_name = {name.lower(): name for name in source}
    may_miss = optional if schema_mode == "fail" else target
    filled: dict[str, str | None] = {}
    missing, other = [], []
    for name, kind in target.items():
        source_name = name if name in source else by_name.get(name.lower())
        if source_name is None:
            if name in may_miss:
                filled[name] = None
            else:
                missing.append(name)
        elif (
            (source_name in assigned and assignable(source[source_name], kind, partly=schema_mode != "fail"))
            or fits(source[source_name], kind, checked=checked, partly=schema_mode != "fail")
            or (source_name in cast and castable(source[source_name], kind))
        ):
            filled[name] = source_name
        else:
            other.append(f"{name} is {kind.spelled} in the table and {source[source_name].spelled} in the data")
    lower = {name.lower() for name in target}
    new = [name for name in source if name.lower() not in lower]
    if problem := unfitting_columns(missing, new, other, may_grow=schema_mode != "fail"):
        raise SchemaMismatch(problem)
    return filled, new
