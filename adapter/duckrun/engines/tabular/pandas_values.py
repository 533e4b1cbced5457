"""Conversion between Arrow tables and pandas frames that changes no value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from duckrun.engines.tabular.python_values import conversion_errors, inconvertible, refuse_changed
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

    If a value would change, the column is ``Int64`` or ``UInt64`` instead, or Python integers
    inside nested values.
    """
    frame = table.to_pandas()
    for place, column in enumerate(table.columns):
        if holds(column.type, _is_long) and _would_change(column.combine_chunks()):
            exact = column.to_pandas(integer_object_nulls=True)
            kind = {pa.int64(): "Int64", pa.uint64(): "UInt64"}.get(column.type)
            frame.isetitem(place, exact if kind is None else exact.astype(kind))
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


def arrow_of_pandas(frame: pd.DataFrame) -> pa.Table:
    """Return a pandas frame as Arrow, with the contents that its to_parquet() writes.

    An index becomes a column unless it only counts the rows. An index without a name is
    ``__index_level_0__``.

    Raises:
        SchemaMismatch: The column labels have several levels, or a column has values of several
            types.
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
    except conversion_errors() as error:
        raise _inconvertible(frame, error) from error
    refuse_twins(table.schema.names)
    _refuse_changed(frame, table.schema)
    return table.replace_schema_metadata(None)


def _inconvertible(frame: pd.DataFrame, error: Exception) -> SchemaMismatch:
    """Error that names the first column without a single Arrow type, and the conflicting values."""
    for name, values in _columns(frame):
        try:
            pa.array(values, from_pandas=True)
        except conversion_errors() as cause:
            return inconvertible(values.tolist(), _column(name), cause)
    return SchemaMismatch(f"the pandas DataFrame has a column with no one type: {error}")


def _refuse_changed(frame: pd.DataFrame, schema: pa.Schema) -> None:
    """Refuse Python's dates and times that pyarrow has changed, in a column or in a category."""
    types = {each.name: each.type.value_type if pa.types.is_dictionary(each.type) else each.type for each in schema}
    types = {name: kind for name, kind in types.items() if holds(kind, pa.types.is_temporal)}
    for name, values in _columns(frame) if types else ():
        dtype = getattr(getattr(values.dtype, "categories", values), "dtype", None)
        if name in types and dtype == "object":
            refuse_changed(values.astype(object).tolist(), types[name], _column(name))


def _columns(frame: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    for name in frame.columns:
        yield str(name), frame[name]
    for level, label in enumerate(frame.index.names):
        yield str(label or f"__index_level_{level}__"), frame.index.get_level_values(level).to_series()


def _column(name: str) -> str:
    return f"column {name!r} of the pandas DataFrame"
