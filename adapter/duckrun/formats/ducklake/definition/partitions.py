"""Partition keys of a DuckLake table: columns, and transforms of columns.

Source: the DuckLake specification 1.0, Partitioning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Self

from duckrun.errors import InvalidConfig
from duckrun.sql.quoting import quote_identifier
from duckrun.values.frozen import frozen
from duckrun.values.nearest import did_you_mean

TRANSFORMS = ("year", "month", "day", "hour", "bucket")
_DATES = "DATE|TIMESTAMP"
_OF_TIMES = {"year": _DATES, "month": _DATES, "day": _DATES, "hour": "DATE|TIME"}
"""Transform -> pattern of the types that have it, matched at the start."""
_NO_TEXT = "BLOB|GEOMETRY"
"""Byte types.

DuckLake stores partition values as texts, and fails for other bytes (duckdb 1.5.5).
"""
_TRANSFORM = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)


@frozen
class Partition:
    """Partition key: a column, or a transform of one.

    The transforms are ``year``, ``month``, ``day``, ``hour``, and ``bucket`` into ``buckets``.
    """

    column: str
    transform: str = "identity"
    buckets: int | None = None

    @classmethod
    def parse(cls, text: str, columns: Sequence[str]) -> Self:
        """Parse a key as users write it: ``day``, ``month(at)``, ``bucket(8, id)``.

        Raises:
            InvalidConfig: The key is malformed or names no column.
        """
        known = {name.lower(): name for name in columns}
        if text.lower() in known:
            return cls(known[text.lower()])
        match = _TRANSFORM.fullmatch(text)
        if match is None:
            raise InvalidConfig(f"partition_by names {text!r}, which is no column; there are {', '.join(columns)}")
        word, inner = match[1].lower(), match[2].strip()
        buckets = None
        if word == "bucket":
            count, comma, inner = inner.partition(",")
            if not comma or not count.strip().isdigit() or int(count) < 1:
                raise InvalidConfig(f"partition_by: {text!r} is no bucket; write bucket(8, id)")
            buckets = int(count)
        if word not in TRANSFORMS:
            raise InvalidConfig(
                f"partition_by: {word}() is none of DuckLake's partition transforms, which are "
                f"{', '.join(TRANSFORMS)} and bucket(n, column)."
                f"{did_you_mean(word, TRANSFORMS)}"
            )
        name = inner.strip().strip('"`').lower()
        if name not in known:
            raise InvalidConfig(f"partition_by: {text!r} is of no column; there are {', '.join(columns)}")
        return cls(known[name], word, buckets)

    @classmethod
    def stored(cls, transform: str, column: str) -> Self:
        """Build a key from the catalog's spelling."""
        match = re.fullmatch(r"bucket\((\d+)\)", transform)
        return cls(column, "bucket", int(match[1])) if match else cls(column, transform)

    @property
    def sql(self) -> str:
        """The key in DuckLake's SQL."""
        return self._of(quote_identifier(self.column))

    def __str__(self) -> str:
        return self._of(self.column)

    def _of(self, column: str) -> str:
        if self.transform == "identity":
            return column
        return f"bucket({self.buckets}, {column})" if self.transform == "bucket" else f"{self.transform}({column})"


def partitions(keys: Sequence[str], fields: Sequence[Mapping[str, Any]]) -> tuple[Partition, ...]:
    """Parse the partition keys of a table with some columns.

    Raises:
        InvalidConfig: A key is malformed, or DuckLake would accept it and then reject every row.
    """
    types = {f["name"]: str(f["type"]) for f in fields}
    parsed: list[Partition] = []
    for key in keys:
        partition = Partition.parse(key, list(types))
        kind = types[partition.column]
        if partition in parsed:
            raise InvalidConfig(f"partition_by names {key!r} twice")
        if kind == "VARIANT" or (partition.transform == "identity" and re.match(_NO_TEXT, kind)):
            raise InvalidConfig(
                f"partition_by: {partition.column} is {kind}, whose values have no text that a partition could be "
                "known "
                "by; partition by a text made of it"
            )
        if partition.transform in _OF_TIMES and not re.match(_OF_TIMES[partition.transform], kind):
            raise InvalidConfig(
                f"partition_by: {partition.column} is {kind}, which has no {partition.transform}; "
                "cast it, or partition by the column"
            )
        parsed.append(partition)
    return tuple(parsed)
