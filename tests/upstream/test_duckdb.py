"""Faults of DuckDB alone. Each docstring says the right result."""

from __future__ import annotations

import datetime as dt
import math
import os
from decimal import Decimal
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


def test_a_filter_misses_nan_that_the_bounds_of_a_file_leave_out(tmp_path: Path) -> None:
    """Right: NaN is above every number, so that both filters find it."""
    pq.write_table(pa.table({"x": [math.nan, -3.0]}), tmp_path / "t.parquet")
    for condition in ("x > 5", "x != -3"):
        assert duckdb.sql(f"SELECT x FROM '{tmp_path}/t.parquet' WHERE {condition}").fetchall() == [], condition


def test_a_filter_that_goes_to_arrow_drops_nan() -> None:
    """Right: one row."""
    with duckdb.connect() as connection:
        connection.register("t", pa.table({"x": [1.0, math.nan]}))
        assert connection.sql("SELECT x FROM t WHERE x > 5").fetchall() == []


ARROW = {
    "json": (pa.array(["1", "2"], pa.json_()), "v = '1'::JSON", "no kernel matching"),
    "uuid": (pa.array([b"1" * 16, b"2" * 16], pa.uuid()), "v = (SELECT v FROM t WHERE i = 0)", '"UUID" for Arrow'),
    "string view": (pa.array(["a", "b"], pa.string_view()), "v = (SELECT v FROM t WHERE i = 0)", "no kernel matching"),
    "run ends": (pa.RunEndEncodedArray.from_arrays([1, 2], pa.array(["a", "b"])), "v = 'a'", "ArrowTypeInfo"),
}


@pytest.mark.parametrize("kind", ARROW)
def test_a_filter_that_goes_to_arrow_cannot_compare_a_type(kind: str) -> None:
    """Right: the first row."""
    values, condition, message = ARROW[kind]
    connection = duckdb.connect()
    connection.register("t", pa.table({"i": [0, 1], "v": values}))
    with pytest.raises(duckdb.Error, match=message):
        connection.sql(f"SELECT i FROM t WHERE {condition}").fetchall()


def test_a_slice_of_structs_in_structs_has_the_first_rows_of_the_array() -> None:
    """Right: 2 and 3."""
    with duckdb.connect() as connection:
        connection.register("t", pa.table({"v": pa.array([{"d": {"n": i}} for i in range(4)]).slice(2)}))
        assert connection.sql("SELECT v.d.n FROM t").fetchall() == [(0,), (1,)]


def test_a_partitioned_copy_cuts_non_ascii_characters_off_its_folder(tmp_path: Path) -> None:
    """Right: the folder p=1 is inside of the folder that COPY names."""
    duckdb.execute(f"COPY (SELECT 1 AS p, 2 AS v) TO '{tmp_path}/té' (FORMAT parquet, PARTITION_BY (p))")
    assert os.listdir(tmp_path / "t") == ["p=1"]


def test_strftime_writes_other_bytes_for_a_line_break() -> None:
    """Right: a line break between the year and the day."""
    assert duckdb.sql("SELECT strftime(DATE '2024-01-02', '%Y%n%d')").fetchall() != [("2024\n02",)]


def test_a_scan_cannot_number_rows_beside_a_column_file_row_number(tmp_path: Path) -> None:
    """Right: the rows, with a way to number them."""
    pq.write_table(pa.table({"file_row_number": [7]}), tmp_path / "t.parquet")
    with pytest.raises(duckdb.BinderException, match="is not supported"):
        duckdb.sql(f"FROM read_parquet('{tmp_path}/t.parquet', file_row_number => true)").fetchall()


def test_one_scan_reads_instants_without_a_zone_in_the_zone_of_the_session(tmp_path: Path) -> None:
    """Right: each file has the same instant, as INT96 has no zone and is in UTC."""
    instant = pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"t": instant}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"t": instant}), tmp_path / "b.parquet", use_deprecated_int96_timestamps=True)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'America/New_York'")
        query = f"SELECT epoch(t) FROM read_parquet(['{tmp_path}/a.parquet', '{tmp_path}/b.parquet'])"
        assert connection.sql(query).fetchall() == [(1704067200.0,), (1704067200.0 + 5 * 3600,)]


POLARS = {
    "a number below zero": ([-1], pl.col("v") % 3 == 2),
    "a cast": ([300], pl.col("v").cast(pl.Int8, strict=False).is_null()),
    "a late time": ([dt.datetime(9999, 12, 31, 23, 59, 59, 999000)], pl.col("v") == dt.datetime(9999, 12, 31, 23, 59, 59, 999000)),
    "a long decimal": ([Decimal("9223372036854775807.0000000001")], pl.col("v") == Decimal("9223372036854775807.0000000001")),
}  # fmt: skip


@pytest.mark.parametrize("name", POLARS)
def test_a_filter_of_a_lazy_polars_frame_misses_rows(name: str) -> None:
    """Right: the row."""
    values, condition = POLARS[name]
    rows = pl.DataFrame({"v": values})
    with duckdb.connect() as connection:
        connection.register("t", rows.to_arrow())
        lazy = connection.sql("SELECT v FROM t").pl(lazy=True)
        assert (lazy.filter(condition).collect().height, rows.filter(condition).height) == (0, 1)


def test_a_filter_of_a_lazy_polars_frame_knows_no_infinity() -> None:
    """Right: the row."""
    with duckdb.connect() as connection, pytest.raises(Exception, match='column "None" not found'):
        connection.sql("SELECT 1.5::DOUBLE AS v").pl(lazy=True).filter(pl.col("v") < math.inf).collect()


def test_a_decimal_of_a_negative_scale_is_an_internal_error() -> None:
    """Right: 100, or an error that names the type."""
    rows = pa.table({"v": pa.array([Decimal(100)], pa.decimal128(5, -2))})
    with pytest.raises(duckdb.InternalException):
        duckdb.connect().register("t", rows)


def test_a_stream_ends_without_an_error_at_the_next_query_of_its_connection() -> None:
    """Right: 300,000 rows, or an error."""
    with duckdb.connect() as connection:
        batches = iter(connection.execute("SELECT range AS id FROM range(300_000)").to_arrow_reader(1000))
        first = next(batches).num_rows
        connection.execute("SELECT 1")
        assert first + sum(batch.num_rows for batch in batches) < 300_000


def test_a_file_of_strings_that_are_no_text_cannot_be_read(tmp_path: Path) -> None:
    """Right: an error of COPY."""
    values = pa.array([b"a", b"b\xff", b"z"]).view(pa.string())
    with duckdb.connect() as connection:
        connection.register("t", pa.table({"v": values}))
        connection.execute(f"COPY (FROM t) TO '{tmp_path}/t.parquet'")
        with pytest.raises(duckdb.Error, match="not valid UTF8"):
            connection.sql(f"FROM '{tmp_path}/t.parquet'").fetchall()
