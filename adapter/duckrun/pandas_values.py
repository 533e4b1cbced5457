"""Arrow tables as pandas frames, with no value changed on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import pandas as pd

_EXACT = 2**53
"""The integers up to here are exact in a float64, which pandas makes of integers with NULLs."""


def pandas_frame(table: pa.Table) -> pd.DataFrame:
    """The rows as pandas has them: integers with NULLs are float64, as everywhere there.

    Where one of them would become another number, the column is ``Int64`` instead; inside of nested values, Python's
    integers.
    """
    frame = table.to_pandas()
    for place, column in enumerate(table.columns):
        if _holds_long(column.type) and _would_change(column.combine_chunks()):
            exact = column.to_pandas(integer_object_nulls=True)
            frame.isetitem(place, exact.astype("Int64") if pa.types.is_integer(column.type) else exact)
    return frame


def _holds_long(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_holds_long(kind.field(number).type) for number in range(kind.num_fields))
    return kind in (pa.int64(), pa.uint64())


def _would_change(values: Any) -> bool:
    """True if long integers, at any depth, have a NULL among them and a number that a float64 does not hold."""
    kind = values.type
    if pa.types.is_map(kind):
        return _would_change(values.keys) or _would_change(values.items)
    if pa.types.is_struct(kind):
        return any(_would_change(part) for part in values.flatten())
    if pa.types.is_nested(kind):
        return _would_change(values.flatten())
    if kind not in (pa.int64(), pa.uint64()) or not values.null_count:
        return False
    bounds = pc.min_max(values).as_py()
    return bounds["max"] is not None and max(-bounds["min"], bounds["max"]) > _EXACT
