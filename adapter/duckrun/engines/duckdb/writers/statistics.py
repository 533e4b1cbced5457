"""DuckDB's RETURN_STATS as Delta statistics.

They are not the same thing: a Delta reader may skip a file by them, so a bound that is not a bound loses rows.
Source: Delta protocol, Per-file Statistics; Spark orders NaN above every number, DuckDB's figures leave it out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

_STRING_PREFIX = 32
_HIGHEST = "\U0010ffff"
_INTEGERS = ("tinyint", "smallint", "integer", "bigint")


def delta_stats(rows: int, columns: Mapping[str, Mapping[str, str]] | None, types: Mapping[str, Any]) -> str:
    """The ``stats`` JSON of an add action.

    ``columns`` is RETURN_STATS' column_statistics (quoted path -> figures, all strings), ``types`` the DuckDB type
    of each top-level column. Nested columns get none, nor do binary ones.
    """
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name, kind in types.items():
        figures = (columns or {}).get('"' + name.replace('"', '""') + '"')
        if figures is None:
            continue
        if "null_count" in figures:
            nulls[name] = int(figures["null_count"])
        if "min" in figures and "max" in figures and figures.get("has_nan") != "true":
            bounds = _bounds(kind, figures["min"], figures["max"])
            if bounds is not None:
                low[name], highest = bounds
                if highest is not None:
                    high[name] = highest
    return json.dumps({"numRecords": rows, "minValues": low, "maxValues": high, "nullCount": nulls}, ensure_ascii=False)


def _bounds(kind: Any, low: str, high: str) -> tuple[Any, Any] | None:
    """A lower and an upper bound as JSON values; None for an upper one, or both, where the type or the value has none that is safe."""
    if kind.id in _INTEGERS:
        return int(low), int(high)
    if kind.id in ("float", "double"):
        # Parquet's rule for zeros, which readers that order -0.0 below 0.0 (delta-kernel) rely on: -0.0 as a lower bound,
        # 0.0 as an upper one. https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
        bounds = float(low) or -0.0, float(high) or 0.0
        return bounds if all(math.isfinite(b) for b in bounds) else None
    if kind.id == "decimal":
        # A JSON number is a double in most readers: exact up to 15 digits, no bound beyond.
        return (float(low), float(high)) if int(dict(kind.children)["precision"]) <= 15 else None
    if kind.id == "date":
        return (low, high) if _plain_year(low) and _plain_year(high) else None
    if kind.id == "timestamp":
        return _milliseconds(low, high, zone="")
    if kind.id == "timestamp with time zone":
        return _milliseconds(low, high, zone="Z")
    if kind.id == "varchar":
        return low[:_STRING_PREFIX], _raised(high)
    return None


def _raised(text: str) -> str | None:
    """A short text that is not below another; None where what is cut off is above the highest character."""
    rest = text[_STRING_PREFIX:]
    if rest > _HIGHEST:
        return None
    return text if not rest else text[:_STRING_PREFIX] + _HIGHEST


def _plain_year(text: str) -> bool:
    return len(text) == 10 and text[4] == "-" and text[:4].isdigit()


def _milliseconds(low: str, high: str, zone: str) -> tuple[str, str | None] | None:
    """Statistics hold milliseconds: the lower bound is floored, the upper one raised; None for one after the year 9999."""
    try:
        first, last = (datetime.fromisoformat(text) for text in (low, high))
        if zone:
            first, last = (moment.astimezone(UTC).replace(tzinfo=None) for moment in (first, last))
    except (ValueError, OverflowError):  # infinity, or a year that Python has no date for
        return None
    floor = first.isoformat(timespec="milliseconds") + zone
    try:
        raised = last + timedelta(microseconds=-last.microsecond % 1000)
    except OverflowError:
        return floor, None
    return floor, raised.isoformat(timespec="milliseconds") + zone
