"""Sources of a write by DuckDB: any tabular value as a SELECT on a cursor."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field as field_of, replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from duckrun.engines.duckdb.instance.arrow import in_microseconds, readable, register
from duckrun.engines.duckdb.instance.lazy_cursor import before_use
from duckrun.engines.duckdb.rows.types import plain_types, untyped
from duckrun.engines.frame import LazyRows, without_arrow_form
from duckrun.engines.tabular.values import arrow_table, bytes_of, is_dataset, stream_of, table_of_polars
from duckrun.errors import InvalidConfig, SchemaMismatch
from duckrun.libraries import pa
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.sql.typed import arrow_type, in_arrow
from duckrun.values.checked import spec
from duckrun.values.columns import fields_with, holds, is_extended, refuse_twins, with_scalars
from duckrun.values.computed import NumberedBy
from duckrun.values.frozen import frozen
from duckrun.values.layout import ROW_GROUP
from duckrun.values.rows import Dialect

_SMALL = 1024**2
"""Maximum size of an Arrow table that is copied into DuckDB, in bytes."""


@spec
class SQL:
    """SQL as a value: the engine runs it and writes the result; nothing passes through Python.

    Example::

        cheap = SQL("select * from sales.orders where price < 3")
        s.execute("sales.cheap", WriteSpec("overwrite"), cheap)
    """

    text: str
    dialect: Dialect | None = None


@frozen
class SqlOnCursor:
    """A SELECT over names that only one DuckDB cursor sees (temporary views, variables)."""

    cursor: duckdb.DuckDBPyConnection
    text: str


@frozen
class InMemory:
    """An Arrow table in memory whose columns are the rows of a SELECT."""

    table: pa.Table
    columns: Mapping[str, str]
    """Column of the SELECT -> column of the table, in the order of the SELECT."""
    sql: str
    """The SELECT. Rows with another one are other rows."""
    casts: Mapping[str, str] = field_of(default_factory=dict)
    """DuckDB type of each column that the SELECT casts. The cast changes no value that it takes."""
    required: tuple[str, ...] = ()
    """Columns that the SELECT checks for NULL."""


@dataclass
class Rows:
    """Rows to write, as a SELECT on a cursor."""

    cursor: duckdb.DuckDBPyConnection
    sql: str
    types: dict[str, Any]
    one_shot: bool = False
    """True if the rows can be read only once."""
    order: tuple[str, ...] = ()
    """Columns that files are sorted by."""
    carried: tuple[str, ...] = ()
    """Quoted columns that identify the old row of each row. They are passed along and not written.
    """
    numbered: Mapping[str, NumberedBy] = field_of(default_factory=dict)
    """Identity columns that number these rows."""
    in_memory: InMemory | None = None
    """A table in memory whose SELECT these rows had; see ``memory``."""

    @property
    def memory(self) -> InMemory | None:
        """The rows in memory; None if they are another SELECT by now."""
        return self.in_memory if self.in_memory is not None and self.in_memory.sql == self.sql else None

    def ordered(self, first: Sequence[str] = ()) -> str:
        """The SELECT, sorted by the columns ``first`` and then by ``order``."""
        columns = [*first, *(column for column in self.order if column not in first)]
        return f"SELECT * FROM ({self.sql}){order_by(columns)}" if columns else self.sql

    def relation(self) -> duckdb.DuckDBPyRelation:
        """The sorted SELECT as a DuckDB relation."""
        return self.cursor.sql(self.ordered())


@contextmanager
def rows_of(value: Any, cursor: duckdb.DuckDBPyConnection, scratch: str) -> Iterator[Rows]:
    """Yield any tabular value as Rows; then remove its names on the cursor and its files.

    Raises:
        InvalidConfig: The value is not tabular.
        SchemaMismatch: The value has no Arrow type.
    """
    if isinstance(value, LazyRows) and not value.is_held and hasattr(value.source, "as_rows"):
        yield value.source.as_rows()
        return
    if isinstance(value, LazyRows) and hasattr(value.source, "as_source"):
        value = value.source.as_source()
    if isinstance(value, SqlOnCursor):
        yield select(value.cursor, value.text)
        return
    name = f"__duckrun_source_{uuid.uuid4().hex}"
    file = Path(scratch, f"{name}.parquet")
    try:
        yield _rows_of(value, cursor, name, file)
    finally:
        file.unlink(missing_ok=True)


def select(cursor: duckdb.DuckDBPyConnection, sql: str, one_shot: bool = False) -> Rows:
    """Rows of a query.

    Raises:
        SchemaMismatch: The statement returns no rows, or two columns of one name.
    """
    return rows_of_relation(cursor, sql, cursor.sql(sql), one_shot)


def rows_of_relation(
    cursor: duckdb.DuckDBPyConnection, sql: str, relation: duckdb.DuckDBPyRelation | None, one_shot: bool = False
) -> Rows:
    """Rows of a query that is bound already.

    Raises:
        SchemaMismatch: As for select().
    """
    if relation is None:
        raise SchemaMismatch("the statement returns no rows and no columns")
    refuse_twins(relation.columns)
    return Rows(cursor, sql, dict(zip(relation.columns, relation.types, strict=True)), one_shot)


def _rows_of(value: Any, cursor: duckdb.DuckDBPyConnection, name: str, file: Path) -> Rows:
    if isinstance(value, LazyRows):
        value = value.reader()
    if isinstance(value, duckdb.DuckDBPyRelation):
        # It lives on another cursor or instance, whose temporary objects this cursor does not see,
        # so its rows are streamed.
        refuse_without_arrow_form(value)
        unknown = _without_type(value)  # before the stream begins, which a query on its cursor would end
        rows = _of_arrow(cursor, name, value.to_arrow_reader(batch_size=100_000))
        rows.types.update(unknown)
        return rows
    if isinstance(value, pa.Table | pa.RecordBatchReader) or is_dataset(value):
        return _of_arrow(cursor, name, value)
    module = type(value).__module__.partition(".")[0]
    if isinstance(value, pa.RecordBatch) or (module == "pandas" and type(value).__name__ != "Series"):
        return _of_arrow(cursor, name, arrow_table(value))
    if module == "polars":
        return _polars(value, cursor, name, file)
    if (stream := stream_of(value)) is not None:
        return _of_arrow(cursor, name, stream)
    raise InvalidConfig(
        f"A {type(value).__module__}.{type(value).__qualname__} cannot be written as a table on the duckdb engine; "
        "give a pyarrow Table, RecordBatchReader or Dataset, a pandas or polars frame, a DuckDB relation, a Frame "
        "or duckrun.SQL."
    )


def refuse_without_arrow_form(relation: duckdb.DuckDBPyRelation) -> None:
    """Raise UnsupportedFeature for a column that has no Arrow type."""
    for column, kind in zip(relation.columns, relation.types, strict=True):
        if "VARIANT" in str(kind):
            raise without_arrow_form(column, str(kind))


def _of_arrow(cursor: duckdb.DuckDBPyConnection, name: str, data: Any) -> Rows:
    """Rows of an Arrow table, stream or dataset. DuckDB reads a dataset's files again as needed."""
    if not data.schema.names:
        raise SchemaMismatch("the rows have no columns; a table has at least one")
    refuse_twins(data.schema.names)  # DuckDB would rename the second to X_1
    data = readable(data)
    if not isinstance(data, pa.Table):
        rows = select(cursor, *register(cursor, name, data))
    else:
        before_use(cursor, partial(_name, name=name, data=data))
        # DuckDB knows extension types that pyarrow does not, so the columns may have other values.
        is_plain = not any(map(is_extended, data.schema))
        sql, types = f"SELECT * FROM {quote_identifier(name)}", plain_types(data.schema) if is_plain else None
        rows = select(cursor, sql) if types is None else Rows(cursor, sql, types)
        if is_plain:
            rows.in_memory = InMemory(data, {name: name for name in data.schema.names}, sql)
    for field in data.schema:
        rows.types[field.name] = untyped(rows.types[field.name], field.type)
    return rows


