"""Mapping with case-insensitive keys, for SQL names."""

from __future__ import annotations

from collections import UserDict
from typing import TypeVar

V = TypeVar("V")


class AnyCase(UserDict[str, V]):
    """A mapping with case-insensitive keys.

    >>> names = AnyCase()
    >>> names["Given"] = 1
    >>> names["GIVEN"], "given" in names, list(names)
    (1, True, ['given'])
    """

    def __getitem__(self, name: str) -> V:
        return self.data[name.lower()]

    def __setitem__(self, name: str, value: V) -> None:
        self.data[name.lower()] = value

    def __delitem__(self, name: str) -> None:
        del self.data[name.lower()]

    def __contains__(self, name: object) -> bool:
        return str(name).lower() in self.data
