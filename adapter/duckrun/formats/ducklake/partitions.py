"""By what a DuckLake table is parted: columns, and transforms of columns.

Source: the DuckLake specification 1.0, Partitioning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from duckrun.errors import InvalidConfig
from duckrun.sql.names import quote_identifier
from duckrun.values.nearest import did_you_mean

TRANSFORMS = ("year", "month", "day", "hour", "bucket")
_DATES = "DATE|TIMESTAMP"
_OF_TIMES = {"year": _DATES, "month": _DATES, "day": _DATES, "hour": "DATE|TIME"}
"""Transform -> the types, as they begin, that have it."""
_NO_TEXT = "BLOB|GEOMETRY"
"""Types of bytes: DuckLake keeps the values of a partition as texts, and fails at those that are none (duckdb 1.5.5)."""
_TRANSFORM = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)


@dataclass(frozen=True)
class Partition:
    """A partition key: a column, or a transform of one (``year``, ``month``, ``day``, ``hour``, ``bucket`` into ``buckets``)."""

    column: str
    transform: str = "identity"
    buckets: int | None = None

    @classmethod
    def parse(cls, text: str, columns: Sequence[str]) -> Self:
        """A key as users write it: ``day``, ``month(at)``, ``bucket(8, id)``. Raises InvalidConfig."""
        known = {name.lower(): name for name in columns}
        if text.lower() in known:
            return cls(known[text.lower()])
        found = _TRANSFORM.fullmatch(text)
        if found is None:
            raise InvalidConfig(f"partition_by names {text!r}, which is no column; there are {', '.join(columns)}")
        word, inner = found[1].lower(), found[2].strip()
        buckets = None
        if word == "bucket":
            count, comma, inner = inner.partition(",")
            if not comma or not count.strip().isdigit() or int(count) < 1:
                raise InvalidConfig(f"partition_by: {text!r} is no bucket; write bucket(8, id)")
            buckets = int(count)
        if word not in TRANSFORMS:
            raise InvalidConfig(
                f"partition_by: {word}() is none of DuckLake's partition transforms, which are {', '.join(TRANSFORMS)} and bucket(n, column)."
                f"{did_you_mean(word, TRANSFORMS)}"
            )
        name = inner.strip().strip('"`').lower()
        if name not in known:
            raise InvalidConfig(f"partition_by: {text!r} is of no column; there are {', '.join(columns)}")
        return cls(known[name], word, buckets)

    @classmethod
    def stored(cls, transform: str, column: str) -> Self:
        """A key as the catalog has it."""
        found = re.fullmatch(r"bucket\((\d+)\)", transform)
        return cls(column, "bucket", int(found[1])) if found else cls(column, transform)

    @property
    def sql(self) -> str:
        """The key in DuckLake's SQL."""
        column = quote_identifier(self.column)
        if self.transform == "identity":
            return column
        return f"bucket({self.buckets}, {column})" if self.transform == "bucket" else f"{self.transform}({column})"

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        return (
            f"bucket({self.buckets}, {self.column})"
            if self.transform == "bucket"
            else f"{self.transform}({self.column})"
        )


def partitions(keys: Sequence[str], fields: Sequence[Mapping[str, Any]]) -> tuple[Partition, ...]:
    """Keys of a table with some columns. Raises InvalidConfig, also for a key that DuckLake takes and then no row of."""
    types = {f["name"]: str(f["type"]) for f in fields}
    found: list[Partition] = []
    for key in keys:
        made = Partition.parse(key, list(types))
        kind = types[made.column]
        if made in found:
            raise InvalidConfig(f"partition_by names {key!r} twice")
        if kind == "VARIANT" or (made.transform == "identity" and re.match(_NO_TEXT, kind)):
            raise InvalidConfig(
                f"partition_by: {made.column} is {kind}, whose values have no text that a partition could be known by; partition by a text made of it"
            )
        if made.transform in _OF_TIMES and not re.match(_OF_TIMES[made.transform], kind):
            raise InvalidConfig(
                f"partition_by: {made.column} is {kind}, which has no {made.transform}; cast it, or partition by the column"
            )
        found.append(made)
    return tuple(found)