def _name(cursor: duckdb.DuckDBPyConnection, name: str, data: pa.Table) -> None:
    """Name readable() rows on a cursor: a copy of a small table, and a view of a large one."""
    # DuckDB would import pyarrow.dataset to scan a table, which takes longer than the copy.
    is_copied = bytes_of(data) <= _SMALL and not any(holds(kind, pa.types.is_null) for kind in data.schema.types)
    rows, _ = register(cursor, f"{name}_arrow", data.to_reader() if is_copied else data)
    cursor.execute(f"CREATE TEMP {'TABLE' if is_copied else 'VIEW'} {quote_identifier(name)} AS {rows}")


def without_type(rows: Rows) -> dict[str, Any]:
    """Columns of a query that contain untyped NULL, which DuckDB shows as INTEGER.

    Nothing is computed.
    """
    return {} if rows.one_shot else _without_type(rows.relation())


def _without_type(relation: duckdb.DuckDBPyRelation) -> dict[str, Any]:
    one = "SELECT typeof(COLUMNS(*)) FROM (SELECT 1) LEFT JOIN (SELECT * FROM __duckrun_given LIMIT 0) ON true"
    row = relation.query("__duckrun_given", one).fetchone()
    assert row is not None, "a left join has a row"
    kinds = dict(zip(relation.columns, row[1:], strict=True))
    return {name: duckdb.type(kind) for name, kind in kinds.items() if '"NULL"' in kind}


