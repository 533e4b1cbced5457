"""Validation of user arguments against annotations, for specs and functions.

pydantic validates without coercion: ``"false"`` is no bool and ``1`` no text. A sequence of names
may be a list.
"""

from __future__ import annotations

import functools
import inspect
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import ConfigDict, Field, Strict, TypeAdapter, ValidationError, validate_call
from pydantic_core import ArgsKwargs, CoreSchema, core_schema

from duckrun.errors import InvalidConfig
from duckrun.values.nearest import did_you_mean

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

P = ParamSpec("P")
T = TypeVar("T")

Listed = Annotated[tuple[T, ...], Strict(False)]
"""An ordered sequence: a tuple, or a list that becomes one. A text is not a list of letters."""


class OneOf:
    """Annotation that limits a text to some words: ``Annotated[str, OneOf("duckdb", "spark")]``.

    Type checkers see a plain ``str``.
    """

    def __init__(self, *words: str) -> None:
        self.words = words

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.literal_schema(list(self.words))


Positive = Annotated[int, Field(gt=0)]
"""A whole number above 0."""
VersionNumber = Annotated[int, Field(ge=0)]
"""A version number, from 0 on."""

_CONFIG = ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True)
_SECRET = ("storage_options", "catalog")
"""Arguments whose values appear in no message."""
_MISSING = ("missing", "missing_argument", "missing_keyword_only_argument")
_WORDS = {
    "string_type": "text",
    "bool_type": "True or False",
    "int_type": "a whole number",
    "float_type": "a number",
    "dict_type": "a dictionary",
    "mapping_type": "a dictionary",
    "datetime_type": "a datetime",
}
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80


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
        checked_class: Any = dataclass(frozen=True, kw_only=kw_only)(cls)
        checked_class.__pydantic_config__ = _CONFIG

        @functools.cache
        def validator() -> Any:  # lazy: building takes milliseconds a class, and most runs use few
            return TypeAdapter(checked_class).validator

        @functools.wraps(checked_class.__init__)
        def __init__(self: Any, /, *args: Any, **values: Any) -> None:
            try:
                validator().validate_python(ArgsKwargs(args, values), self_instance=self)
            except ValidationError as error:
                names = [each.name for each in fields(checked_class) if each.init]
                placed = [each.name for each in fields(checked_class) if each.init and not each.kw_only]
                raise _refusal(
                    checked_class.__name__, error, names, placed, get_type_hints(checked_class, include_extras=True)
                ) from None

        checked_class.__init__ = __init__
        return cast(type[T], checked_class)

    return make if cls is None else make(cls)


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Check the arguments of a function or method, as ``spec`` checks fields.

    Example::

        @checked
        def connect(root_path: str, *, read_only: bool = False) -> Session: ...
    """

    @functools.cache
    def validator() -> tuple[Callable[..., Any], dict[str, Any]]:
        hints = get_type_hints(function, include_extras=True)
        hints.pop("return", None)

        @functools.wraps(function)
        def arguments(*args: Any, **values: Any) -> Any:
            return args, values

        arguments.__annotations__ = hints
        # The function runs outside of the validation: its own errors are not about arguments.
        return validate_call(config=_CONFIG)(arguments), hints

    @functools.wraps(function)
    def call(*args: P.args, **values: P.kwargs) -> T:
        validate, hints = validator()
        try:
            by_place, by_name = validate(*args, **values)
        except ValidationError as error:
            parameters = inspect.signature(function).parameters.values()
            names = [each.name for each in parameters if each.name != "self"]
            placed = [each.name for each in parameters if each.kind != inspect.Parameter.KEYWORD_ONLY]
            owner = f"{function.__name__}()"
            if function.__name__ == "__init__":
                owner = function.__qualname__.split(".")[-2]
            raise _refusal(owner, error, names, placed, hints) from None
        return function(*by_place[: len(args)], **{name: by_name[name] for name in values})

    return call


def unknown_name(owner: str, name: str, known: Sequence[str]) -> InvalidConfig:
    """Return the error about an unknown argument, with the nearest known one."""
    hint = did_you_mean(name, known, f" It takes {', '.join(known)}.")
    return InvalidConfig(f"{owner} has no {name!r}.{hint}")


def unknown_word(what: str, value: Any, words: Sequence[Any]) -> InvalidConfig:
    """Return the error about a value outside a list of words, with the nearest word."""
    known = [str(word) for word in words]
    return InvalidConfig(f"{what} is {value!r}; it takes one of {', '.join(known)}.{did_you_mean(str(value), known)}")


def _refusal(
    owner: str, error: ValidationError, names: Sequence[str], placed: Sequence[str], hints: Mapping[str, Any]
) -> InvalidConfig:
    """Return the error about unknown names, else about the first bad or missing argument."""
    problems = error.errors(include_url=False)
    first = next((each for each in problems if each["type"] == "unexpected_keyword_argument"), problems[0])
    at, kind, value = first["loc"][0], first["type"], first["input"]
    if kind == "unexpected_keyword_argument":
        return unknown_name(owner, str(at), names)
    if kind == "unexpected_positional_argument":
        return InvalidConfig(f"{owner} takes {len(placed)} arguments by place ({', '.join(placed)}); name the others.")
    name = placed[at] if isinstance(at, int) else str(at)
    if kind in _MISSING:
        return InvalidConfig(f"{owner} needs {name!r}.")
    if kind == "multiple_argument_values":
        return InvalidConfig(f"{owner} has {name!r} twice, by place and by name.")
    parts = list(_parts(hints.get(name)))
    keyed = any(get_origin(each) is Mapping for each in parts)
    what = f"{owner}: {name}" + "".join(f"[{part!r}]" for part in first["loc"][1:] if keyed or isinstance(part, int))
    literal = [word for each in parts if get_origin(each) is Literal for word in get_args(each)]
    if words := literal + [word for each in parts if isinstance(each, OneOf) for word in each.words]:
        return unknown_word(what, value, words)
    # A union has a problem for each of its types.
    wanted = dict.fromkeys(_words(each) for each in problems if each["loc"][0] == at and each["input"] is value)
    shown = "is" if name in _SECRET else f"is {_SHORT.repr(value)},"
    return InvalidConfig(f"{what} {shown} {_article(type(value).__name__)}; give {' or '.join(wanted)}.")


def _article(word: str) -> str:
    return f"{'an' if word[0] in 'AEIOUaeio' else 'a'} {word}"


def _parts(hint: Any) -> Iterator[Any]:
    """Yield a type and all types within it."""
    yield hint
    for each in () if get_origin(hint) is Literal else get_args(hint):
        yield from _parts(each)


def _words(problem: ErrorDetails) -> str:
    """Describe the expected value."""
    context = problem.get("ctx", {})
    if problem["type"] == "tuple_type":
        value = problem["input"]
        return f"a list, such as [{_SHORT.repr(value)}]" if isinstance(value, str) else "a list"
    if "class_name" in context or "class" in context:
        return _article(str(context.get("class_name", context.get("class"))))
    if problem["type"] in ("greater_than", "greater_than_equal"):
        return f"a whole number above {context['gt']}" if "gt" in context else f"a whole number from {context['ge']} on"
    return _WORDS.get(problem["type"], problem["msg"])
