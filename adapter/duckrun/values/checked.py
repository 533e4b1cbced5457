"""Validation of user arguments against annotations, for specs and functions.

Validation does not coerce: ``"false"`` is no bool and ``1`` no text. A sequence of names may be a
list. Values of plain types are checked here. pydantic, which takes tens of milliseconds to import
and to set up, checks all others and words the errors (``validation.py``).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, is_dataclass
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from duckrun.errors import InvalidConfig
from duckrun.libraries import on_demand
from duckrun.values.frozen import arguments_of, frozen, set_fields
from duckrun.values.nearest import did_you_mean

if TYPE_CHECKING:
    from pydantic import ConfigDict
    from pydantic_core import CoreSchema

# It imports this module.
validation: Any = on_demand("duckrun.values.validation")

P = ParamSpec("P")
T = TypeVar("T")
Test = Callable[[Any], bool]
"""True only for a value that pydantic would take unchanged."""


class Sequences:
    """Annotation of a tuple that may also be a list, which becomes a tuple."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        schema: Any = {**handler(source), "strict": False}
        return cast("CoreSchema", schema)

    def takes(self, value: Any) -> bool:
        """True for a value that needs no conversion."""
        return True


class OneOf:
    """Annotation that limits a text to some words: ``Annotated[str, OneOf("duckdb", "spark")]``.

    Type checkers see a plain ``str``.
    """

    def __init__(self, *words: str) -> None:
        self.words = words

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        schema: Any = {"type": "literal", "expected": list(self.words)}
        return cast("CoreSchema", schema)

    def takes(self, value: Any) -> bool:
        """True for one of the words."""
        return value in self.words


class Least:
    """Annotation of the least whole number of an argument.

    Args:
        above: The number is above this one.
    """

    def __init__(self, above: int) -> None:
        self.above = above

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        bound = {"gt": 0} if self.above == 0 else {"ge": self.above + 1}
        return cast("CoreSchema", {**handler(source), **bound})

    def takes(self, value: Any) -> bool:
        """True for a number above the bound."""
        return bool(value > self.above)


Listed = Annotated[tuple[T, ...], Sequences()]
"""An ordered sequence: a tuple, or a list that becomes one. A text is not a list of letters."""
Positive = Annotated[int, Least(0)]
"""A whole number above 0."""
VersionNumber = Annotated[int, Least(-1)]
"""A version number, from 0 on."""