def _polars(value: Any, cursor: duckdb.DuckDBPyConnection, name: str, file: Path) -> Rows:
    import polars

    if isinstance(value, polars.DataFrame):
        # Views of strings share polars' memory, where the older types are a copy of each string.
        # Arrow cannot write them, so few rows are copied.
        return _of_arrow(cursor, name, table_of_polars(value, with_views=value.estimated_size() > _SMALL))
    if not isinstance(value, polars.LazyFrame):
        raise InvalidConfig(f"A polars {type(value).__name__} is not a table; give a DataFrame or a LazyFrame.")
    # The streaming engine computes the frame to disk once, in bounded memory, and it can be read
    # again.
    empty = table_of_polars(polars.DataFrame(schema=value.collect_schema()))
    # polars writes durations as integers, which only Arrow reads as durations.
    is_plain = in_microseconds(empty) is empty and not fields_with(empty.schema, pa.types.is_duration)
    types = _of_arrow(cursor, f"{name}_empty", empty).types
    # DuckDB's row group size. DuckDB holds one row group in memory, and polars' are twice as large.
    value.sink_parquet(file, row_group_size=ROW_GROUP)
    if not is_plain:
        from pyarrow.dataset import dataset  # here, because it imports pandas

        return _of_arrow(cursor, name, dataset(file))
    shapes = [quote_identifier(column) for column, kind in types.items() if str(kind).startswith("GEOMETRY")]
    # polars' files have only the bytes
    geometries = ", ".join(f"ST_GeomFromWKB({column}) AS {column}" for column in shapes)
    chosen = f"* REPLACE ({geometries})" if shapes else "*"
    return Rows(cursor, f"SELECT {chosen} FROM read_parquet({quote_literal(file.as_posix())})", types)


def schema_of_types(types: Mapping[str, Any], cursor: duckdb.DuckDBPyConnection) -> pa.Schema:
    """Arrow schema of columns with DuckDB types, as type names or type values."""
    kinds = {name: str(kind) for name, kind in types.items()}
    # Convert each type once: a table of 2,000 columns has few different types.
    plain = {kind: arrow_type(kind) for kind in dict.fromkeys(kinds.values())}
    fields = {kind: pa.field(kind, each) for kind, each in plain.items() if each is not None}
    if others := [kind for kind in plain if kind not in fields]:
        typed = (in_arrow(duckdb.type(kind)) if "VARIANT" in kind else kind for kind in others)
        nulls = ", ".join(f"CAST(NULL AS {kind})" for kind in typed)
        schema = in_utc(cursor.sql(f"SELECT {nulls} LIMIT 0").to_arrow_table().schema)
        fields |= zip(others, schema, strict=True)
    return pa.schema([fields[kind].with_name(name) for name, kind in kinds.items()])


def arrow_reader(rows: Rows) -> pa.RecordBatchReader:
    """Stream the rows as Arrow batches."""
    reader = rows.relation().to_arrow_reader(batch_size=100_000)
    schema = in_utc(reader.schema)
    return reader if schema.equals(reader.schema) else reader.cast(schema)


def in_utc(schema: pa.Schema) -> pa.Schema:
    """Set the zone of a schema's instants to UTC."""

    # DuckDB returns instants in the cursor's TimeZone, and Delta has UTC only.
    def zoned(kind: pa.DataType) -> pa.DataType:
        return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz is not None else kind

    return pa.schema([field.with_type(with_scalars(field.type, zoned)) for field in schema], schema.metadata)


def spool(rows: Rows) -> Rows:
    """Copy the rows to a temporary table of the cursor, which spills to disk and can be reread."""
    name = f"__duckrun_spool_{uuid.uuid4().hex}"
    rows.cursor.execute(f"CREATE TEMP TABLE {quote_identifier(name)} AS {rows.sql}")
    return replace(rows, sql=f"SELECT * FROM {quote_identifier(name)}", one_shot=False, carried=(), in_memory=None)


def order_by(columns: Sequence[str]) -> str:
    """ORDER BY clause, or an empty string."""
    return " ORDER BY " + ", ".join(quote_identifier(c) for c in columns) if columns else ""
