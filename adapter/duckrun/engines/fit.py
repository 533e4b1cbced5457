"""Which rows fit which table: one rule for both engines, whose types are given as neutral kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from duckrun.errors import SchemaMismatch, unfitting_columns
from duckrun.values.rows import SchemaMode

_INTEGERS = ("int8", "int16", "int32", "int64")
_WIDER = ("uint8", "uint16", "uint32", "uint64", "int128", "uint128")


@dataclass(frozen=True)
class Kind:
    """A type of one engine. ``name`` is ``null``, ``int8`` … ``uint128``, ``float``, ``double``, ``decimal``, ``date``, ``naive``
    (a timestamp without zone), ``text``, ``list``, ``map``, ``struct``, or the engine's own word for any other type.

    ``spelled`` is the type in the engine's SQL, ``stored`` that of the type as which Delta stores it, ``inner`` the
    kinds of its parts by their names.
    """

    name: str
    spelled: str
    stored: str = ""
    inner: tuple[tuple[str, Kind], ...] = ()
    precision: int = 0
    scale: int = 0


def fits(source: Kind, target: Kind, *, checked: bool = True) -> bool:
    """True if every value of a source type becomes one value of the target type. With ``checked`` a cast of the engine
    raises where a value has no place; without, only what always has one fits.
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
        return list(theirs) == list(ours) and all(fits(theirs[part], ours[part], checked=checked) for part in ours)
    return a == b == "text"


def fit_all(
    source: Mapping[str, Kind],
    target: Mapping[str, Kind],
    schema_mode: SchemaMode,
    *,
    checked: bool = True,
    optional: Sequence[str] | None = None,
) -> tuple[dict[str, str | None], list[str]]:
    """How each column of a table is filled: target column -> source column (None: NULL), and the columns that are new.

    Raises SchemaMismatch that lists the missing, the new and the differently typed columns. ``optional`` columns may
    be missing; None lets every column be missing once the schema may change.
    """
    by_name = {name.lower(): name for name in source}
    may_miss = set(target) if optional is None and schema_mode != "fail" else set(optional or ())
    filled: dict[str, str | None] = {}
    missing, other = [], []
    for name, kind in target.items():
        found = name if name in source else by_name.get(name.lower())
        if found is None:
            if name in may_miss:
                filled[name] = None
            else:
                missing.append(name)
        elif fits(source[found], kind, checked=checked):
            filled[name] = found
        else:
            other.append(f"{name} is {kind.spelled} in the table and {source[found].spelled} in the data")
    lower = {name.lower() for name in target}
    new = [name for name in source if name.lower() not in lower]
    if problem := unfitting_columns(missing, new, other, may_grow=schema_mode != "fail"):
        raise SchemaMismatch(problem)
    return filled, new
