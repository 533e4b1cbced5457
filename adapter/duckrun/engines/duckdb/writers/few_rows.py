"""Parquet files of few rows in memory, written by Arrow without DuckDB and polars.

DuckDB's COPY of ten rows takes 4 ms, Arrow 0.3 ms, and an import of polars 50 ms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from duckrun.libraries import np, on_demand, pa
from duckrun.sql.typed import arrow_type, plain_type
from duckrun.values.layout import Codec

# pyarrow.parquet wraps this module, and imports pyarrow.fs and ssl, which take 9 of its 11 ms.
_parquet = on_demand("pyarrow._parquet")


class LeftToDuckDB(Exception):
    """DuckDB must write these values, or raise the error about them."""


def table_of(rows: pa.Table, types: Mapping[str, str], required: Sequence[str]) -> pa.Table:
    """Return rows whose columns Arrow writes as these DuckDB types.

    Args:
        rows: Rows of plain types.
        types: DuckDB type of each column.
        required: Columns without NULL.

    Raises:
        LeftToDuckDB: DuckDB must cast a value, or raise the error about one.
    """
    columns = [_stored(rows.column(name), types[name]) for name in rows.column_names]
    table = pa.Table.from_arrays(columns, rows.column_names)
    if any(map(pa.types.is_floating, table.schema.types)):
        table = _copy(table)  # another thread may change numbers between their check and the write
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name in required and column.null_count:
            raise LeftToDuckDB(f"NULL in column {name}")
        # Bounds in a Parquet file leave NaN out, and DuckDB and Spark order it last.
        if pa.types.is_floating(column.type) and np.isnan(column.to_numpy()).sum() > column.null_count:
            raise LeftToDuckDB(f"NaN in column {name}")
    return table


def _stored(column: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
    """Return a column that Arrow writes as a DuckDB type."""
    of = pa.types
    is_indirect = of.is_dictionary(column.type) or of.is_string_view(column.type) or of.is_binary_view(column.type)
    if plain_type(column.type) == kind and not is_indirect:
        return column
    try:
        return column.cast(arrow_type(kind))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise LeftToDuckDB(str(error)) from error


def _copy(table: pa.Table) -> pa.Table:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def places_of(table: pa.Table, by: Sequence[str]) -> dict[tuple[Any, ...], list[int]]:
    """Return the row numbers of each combination of values of some columns.

    Raises:
        LeftToDuckDB: Python lacks a value.
    """
    places: dict[tuple[Any, ...], list[int]] = {}
    try:
        keys = [table.column(name).to_pylist() for name in by]
    except (OverflowError, ValueError) as error:
        raise LeftToDuckDB(str(error)) from error
    for place, key in enumerate(zip(*keys, strict=True)):
        places.setdefault(key, []).append(place)
    return places


def write_table(table: pa.Table, file: Path, codec: Codec) -> Any:
    """Write a table to a new file, and return its footer.

    Raises:
        LeftToDuckDB: The footer lacks bounds, as of texts beyond 4 kB.
        OSError: The file cannot be written.
    """
    # Spark looks for 0.0 in a dictionary by its bits, and so misses -0.0.
    in_dictionaries = [field.name for field in table.schema if not pa.types.is_floating(field.type)]
    # Versions as in pyarrow.parquet. Without Arrow's schema, readers take the types of Parquet.
    options = {
        "version": "2.6",
        "writer_engine_version": "V2",
        "store_schema": False,
        "use_dictionary": in_dictionaries,
    }
    try:
        writer = _parquet.ParquetWriter(str(file), table.schema, compression=codec, **options)
    except (ImportError, AttributeError, TypeError) as error:  # another pyarrow, as the module is private
        raise LeftToDuckDB(str(error)) from error
    writer.write_table(table)
    writer.close()
    footer = writer.metadata
    for place in range(footer.num_columns):
        statistics = footer.row_group(0).column(place).statistics
        if statistics.num_values and not statistics.has_min_max:
            raise LeftToDuckDB(f"column {table.column_names[place]} has no bounds")
    return footer
