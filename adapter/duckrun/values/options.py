"""Options by Spark's names, with Spark's reading of values; unknown ones raise with the nearest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from duckrun.errors import InvalidConfig
from duckrun.values.nearest import did_you_mean

FORMATS = ("delta", "parquet", "csv")


def known_option(name: str, known: Iterable[str], what: str) -> str:
    """Return the spelling of an option, which Spark accepts in any case.

    Raises:
        InvalidConfig: The option is unknown; the message has the nearest.
    """
    spellings = {k.lower(): k for k in known}
    option = spellings.get(name.lower())
    if option is None:
        hint = did_you_mean(name, spellings.values(), f" The options are {', '.join(spellings.values())}.", cutoff=0.5)
        raise InvalidConfig(f"{what} has no option {name!r}.{hint}")
    return option


def known_value(value: str, known: Iterable[str], what: str) -> str:
    """Return one of some words, accepted in any case.

    Raises:
        InvalidConfig: The word is unknown; the message has the nearest.
    """
    words = list(known)
    if str(value).lower() in words:
        return str(value).lower()
    hint = did_you_mean(str(value), words, f" Known are {', '.join(words)}.", cutoff=0.5)
    raise InvalidConfig(f"{value!r} is no {what}.{hint}")


def as_bool(value: Any, option: str) -> bool:
    """Return a bool, or parse its word as Spark does."""
    word = str(value).strip().lower()
    if word not in ("true", "false"):
        raise InvalidConfig(f"Option {option!r} is true or false, not {value!r}.")
    return word == "true"


def as_int(value: Any, option: str) -> int:
    """Return a whole number, or parse its digits."""
    try:
        if isinstance(value, bool):
            raise ValueError
        return int(value)
    except (TypeError, ValueError):
        raise InvalidConfig(f"Option {option!r} is a whole number, not {value!r}.") from None


def given(value: Any, kind: Any, argument: str, method: str) -> Any:
    """Return an argument unchanged after checking its type.

    Raises:
        InvalidConfig: It has another type, such as a bool for a number.
    """
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if isinstance(value, kinds) and not (isinstance(value, bool) and bool not in kinds):
        return value
    words = " or ".join(_WORDS.get(each, each.__name__) for each in kinds)
    raise InvalidConfig(f"{method}: {argument} is {value!r}, a {type(value).__name__}; give {words}.")


def names_in(values: Sequence[Any], argument: str, method: str) -> tuple[str, ...]:
    """Return the names among arguments that are each a name or a list of names.

    Raises:
        InvalidConfig: An argument is neither.
    """
    listed = [name for value in values for name in (value if isinstance(value, list | tuple) else [value])]
    return tuple(given(name, str, argument, method) for name in listed)


_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    Mapping: "a mapping of column to expression",
}
