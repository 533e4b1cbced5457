"""Rows compared as the design defines "same rows": as multisets, NaN equal to NaN."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa

from duckrun.engines.frame import LazyRows


def rows_of(value: LazyRows | pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    """The rows as sorted tuples; NaN becomes a string, so that it equals itself."""
    table = value.toArrow() if isinstance(value, LazyRows) else value
    table = table.select(list(columns)) if columns else table
    return sorted((tuple(_plain(v) for v in row.values()) for row in table.to_pylist()), key=repr)


def _plain(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value
