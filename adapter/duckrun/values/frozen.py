"""Frozen dataclasses that share their methods.

dataclass() compiles the methods of each class, which takes half a millisecond. A short command
imports a hundred such classes and constructs few of them. Values that are constructed by the
thousand keep dataclass(), whose methods are faster.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T], *, kw_only: bool = False) -> type[T]:
    """Make a dataclass as ``dataclass(frozen=True)`` does, with methods that are shared.

    Example::

        @frozen
        class Range:
            first: int
            last: int | None = None
    """
    frozen_class: Any = dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
    for name, method in _METHODS.items():
        if name not in cls.__dict__:
            setattr(frozen_class, name, method)

    def __init__(self: Any, /, *args: Any, **values: Any) -> None:
        set_fields(self, _bound(frozen_class, args, values))

    frozen_class.__init__ = __init__
    frozen_class.__signature__ = _Signature()
    return cast(type[T], frozen_class)


class Arguments(NamedTuple):
    """Arguments of a dataclass."""

    placed: tuple[str, ...]
    """Names of the arguments by place."""
    required: frozenset[str]
    names: frozenset[str]


@cache
def arguments_of(cls: Any) -> Arguments:
    """Return the arguments of a dataclass."""
    taken = [each for each in fields(cls) if each.init]
    return Arguments(
        tuple(each.name for each in taken if not each.kw_only),
        frozenset(each.name for each in taken if _is_required(each)),
        frozenset(each.name for each in taken),
    )


def set_fields(instance: Any, arguments: Mapping[str, Any]) -> None:
    """Set the fields of an instance, then call its ``__post_init__``."""
    values = instance.__dict__
    for each in fields(instance):
        if each.name in arguments:
            values[each.name] = arguments[each.name]
        elif each.default_factory is not MISSING:
            values[each.name] = each.default_factory()
        elif each.default is not MISSING:
            values[each.name] = each.default
    if hasattr(instance, "__post_init__"):
        instance.__post_init__()


class _Signature:
    """Signature of a class, which is computed when somebody inspects it."""

    def __get__(self, instance: Any, cls: Any) -> inspect.Signature:
        parameters = [
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY if each.kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=_default(each),
                annotation=each.type,
            )
            for each in sorted(fields(cls), key=lambda each: bool(each.kw_only))
            if each.init
        ]
        return inspect.Signature(parameters)


class _Factory:
    """Default of a field in a signature, if a function makes it."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _default(each: Field[Any]) -> Any:
    if _is_required(each):
        return inspect.Parameter.empty
    return _FACTORY if each.default is MISSING else each.default


def _is_required(each: Field[Any]) -> bool:
    return each.default is MISSING and each.default_factory is MISSING


def _bound(cls: Any, args: Sequence[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a class by name.

    Raises:
        TypeError: An argument is missing, unknown or present twice.
    """
    known = arguments_of(cls)
    arguments = {**dict(zip(known.placed, args, strict=False)), **values}
    is_whole = len(arguments) == len(args) + len(values) and known.required <= arguments.keys() <= known.names
    if not is_whole:
        inspect.signature(cls).bind(*args, **values)  # words the error
        raise TypeError(f"{cls.__name__}() takes other arguments")
    return arguments


def _repr(self: Any) -> str:
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({shown})"


def _compared(instance: Any) -> tuple[Any, ...]:
    return tuple(getattr(instance, each.name) for each in fields(instance) if each.compare)


def _eq(self: Any, other: Any) -> bool:
    return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_compared(self))


def _refuse_set(self: Any, name: str, value: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


_METHODS: dict[str, Callable[..., Any]] = {
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _refuse_set,
    "__delattr__": _refuse_delete,
}
