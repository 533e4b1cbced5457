"""What the annotation of an input asks for: a type of value, one alone or one a partition, and whether it may be missing."""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin


@dataclass(frozen=True)
class Wanted:
    """``collection`` is ``dict`` or ``list`` for one value a partition; ``optional`` an input that may be None, ``optional_each`` a
    partition that may.
    """

    as_type: Any
    optional: bool = False
    collection: type | None = None
    optional_each: bool = False


def wanted(declared: Any) -> Wanted:
    """An annotation, taken apart: ``T``, ``Optional[T]``, ``dict[str, T]``, ``list[T]``. ``list[dict]`` is a type itself: rows."""
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
    """Whether a type is that of one row as a dictionary."""
    return declared is dict or get_origin(declared) is dict


def _without_none(declared: Any) -> tuple[Any, bool]:
    if get_origin(declared) not in (Union, types.UnionType):
        return declared, False
    others = [each for each in get_args(declared) if each is not type(None)]
    return (others[0], True) if len(others) == 1 and len(get_args(declared)) == 2 else (declared, False)
