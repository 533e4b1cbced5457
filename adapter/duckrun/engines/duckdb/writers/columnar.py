"""Parquet files of an Arrow table in memory, written by polars or Arrow without DuckDB.

polars writes the columns of a table in parallel from their Arrow buffers. DuckDB's COPY would scan
the buffers into its own vectors first: 10 million rows of five columns take it 2.1 s of processor
time, and polars 0.87 s. Few rows are written by Arrow; see ``few_rows.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duckrun.engines.duckdb.rows.source import InMemory, Rows
from duckrun.engines.duckdb.writers.few_rows import LeftToDuckDB, places_of, table_of, write_table
from duckrun.engines.tabular.values import bytes_of, is_pattern
from duckrun.libraries import pa, pq
from duckrun.sql.quoting import quote_identifier
from duckrun.sql.raising import panicked
from duckrun.values.frozen import frozen
from duckrun.values.layout import ROW_GROUP, Codec
from duckrun.values.partition_values import NO_PARTITION_VALUES
from duckrun.values.rows import ColumnFigures

if TYPE_CHECKING:
    import polars as pl

_FEWEST = 20_000
"""Minimum number of rows for polars, which may not be imported yet."""
_MOST_BYTES = 16 * 1024**2
"""Maximum size of fewer rows. DuckDB writes the columns of more in parallel."""
_LONGEST = 1024
"""Maximum bytes of a binary value. polars puts whole values into the statistics of row groups."""
_FIRST, _LAST = date(1, 1, 1), date(9999, 12, 31)
"""First and last day that every reader supports."""
_SECONDS = -62_135_596_800, 253_402_300_800
"""Begin of the first and end of the last day, in seconds from 1970 on."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
"""Texts that are spelled alike in the log, in the name of a folder, and by DuckDB."""
_MOST_PARTS = 1000
"""Maximum number of partitions. DuckDB sorts rows of more, within its memory."""
_PER_SECOND = {"ms": 10**3, "us": 10**6}
_POLARS = {"SMALLINT": "Int16", "INTEGER": "Int32", "BIGINT": "Int64", "DOUBLE": "Float64", "TIMESTAMP": "Datetime"}
"""Types that columns are cast to, by DuckDB's name."""


@frozen
class Part:
    """Rows of one partition."""

    values: dict[str, str | None]
    """Partition values as the log spells them."""
    rows: pl.DataFrame | pa.Table


def parts_of(rows: Rows, partition_by: Sequence[str]) -> list[Part]:
    """Return the rows of each partition.

    The spelling of other types than those here, and of texts with other characters in the names of
    folders, is left to DuckDB.

    Raises:
        LeftToDuckDB: DuckDB must write the rows, or raise the error about them.
    """
    whole = _whole_of(rows)
    if not len(whole):
        return []
    if not partition_by:
        return [Part({}, whole)]
    if not all(map(_PLAIN_NAME.fullmatch, partition_by)):
        raise LeftToDuckDB("the name of a folder")
    places = places_of(whole, partition_by) if isinstance(whole, pa.Table) else {}
    keys = list(places) or whole.select(partition_by).unique(maintain_order=True).rows()
    spelled = [[_spelled(value) for value in key] for key in keys]
    if len(keys) > _MOST_PARTS or not all(map(_is_plain_value, chain.from_iterable(spelled))):
        raise LeftToDuckDB("the values of partitions")
    values = {key: dict(zip(partition_by, texts, strict=True)) for key, texts in zip(keys, spelled, strict=True)}
    if isinstance(whole, pa.Table):
        others = whole.drop_columns(list(partition_by))
        return [Part(values[key], others if len(keys) == 1 else others.take(places[key])) for key in keys]
    if len(keys) == 1:  # without the copy of a grouping
        return [Part(values[keys[0]], whole.drop(partition_by))]
    groups = whole.partition_by(partition_by, as_dict=True, include_key=False)
    return [Part(values[key], part) for key, part in groups.items()]


def _is_plain_value(text: str | None) -> bool:
    return text is None or (text not in NO_PARTITION_VALUES and _PLAIN_NAME.fullmatch(text) is not None)


