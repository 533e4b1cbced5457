"""Validation by pydantic, with errors that name the argument and the expected value.

``checked.py`` imports this module for the first value that its own tests do not take.
"""

from __future__ import annotations

import functools
import inspect
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError, validate_call
from pydantic_core import ArgsKwargs

from duckrun.errors import InvalidConfig
from duckrun.values.checked import CONFIG, OneOf, unknown_name, unknown_word
from duckrun.values.frozen import arguments_of

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

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


def of_class(checked_class: Any) -> Callable[[Any, Sequence[Any], Mapping[str, Any]], None]:
    """Return a function that sets the fields of an instance from arguments.

    It raises InvalidConfig for a bad argument.
    """
    validator = TypeAdapter(checked_class).validator

    def set_fields(instance: Any, args: Sequence[Any], values: Mapping[str, Any]) -> None:
        try:
            validator.validate_python(ArgsKwargs(tuple(args), dict(values)), self_instance=instance)
        except ValidationError as error:
            hints = get_type_hints(checked_class, include_extras=True)
            raise _refusal(checked_class.__name__, error, arguments_of(checked_class).placed, hints) from None

    return set_fields


def of_function(
    function: Callable[..., Any],
) -> Callable[[Sequence[Any], Mapping[str, Any]], tuple[Sequence[Any], Mapping[str, Any]]]:
    """Return a function that returns the arguments of another one, converted.

    It raises InvalidConfig for a bad argument.
    """
    hints = get_type_hints(function, include_extras=True)
    hints.pop("return", None)

    @functools.wraps(function)
    def arguments(*args: Any, **values: Any) -> Any:
        return args, values

    arguments.__annotations__ = hints
    # The function runs outside of the validation: its own errors are not about arguments.
    validate = validate_call(config=CONFIG)(arguments)

    def converted(args: Sequence[Any], values: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        try:
            by_place, by_name = validate(*args, **values)
        except ValidationError as error:
            parameters = inspect.signature(function).parameters.values()
            placed = [each.name for each in parameters if each.kind != inspect.Parameter.KEYWORD_ONLY]
            owner = f"{function.__name__}()"
            if function.__name__ == "__init__":
                owner = function.__qualname__.split(".")[-2]
            raise _refusal(owner, error, placed, hints) from None
        return by_place[: len(args)], {name: by_name[name] for name in values}

    return converted


def _refusal(owner: str, error: ValidationError, placed: Sequence[str], hints: Mapping[str, Any]) -> InvalidConfig:
    """Return the error about unknown names, else about the first bad or missing argument."""
    problems = error.errors(include_url=False)
    first = next((each for each in problems if each["type"] == "unexpected_keyword_argument"), problems[0])
    at, kind, value = first["loc"][0], first["type"], first["input"]
    if kind == "unexpected_keyword_argument":
        return unknown_name(owner, str(at), list(hints))
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
