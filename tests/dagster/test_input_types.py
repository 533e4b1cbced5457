"""Inputs that may be missing, inputs with a value for each partition, and the smaller types of rows."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import duckrun

DAYS = dg.StaticPartitionsDefinition(["it's é %20", "mon", "tue"])
DAY, NIGHT = date(2020, 1, 1), datetime(2020, 1, 1, 23)
ROWS = pa.table({"id": [1, 2], "name": ["ann", None]})


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
def sales(context: dg.AssetExecutionContext) -> pa.Table:
    return pa.table({"day": [context.partition_key], "n": [len(context.partition_key)]})


def reader_of(annotation: Any, seen: list[Any], upstream: str = "sales", **arguments: Any) -> dg.AssetsDefinition:
    def body(**inputs: Any) -> None:
        seen.append(inputs[upstream])

    metadata = arguments.pop("metadata", {})
    asset_in = dg.AssetIn(metadata=metadata, dagster_type=dagster_type_of(annotation))
    return dg.asset(name="reader", ins={upstream: asset_in}, **arguments)(body)


def dagster_type_of(annotation: Any) -> Any:
    """The type that Dagster makes of an annotation."""

    def probe(given):
        return given

    probe.__annotations__ = {"given": annotation}
    return dg.op(probe).ins["given"].dagster_type


@pytest.mark.parametrize("as_type", [pa.Table, pd.DataFrame, pl.DataFrame, pl.LazyFrame])
def test_an_optional_input_is_none_until_its_table_is_there(shop: Any, as_type: type) -> None:
    seen: list[Any] = []
    goods = dg.asset(name="goods")(lambda: ROWS)
    reader = reader_of(as_type | None, seen, "goods")
    shop.run([goods, reader], selection=["reader"])
    assert seen == [None]
    shop.run([goods, reader])
    assert isinstance(seen[1], as_type)
    missing = shop.error(
        [dg.asset(name="absent")(lambda: ROWS), reader_of(as_type, seen, "absent")], selection=["reader"]
    )
    assert "There is no table shop.absent" in missing


def test_an_optional_partition_is_none_where_nobody_wrote_it(shop: Any) -> None:
    seen: list[Any] = []
    reader = reader_of(pa.Table | None, seen, partitions_def=DAYS)
    shop.run([sales], partitions="mon")
    shop.run([sales, reader], selection=["reader"], partitions="tue")
    shop.run([sales, reader], selection=["reader"], partitions="mon")
    assert seen[0] is None and seen[1].to_pydict() == {"day": ["mon"], "n": [3]}


def test_none_of_an_optional_output_writes_nothing_and_leaves_the_table(shop: Any) -> None:
    values: list[Any] = [None, ROWS, None]

    @dg.asset
    def goods() -> pa.Table | None:
        return values.pop(0)

    shop.run([goods])
    assert not shop.root.exists() or not list(shop.root.rglob("*.parquet"))
    shop.run([goods])
    shop.run([goods])
    assert shop.version("goods") == 0
    assert shop.rows("select count(*) from goods") == [(2,)]


def test_a_dict_has_a_value_for_each_partition_that_is_there(shop: Any) -> None:
    for day in ("it's é %20", "tue"):
        shop.run([sales], partitions=day)
    seen: list[Any] = []
    shop.run([sales, reader_of(dict[str, pl.DataFrame], seen)], selection=["reader"])
    assert {key: frame.rows() for key, frame in seen[0].items()} == {
        "it's é %20": [("it's é %20", 10)],
        "tue": [("tue", 3)],
    }
    shop.run([sales, reader_of(list[pd.DataFrame], seen, metadata={"columns": "n"})], selection=["reader"])
    assert [frame.to_dict("list") for frame in seen[1]] == [{"n": [10]}, {"n": [3]}]
    shop.run([sales, reader_of(dict[str, pa.Table | None], seen)], selection=["reader"])
    assert seen[2]["mon"] is None and seen[2]["tue"].num_rows == 1


def test_partitions_that_a_mapping_names_are_there_in_a_fan_in_or_refused(shop: Any) -> None:
    shop.run([sales], partitions="mon")
    named = dg.StaticPartitionMapping({"mon": "all", "tue": "all"})
    parts = dg.StaticPartitionsDefinition(["all"])
    seen: list[Any] = []

    def reader(annotation: Any, **metadata: Any) -> dg.AssetsDefinition:
        asset_in = dg.AssetIn(
            "sales", partition_mapping=named, metadata=metadata, dagster_type=dagster_type_of(annotation)
        )

        @dg.asset(partitions_def=parts, ins={"sales": asset_in})
        def reader(sales) -> None:
            seen.append({key: frame.collect().height for key, frame in sales.items()})

        return reader

    message = shop.error([sales, reader(dict[str, pl.LazyFrame])], selection=["reader"], partitions="all")
    assert "Table shop.sales has no partition tue; it has mon" in message
    reads = reader(dict[str, pl.LazyFrame], allow_missing_partitions=True)
    shop.run([sales, reads], selection=["reader"], partitions="all")
    assert seen == [{"mon": 1}]


def test_a_fan_in_that_does_not_fit_says_its_size_before_it_loads(shop: Any, monkeypatch: Any) -> None:
    for day in ("mon", "tue"):
        shop.run([sales], partitions=day)
    monkeypatch.setattr(duckrun.run.memory.Arbiter, "limit", lambda self: 20)
    message = shop.error([sales, reader_of(dict[str, pd.DataFrame], [])], selection=["reader"])
    assert "Input 'sales' (asset sales): 2 partitions of table shop.sales have 2 rows, which take at least" in message
    assert "GB as pandas.DataFrame; this process may use" in message and "polars.LazyFrame" in message
    shop.run([sales, reader_of(dict[str, pl.LazyFrame], [])], selection=["reader"])


def test_a_fan_in_of_what_has_no_partitions_or_of_a_handle_is_refused(shop: Any) -> None:
    goods = dg.asset(name="goods")(lambda: ROWS)
    message = shop.error([goods, reader_of(dict[str, pa.Table], [], "goods")])
    assert "Input 'goods' (asset goods): a dict has a value for each partition, and the asset has none" in message
    shop.run([sales], partitions="mon")
    message = shop.error([sales, reader_of(dict[str, duckrun.Table], [])], selection=["reader"])
    assert "a duckrun.Table is a handle of the whole table" in message


def test_rows_batches_and_series_are_written_and_read(shop: Any) -> None:
    values = {
        "pandas_series": pd.Series([1, 2], name="n"),
        "polars_series": pl.Series("n", [1, 2]),
        "batch": pa.record_batch({"n": [1, 2]}),
        "rows": [{"n": 1}, {"n": 2, "note": "late"}],
    }
    types = {"pandas_series": pd.Series, "polars_series": pl.Series, "batch": pa.RecordBatch, "rows": list[dict]}
    seen: list[Any] = []
    for name, value in values.items():
        shop.run([_asset_of(name, value), reader_of(types[name], seen, name)])
        found = seen.pop()
        assert isinstance(found, list if name == "rows" else types[name])
        if name == "rows":
            assert sorted(found, key=lambda row: row["n"]) == [{"n": 1, "note": None}, {"n": 2, "note": "late"}]
        elif name == "batch":
            assert sorted(found.to_pydict()["n"]) == [1, 2]
        else:
            assert sorted(found.to_list()) == [1, 2] and found.name == "n"


def _asset_of(name: str, value: Any) -> dg.AssetsDefinition:
    @dg.asset(name=name)
    def made():
        return value

    return made


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (pd.Series([1]), "pandas Series without a name"),
        (pl.Series([1]), "polars Series without a name"),
        ([1], "its item 0 is a int"),
        ([{"n": 1}, {"n": "x"}], "column 'n' of the rows holds int (first in row 0) and str (first in row 1)"),
        (
            [{}, {"d": [DAY]}, {"d": [NIGHT]}],
            "column 'd' of the rows holds date (first in row 1) and datetime (first in row 2)",
        ),
        (
            [{"d": NIGHT.astimezone(UTC)}, {"d": NIGHT}],
            "datetime with a time zone (first in row 0) and datetime (first",
        ),
        ([{"d": {"x": pd.Timestamp(1)}}], "column 'd' of the rows has nanoseconds in row 0"),
        ([{"d": pd.NaT}], "column 'd' of the rows cannot be stored"),
        ([{"n": Decimal("Infinity")}], "column 'n' of the rows cannot be stored"),
        ([{"s": "\ud800"}], "column 's' of the rows cannot be stored"),
        ([{"\ud800": 1}], "a column whose name is no text"),
        ([{"e": {}}], "column 'e' has a struct without fields"),
    ],
)
def test_rows_that_are_no_table_are_refused(shop: Any, value: Any, words: str) -> None:
    message = shop.error([_asset_of("goods", value)])
    assert "Asset goods: " in message and words in message
    assert not list(shop.root.rglob("*.parquet"))


def test_a_series_of_several_columns_is_refused_and_one_is_named(shop: Any) -> None:
    goods, seen = _asset_of("goods", ROWS), []
    message = shop.error([goods, reader_of(pd.Series, seen, "goods")])
    assert "a pandas.Series is one column, and 2 of table shop.goods were asked for: id, name" in message
    shop.run([goods, reader_of(pd.Series, seen, "goods", metadata={"columns": "id"})])
    assert sorted(seen[0]) == [1, 2]


def test_an_unknown_type_of_an_input_names_those_that_are_known(shop: Any) -> None:
    class Mine: ...

    goods = _asset_of("goods", ROWS)
    for annotation in (Mine, Mine | None):
        message = shop.error([goods, reader_of(annotation, [], "goods")])
        assert "Input 'goods' (asset goods) has type" in message and "Mine" in message
        assert "polars.LazyFrame" in message and "list[dict]" in message and "dict[str, T]" in message


def test_metadata_of_an_output_is_kept_beside_that_of_the_commit(shop: Any, metadata: Any) -> None:
    @dg.asset
    def goods() -> dg.MaterializeResult[pd.DataFrame]:
        return dg.MaterializeResult(value=pd.DataFrame({"id": [1]}), metadata={"source": "till"})

    @dg.asset
    def more() -> dg.Output[list[dict]]:
        return dg.Output([{"id": 1}], metadata={"source": "till"})

    result = shop.run([goods, more])
    for name in ("goods", "more"):
        found = metadata(result, name)
        assert found["source"] == "till" and found["dagster/row_count"] == 1


@pytest.mark.parametrize("as_type", [pa.Table, pd.DataFrame, pl.DataFrame, pl.LazyFrame, list[dict]])
def test_the_first_partition_of_what_reads_itself_gets_an_empty_frame(shop: Any, as_type: Any) -> None:
    days = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-04")
    before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
    seen: list[int] = []

    asset_in = dg.AssetIn(partition_mapping=before, dagster_type=dagster_type_of(as_type))

    @dg.asset(partitions_def=days, metadata={"partition_expr": "day"}, ins={"total": asset_in})
    def total(context: dg.AssetExecutionContext, total):
        rows = total.collect() if isinstance(total, pl.LazyFrame) else total
        seen.append(len(rows))
        return pa.table({"day": [context.partition_key], "n": [sum(seen) + 1]})

    for day in ("2024-01-01", "2024-01-02", "2024-01-01"):
        shop.run([total], partitions=day)
    assert seen == [0, 1, 0]


def test_the_first_partition_as_a_type_that_needs_columns_is_refused_or_none(shop: Any) -> None:
    import duckdb

    days = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-04")
    before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
    seen: list[Any] = []

    def total(annotation: Any) -> dg.AssetsDefinition:
        asset_in = dg.AssetIn(partition_mapping=before, dagster_type=dagster_type_of(annotation))

        @dg.asset(partitions_def=days, metadata={"partition_expr": "day"}, ins={"total": asset_in})
        def total(context: dg.AssetExecutionContext, total):
            seen.append(total)
            return pa.table({"day": [context.partition_key]})

        return total

    message = shop.error([total(duckdb.DuckDBPyRelation)], partitions="2024-01-01")
    assert "Input 'total' (asset total): the table is not there yet" in message and "Optional[" in message
    shop.run([total(duckdb.DuckDBPyRelation | None)], partitions="2024-01-01")
    assert seen == [None]
