"""Arrow data under a name of a DuckDB cursor, such that a query finds in it what it would find in a table of DuckDB."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from duckrun.errors import SchemaMismatch
from duckrun.sql.names import quote_identifier
from duckrun.values.columns import holds


def register(cursor: duckdb.DuckDBPyConnection, name: str, rows: Any) -> tuple[str, bool]:
    """Make a table, a dataset or a stream of Arrow data known by a name: the SELECT of its rows, and whether they are a stream, of
    which it gives them once.

    It keeps a query's filters from Arrow. DuckDB 1.5.5 would hand them over, and Arrow leaves NaN out of ``x > 1``, and fails for types
    that it does not compare: views of strings, run ends (which end the instance), JSON, UUID. DuckDB's own are faster, too.

    A stream, which DuckDB hands no filter, goes by Arrow's C interface: DuckDB would wrap a RecordBatchReader in a pyarrow
    Scanner, which reads ahead of the query without a bound (measured: all of 200 batches when the first row comes), so that
    it may hold all of them.

    Raises SchemaMismatch for a type that DuckDB cannot read.
    """
    return _registered(cursor, name, with_nested_structs_whole(rows))


def register_view(cursor: duckdb.DuckDBPyConnection, name: str, rows: pa.Table) -> None:
    """Make a table whose nested structs are whole known by a name that any query may read as it is."""
    select, _ = _registered(cursor, f"__duckrun_arrow_{name}", rows)
    cursor.execute(f"CREATE OR REPLACE TEMP VIEW {quote_identifier(name)} AS {select}")


def _registered(cursor: duckdb.DuckDBPyConnection, name: str, rows: Any) -> tuple[str, bool]:
    stream = isinstance(rows, pa.RecordBatchReader)
    try:
        cursor.register(name, rows.__arrow_c_stream__() if stream else rows)
    except duckdb.NotImplementedException as error:
        raise _unreadable(cursor, rows.schema) from error
    # A column by itself would be seen through; a field of a struct of one is not, copies nothing and has each type.
    columns = [quote_identifier(column) for column in rows.schema.names]
    chosen = "*" if stream else ", ".join(f"struct_pack(it := {column}).it AS {column}" for column in columns)
    return f"SELECT {chosen} FROM {quote_identifier(name)}", stream


def with_nested_structs_whole(rows: Any) -> Any:
    """The same rows, in which no struct inside of a list, a map or another struct begins in the middle of an Arrow array, as it
    does in a slice.

    DuckDB 1.5.5 reads such a struct from the array's beginning: other rows' values, and no error.
    """
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
    """A batch whose columns with such structs are copied."""
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
    """The error about an Arrow type that DuckDB does not have, which names the column."""
    for field in schema:
        try:
            cursor.from_arrow(pa.schema([field]).empty_table())
        except duckdb.NotImplementedException:
            return SchemaMismatch(
                f"column {field.name!r} has the type {field.type}, which DuckDB cannot read; cast it, for instance to "
                "a float, a decimal of 38 digits or a string"
            )
    return SchemaMismatch(f"DuckDB cannot read the types of these columns: {', '.join(map(str, schema.types))}")