def _spelled(value: Any) -> str | None:
    """Return a partition value as the log spells it; text that fits no name for other types."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) or type(value) is date else "/"


def _whole_of(rows: Rows) -> pl.DataFrame | pa.Table:
    """Return the rows as a polars frame, or as an Arrow table of few rows.

    Raises:
        LeftToDuckDB: The rows are not in memory, have types of other forms in these files, or
            values that DuckDB's checks refuse.
    """
    memory = rows.memory
    if memory is None:
        raise LeftToDuckDB("rows of a query")
    table = memory.table.select(list(memory.columns.values())).rename_columns(list(memory.columns))
    if not all(map(_is_plain, table.schema.types)):
        raise LeftToDuckDB("a type")
    if table.num_rows >= _FEWEST:
        return _frame_of(table, memory)
    if bytes_of(table) > _MOST_BYTES:
        raise LeftToDuckDB("the size")
    return table_of(table, {name: str(kind) for name, kind in rows.types.items()}, memory.required)


def _frame_of(table: pa.Table, memory: InMemory) -> pl.DataFrame:
    if any(map(is_pattern, table.column_names)):
        raise LeftToDuckDB("the name of a column")
    import polars

    try:
        frame = polars.DataFrame(table)
    except polars.exceptions.PolarsError as error:  # such as a time zone that polars does not know
        raise LeftToDuckDB(str(error)) from error
    if not all(frame.select(*_tests(frame, memory.required)).row(0)):
        raise LeftToDuckDB("a value")
    casts: dict[Any, Any] = {name: getattr(polars, _POLARS[kind]) for name, kind in memory.casts.items()}
    casts |= {name: polars.String for name, kind in frame.schema.items() if kind in (polars.Categorical, polars.Enum)}
    return frame.cast(casts)


def write(rows: pl.DataFrame | pa.Table, file: Path, codec: Codec) -> dict[str, ColumnFigures]:
    """Write rows to a new file, and return its statistics by quoted column name.

    Raises:
        OSError: The file cannot be written.
        LeftToDuckDB: Another thread changed the rows meanwhile, or DuckDB must write a value.
    """
    if isinstance(rows, pa.Table):
        footer = write_table(rows, file, codec)
    else:
        _write_frame(rows, file, codec)
        footer = pq.read_metadata(file)
    try:
        return dict(_figures(footer))
    except (OverflowError, ValueError) as error:  # a year that Python and other readers lack
        raise LeftToDuckDB(str(error)) from error


def _write_frame(frame: pl.DataFrame, file: Path, codec: Codec) -> None:
    from polars.exceptions import ComputeError

    try:
        frame.write_parquet(file, compression=codec, row_group_size=ROW_GROUP)
    except ComputeError as error:  # polars' error for what the file system reports
        raise OSError(str(error)) from error
    except BaseException as error:
        if not panicked(error):  # a panic is no Exception
            raise
        raise LeftToDuckDB(str(error)) from error  # polars met other values in its second pass


def _is_plain(kind: pa.DataType) -> bool:
    """True for a type whose values DuckDB and polars write alike."""
    of = pa.types
    if of.is_timestamp(kind):
        return bool(kind.unit != "s")
    if of.is_dictionary(kind):
        return any(is_text(kind.value_type) for is_text in (of.is_string, of.is_large_string, of.is_string_view))
    return any(
        fits(kind)
        for fits in (
            of.is_integer, of.is_float32, of.is_float64, of.is_boolean, of.is_date32, of.is_decimal128,
            of.is_string, of.is_large_string, of.is_string_view, of.is_binary, of.is_large_binary, of.is_binary_view,
        )
    )  # fmt: skip


def _tests(frame: pl.DataFrame, required: Sequence[str]) -> Iterator[Any]:
    """Yield an expression per column and rule that is true if all values keep the rule."""
    import polars

    yield polars.lit(value=True)
    for name, kind in frame.schema.items():
        column = polars.col(name)
        if name in required:
            yield column.null_count().eq(0).alias(f"required {name}")
        if kind.is_float():
            # Bounds in a Parquet file leave NaN out, and DuckDB and Spark order it last.
            yield ~column.is_nan().any().alias(f"numbers {name}")
        elif kind == polars.Date:
            yield column.is_between(_FIRST, _LAST).all().alias(f"years {name}")
        elif isinstance(kind, polars.Datetime):
            number = column.to_physical()
            if kind.time_unit == "ns":  # years from 1677 to 2262
                yield (number % 1000).eq(0).all().alias(f"microseconds {name}")
            else:
                begin, end = (each * _PER_SECOND[kind.time_unit] for each in _SECONDS)
                yield (number.ge(begin) & number.lt(end)).all().alias(f"years {name}")
        elif kind == polars.Binary:
            yield (column.bin.size().max().fill_null(0) <= _LONGEST).alias(f"length {name}")


def _figures(footer: Any) -> Iterator[tuple[str, ColumnFigures]]:
    """Yield the statistics of each column, from the footer.

    The footer has those of the written values, also if another thread changed the rows meanwhile.
    """
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for at, name in enumerate(footer.schema.names):
        each = [group.column(at).statistics for group in groups]
        bounds = [(one.min, one.max) for one in each if one.has_min_max]
        # A row group without bounds has only NULLs, or its bounds are unknown.
        is_known = bounds and all(one.has_min_max or not one.num_values for one in each)
        low = _text(min(low for low, _ in bounds)) if is_known else None
        high = _text(max(high for _, high in bounds)) if is_known else None
        yield quote_identifier(name), ColumnFigures(low, high, sum(one.null_count for one in each))


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat(" ")
    return repr(value) if isinstance(value, float) else str(value)
