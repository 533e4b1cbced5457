"""The parsed annotation of an input: a type of value, alone or per partition, optional or not."""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin


@dataclass(frozen=True)
class Wanted:
    """The value that an input requests."""

    as_type: Any
    optional: bool = False
    """True if the input may be None."""
    collection: type | None = None
    """``dict`` or ``list`` for one value per partition; None for one value."""
    optional_each: bool = False
    """True if the value of a partition may be None."""


def wanted(declared: Any) -> Wanted:
    """Parse an annotation: ``T``, ``Optional[T]``, ``dict[str, T]`` or ``list[T]``.

    ``list[dict]`` is a type itself: rows.
    """
    inner, optional = _without_none(declared)
    origin, arguments = get_origin(inner), get_args(inner)
    if origin is dict and len(arguments) == 2 and arguments[0] is str:
        each, optional_each = _without_none(arguments[1])
        return Wanted(each, optional, dict, optional_each)
    if origin is list and arguments == (Any,):  # what Dagster makes of a bare list
        return Wanted(list, optional)
    if origin is list and arguments and not is_row(arguments[0]):
        each, optional_each = _without_none(arguments[0])
        return Wanted(each, optional, list, optional_each)
    return Wanted(inner, optional)


def is_row(declared: Any) -> bool:
    """Return True for the type of one row as a dictionary."""
    return declared is dict or get_origin(declared) is dict


def _without_none(declared: Any) -> tuple[Any, bool]:
    if get_origin(declared) not in (Union, types.UnionType):
        return declared, False
    others = [each for each in get_args(declared) if each is not type(None)]
    return (others[0], True) if len(others) == 1 and len(get_args(declared)) == 2 else (declared, False)
