"""What frames hold beside plain columns, as assets return it: the same as in a session."""

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
