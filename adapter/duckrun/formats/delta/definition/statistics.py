"""The ``stats`` of an add action, from a writer's figures of a file.

They differ: a Delta reader may skip a file by its stats, so a wrong bound loses rows.
Source: Delta protocol, Per-file Statistics. Spark orders NaN above every number; writers' figures
leave NaN out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from typing import Any

from duckrun.libraries import pa
from duckrun.sql.quoting import quote_identifier
from duckrun.values.columns import leaves
from duckrun.values.frozen import frozen
from duckrun.values.rows import ScanFile, StagedFile
from duckrun.values.snapshot import schema_from_text
from duckrun.values.stored import StoredColumn, stored_names, stored_paths

COUNT, COLUMNS = "delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns"
_COUNT = 32
_NAME = re.compile(r"\s*(`(?:[^`]|``)*`)?([^`.,]*)([.,]|$)")
_STRING_PREFIX = 32
_HIGHEST = "\U0010ffff"
EXACT_DIGITS = 15
"""Number of digits up to which a double holds every decimal."""


@frozen
class Statistics:
    """Statistics that a table requires of its files."""

    columns: Iterable[pa.Field]
    """Columns of the files, in the table's order."""
    properties: Mapping[str, str]
    stored: Sequence[StoredColumn] = ()
    """Physical columns; the log uses their names."""

    @cached_property
    def wanted(self) -> list[tuple[str, ...]]:
        """Paths of the columns with statistics.

        They are those of ``delta.dataSkippingStatsColumns``, with all fields of a struct. Otherwise
        they are the first 32 leaves, or as many as ``delta.dataSkippingNumIndexedCols`` says (-1:
        all). A list or a map counts as one.
        """
        paths = [path for path, _ in leaves(self.columns)]
        named = self.properties.get(COLUMNS)
        if named is not None:
            listed = set(map(_lower, names_in(named)))
            return [path for path in paths if any(_lower(path[: i + 1]) in listed for i in range(len(path)))]
        count = int(self.properties.get(COUNT, _COUNT))
        return paths if count < 0 else paths[:count]

    @cached_property
    def _in_files(self) -> dict[tuple[str, ...], tuple[str, ...]]:
        return dict(stored_paths(self.stored))

    @cached_property
    def _names(self) -> dict[str, str]:
        return stored_names(self.stored)

    def partition_values(self, file: ScanFile) -> dict[str, str | None]:
        """Return the partition values of a file under physical names."""
        return {self._names.get(column, column): value for column, value in file.partition_values.items()}

    @cached_property
    def _kinds(self) -> Callable[[str], dict[tuple[str, ...], pa.DataType]]:
        """Function that returns a file's columns from its schema as text, cached."""
        # Most files of a commit have the same schema.
        return cache(lambda text: dict(leaves(schema_from_text(text))))

    def of(self, file: StagedFile) -> str | None:
        """Return the statistics of one file as JSON; another Delta writer's are used unchanged."""
        if file.stats is not None or not file.schema:
            return file.stats
        low: dict[str, Any] = {}
        high: dict[str, Any] = {}
        nulls: dict[str, Any] = {}
        kinds = self._kinds(file.schema)
        for path in self.wanted:
            kind, figures = kinds.get(path), file.figures.get(".".join(map(quote_identifier, path)))
            if kind is None or figures is None:
                continue
            physical = self._in_files.get(path, path)
            if figures.nulls is not None:
                _put(nulls, physical, figures.nulls)
            if figures.low is not None and figures.high is not None and not figures.nan:
                bounds = _bounds(kind, figures.low, figures.high)
                if bounds is not None:
                    _put(low, physical, bounds[0])
                    if bounds[1] is not None:
                        _put(high, physical, bounds[1])
        stats = {"numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": nulls}
        return json.dumps(stats, ensure_ascii=False)


