"""What frames hold beside plain columns, as assets return it: the same as in a session."""

import uuid
from decimal import Decimal
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import duckrun


def test_the_index_of_a_pandas_frame_is_kept(shop: Any) -> None:
    @dg.asset
    def goods():
        return pd.DataFrame({"n": [1, 2]}, index=pd.Index(["fig", "kiwi"], name="item"))

    shop.run([goods])
    with duckrun.connect(shop.root) as session:
        assert session.scan("shop.goods").toArrow().to_pydict() == {"n": [1, 2], "item": ["fig", "kiwi"]}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (pd.DataFrame([[1, 2]], columns=["x", "X"]), "'x' and 'X' differ in case only"),
        (pa.table({"x": [1], "X": [2]}), "'x' and 'X' differ in case only"),
        (pl.DataFrame({"x": [1], "X": [2]}).lazy(), "'x' and 'X' differ in case only"),
        (pd.DataFrame({"p": pd.period_range("2020-01", periods=1, freq="M")}), "'p'.*period"),
        (pd.DataFrame({"v": [1, "a"]}), "'v'.*int.*row 0.*str.*row 1"),
        (pl.DataFrame({"x": [None]}), "'x'.*nothing but NULL.*cast it"),
    ],
    ids=["pandas", "arrow", "polars", "period", "mixed", "null"],
)
def test_what_no_column_can_be_is_refused_by_its_name(shop: Any, value: Any, words: str) -> None:
    @dg.asset
    def goods():
        return value

    with pytest.raises(Exception, match=words):
        shop.run([goods])
    with duckrun.connect(shop.root) as session:
        assert not session.lake.exists(session.ref("shop.goods"))


def test_a_day_with_nothing_but_null_keeps_the_type_of_its_column(shop: Any) -> None:
    days = dg.StaticPartitionsDefinition(["mon", "tue"])

    @dg.asset(partitions_def=days, metadata={"partition_expr": "day"})
    def goods(context: dg.AssetExecutionContext):
        day = context.partition_key
        return pl.DataFrame({"day": [day], "note": ["late" if day == "mon" else None]})

    for day in ("mon", "tue"):
        shop.run([goods], partitions=day)
    with duckrun.connect(shop.root) as session:
        assert session.snapshot("shop.goods").schema.field("note").type == pa.string()
        assert session.scan("shop.goods").count() == 2


def test_frames_of_a_project_for_dagster_duckdb_are_stored_and_loaded(shop: Any) -> None:
    """Hours of an API in one frame, a partition column in another case, and sums that pandas divides."""
    days = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")

    @dg.asset(partitions_def=days, metadata={"partition_expr": "AT"}, backfill_policy=dg.BackfillPolicy.single_run())
    def orders(context: dg.AssetExecutionContext):
        frames = [
            pd.DataFrame({"id": [uuid.UUID(int=n) for n in range(2)], "qty": [1, 3], "at": pd.Timestamp(day)})
            for day in context.partition_keys
        ]
        return pd.concat(frames, ignore_index=True)

    @dg.asset(deps=["orders"])
    def totals():  # the rows of a SQL model
        return duckrun.SQL("select sum(qty) as exact, sum(qty)::bigint as qty, 3.5 as rate from shop.orders")

    @dg.asset
    def rates(totals: pd.DataFrame):
        assert totals["exact"][0] == Decimal(12) and totals["qty"].dtype == "int64"
        return pd.DataFrame({"rate": totals["rate"].astype(float) / totals["qty"]})

    shop.run([orders], partitions=("2026-01-01", "2026-01-03"))
    shop.run([orders], partitions="2026-01-02")
    shop.run([totals, rates])
    assert shop.rows("select count(*) as n, count(distinct id) as ids, min(typeof(id)) as kind from shop.orders") == [
        (6, 2, "VARCHAR")
    ]
    assert shop.rows("select round(rate, 3)::double as rate from shop.rates") == [(0.292,)]
