"""Arrow data under a name of a DuckDB cursor, with the query results of a DuckDB table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import duckdb

from duckrun.engines.tabular.values import exactly
from duckrun.errors import SchemaMismatch
from duckrun.libraries import np, pa
from duckrun.sql.quoting import quote_identifier
from duckrun.sql.raising import marked
from duckrun.values.columns import fields_in, holds, refuse_unstorable, with_scalars


def readable(rows: Any) -> Any:
    """Return a table, dataset or stream whose values DuckDB reads unchanged.

    Raises:
        SchemaMismatch: DuckDB cannot read a type, a string is not UTF-8, or an instant has a part
            of a microsecond. A stream raises while it is read.
    """
    refuse_unstorable(rows.schema)
    for field in rows.schema:
        if any(_is_unreadable(each.type) for each in fields_in(field)):
            raise _cannot_read(field)
    return _with_nested_structs_whole(in_microseconds(_valid(rows)))


def register(cursor: duckdb.DuckDBPyConnection, name: str, rows: Any) -> tuple[str, bool]:
    """Name readable() Arrow data on a cursor.

    Returns:
        SELECT of its rows, and True for a stream, which can be read once.

    Raises:
        SchemaMismatch: DuckDB cannot read a type.
    """
    stream = isinstance(rows, pa.RecordBatchReader)
    try:
        # A stream gets no filters pushed down, and goes through Arrow's C interface. DuckDB would
        # wrap a RecordBatchReader in a pyarrow Scanner, which reads ahead without bound, and may
        # hold all rows. Measured: it had read all of 200 batches when the first row came.
        cursor.register(name, rows.__arrow_c_stream__() if stream else rows)
    except duckdb.NotImplementedException as error:
        raise _unreadable(cursor, rows.schema) from error
    # Keep a query's filters away from Arrow. DuckDB 1.5.5 would push them down, but Arrow drops NaN
    # from ``x > 1``, and fails for types that it cannot compare: string views, run-end encoding
    # (which ends the instance), JSON, UUID. DuckDB's own filters are faster, too. DuckDB does push
    # filters through a plain column, but not through a field of a one-field struct, which copies
    # nothing and works for every type. https://github.com/duckdb/duckdb-python/issues/227
    columns = [quote_identifier(column) for column in rows.schema.names]
    chosen = "*" if stream else ", ".join(f"struct_pack(it := {column}).it AS {column}" for column in columns)
    return f"SELECT {chosen} FROM {quote_identifier(name)}", stream


def _valid(rows: Any) -> Any:
    """Refuse strings that are not UTF-8, and intervals with nanoseconds, in a table or a stream."""
    # Neither Arrow nor DuckDB looks at them, and DuckDB cannot read the files that it writes of
    # them. polars' strings, which come as views, are valid.
    places = [place for place, field in enumerate(rows.schema) if holds(field.type, _is_text)]
    intervals = [place for place, field in enumerate(rows.schema) if pa.types.is_interval(field.type)]

    def valid(part: Any) -> Any:
        for place in places:
            _refuse_invalid(part.schema.names[place], part.column(place))
        for place in intervals:
            _refuse_nanoseconds(part.schema.names[place], part.column(place))
        return part

    if isinstance(rows, pa.RecordBatchReader) and (places or intervals):
        return _stream(rows, rows.schema, valid)
    return valid(rows) if isinstance(rows, pa.Table) else rows


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _stream(
    rows: pa.RecordBatchReader, schema: pa.Schema, change: Callable[[pa.RecordBatch], pa.RecordBatch]
) -> pa.RecordBatchReader:
    """Return a stream whose batches are changed; their SchemaMismatch passes through it."""

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            try:
                changed = change(batch)
            except SchemaMismatch as error:
                raise pa.ArrowInvalid(marked(error)) from error
            yield changed

    return pa.RecordBatchReader.from_batches(schema, batches())


def _refuse_invalid(name: str, column: pa.Array | pa.ChunkedArray) -> None:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise SchemaMismatch(
            f"column {name!r} holds no valid Arrow data: {error}. Strings are UTF-8; give other bytes as binary"
        ) from error


def _refuse_nanoseconds(name: str, column: pa.Array | pa.ChunkedArray) -> None:
    # Arrow has no cast of such an interval. It is 16 bytes: months, days, nanoseconds.
    for array in getattr(column, "chunks", [column]):
        halves = np.frombuffer(array.buffers()[1] or b"", "<i8")
        parts = halves[2 * array.offset + 1 : 2 * (array.offset + len(array)) : 2] % 1000
        if (parts * array.is_valid().to_numpy(zero_copy_only=False)).any():
            raise SchemaMismatch(f"column {name!r} has an interval with nanoseconds; round it to microseconds")


def in_microseconds(rows: Any) -> Any:
    """Cast instants and durations of nanoseconds to microseconds.

    DuckDB would truncate them silently.

    Raises SchemaMismatch for a value that is not whole microseconds; a stream raises while it is
    read.
    """
    kinds = [with_scalars(field.type, _of_microseconds) for field in rows.schema]
    if kinds == rows.schema.types:
        return rows
    schema = pa.schema([field.with_type(kind) for field, kind in zip(rows.schema, kinds, strict=True)])
    if isinstance(rows, pa.Table):
        return exactly(rows, schema)
    stream = rows if isinstance(rows, pa.RecordBatchReader) else rows.scanner().to_reader()
    return _stream(stream, schema, partial(exactly, schema=schema))


def _of_microseconds(kind: pa.DataType) -> pa.DataType:
    if kind == pa.duration("ns"):
        return pa.duration("us")
    is_instant = pa.types.is_timestamp(kind) and kind.unit == "ns" and kind.tz is not None
    return pa.timestamp("us", kind.tz) if is_instant else kind


def _with_nested_structs_whole(rows: Any) -> Any:
    """Copy nested structs that begin in the middle of an Arrow array, as in a slice.

    Nested means inside a list, a map or another struct.
    """
    # DuckDB 1.5.5 reads such a struct from the array's start: other rows' values, and no error.
    if not any(_may_begin_within(field.type) for field in rows.schema):
        return rows
    if isinstance(rows, pa.Table):
        return pa.Table.from_batches([_whole(batch) for batch in rows.to_batches()], rows.schema)
    stream = rows if isinstance(rows, pa.RecordBatchReader) else rows.scanner().to_reader()
    return pa.RecordBatchReader.from_batches(stream.schema, map(_whole, stream))


def _may_begin_within(kind: pa.DataType) -> bool:
    return pa.types.is_nested(kind) and any(
        holds(kind.field(i).type, pa.types.is_struct) for i in range(kind.num_fields)
    )


def _whole(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Copy the columns of a batch that have such structs."""
    every = pa.array(range(batch.num_rows), pa.int64())
    columns = [column.take(every) if _begins_within(column) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _begins_within(array: pa.Array, *, inside: bool = False) -> bool:
    if not pa.types.is_nested(array.type) or not (inside or _may_begin_within(array.type)):
        return False
    if pa.types.is_struct(array.type):
        if inside and array.offset:
            return True
        return any(_begins_within(array.field(i), inside=True) for i in range(array.type.num_fields))
    values = getattr(array, "values", None)
    return isinstance(values, pa.Array) and _begins_within(values, inside=True)


def _unreadable(cursor: duckdb.DuckDBPyConnection, schema: pa.Schema) -> SchemaMismatch:
    """Error that names the column whose Arrow type DuckDB lacks."""
    for field in schema:
        try:
            cursor.from_arrow(pa.schema([field]).empty_table())
        except duckdb.NotImplementedException:
            return _cannot_read(field)
    return SchemaMismatch(f"DuckDB cannot read the types of these columns: {', '.join(map(str, schema.types))}")


def _cannot_read(field: pa.Field) -> SchemaMismatch:
    return SchemaMismatch(
        f"column {field.name!r} has the type {field.type}, which DuckDB cannot read; cast or decode it, for instance "
        "to a float, a decimal of 38 digits or a string"
    )


def _is_unreadable(kind: pa.DataType) -> bool:
    """True for types that DuckDB 1.5.5 lacks, reads as other values, or that end its instance."""
    of = pa.types
    if of.is_dictionary(kind):  # keys of an inner dictionary become its values, and NULL its first
        values = kind.value_type
        return of.is_struct(values) or of.is_fixed_size_list(values) or _has_dictionary(values)
    if of.is_run_end_encoded(kind):
        return of.is_nested(kind.value_type) or of.is_dictionary(kind.value_type)
    return (of.is_union(kind) and kind.mode == "dense") or (of.is_decimal(kind) and kind.scale < 0)


def _has_dictionary(kind: pa.DataType) -> bool:
    return any(pa.types.is_dictionary(each.type) for each in fields_in(pa.field("", kind)))
