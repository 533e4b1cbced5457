"""Parsers of config values. Each names the key of an invalid value in its error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from duckrun.errors import InvalidConfig
from duckrun.values.nearest import did_you_mean


def one_of(node: str, key: str, value: Any, known: Sequence[str]) -> str:
    """Return a value that is in ``known``. Raises InvalidConfig with the nearest known one."""
    if value in known:
        return str(value)
    raise InvalidConfig(
        f"{node}: unknown {key} {value!r}; known are {', '.join(known)}.{did_you_mean(str(value), known)}"
    )


def texts(node: str, key: str, value: Any) -> tuple[str, ...]:
    """Return the texts of a string or a list of strings, without empty ones."""
    if value is None:
        return ()
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list | tuple | set) or not all(isinstance(v, str) for v in values):
        raise InvalidConfig(f"{node}: {key} must be a string or a list of strings, not {value!r}.")
    return tuple(v for v in values if v.strip())


def names(node: str, key: str, value: Any) -> tuple[str, ...]:
    """Return column names, without the quotes that dbt users write around unusual ones."""
    return tuple(unquoted(v) for v in texts(node, key, value))


def unquoted(name: str) -> str:
    """Return a name without its double quotes."""
    name = name.strip()
    return name[1:-1].replace('""', '"') if len(name) > 1 and name[0] == name[-1] == '"' else name


def mapping(node: str, key: str, value: Any) -> Mapping[str, Any]:
    """Return a mapping; an empty one for None."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidConfig(f"{node}: {key} must be a mapping of names to values, not {value!r}.")
    return value


def properties(node: str, value: Any) -> dict[str, str]:
    """Return table properties as texts; booleans are written in lower case as Delta writes them."""
    values = mapping(node, "table_properties", value)
    return {str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in values.items()}


def match(name: str, columns: Iterable[str]) -> str | None:
    """Return the column of that name in the spelling of ``columns``; SQL ignores letter case."""
    columns = list(columns)
    if name in columns:
        return name
    return next((c for c in columns if c.lower() == name.lower()), None)
