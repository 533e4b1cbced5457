"""Value that a Python model returns, checked before DuckDB reads it."""

from __future__ import annotations

from typing import Any

from duckrun.errors import InvalidConfig


class NoTable(InvalidConfig):
    """A Python model returned a value that is no table."""


def dataframe(value: Any) -> Any:
    """Return the value of a Python model unchanged.

    Args:
        value: The value that the model returned.

    Raises:
        NoTable: The value is no table, such as None, a number, a list or a generator.
    """
    kind = type(value)
    if kind.__module__ != "builtins":
        return value
    name = "None" if value is None else f"a {kind.__name__}"
    raise NoTable(
        f"the model returned {name}; return a DataFrame of pandas or polars, an Arrow table or a relation of DuckDB"
    )
