"""Time windows and other partitions: exactly those rows are replaced, loaded or refused."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pyarrow as pa
import pytest

import duckrun

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


@pytest.mark.parametrize("predicate", ["n = 1 -- not the others", "n = 1 /* not the others */", "n = 1 or n = 5"])
def test_a_predicate_of_a_partition_may_end_in_a_comment(shop: Any, predicate: str) -> None:
    seen: list[Any] = []

    @dg.asset(partitions_def=DAILY, ins={"sales": dg.AssetIn(metadata={"predicate": predicate})})
    def same(sales: pl.DataFrame) -> None:
        seen.append(sales.select("day", "n").rows())

    shop.run([sales()], partitions=("2024-01-01", "2024-01-02"))
    shop.run([sales(), same], selection=[same], partitions="2024-01-02")
    assert seen == [[(date(2024, 1, 2), 1)]]


def test_an_unpartitioned_asset_sees_rows_that_no_partition_claims(shop: Any) -> None:
    seen: list[int] = []

    @dg.asset
    def everything(sales: pl.DataFrame) -> None:
        seen.append(sales.height)

    shop.run([sales()], partitions="2024-01-01")
    other = pl.DataFrame({"day": [date(1999, 1, 1)], "n": [0], "amount": [1]}, schema_overrides={"day": pl.Date})
    with shop.lake.session() as session:
        session.execute("shop.sales", duckrun.WriteSpec("append"), other)
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
        (pa.array([7]), dg.StaticPartitionsDefinition(["007", "1", "01"]), "007"),
    ],
    ids=["hourly", "hourly with a zone", "text", "monthly", "whole number", "quote and slash", "number", "zeros"],
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


def hours(kind: pa.DataType, key_of: Any, definition: dg.PartitionsDefinition) -> dg.AssetsDefinition:
    """Two rows an hour, at its start and 59 minutes later, for every partition of the run."""

    @dg.asset(name="hours", partitions_def=definition, backfill_policy=SINGLE_RUN, metadata={"partition_expr": "at"})
    def _hours(context: dg.AssetExecutionContext) -> pa.Table:
        starts = [definition.time_window_for_partition_key(key).start for key in context.partition_keys]  # type: ignore[attr-defined]
        rows = [key_of(start.astimezone(UTC) + timedelta(minutes=m), start) for start in starts for m in (0, 59)]
        return pa.table({"at": pa.array(rows, kind), "n": list(range(len(rows)))})

    return _hours


NEW_YORK = "America/New_York"
DOUBLED = dg.HourlyPartitionsDefinition("2023-11-05-00:00", end_date="2023-11-05-04:00", timezone=NEW_YORK)
MISSING = dg.HourlyPartitionsDefinition("2024-03-10-00:00", end_date="2024-03-10-05:00", timezone=NEW_YORK)


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("kind", "key_of"),
    [
        (pa.timestamp("us", "UTC"), lambda instant, start: instant),
        (pa.string(), lambda instant, start: start.strftime("%Y-%m-%d-%H:%M" + ("%z" if start.fold else ""))),
    ],
    ids=["instants", "texts"],
)
@pytest.mark.parametrize("definition", [DOUBLED, MISSING], ids=["the doubled hour", "the missing hour"])
def test_every_hour_of_a_day_that_is_longer_or_shorter_is_a_partition_of_its_own(
    shop: Any, definition: dg.HourlyPartitionsDefinition, kind: pa.DataType, key_of: Any
) -> None:
    keys = definition.get_partition_keys()
    assert len(keys) == (5 if definition is DOUBLED else 4)
    asset = hours(kind, key_of, definition)
    seen: list[int] = []

    @dg.asset(partitions_def=definition, backfill_policy=SINGLE_RUN)
    def reader(hours: pa.Table) -> None:
        seen.append(hours.num_rows)

    for key in [*keys, *keys[1:3]]:
        shop.run([asset], partitions=key)
    assert shop.rows("select count(*) from hours") == [(2 * len(keys),)]
    for key in keys:
        shop.run([asset, reader], selection=[reader], partitions=key)
    shop.run([asset, reader], selection=[reader], partitions=(keys[0], keys[2]))
    assert seen == [2] * len(keys) + [6]
    shop.run([asset], partitions=(keys[0], keys[-1]))
    assert shop.rows("select count(*) from hours") == [(2 * len(keys),)]


def test_a_clock_without_a_zone_holds_the_hours_that_it_can_tell_apart(shop: Any) -> None:
    asset = hours(pa.timestamp("us"), lambda instant, start: start.replace(tzinfo=None), DOUBLED)
    shop.run([asset], partitions="2023-11-05-00:00")
    shop.run([asset], partitions="2023-11-05-02:00")
    for key in ("2023-11-05-01:00", "2023-11-05-01:00-0500"):
        assert "happens twice" in shop.error([asset], partitions=key)
    shop.run([asset], partitions=("2023-11-05-00:00", "2023-11-05-02:00"))
    assert shop.rows("select count(*) from hours") == [(8,)]


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("zone", "day"), [("America/Havana", "2024-11-03"), ("Africa/Cairo", "2024-04-26")])
@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.string(), pa.timestamp("us", "UTC")])
def test_a_day_whose_midnight_happens_twice_or_never_is_a_day(shop: Any, zone: str, day: str, kind: Any) -> None:
    definition = dg.DailyPartitionsDefinition(day, timezone=zone)
    window = definition.time_window_for_partition_key(day)
    if kind == pa.timestamp("us", "UTC"):
        first, last = window.start, (window.end.astimezone(UTC) - timedelta(seconds=1))
        column = pa.array([first.astimezone(UTC), last], kind)
    else:
        start = datetime.fromisoformat(day)
        column = pa.array([start, start + timedelta(hours=23, minutes=59)], pa.timestamp("us"))
        column = pa.array([day, day]) if kind == pa.string() else column.cast(kind, safe=False)
    shop.run([typed(column, definition)], partitions=day)
    shop.run([typed(column, definition)], partitions=day)
    assert shop.rows("select count(*) from typed") == [(2,)]


@pytest.mark.parametrize(
    ("column", "definition", "key"),
    [
        (pa.array(["2024-01"]), dg.MonthlyPartitionsDefinition("2024-01", fmt="%Y-%m"), "2024-01"),
        (pa.array([202401]), dg.MonthlyPartitionsDefinition("202401", fmt="%Y%m"), "202401"),
        (pa.array([date(2024, 1, 9)]), dg.WeeklyPartitionsDefinition("2024-01-07"), "2024-01-07"),
        (pa.array([7]), dg.StaticPartitionsDefinition(["07", "8"]), "07"),
        (pa.array(["a b/c=d%e'f\"g"]), dg.StaticPartitionsDefinition(["a b/c=d%e'f\"g", "b"]), "a b/c=d%e'f\"g"),
    ],
    ids=["text month", "whole month", "week of dates", "padded number", "odd text"],
)
def test_the_rows_of_a_partition_are_counted(shop: Any, column: Any, definition: Any, key: str) -> None:
    result = shop.run([typed(column, definition)], partitions=key)
    event = result.asset_materializations_for_node("typed")[0]
    assert event.metadata["dagster/partition_row_count"].value == 1


def test_a_single_run_over_static_partitions_replaces_exactly_those(shop: Any) -> None:
    names = dg.StaticPartitionsDefinition(["a", "b", "c", "d"])

    @dg.asset(partitions_def=names, backfill_policy=SINGLE_RUN, metadata={"partition_expr": "name"})
    def named(context: dg.AssetExecutionContext) -> pa.Table:
        keys = list(context.partition_keys)
        return pa.table({"name": keys, "run": [len(keys)] * len(keys)})

    seen: list[list[str]] = []

    @dg.asset(partitions_def=names, backfill_policy=SINGLE_RUN)
    def reader(named: pa.Table) -> None:
        seen.append(sorted(named["name"].to_pylist()))

    shop.run([named], partitions=("a", "d"))
    result = shop.run([named], partitions=("b", "c"))
    assert {event.partition for event in result.asset_materializations_for_node("named")} == {"b", "c"}
    assert shop.rows("select * from named order by name") == [("a", 4), ("b", 2), ("c", 2), ("d", 4)]
    shop.run([named, reader], selection=[reader], partitions=("a", "c"))
    assert seen == [["a", "b", "c"]]


def test_partitions_that_are_added_while_running(shop: Any) -> None:
    stores = dg.DynamicPartitionsDefinition(name="stores")
    shop.instance.add_dynamic_partitions("stores", ["n/1", "s'2"])

    @dg.asset(partitions_def=stores, metadata={"partition_expr": "store"})
    def takings(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"store": [context.partition_key], "n": [1]})

    @dg.asset
    def total(takings: pa.Table) -> None:
        seen.append(takings.num_rows)

    seen: list[int] = []
    for key in ("n/1", "s'2", "n/1"):
        shop.run([takings], partitions=key)
    shop.run([takings, total], selection=[total])
    shop.instance.add_dynamic_partitions("stores", ["x"])
    assert "has no partition x; it has n/1, s'2" in shop.error(
        [takings, reader_of(takings)], selection=["reader"], partitions="x"
    )
    assert seen == [2]


def reader_of(upstream: dg.AssetsDefinition, **metadata: Any) -> dg.AssetsDefinition:
    """A reader with the partitions of what it reads."""
    name = upstream.key.path[-1]

    @dg.asset(name="reader", partitions_def=upstream.partitions_def, ins={name: dg.AssetIn(metadata=metadata)})
    def reader(**inputs: Any) -> None: ...

    return reader


# -- every mapping of partitions that Dagster has

WEEKS = dg.WeeklyPartitionsDefinition(start_date="2024-01-01", day_offset=1, end_date="2024-01-15")
HALVES = dg.StaticPartitionsDefinition(["first", "second"])
GRID = dg.MultiPartitionsDefinition({"day": DAILY, "half": HALVES})


def mapped(
    shop: Any, mapping: dg.PartitionMapping | None, definition: dg.PartitionsDefinition | None, key: Any
) -> list[int]:
    """The days that a downstream partition loads of ten days of sales."""
    seen: list[int] = []

    def body(sales):
        seen.extend(sorted(set(sales["day"].dt.day().to_list())))

    body.__annotations__ = {"sales": pl.DataFrame, "return": None}
    reader = dg.asset(name="reader", partitions_def=definition, ins={"sales": dg.AssetIn(partition_mapping=mapping)})(
        body
    )
    shop.run([sales(), reader], selection=["reader"], partitions=key)
    return seen


def test_rows_of_no_partition_are_read_by_an_asset_without_partitions_alone(shop: Any) -> None:
    """A table with rows of a day that is no partition, beside ten days."""
    whole, ten = ("2024-01-01", "2024-01-10"), list(range(1, 11))
    shop.run([sales()], partitions=whole)
    with shop.lake.session() as session:
        session.sql("insert into shop.sales select day + 20 as day, n, amount from shop.sales where day = '2024-01-10'")
    every = [*ten, 30]
    assert mapped(shop, None, None, None) == mapped(shop, dg.AllPartitionMapping(), None, None) == every
    assert mapped(shop, dg.SpecificPartitionsPartitionMapping(DAILY.get_partition_keys()), None, None) == ten
    assert mapped(shop, None, DAILY, whole) == ten
    assert mapped(shop, dg.AllPartitionMapping(), DAILY, whole) == ten
    assert mapped(shop, dg.AllPartitionMapping(), DAILY, "2024-01-03") == ten

    seen: list[int] = []

    @dg.asset
    def all_of_it(sales: pl.DataFrame) -> None:
        seen.extend(sorted(sales["day"].dt.day().to_list()))

    shop.run([sales(), all_of_it], partitions="2024-01-03")
    assert sorted(set(seen)) == every, "in a run of one partition, too"


def test_every_partition_mapping_loads_exactly_what_it_maps(shop: Any) -> None:
    shop.run([sales()], partitions=("2024-01-01", "2024-01-10"))
    day, ten = "2024-01-03", list(range(1, 11))
    window = dg.TimeWindowPartitionMapping
    by_half = dg.StaticPartitionMapping({"first": "x", "second": ["x", "y"]})
    assert by_half is not None
    assert mapped(shop, None, DAILY, day) == [3]
    assert mapped(shop, dg.IdentityPartitionMapping(), DAILY, day) == [3]
    assert mapped(shop, None, None, None) == ten
    assert mapped(shop, dg.AllPartitionMapping(), DAILY, day) == ten
    assert mapped(shop, dg.LastPartitionMapping(), DAILY, day) == [10]
    assert mapped(shop, dg.LastPartitionMapping(), None, None) == [10]
    assert mapped(shop, dg.AllPartitionMapping(), None, None) == ten
    assert mapped(shop, dg.SpecificPartitionsPartitionMapping([day, "2024-01-05"]), HALVES, "first") == [3, 5]
    assert mapped(shop, window(start_offset=-1), DAILY, day) == [2, 3]
    assert mapped(shop, window(start_offset=-1, end_offset=-1), DAILY, day) == [2]
    assert (
        mapped(
            shop,
            window(start_offset=-1, end_offset=-1, allow_nonexistent_upstream_partitions=True),
            DAILY,
            "2024-01-01",
        )
        == []
    )
    assert mapped(shop, None, WEEKS, "2024-01-01") == list(range(1, 8))
    key = dg.MultiPartitionKey({"day": day, "half": "first"})
    assert mapped(shop, dg.MultiToSingleDimensionPartitionMapping("day"), GRID, key) == [3]
    both = dg.MultiPartitionMapping({"day": dg.DimensionPartitionMapping("day", dg.IdentityPartitionMapping())})
    grid = dg.MultiPartitionsDefinition({"day": DAILY, "other": dg.StaticPartitionsDefinition(["x"])})
    assert grid_days(shop, both, grid) == [(3, "first"), (3, "second")]


def grid_days(shop: Any, mapping: dg.PartitionMapping, definition: dg.PartitionsDefinition) -> list[tuple[int, str]]:
    """What a downstream partition loads of a grid of days and halves."""
    seen: list[tuple[int, str]] = []

    @dg.asset(partitions_def=GRID, metadata={"partition_expr": {"day": "day", "half": "half"}})
    def cells(context: dg.AssetExecutionContext) -> pa.Table:
        keys = context.partition_key.keys_by_dimension  # type: ignore[attr-defined]
        return pa.table({"day": [date.fromisoformat(keys["day"])], "half": [keys["half"]], "n": [1]})

    for key in [(day, half) for day in ("2024-01-03", "2024-01-04") for half in ("first", "second")]:
        shop.run([cells], partitions=dg.MultiPartitionKey({"day": key[0], "half": key[1]}))

    @dg.asset(partitions_def=definition, ins={"cells": dg.AssetIn(partition_mapping=mapping)})
    def reader(cells: pl.DataFrame) -> None:
        seen.extend(sorted((row["day"].day, row["half"]) for row in cells.to_dicts()))

    shop.run([cells, reader], selection=[reader], partitions=dg.MultiPartitionKey({"day": "2024-01-03", "other": "x"}))
    return seen


def test_a_static_mapping_loads_its_partitions(shop: Any) -> None:
    letters = dg.StaticPartitionsDefinition(["a", "b", "c"])
    groups = dg.StaticPartitionsDefinition(["x", "y"])

    @dg.asset(partitions_def=letters, metadata={"partition_expr": "letter"}, backfill_policy=SINGLE_RUN)
    def named(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"letter": list(context.partition_keys), "n": [1] * len(context.partition_keys)})

    mapping = dg.StaticPartitionMapping({"a": "x", "b": ["x", "y"], "c": "y"})
    seen: list[list[str]] = []

    @dg.asset(partitions_def=groups, ins={"named": dg.AssetIn(partition_mapping=mapping)})
    def reader(named: pa.Table) -> None:
        seen.append(sorted(named["letter"].to_pylist()))

    shop.run([named], partitions=("a", "c"))
    shop.run([named, reader], selection=[reader], partitions="x")
    assert seen == [["a", "b"]]


# -- partitions written at once

# Steps of one process take its output from each other, and wait for the processes that copy it, which never end.
NO_COMPUTE_LOGS = {
    "compute_logs": {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"}
}


def test_first_writes_at_once_all_land(shop: Any, tmp_path: Path) -> None:
    keys = DAILY.get_partition_keys()[:8]
    together = threading.Barrier(len(keys))

    @dg.asset(name="sales", partitions_def=DAILY, metadata={"partition_expr": "day"})
    def first(context: dg.AssetExecutionContext) -> pl.DataFrame:
        together.wait(timeout=60)
        return pl.DataFrame({"day": [date.fromisoformat(context.partition_key)], "n": [1]})

    (tmp_path / "dagster").mkdir()
    shop.instance = dg.DagsterInstance.local_temp(str(tmp_path / "dagster"), overrides=NO_COMPUTE_LOGS)
    with ThreadPoolExecutor(len(keys)) as pool:
        runs = list(pool.map(lambda key: shop.run([first], partitions=key), keys))
    assert all(run.success for run in runs)
    assert shop.rows("select count(*), count(distinct day) from sales") == [(8, 8)]


# -- what is refused, and leaves the table as it was


def test_a_partition_that_nobody_wrote_is_an_error_that_lists_those_that_exist(shop: Any) -> None:
    shop.run([sales()], partitions=("2024-01-01", "2024-01-02"))
    message = shop.error([sales(), reader_of(sales())], selection=["reader"], partitions="2024-01-03")
    assert "Input 'sales' (asset sales): Table shop.sales has no partition 2024-01-03" in message
    assert "it has 2024-01-01, 2024-01-02" in message and "allow_missing_partitions" in message
    allowed = reader_of(sales(), allow_missing_partitions=True)
    shop.run([sales(), allowed], selection=["reader"], partitions="2024-01-03")
    with shop.lake.session() as session:  # another program's row is as good as ours
        row = pl.DataFrame({"day": [date(2024, 1, 3)], "n": [0], "amount": [1]})
        session.execute("shop.sales", duckrun.WriteSpec("append"), row)
    shop.run([sales(), reader_of(sales())], selection=["reader"], partitions="2024-01-03")


def test_a_partition_that_was_written_with_no_rows_is_empty_and_not_missing(shop: Any) -> None:
    @dg.asset(name="sales", partitions_def=DAILY, metadata={"partition_expr": "day"})
    def nothing() -> pa.Table:
        return pa.table({"day": pa.array([], pa.date32()), "n": pa.array([], pa.int64())})

    shop.run([nothing], partitions="2024-01-01")
    shop.run([nothing, reader_of(nothing)], selection=["reader"], partitions="2024-01-01")
    assert shop.rows("select count(*) from sales") == [(0,)]


def test_a_failed_second_write_with_a_changed_schema_leaves_the_first_intact(shop: Any) -> None:
    shop.run([sales()], partitions="2024-01-01")

    def changed(frame: pl.DataFrame, **metadata: Any) -> dg.AssetsDefinition:
        @dg.asset(name="sales", partitions_def=DAILY, metadata={"partition_expr": "day", **metadata})
        def _sales() -> pl.DataFrame:
            return frame

        return _sales

    day = pl.lit(date(2024, 1, 1))
    other = pl.DataFrame({"n": [7]}).select(
        day.alias("day"), "n", pl.lit("many").alias("amount"), pl.lit(1).alias("new")
    )
    for frame in (other, other.drop("new"), other.drop("amount", "new")):
        assert "Asset sales" in shop.error([changed(frame)], partitions="2024-01-01")
    assert shop.version("sales") == 0
    assert shop.rows("select count(*), sum(amount) from sales") == [(2, 2)]


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


@pytest.mark.parametrize(
    ("key", "words"), [("01", "'01' and '1' are one value"), ("1", "'1' and '01'"), ("٣", "'٣' cannot be")]
)
def test_whole_numbers_cannot_hold_two_spellings_of_one(shop: Any, key: str, words: str) -> None:
    definition = dg.StaticPartitionsDefinition(["1", "01", "2", "٣"])
    message = shop.error([typed(pa.array([int(key)]), definition)], partitions=key)
    assert "Asset typed" in message and words in message and "text column" in message
    shop.run([typed(pa.array([2]), definition)], partitions="2")


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


@pytest.mark.spark
def test_a_clustered_asset_has_partitions_in_dagster_and_none_in_its_table(shop: Any, with_spark: Any) -> None:
    shop.run([sales(engine="spark", cluster_by="day")], partitions=("2024-01-01", "2024-01-03"), settings=with_spark)
    shop.run([sales(amount=7, engine="spark", cluster_by="day")], partitions="2024-01-02", settings=with_spark)
    assert shop.rows("select sum(amount), count(*) from sales") == [(2 + 14 + 2, 6)]
    snapshot = shop.snapshot("sales")
    assert snapshot.partition_columns == () and "clustering" in snapshot.writer_features


@pytest.mark.parametrize("expression", ["CAST(day AS TIMESTAMP)", "day::date", '"day"', "cast(day as varchar)"])
def test_a_cast_of_the_partition_column_is_that_column(shop: Any, expression: str) -> None:
    for day in ("2024-01-01", "2024-01-02", "2024-01-02"):
        shop.run([sales(partition_expr=expression)], partitions=day)
    assert shop.rows("select day, count(*) from sales group by all order by day") == [
        (date(2024, 1, 1), 2),
        (date(2024, 1, 2), 2),
    ]
    assert shop.snapshot("sales").partition_columns == ("day",)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("date_trunc('day', day)", "date_trunc"),
        ("CAST(n AS TIMESTAMP)", "casts column n"),
        ("CAST(day AS INT)", "casts"),
    ],
)
def test_other_sql_in_partition_expr_is_refused_by_name(shop: Any, expression: str, words: str) -> None:
    message = shop.error([sales(partition_expr=expression)], partitions="2024-01-01")
    assert "Asset sales: metadata 'partition_expr'" in message and words in message
    assert not list(shop.root.rglob("*.parquet"))


def test_what_has_no_partitions_reads_what_is_there_in_the_run_of_a_partition(shop: Any) -> None:
    seen: list[int] = []

    @dg.asset
    def report(sales: pa.Table) -> None:
        seen.append(sales.num_rows)

    @dg.asset_check(asset=report, additional_ins={"sales": dg.AssetIn()})
    def check(sales: pa.Table) -> dg.AssetCheckResult:
        seen.append(sales.num_rows)
        return dg.AssetCheckResult(passed=True)

    for day in ("2024-01-02", "2024-01-03"):
        shop.run([sales(), report, check], partitions=day)
    assert seen == [2, 2, 4, 4]


@pytest.mark.parametrize("empty", [pl.DataFrame({"day": [], "n": [], "amount": []}), pl.DataFrame()])
def test_a_partition_without_rows_takes_the_types_of_the_table(shop: Any, empty: pl.DataFrame) -> None:
    shop.run([sales()], partitions=("2024-01-01", "2024-01-02"))
    before = shop.snapshot("sales").schema

    @dg.asset(name="sales", partitions_def=DAILY, metadata={"partition_expr": "day"})
    def nothing() -> Any:
        frames = [empty, empty.to_pandas(), empty.to_arrow()]
        return frames[shop.version("sales")]

    for _ in range(3):
        shop.run([nothing], partitions="2024-01-02")
    assert shop.snapshot("sales").schema == before
    assert shop.rows("select count(*) from sales") == [(2,)]


def test_checks_without_partitions_read_what_is_there_in_the_runs_of_partitions(shop: Any) -> None:
    days = dg.StaticPartitionsDefinition(["mon", "tue", "wed"])
    seen: list[tuple[str, int]] = []

    @dg.asset(partitions_def=days, metadata={"partition_expr": "day"}, backfill_policy=dg.BackfillPolicy.single_run())
    def visits(context: dg.AssetExecutionContext) -> Any:
        return [{"day": key} for key in context.partition_keys]

    @dg.asset
    def total(visits: pa.Table) -> Any:
        seen.append(("total", visits.num_rows))
        return [{"n": visits.num_rows}]

    @dg.asset_check(asset=visits)
    def has_rows(visits: pa.Table) -> dg.AssetCheckResult:
        seen.append(("check", visits.num_rows))
        return dg.AssetCheckResult(passed=visits.num_rows > 0)

    @dg.asset_check(asset=visits, additional_ins={"total": dg.AssetIn("total")})
    def adds_up(visits: pa.Table, total: pa.Table) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=total.to_pylist() == [{"n": visits.num_rows}])

    parts: list[Any] = ["mon", ("mon", "tue"), "wed"]
    for n, part in enumerate(parts):
        result = shop.run([visits, total, has_rows, adds_up], partitions=part)
        assert sorted(seen) == [("check", n + 1), ("total", n + 1)]
        assert all(each.passed for each in result.get_asset_check_evaluations())
        seen.clear()


def test_an_asset_of_two_distant_days_loads_no_day_between_them(shop: Any) -> None:
    loaded: list[date] = []
    chosen = dg.SpecificPartitionsPartitionMapping(["2024-01-02", "2024-01-03", "2024-01-06"])

    @dg.asset(ins={"sales": dg.AssetIn(partition_mapping=chosen)})
    def report(sales: pl.DataFrame) -> None:
        loaded.extend(sorted(set(sales["day"])))

    shop.run([sales()], partitions=("2024-01-01", "2024-01-08"))
    shop.run([sales(), report], selection=[report])
    assert loaded == [date(2024, 1, 2), date(2024, 1, 3), date(2024, 1, 6)]
