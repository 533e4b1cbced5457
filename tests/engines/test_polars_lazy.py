"""Filters of a polars LazyFrame over a query: the rows are those that polars keeps of the eager frame."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from duckrun import SQL, Session, WriteSpec
from duckrun.engines.duckdb.rows.polars_source import Relation, lazy_frame

column = pl.col("v")
VALUES: dict[str, Any] = {
    "small": pl.Series([-128, -1, 0, 3, 127], dtype=pl.Int8),
    "whole": pl.Series([-(2**63), -1, 2**53, 2**53 + 1, 2**63 - 1], dtype=pl.Int64),
    "unsigned": pl.Series([0, 1, 2**63, 2**64 - 1], dtype=pl.UInt64),
    "real": pl.Series([-math.inf, -0.0, 0.1, 5e-324, 1e308, math.inf, math.nan]),
    "half": pl.Series([-3.4028235e38, -0.1, 0.1, 1.17549435e-38, math.nan], dtype=pl.Float32),
    "yes": pl.Series([True, False]),
    "day": pl.Series([date(1, 1, 1), date(1582, 10, 10), date(2024, 2, 29), date(9999, 12, 31)]),
    "naive": pl.Series([datetime(1, 1, 1), datetime(1582, 10, 4, 23, 59, 59, 999999), datetime(2024, 1, 1, 0, 0, 0, 1),
                        datetime(9999, 12, 31, 23, 59, 59, 999000)]),
    "instant": pl.Series([datetime(1582, 10, 15, 0, 0, 0, 1, UTC), datetime(2024, 1, 1, 0, 0, 0, 1, UTC),
                          datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)]),
    "money": pl.Series([Decimal("-1.10"), Decimal("0.00"), Decimal("99999999.99")], dtype=pl.Decimal(10, 2)),
    "long": pl.Series([Decimal("9223372036854775807.0000000001"), Decimal("-0.0000000001")], dtype=pl.Decimal(38, 10)),
    "text": pl.Series(["", "a", "A", "a'b", "x%", "é", "\U0010ffff", "a\x00b"]),
    "bytes": pl.Series([b"", b"\x00", b"\xff"]),
}  # fmt: skip


def conditions(value: Any) -> Iterator[pl.Expr]:
    for name in ("eq", "ne", "lt", "le", "gt", "ge", "eq_missing", "ne_missing"):
        yield getattr(column, name)(value)
    yield pl.lit(value) <= column
    yield column.is_in([value, None])
    yield column.is_between(value, value)
    yield ~(column == value)
    yield (column == value) | (pl.col("id") > 2)
    yield (column != value) & ((pl.col("id") > 1) | column.is_null())


MORE: dict[str, list[pl.Expr]] = {
    "small": [column % 3 == 2, column // 2 == -1, column + 1 == -128, column.cast(pl.UInt8, strict=False) == 3],
    "whole": [column.cast(pl.Int8, strict=False) == -1, column.cast(pl.Float64) == 2.0**53, column > 1.5],
    "real": [column.is_nan(), column.is_finite(), column > 5, column % 2 == 1, column.is_not_null()],
    "text": [column.str.contains("^a"), column.str.starts_with("x%"), column.str.to_lowercase() == "a"],
    "naive": [column.dt.year() == 1582, column == pl.lit(datetime(2024, 1, 1), pl.Datetime("ms"))],
    "yes": [column, ~column],
}


@pytest.mark.parametrize("name", VALUES)
def test_a_lazy_filter_keeps_the_rows_that_polars_keeps(duck: Session, name: str) -> None:
    values = pl.concat([VALUES[name], pl.Series([None], dtype=VALUES[name].dtype)])
    duck.register("given", pl.DataFrame({"id": range(len(values)), "v": values}))
    frame = duck.sql("FROM given")
    eager, lazy = frame.pl(), frame.pl(lazy=True)
    assert isinstance(eager, pl.DataFrame)
    for condition in (*(each for value in VALUES[name] for each in conditions(value)), *MORE.get(name, ())):
        try:
            kept = eager.filter(condition)
        except pl.exceptions.PolarsError:
            with pytest.raises(pl.exceptions.PolarsError):
                lazy.filter(condition).collect()
        else:
            assert_frame_equal(lazy.filter(condition).collect().sort("id"), kept.sort("id"))


TYPES = {
    "number": "range", "small": "range::TINYINT", "real": "range::DOUBLE", "text": "'k' || range", "day": "DATE '2020-01-01' + range::INT",
    "naive": "TIMESTAMP '2020-01-01' + INTERVAL (range) HOUR", "instant": "TIMESTAMPTZ '2020-01-01 00:00:00+00' + INTERVAL (range) HOUR",
}  # fmt: skip


@pytest.fixture
def native() -> Iterator[Relation]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'Asia/Tokyo'")
        columns = ", ".join(f"{text} AS {name}" for name, text in TYPES.items())
        connection.execute(f"CREATE TABLE t AS SELECT {columns} FROM range(100)")
        yield connection.table("t")


def observed(native: Relation) -> tuple[pl.LazyFrame, list[str]]:
    """A LazyFrame, and the plans of its reads by DuckDB."""
    plans: list[str] = []

    def read(narrowed: Callable[[Relation], Relation]) -> Any:
        relation = narrowed(native)
        plans.append(relation.explain())
        return relation.to_arrow_reader(10)

    return lazy_frame(native.pl().schema, read), plans


@pytest.mark.parametrize(
    "condition",
    [
        pl.col("number") > 90,
        pl.col("small") <= 3,
        pl.col("real") >= 90.5,
        pl.col("text") == "k7",
        pl.col("day") == date(2020, 1, 5),
        pl.col("naive") < datetime(2020, 1, 1, 7),
        pl.col("instant") == datetime(2020, 1, 2, 9, tzinfo=ZoneInfo("Asia/Tokyo")),
        pl.col("number").is_between(3, 5),
        pl.col("number").is_null(),
        (pl.col("number") > 90) & (pl.col("text").str.ends_with("5")),
        (pl.col("number") > 90) | (pl.col("text") == "k7"),
    ],
    ids=str,
)
def test_duckdb_leaves_out_rows_of_a_comparison_with_a_value(native: Relation, condition: pl.Expr) -> None:
    lazy, plans = observed(native)
    assert_frame_equal(lazy.filter(condition).collect(), native.pl().filter(condition))
    assert "Filters" in plans[0] or "FILTER" in plans[0] or "EMPTY_RESULT" in plans[0]


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_a_limit_counts_the_rows_that_a_filter_keeps(native: Relation, engine: Any) -> None:
    lazy, _ = observed(native)
    many = lazy.filter(pl.col("number") > 5)
    assert many.head(2).collect(engine=engine).height == 2
    assert many.sort("number", descending=True).head(2).collect(engine=engine)["number"].to_list() == [99, 98]
    assert many.top_k(2, by="number").select("text").collect(engine=engine)["text"].to_list() == ["k99", "k98"]
    assert lazy.head(3).filter(pl.col("number") > 1).collect(engine=engine)["number"].to_list() == [2]
    assert lazy.slice(5, 2).collect(engine=engine)["number"].to_list() == [5, 6]
    assert lazy.select(pl.len()).collect(engine=engine).item() == 100


def test_columns_whose_names_differ_in_case_or_not_at_all_have_their_own_values(duck: Session) -> None:
    lazy = duck.sql('SELECT 1 AS a, 2 AS "A", 3 AS a').pl(lazy=True)
    assert lazy.collect_schema().names() == ["a", "A", "a_1"]
    assert lazy.filter(pl.col("A") == 2).select("A", "a_1").collect().rows() == [(2, 3)]


def test_the_zone_of_the_session_may_change_before_a_frame_is_read(duck: Session) -> None:
    frame = duck.sql("SELECT TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at").pl(lazy=True)
    duck.engine.connection.execute("SET GLOBAL TimeZone = 'Asia/Tokyo'")
    assert frame.collect().rows() == [(datetime(2024, 1, 1, tzinfo=UTC),)]


MANY = 300_000
"""Rows of more batches than a reader has ready."""


def test_lazy_frames_of_one_table_are_collected_together(duck: Session) -> None:
    duck.execute("t", WriteSpec("error"), SQL(f"SELECT range AS id, range % 3 AS g FROM range({MANY})"))
    lazy = duck.table("t").toDF().pl(lazy=True)
    parts = [lazy.filter(pl.col("g") == number) for number in range(3)]
    assert [part.height for part in pl.collect_all(parts)] == [MANY // 3] * 3
    assert pl.concat(parts).select(pl.len()).collect().item() == MANY
    joined = parts[0].join(lazy.filter(pl.col("id") % 2 == 0), on="id")
    for engine in ("in-memory", "streaming"):
        assert joined.select(pl.len()).collect(engine=engine).item() == MANY // 6
    with ThreadPoolExecutor(3) as pool:
        assert [part.height for part in pool.map(lambda part: part.collect(), parts * 2)] == [MANY // 3] * 6
