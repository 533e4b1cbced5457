"""Time windows and other partitions: exactly those rows are replaced, loaded or refused."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import dagster as dg
import polars as pl
import pyarrow as pa
import pytest

DAILY = dg.DailyPartitionsDefinition(start_date="2024-01-01", end_date="2024-01-11")
SINGLE_RUN = dg.BackfillPolicy.single_run()


def days(context: Any) -> list[date]:
    """The days of the run's partitions."""
    window = context.partition_time_window
    count = round((window.end - window.start).total_seconds() / 86400)
    return [(window.start + timedelta(days=n)).date() for n in range(count)]


def sales(amount: int = 1, **arguments: Any) -> dg.AssetsDefinition:
    """Two rows a day."""

    @dg.asset(
        name="sales",
        partitions_def=DAILY,
        backfill_policy=SINGLE_RUN,
        metadata={"partition_expr": "day", **arguments},
    )
    def _sales(context: dg.AssetExecutionContext) -> pl.DataFrame:
        rows = [(day, n, amount) for day in days(context) for n in range(2)]
        return pl.DataFrame(rows, schema=["day", "n", "amount"], orient="row")

    return _sales


def test_rematerializing_a_partition_replaces_only_that_partition(shop: Any) -> None:
    shop.run([sales()], partitions="2024-01-01")
    shop.run([sales()], partitions="2024-01-02")
    shop.run([sales(amount=5)], partitions="2024-01-02")
    assert shop.rows("select day, sum(amount) from sales group by all order by day") == [
        (date(2024, 1, 1), 2),
        (date(2024, 1, 2), 10),
    ]


def test_a_single_run_backfill_is_one_commit(shop: Any, metadata: Any) -> None:
    result = shop.run([sales()], partitions=("2024-01-02", "2024-01-05"))
    assert shop.version("sales") == 0
    events = result.asset_materializations_for_node("sales")
    assert [event.partition for event in events] == ["2024-01-02", "2024-01-03", "2024-01-04", "2024-01-05"]
    assert {event.metadata["dagster/partition_row_count"].value for event in events} == {2}
    assert {event.metadata["dagster/row_count"].value for event in events} == {8}
    shop.run([sales(amount=3)], partitions=("2024-01-03", "2024-01-04"))
    assert shop.version("sales") == 1
    assert shop.rows("select sum(amount) from sales") == [(4 + 12,)]


def test_a_table_of_dates_is_laid_out_by_day(shop: Any) -> None:
    shop.run([sales()], partitions="2024-01-01")
    assert shop.snapshot("sales").partition_columns == ("day",)


def test_downstream_loads_its_partition_a_range_and_everything(shop: Any) -> None:
    seen: dict[str, Any] = {}

    @dg.asset(partitions_def=DAILY, backfill_policy=SINGLE_RUN)
    def same(sales: pl.DataFrame) -> None:
        seen["same"] = sorted(set(sales["day"].to_list()))

    @dg.asset
    def everything(sales: pl.LazyFrame) -> None:
        seen["all"] = sales.collect().height

    @dg.asset(partitions_def=dg.WeeklyPartitionsDefinition(start_date="2024-01-01", day_offset=1))
    def weekly(sales: pl.DataFrame) -> None:
        seen["weekly"] = sorted(set(sales["day"].to_list()))

    shop.run([sales()], partitions=("2024-01-01", "2024-01-10"))
    shop.run([sales(), same], selection=[same], partitions="2024-01-04")
    assert seen["same"] == [date(2024, 1, 4)]
    shop.run([sales(), same], selection=[same], partitions=("2024-01-04", "2024-01-06"))
    assert seen["same"] == [date(2024, 1, 4), date(2024, 1, 5), date(2024, 1, 6)]
    shop.run([sales(), everything], selection=[everything])
    assert seen["all"] == 20
    shop.run([sales(), weekly], selection=[weekly], partitions="2024-01-01")
    assert seen["weekly"] == [date(2024, 1, day) for day in range(1, 8)]


def test_an_unpartitioned_asset_sees_rows_that_no_partition_claims(shop: Any) -> None:
    seen: list[int] = []

    @dg.asset
    def everything(sales: pl.DataFrame) -> None:
        seen.append(sales.height)

    shop.run([sales()], partitions="2024-01-01")
    other = pl.DataFrame({"day": [date(1999, 1, 1)], "n": [0], "amount": [1]}, schema_overrides={"day": pl.Date})
    with shop.lake.session() as session:
        from duckrun import WriteSpec

        session.execute("shop.sales", WriteSpec("append"), other)
    shop.run([sales(), everything], selection=[everything])
    assert seen == [3]