def names_in(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the column paths in a comma-separated list.

    >>> list(names_in("id, place.City, `a.b`.`c,``d`"))
    [('id',), ('place', 'City'), ('a.b', 'c,`d')]
    """
    path: list[str] = []
    for quoted, plain, end in _NAME.findall(text):
        name = quoted[1:-1].replace("``", "`") if quoted else plain.strip()
        if name:
            path.append(name)
        if end != "." and path:
            yield tuple(path)
            path = []


def names_after(text: str, column: Sequence[str], renamed: str | None) -> str:
    """Return a comma-separated list after a column or field was renamed, or dropped (None).

    >>> names_after("id, place.City, `a.b`", ["PLACE"], "at, home")
    'id,`at, home`.City,`a.b`'
    >>> names_after("id, place.City, `a.b`", ["place", "city"], None)
    'id,`a.b`'
    """
    paths = (path if renamed is None else path_after(path, column, renamed) for path in names_in(text))
    left = (path for path in paths if renamed is not None or _lower(path[: len(column)]) != _lower(column))
    return ",".join(".".join(map(_quoted, path)) for path in left)


def path_after(path: tuple[str, ...], column: Sequence[str], renamed: str) -> tuple[str, ...]:
    """Return the path of a column or field after the last name of another path changed."""
    depth = len(column)
    return (*path[: depth - 1], renamed, *path[depth:]) if _lower(path[:depth]) == _lower(column) else path


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else "`" + name.replace("`", "``") + "`"


def _lower(path: Iterable[str]) -> tuple[str, ...]:
    return tuple(name.lower() for name in path)


def _put(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Set the value of a field in nested objects, one per struct."""
    for name in path[:-1]:
        values = values.setdefault(name, {})
    values[path[-1]] = value


def _bounds(kind: pa.DataType, low: str, high: str) -> tuple[Any, Any] | None:
    """Return bounds as JSON values; None for the upper one, or for both, if none is safe."""
    if pa.types.is_signed_integer(kind):
        return int(low), int(high)
    if pa.types.is_floating(kind):
        # Parquet's rule for zeros: -0.0 as a lower bound, 0.0 as an upper one. Readers that order
        # -0.0 below 0.0 (delta-kernel) rely on it.
        # https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
        bounds = float(low) or -0.0, float(high) or 0.0
        return bounds if all(math.isfinite(b) for b in bounds) else None
    if pa.types.is_decimal(kind):
        # Most readers parse a JSON number as a double, so larger decimals get no bounds.
        return (float(low), float(high)) if kind.precision <= EXACT_DIGITS else None
    if pa.types.is_date(kind):
        return (low, high) if _plain_year(low) and _plain_year(high) else None
    if pa.types.is_timestamp(kind):
        return _milliseconds(low, high, zone="" if kind.tz is None else "Z")
    if pa.types.is_string(kind):
        # delta-spark cuts strings at the same length. A cut upper bound must still be above the
        # string.
        return low[:_STRING_PREFIX], _raised(high)
    return None


def _raised(text: str) -> str | None:
    """Return a short string that is not below ``text``.

    Returns:
        None if a part that is cut off is above the highest character.
    """
    rest = text[_STRING_PREFIX:]
    if rest > _HIGHEST:
        return None
    return text if not rest else text[:_STRING_PREFIX] + _HIGHEST


def _plain_year(text: str) -> bool:
    return len(text) == 10 and text[4] == "-" and text[:4].isdigit()


def _milliseconds(low: str, high: str, zone: str) -> tuple[str, str | None] | None:
    """Return bounds in milliseconds: the lower one rounded down, the upper one rounded up.

    The upper one is None if it falls after the year 9999.
    """
    try:
        first, last = (datetime.fromisoformat(text) for text in (low, high))
        if zone:
            first, last = (moment.astimezone(UTC).replace(tzinfo=None) for moment in (first, last))
    except (ValueError, OverflowError):  # infinity, or a year that Python's date lacks
        return None
    floor = first.isoformat(timespec="milliseconds") + zone
    try:
        raised = last + timedelta(microseconds=-last.microsecond % 1000)
    except OverflowError:
        return floor, None
    return floor, raised.isoformat(timespec="milliseconds") + zone
