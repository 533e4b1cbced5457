"""A predicate means the same to a pyarrow Dataset as to DuckDB, or it is refused."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun_dagster.io_managers.arrow_predicate import arrow_predicate

ROWS = pa.table(
    {
        "n": pa.array([1, 2, 3, None, 5]),
        "x": pa.array([1.5, float("nan"), None, -1.0, 2.5]),
        "s": pa.array(["a", "it's", None, "", "é"]),
        "d": pa.array([date(2024, 1, day) for day in (1, 2, 3, 4)] + [None]),
        "t": pa.array([datetime(2024, 1, 1, hour, tzinfo=UTC) for hour in range(5)], pa.timestamp("us", "UTC")),
        "l": pa.array([datetime(2024, 1, 1, hour) for hour in range(5)], pa.timestamp("us")),
        "b": pa.array([True, False, None, True, False]),
        "m": pa.array([Decimal("1.10"), Decimal("2.20"), None, Decimal("0.00"), Decimal("3.30")]),
        "st": pa.array([{"s": "é", "X": 2.5, "in": {"n": 1}}, {"s": "a", "X": float("nan"), "in": None}, None, {}, {}]),
        "i": pa.array([2**53 + 1, 2**53, 1, None, -(2**53) - 1]),
    }
)


@pytest.mark.parametrize(
    "sql",
    [
        "n = 2",
        "n <> 2",
        "2 < n",
        "n >= 2 and n < 5",
        "n in (1, 5, 7)",
        "not (n = 1 or s = 'a')",
        "n between 2 and 3",
        "n is null",
        "n is not null and x is null",
        "x > 2",
        "x <= 2",
        "x <> 1.5",
        "x >= -1",
        "not x > 2",
        "not x < 2",
        "x = 1.5",
        "not x <= 1.5",
        "x between 1 and 2",
        "not x in (1.5, 7)",
        "s = 'it''s'",
        "s > 'a'",
        "S = 'é'",
        "d >= DATE '2024-01-02' and d < DATE '2024-01-04'",
        "d = '2024-01-03'",
        "t >= TIMESTAMPTZ '2024-01-01 03:00:00+02:00'",
        "l < TIMESTAMP '2024-01-01 02:00:00'",
        "b",
        "not b",
        "b = true",
        "m > 1.5",
        "n = 1 + 1",
        "false",
        "st.s = 'é'",
        'ST.x > 2 and st."in".n is null',
        "not st.s <> 'a'",
        "i > 1e6",
        "m >= 1.1e0",
    ],
)
def test_the_rows_are_those_that_duckdb_finds(sql: str, tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("given", ROWS)
        connection.execute("create table native as from given")  # its filters of Arrow data leave NaN out
        expected = connection.sql(f"select * from native where {sql}").to_arrow_table()
    bounded = [name for name in ROWS.schema.names if name != "x"]  # as our own files are, where one value is NaN
    pq.write_table(ROWS, tmp_path / "rows.parquet", row_group_size=2, write_statistics=bounded)
    for dataset in (ds.dataset(ROWS), ds.dataset(tmp_path)):
        found = dataset.filter(arrow_predicate(sql, ROWS.schema)).to_table()
        assert found["l"].to_pylist() == expected["l"].to_pylist()


@pytest.mark.parametrize(
    "sql",
    [
        "n > x",
        "upper(s) = 'A'",
        "n = 1.5",
        "s = 5",
        "n = null",
        "n in (select 1)",
        "x = 'nan'::double",
        "s like 'a%'",
        "i = 9.007199254740992e15",
        "i = 16777216::float",
        "st.s[1] = 'a'",
    ],
)
def test_what_has_no_exact_form_is_refused(sql: str) -> None:
    with pytest.raises(UnsupportedFeature, match="cannot be filtered by"):
        arrow_predicate(sql, ROWS.schema)


@pytest.mark.parametrize("sql", ["x > 2", "n = 1 and not x < 2", "X = 1.5"])
def test_bounds_that_leave_nan_out_are_not_gone_by(sql: str) -> None:
    with pytest.raises(UnsupportedFeature, match="column 'x' .* may hold NaN, .*RecordBatchReader"):
        arrow_predicate(sql, ROWS.schema, {"x", "n"})
    arrow_predicate("n = 1 and x is null", ROWS.schema, {"x", "n"})
    with pytest.raises(UnsupportedFeature, match="column 'st'"):
        arrow_predicate("st.x > 2", ROWS.schema, {"st"})


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("n = = 1", "is no SQL"),
        ("nn = 1", "the columns are n, x"),
        ("t.n = 1", "'t.n'; the fields of t are none"),
        ("rows.n = 1", "'rows.n'; the columns are n"),
        ("st.l = 1", "the fields of st are s, X, in"),
    ],
)
def test_what_is_wrong_is_refused(sql: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        arrow_predicate(sql, ROWS.schema)
