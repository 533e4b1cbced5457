"""Conversion between Arrow tables and pandas frames that changes no value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from duckrun.errors import SchemaMismatch
from duckrun.libraries import pa, pc
from duckrun.values.columns import holds, refuse_twins

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

_EXACT = 2**53
"""Largest integer up to which float64 is exact. pandas makes float64 of integers with NULLs."""


def pandas_frame(table: pa.Table) -> pd.DataFrame:
    """Return the rows as a pandas frame; integers with NULLs become float64, as usual in pandas.

    If a value would change, the column is ``Int64`` instead, or Python integers inside nested
    values.
    """
    frame = table.to_pandas()
    for place, column in enumerate(table.columns):
        if holds(column.type, _is_long) and _would_change(column.combine_chunks()):
            exact = column.to_pandas(integer_object_nulls=True)
            frame.isetitem(place, exact.astype("Int64") if pa.types.is_integer(column.type) else exact)
    return frame


def _is_long(kind: pa.DataType) -> bool:
    return kind in (pa.int64(), pa.uint64())


def _would_change(values: Any) -> bool:
    """True if 64-bit integers, at any depth, have a NULL and a value that float64 cannot hold."""
    kind = values.type
    if pa.types.is_map(kind):
        return _would_change(values.keys) or _would_change(values.items)
    if pa.types.is_struct(kind):
        return any(_would_change(part) for part in values.flatten())
    if pa.types.is_nested(kind):
        return _would_change(values.flatten())
    if not _is_long(kind) or not values.null_count:
        return False
    bounds = pc.min_max(values).as_py()
    return bounds["max"] is not None and max(-bounds["min"], bounds["max"]) > _EXACT


def _conversion_errors() -> tuple[type[Exception], ...]:
    """Return the errors of a column without a single Arrow type."""
    return pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, OverflowError


def arrow_of_pandas(frame: pd.DataFrame) -> pa.Table:
    """Return a pandas frame as Arrow, with the contents that its to_parquet() writes.

    An index becomes a column unless it only counts the rows. An index without a name is
    ``__index_level_0__``.

    Raises:
        SchemaMismatch: The column labels have several levels, a column has values of several types,
            or its type exists in pandas only.
    """
    import pandas

    if isinstance(frame.columns, pandas.MultiIndex):
        raise SchemaMismatch(
            f"the columns of the pandas DataFrame have labels of {frame.columns.nlevels} levels, such as "
            f"{frame.columns[0]!r}: give each one name, for instance by df.columns = ['_'.join(map(str, c)) for c "
            "in df.columns]"
        )
    refuse_twins(map(str, frame.columns))
    counting = isinstance(frame.index, pandas.RangeIndex) and frame.index.name is None
    try:
        table = pa.Table.from_pandas(frame, preserve_index=not counting)
    except _conversion_errors() as error:
        raise _inconvertible(frame, error) from error
    refuse_twins(table.schema.names)
    for field in table.schema:
        if isinstance(field.type, pa.BaseExtensionType) and field.type.extension_name.startswith("pandas."):
            kind = field.type.extension_name.removeprefix("pandas.")
            remedy = ".dt.to_timestamp() or .astype(str)" if kind == "period" else ".astype(str)"
            raise SchemaMismatch(
                f"column {field.name!r} has the type {kind} of pandas, which Delta cannot store; convert it, for "
                f"instance by {remedy}"
            )
    return table.replace_schema_metadata(None)


def _inconvertible(frame: pd.DataFrame, error: Exception) -> SchemaMismatch:
    """Error that names the first column without a single Arrow type, and the conflicting values."""
    for name, values in _columns(frame):
        try:
            pa.array(values, from_pandas=True)
        except _conversion_errors() as cause:
            return SchemaMismatch(
                f"column {name!r} of the pandas DataFrame {_told(values) or f'cannot be stored: {cause}'}"
            )
    return SchemaMismatch(f"the pandas DataFrame has a column with no one type: {error}")


def _columns(frame: pd.DataFrame) -> Iterator[tuple[str, Any]]:
    for name in frame.columns:
        yield str(name), frame[name]
    for level, label in enumerate(frame.index.names):
        yield str(label or f"__index_level_{level}__"), frame.index.get_level_values(level).to_series()


def _told(values: Any) -> str | None:
    """Describe two values whose types conflict, with the first row of each; None if none do."""
    kinds: dict[type, tuple[int, Any]] = {}
    for row, (value, missing) in enumerate(zip(values, values.isna(), strict=True)):
        if missing or type(value) in kinds:
            continue
        for other, (place, one) in kinds.items():
            try:
                pa.array([one, value])
            except _conversion_errors():
                return (
                    f"holds {other.__name__} (first in row {place}) and {type(value).__name__} (first in row "
                    f"{row}), and a column has one type: convert it, for instance by .astype(str)"
                )
        kinds[type(value)] = (row, value)
    return None
