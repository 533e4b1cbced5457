"""Records of a lake: the small JSON files that this package writes beside tables.

A record may come from another version of the package. An unknown field may change the meaning of
all others. So the record is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Self, TypeVar

from duckrun.errors import StorageError, UnsupportedFeature

_T = TypeVar("_T")


class Record:
    """Base of dataclasses that are the whole of a file."""

    def to_json(self: Any) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, raw: bytes, place: str) -> Self:
        """Return the value of a file; see ``parsed()`` and ``built()``."""
        return built(cls, parsed(raw, place), place)


def parsed(raw: bytes | str, place: str) -> dict[str, Any]:
    """Return the values of a record.

    Raises:
        StorageError: The file is damaged.
    """
    try:
        values = json.loads(raw)
        if isinstance(values, dict):
            return values
        raise ValueError("it is no JSON object")
    except ValueError as error:
        raise damaged(place, error) from error


def built(kind: type[_T], values: Mapping[str, Any], place: str) -> _T:
    """Return the values of a record as a dataclass.

    Args:
        kind: The dataclass.
        values: Values by the names of its fields.
        place: Path of the record, for errors.

    Raises:
        UnsupportedFeature: A newer version of the package has written the record.
        StorageError: A field is missing.
    """
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(values.keys() - known):
        raise newer(place, ", ".join(unknown))
    try:
        return kind(**values)
    except TypeError as error:
        raise damaged(place, error) from error


def damaged(place: str, why: object) -> StorageError:
    """Return the error about a record that cannot be read."""
    return StorageError(f"The file {place} cannot be read ({why})", remedy="Repair or remove it")


def newer(place: str, what: str) -> UnsupportedFeature:
    """Return the error about a record of a newer version of the package."""
    return UnsupportedFeature(
        f"The file {place} has {what}, which this version of duckrun-dagster does not know: a newer version wrote it",
        remedy="Upgrade duckrun-dagster",
    )
