"""Mapping with case-insensitive keys, for SQL names."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TypeVar

V = TypeVar("V")


class AnyCase(MutableMapping[str, V]):
    """A mapping with case-insensitive keys.

    >>> names = AnyCase()
    >>> names["Given"] = 1
    >>> names["GIVEN"], "given" in names, list(names)
    (1, True, ['given'])
    """

    def __init__(self) -> None:
        self._values: dict[str, V] = {}

    def __getitem__(self, name: str) -> V:
        return self._values[name.lower()]

    def __setitem__(self, name: str, value: V) -> None:
        self._values[name.lower()] = value

    def __delitem__(self, name: str) -> None:
        del self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