CONFIG: ConfigDict = {"strict": True, "extra": "forbid", "arbitrary_types_allowed": True}
"""Configuration of pydantic for the classes and functions."""
_MARKS = (Sequences, OneOf, Least)
_SCALARS = (str, bool, int, float, NoneType)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def spec(cls: type[T] | None = None, *, kw_only: bool = False) -> Any:
    """Make a frozen dataclass that checks its fields at construction, before ``__post_init__``.

    Raises:
        InvalidConfig: A value has another type, or the class has no such field. It names the field.

    Example::

        @spec
        class DropColumn:
            name: str
    """

    def make(cls: type[T]) -> type[T]:
        checked_class: Any = frozen(cls, kw_only=kw_only)
        checked_class.__pydantic_config__ = CONFIG
        # Both are built at first use, since most runs use few classes.
        plain = functools.cache(lambda: _PlainArguments.of_class(checked_class))
        validator = functools.cache(lambda: validation.of_class(checked_class))

        @functools.wraps(checked_class.__init__)
        def __init__(self: Any, /, *args: Any, **values: Any) -> None:
            arguments = plain().taken(args, values)
            if arguments is None:
                validator()(self, args, values)
            else:
                set_fields(self, {name: _copied(value) for name, value in arguments.items()})

        checked_class.__init__ = __init__
        return cast(type[T], checked_class)

    return make if cls is None else make(cls)


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Check the arguments of a function or method, as ``spec`` checks fields.

    Example::

        @checked
        def connect(root_path: str, *, read_only: bool = False) -> Session: ...
    """
    plain = functools.cache(lambda: _PlainArguments.of_function(function))
    validator = functools.cache(lambda: validation.of_function(function))

    @functools.wraps(function)
    def call(*args: P.args, **values: P.kwargs) -> T:
        if plain().taken(args, values) is not None:
            return function(*args, **values)
        converted: Any = validator()(args, values)
        return function(*converted[0], **converted[1])

    return call


class _PlainArguments:
    """Test of arguments whose types need no pydantic."""

    def __init__(self, placed: Iterable[str], required: Iterable[str], hints: Mapping[str, Any]) -> None:
        self._placed = tuple(placed)
        self._required = frozenset(required)
        self._tests = {name: _test(hint) for name, hint in hints.items()}

    @classmethod
    def of_class(cls, checked_class: Any) -> _PlainArguments:
        arguments = arguments_of(checked_class)
        hints = get_type_hints(checked_class, include_extras=True)
        return cls(arguments.placed, arguments.required, {name: hints[name] for name in arguments.names})

    @classmethod
    def of_function(cls, function: Callable[..., Any]) -> _PlainArguments:
        parameters = inspect.signature(function).parameters.values()
        hints = dict.fromkeys((each.name for each in parameters if each.name == "self"), Any)
        return cls(
            (each.name for each in parameters if each.kind != inspect.Parameter.KEYWORD_ONLY),
            (each.name for each in parameters if each.default is inspect.Parameter.empty),
            hints | get_type_hints(function, include_extras=True),
        )

    def taken(self, args: Sequence[Any], values: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the arguments by name; None if one is missing, unknown or of no plain type."""
        if len(args) > len(self._placed):
            return None
        arguments = dict(zip(self._placed, args, strict=False))
        if not arguments.keys().isdisjoint(values):
            return None
        arguments.update(values)
        if not self._required <= arguments.keys() <= self._tests.keys():
            return None
        return arguments if all(self._tests[name](value) for name, value in arguments.items()) else None


def _copied(value: Any) -> Any:
    """Return a copy of a dictionary, which its owner may change later; else the value."""
    return dict(value) if type(value) is dict else value


def _test(hint: Any) -> Test:
    """Return the test of a type; of types that only pydantic knows, it takes no value."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return lambda value: True
    if hint in _SCALARS:
        return lambda value: type(value) is hint
    if origin is Literal:
        return lambda value: type(value) is str and value in inner
    if origin is Annotated and all(isinstance(mark, _MARKS) for mark in inner[1:]):
        base = _test(inner[0])
        return lambda value: base(value) and all(mark.takes(value) for mark in inner[1:])
    if origin in (Union, UnionType):
        tests = list(map(_test, inner))
        return lambda value: any(test(value) for test in tests)
    if origin is tuple and inner[1:] == (...,):
        item = _test(inner[0])
        return lambda value: type(value) is tuple and all(map(item, value))
    if origin is Mapping:
        of_key, of_value = map(_test, inner)
        return lambda value: type(value) is dict and all(map(of_key, value)) and all(map(of_value, value.values()))
    if origin is None and is_dataclass(hint):
        return lambda value: isinstance(value, cast(type, hint))
    return lambda value: False


def unknown_name(owner: str, name: str, known: Sequence[str]) -> InvalidConfig:
    """Return the error about an unknown argument, with the nearest known one."""
    hint = did_you_mean(name, known, f" It takes {', '.join(known)}.")
    return InvalidConfig(f"{owner} has no {name!r}.{hint}")


def unknown_word(what: str, value: Any, words: Sequence[Any]) -> InvalidConfig:
    """Return the error about a value outside a list of words, with the nearest word."""
    known = [str(word) for word in words]
    return InvalidConfig(f"{what} is {value!r}; it takes one of {', '.join(known)}.{did_you_mean(str(value), known)}")