def test_some_partitions_that_do_not_touch_are_loaded_together(shop: Any) -> None:
    seen: list[Any] = []

    mapping = dg.SpecificPartitionsPartitionMapping(["2024-01-01", "2024-01-03", "2024-01-04"])

    @dg.asset(ins={"sales": dg.AssetIn(partition_mapping=mapping)})
    def ends(sales: pl.DataFrame) -> None:
        seen.append(sorted(set(sales["day"].dt.day().to_list())))

    shop.run([sales()], partitions=("2024-01-01", "2024-01-05"))
    shop.run([sales(), ends], selection=[ends])
    assert seen == [[1, 3, 4]]


def typed(column: pa.Array, definition: dg.PartitionsDefinition, **arguments: Any) -> dg.AssetsDefinition:
    @dg.asset(name="typed", partitions_def=definition, metadata={"partition_expr": "at", **arguments})
    def _typed() -> pa.Table:
        return pa.table({"at": column, "v": list(range(len(column)))})

    return _typed


HOUR = datetime(2024, 1, 1, 5, 30)


@pytest.mark.parametrize(
    ("column", "definition", "key"),
    [
        (pa.array([HOUR], pa.timestamp("us")), dg.HourlyPartitionsDefinition("2024-01-01-00:00"), "2024-01-01-05:00"),
        (
            pa.array([HOUR.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")),
            dg.HourlyPartitionsDefinition("2024-01-01-00:00", timezone="America/New_York"),
            "2024-01-01-00:00",
        ),
        (pa.array(["2024-01-01"]), dg.DailyPartitionsDefinition("2024-01-01"), "2024-01-01"),
        (pa.array([date(2024, 1, 31)]), dg.MonthlyPartitionsDefinition("2024-01-01"), "2024-01-01"),
        (pa.array([20240101]), dg.DailyPartitionsDefinition("20240101", fmt="%Y%m%d"), "20240101"),
        (pa.array(["it's/odd"]), dg.StaticPartitionsDefinition(["it's/odd", "b"]), "it's/odd"),
        (pa.array([7]), dg.StaticPartitionsDefinition(["7", "8"]), "7"),
    ],
    ids=["hourly", "hourly with a zone", "text", "monthly", "whole number", "quote and slash", "static number"],
)
def test_a_partition_is_held_by_a_column_of_its_own_type(shop: Any, column: Any, definition: Any, key: str) -> None:
    for _ in range(2):
        shop.run([typed(column, definition)], partitions=key)
    assert shop.rows("select count(*) from typed") == [(1,)]
    assert shop.version("typed") == 1
    seen: list[int] = []

    @dg.asset(partitions_def=definition)
    def reader(typed: pa.Table) -> None:
        seen.append(typed.num_rows)

    shop.run([typed(column, definition), reader], selection=[reader], partitions=key)
    assert seen == [1]


def test_each_dimension_of_a_multi_partition_is_a_column(shop: Any) -> None:
    both = dg.MultiPartitionsDefinition({"day": DAILY, "shop": dg.StaticPartitionsDefinition(["a", "b"])})

    @dg.asset(partitions_def=both, metadata={"partition_expr": {"day": "day", "shop": "store"}})
    def grid(context: dg.AssetExecutionContext) -> pa.Table:
        keys = context.partition_key.keys_by_dimension  # type: ignore[attr-defined]
        return pa.table({"day": [date.fromisoformat(keys["day"])], "store": [keys["shop"]]})

    for shop_key in ("a", "b", "a"):
        key = dg.MultiPartitionKey({"day": "2024-01-02", "shop": shop_key})
        dg.materialize([grid], instance=shop.instance, resources=shop.resources(), partition_key=key)
    assert shop.rows("select store from grid order by all") == [("a",), ("b",)]


# -- what is refused, and leaves the table as it was


def test_a_missing_partition_expr_names_the_asset_and_what_to_set(shop: Any) -> None:
    @dg.asset(partitions_def=DAILY)
    def sales() -> pa.Table:
        return pa.table({"day": [1]})

    message = shop.error([sales], partitions="2024-01-01")
    assert "Asset sales" in message and "partition_expr" in message
    assert not shop.root.exists()


def test_a_partition_column_missing_from_the_data_is_refused(shop: Any) -> None:
    shop.run([sales()], partitions="2024-01-01")
    message = shop.error([sales(partition_expr="dya")], partitions="2024-01-01")
    assert "Asset sales" in message and "'dya'" in message and "day, n, amount" in message
    assert shop.version("sales") == 0


def test_rows_outside_the_partition_are_refused_and_nothing_is_written(shop: Any) -> None:
    shop.run([sales()], partitions="2024-01-01")

    def broken(value: Any) -> dg.AssetsDefinition:
        @dg.asset(name="sales", partitions_def=DAILY, metadata={"partition_expr": "day"})
        def _sales() -> pl.DataFrame:
            return pl.DataFrame({"day": [date(2024, 1, 1), value], "n": [0, 1], "amount": [1, 1]})

        return _sales

    for value in (date(2024, 1, 2), None):
        message = shop.error([broken(value)], partitions="2024-01-01")
        assert "Asset sales" in message and "outside" in message
    assert shop.version("sales") == 0
    assert shop.rows("select count(*), sum(amount) from sales") == [(2, 2)]


@pytest.mark.parametrize("how", [{"mode": "append"}, {"merge_keys": "n"}, {"mode": "delete+insert", "merge_keys": "n"}])
def test_rows_outside_the_partition_are_refused_in_every_mode(shop: Any, how: dict[str, str]) -> None:
    shop.run([sales()], partitions="2024-01-01")

    @dg.asset(name="sales", partitions_def=DAILY, metadata={"partition_expr": "day", **how})
    def broken() -> pl.DataFrame:
        return pl.DataFrame({"day": [date(2024, 1, 1), date(2024, 1, 2)], "n": [0, 1], "amount": [1, 1]})

    message = shop.error([broken], partitions="2024-01-01")
    assert "Asset sales" in message and "outside" in message
    assert shop.version("sales") == 0


def test_rows_outside_the_partition_are_refused_for_a_new_table_too(shop: Any) -> None:
    definition = dg.DailyPartitionsDefinition("2024-01-01")
    assert "outside" in shop.error([typed(pa.array([date(2024, 1, 2)]), definition)], partitions="2024-01-01")
    assert shop.lake.lake().tables("shop") == []


def test_dates_cannot_hold_hours(shop: Any) -> None:
    hourly = dg.HourlyPartitionsDefinition("2024-01-01-00:00")
    message = shop.error([typed(pa.array([date(2024, 1, 1)]), hourly)], partitions="2024-01-01-05:00")
    assert "Asset typed" in message and "timestamp column" in message


def test_an_hour_that_happens_twice_needs_a_zone(shop: Any) -> None:
    hourly = dg.HourlyPartitionsDefinition("2023-11-05-00:00", timezone="America/New_York")
    column = pa.array([datetime(2023, 11, 5, 1, 30)], pa.timestamp("us"))
    assert "happens twice" in shop.error([typed(column, hourly)], partitions="2023-11-05-01:00")


def test_a_format_that_does_not_sort_is_refused_for_texts(shop: Any) -> None:
    daily = dg.DailyPartitionsDefinition("01/01/2024", fmt="%d/%m/%Y")
    assert "do not sort" in shop.error([typed(pa.array(["01/01/2024"]), daily)], partitions="01/01/2024")


def test_overwrite_of_a_partitioned_asset_is_refused(shop: Any) -> None:
    shop.run([sales()], partitions="2024-01-01")
    assert "every partition" in shop.error([sales(mode="overwrite")], partitions="2024-01-02")
    assert shop.version("sales") == 0


@pytest.mark.spark
def test_spark_replaces_exactly_the_partition_too(shop: Any, with_spark: Any) -> None:
    spark_sales = sales(engine="spark")
    shop.run([sales()], partitions=("2024-01-01", "2024-01-03"))
    shop.run([sales(amount=7, engine="spark")], partitions="2024-01-02", settings=with_spark)
    shop.run([spark_sales], partitions=("2024-01-04", "2024-01-05"), settings=with_spark)
    assert shop.rows("select sum(amount), count(*) from sales") == [(2 + 14 + 2 + 4, 10)]
