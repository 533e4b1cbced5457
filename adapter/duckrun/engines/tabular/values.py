"""Tabular Python values as Arrow tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb

from duckrun.engines.frame import LazyRows
from duckrun.engines.tabular.pandas_values import arrow_of_pandas
from duckrun.errors import InvalidConfig, SchemaMismatch
from duckrun.libraries import pa

if TYPE_CHECKING:
    import polars as pl


def is_dataset(value: Any) -> bool:
    """True for a pyarrow Dataset, without importing its module."""
    return type(value).__module__ == "pyarrow._dataset" and hasattr(value, "to_table")


def is_of_spark(value: Any) -> bool:
    """True for rows that Spark holds and writes itself.

    These are a PySpark DataFrame (classic or Connect) and a Frame of that engine.
    """
    if isinstance(value, LazyRows):
        return value.engine == "spark"
    return type(value).__module__.startswith("pyspark.sql") and type(value).__name__ == "DataFrame"


def is_pattern(name: str) -> bool:
    """True for a column's name that polars takes for a pattern of names: ``*``, or ``^…$``."""
    return name == "*" or (name.startswith("^") and name.endswith("$"))


def exactly(rows: pa.Table | pa.RecordBatch, schema: pa.Schema) -> pa.Table | pa.RecordBatch:
    """Return rows cast to the types of a schema with the same columns.

    Raises:
        SchemaMismatch: A cast would change a value. The error names the column.
    """
    columns = []
    for field, column in zip(schema, rows.columns, strict=True):
        try:
            columns.append(column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaMismatch(f"column {field.name!r} has a value that Delta cannot store: {error}") from error
    return type(rows).from_arrays(columns, schema=schema)


def bytes_of(table: pa.Table) -> int:
    """Return the size of a table's rows; that of whole buffers if it has views in pyarrow 20."""
    try:
        return int(table.nbytes)
    except pa.ArrowTypeError:
        return int(table.get_total_buffer_size())


def stream_of(value: Any) -> pa.RecordBatchReader | None:
    """Return the rows of a value with Arrow's interface for streams; None for any other value."""
    if not hasattr(value, "__arrow_c_stream__"):
        return None
    try:
        return pa.RecordBatchReader.from_stream(value)
    except pa.ArrowInvalid:  # values of a single column, as of a Series
        return None


def table_of_polars(frame: pl.DataFrame, *, with_views: bool = False) -> pa.Table:
    """Return a polars frame as an Arrow table, whose strings may be views.

    Raises:
        SchemaMismatch: A column has no Arrow type.
    """
    import polars

    level = polars.CompatLevel.newest() if with_views else polars.CompatLevel.oldest()
    try:
        # to_arrow() gives Objects as their addresses in memory.
        if polars.Object not in frame.dtypes:
            return frame.to_arrow(compat_level=level)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _without_arrow_type(frame) from error
    raise _without_arrow_type(frame)


def _without_arrow_type(frame: pl.DataFrame) -> SchemaMismatch:
    """Error that names the first column without an Arrow type."""
    name, kind = next(each for each in frame.schema.items() if not _has_arrow_type(frame.get_column(each[0])))
    return SchemaMismatch(
        f"column {name!r} has the type {kind} of polars, which Delta cannot store; cast it, for instance to pl.String"
    )


def _has_arrow_type(column: pl.Series) -> bool:
    import polars

    try:
        return column.dtype != polars.Object and column.clear().to_arrow() is not None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False


def arrow_table(value: Any) -> pa.Table:
    """Return a tabular value of this process as an Arrow table.

    Raises:
        InvalidConfig: The value is not tabular.
        SchemaMismatch: A pandas column has no Arrow type.
    """
    module = type(value).__module__.partition(".")[0]
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if module == "pandas" and type(value).__name__ != "Series":
        return arrow_of_pandas(value)
    if isinstance(value, duckdb.DuckDBPyRelation):
        return value.to_arrow_table()
    if is_dataset(value):
        return value.to_table()
    if module == "polars" and hasattr(value, "collect"):
        value = value.collect()
    if module == "polars" and hasattr(value, "to_arrow") and hasattr(value, "columns"):
        # Without string_view: DuckDB pushes a query's filters down to pyarrow, which cannot filter
        # that type.
        return table_of_polars(value)
    if (stream := stream_of(value)) is not None:
        return stream.read_all()
    raise InvalidConfig(
        f"A {type(value).__module__}.{type(value).__qualname__} cannot be written as a table; give a pyarrow Table, "
        "RecordBatchReader or Dataset, a pandas or polars frame, a DuckDB relation, a PySpark DataFrame, a Frame "
        "or duckrun.SQL."
    )
