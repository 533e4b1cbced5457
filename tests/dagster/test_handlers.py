"""Every type, written by one asset and read by another, on both engines."""

from datetime import UTC, datetime
from typing import Any

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

import duckrun
from duckrun_dagster import DuckrunResource

ROWS = pa.table({"id": [1, 2, 3], "name": ["ann", None, "cy"], "price": [1.5, 2.5, None]})
EXPECTED = sorted(ROWS.to_pylist(), key=lambda row: row["id"])


def _frame(duckrun: DuckrunResource) -> Any:
    session = duckrun.session()
    session.register("given", ROWS)
    return session.sql("select * from given")


def _relation(duckrun: DuckrunResource) -> Any:
    return _frame(duckrun).native


MAKERS: dict[str, Any] = {
    "pyarrow.Table": lambda _: ROWS,
    "pyarrow.RecordBatchReader": lambda _: pa.RecordBatchReader.from_batches(ROWS.schema, ROWS.to_batches()),
    "pyarrow.Dataset": lambda _: ds.dataset(ROWS),
    "duckrun.Frame": _frame,
    "pandas": lambda _: ROWS.to_pandas(types_mapper=pd.ArrowDtype),
    "polars.DataFrame": lambda _: pl.from_arrow(ROWS),
    "polars.LazyFrame": lambda _: pl.from_arrow(ROWS).lazy(),  # type: ignore[union-attr]
    "duckdb on the step's session": _relation,
    "duckdb of its own": lambda _: duckdb.connect().sql(
        "from (values (1,'ann',1.5),(2,null,2.5),(3,'cy',null)) t(id,name,price)"
    ),
    "duckrun.SQL": lambda _: duckrun.SQL(
        "select * from (values (1,'ann',1.5::double),(2,null,2.5),(3,'cy',null)) t(id,name,price)"
    ),
}
TYPES: dict[str, Any] = {
    "pyarrow.Table": pa.Table,
    "pyarrow.RecordBatchReader": pa.RecordBatchReader,
    "pyarrow.Dataset": ds.Dataset,
    "duckrun.Frame": duckrun.Frame,
    "duckrun.Table": duckrun.Table,
    "deltalake.DeltaTable": DeltaTable,
    "pandas": pd.DataFrame,
    "polars.DataFrame": pl.DataFrame,
    "polars.LazyFrame": pl.LazyFrame,
    "duckdb": duckdb.DuckDBPyRelation,
}


def plain(value: Any) -> list[dict[str, Any]]:
    """The rows of any loaded value."""
    if isinstance(value, duckrun.Table):
        value = value.toDF()
    if isinstance(value, DeltaTable):
        value = value.to_pyarrow_table()
    if isinstance(value, ds.Dataset):
        value = value.to_table()
    if isinstance(value, pl.LazyFrame):
        value = value.collect()
    if isinstance(value, pl.DataFrame):
        value = value.to_arrow()
    if isinstance(value, pa.RecordBatchReader):
        value = value.read_all()
    if isinstance(value, pd.DataFrame):
        value = pa.Table.from_pandas(value, preserve_index=False)
    if isinstance(value, duckdb.DuckDBPyRelation):
        value = value.to_arrow_table()
    if not isinstance(value, pa.Table):
        value = value.toArrow()
    rows = [{**row, "price": None if row["price"] is None else float(row["price"])} for row in value.to_pylist()]
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("maker", MAKERS)
def test_a_value_of_each_type_is_written_and_replaced(shop: Any, metadata: Any, maker: str) -> None:
    @dg.asset
    def goods(duckrun: DuckrunResource):
        return MAKERS[maker](duckrun)

    result = shop.run([goods])
    assert metadata(result, "goods")["dagster/row_count"] == 3
    assert metadata(result, "goods")["engine"] == "duckdb"
    shop.run([goods])
    assert shop.version("shop.goods") == 1
    with duckrun.connect(shop.root) as session:
        assert plain(session.scan("shop.goods").toArrow()) == EXPECTED


@pytest.mark.parametrize("declared", TYPES)
def test_an_input_is_loaded_as_the_type_it_declares(shop: Any, declared: str) -> None:
    seen: dict[str, Any] = {}

    @dg.asset
    def goods():
        return ROWS

    def body(goods):
        seen["type"], seen["rows"] = type(goods), plain(goods)

    body.__annotations__ = {"goods": TYPES[declared], "return": None}
    shop.run([goods, dg.asset(name="reader")(body)])
    assert issubclass(seen["type"], TYPES[declared])
    assert seen["rows"] == EXPECTED


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        ("pyarrow", pa.Table),
        ("pyarrow_reader", pa.RecordBatchReader),
        ("pyarrow_dataset", ds.Dataset),
        ("deltalake", DeltaTable),
        ("duckrun", duckrun.Frame),
        ("duckrun_table", duckrun.Table),
        ("pandas", pd.DataFrame),
        ("polars", pl.DataFrame),
        ("polars_lazy", pl.LazyFrame),
        ("duckdb", duckdb.DuckDBPyRelation),
    ],
)
def test_an_input_without_a_type_gets_the_default_type(shop: Any, default: str, expected: type) -> None:
    @dg.asset
    def goods():
        return ROWS

    @dg.asset
    def reader(goods) -> None:
        assert isinstance(goods, expected)

    shop.run([goods, reader], settings={"default_type": default})


def test_an_input_names_its_type_so_that_nothing_is_imported_for_an_annotation(shop: Any) -> None:
    @dg.asset
    def goods():
        return ROWS

    @dg.asset(ins={"goods": dg.AssetIn(metadata={"type": "pandas"})})
    def reader(goods) -> None:
        assert isinstance(goods, pd.DataFrame)

    @dg.asset(ins={"goods": dg.AssetIn(metadata={"type": "panda"})})
    def wrong(goods) -> None: ...

    shop.run([goods, reader])
    message = shop.error([goods, wrong])
    assert "Input 'goods' (asset goods): metadata 'type' is 'panda'; it takes one of pyarrow" in message


def test_a_lazy_frame_passes_through_an_asset_without_being_collected(shop: Any) -> None:
    @dg.asset
    def goods():
        return pl.from_arrow(ROWS).lazy()  # type: ignore[union-attr]

    @dg.asset
    def dear(goods: pl.LazyFrame) -> pl.LazyFrame:
        return goods.filter(pl.col("price") > 2).select("id")

    shop.run([goods, dear])
    assert shop.rows("select * from dear") == [(2,)]


def test_sql_reads_upstream_tables_by_name(shop: Any) -> None:
    @dg.asset
    def goods():
        return ROWS

    @dg.asset(deps=[goods])
    def dear():
        return duckrun.SQL("select id from shop.goods where price > 2")

    shop.run([goods, dear])
    assert shop.rows("select * from dear") == [(2,)]


def test_columns_predicate_and_version_narrow_an_input(shop: Any) -> None:
    seen: list[Any] = []

    @dg.asset
    def goods(context: dg.AssetExecutionContext):
        return ROWS if not seen else ROWS.slice(0, 1)

    def reader(**metadata: Any) -> dg.AssetsDefinition:
        @dg.asset(name="reader", ins={"goods": dg.AssetIn(metadata=metadata)})
        def _reader(goods: pa.Table) -> None:
            seen.append(goods.to_pydict())

        return _reader

    shop.run([goods, reader(columns=["name", "id"], predicate="price > 2")])
    assert seen[-1] == {"name": [None], "id": [2]}
    shop.run([goods, reader(columns="id")])
    assert seen[-1] == {"id": [1]}
    shop.run([goods, reader(columns="id", version=0)])
    assert seen[-1] == {"id": [1, 2, 3]}
    with shop.lake.session() as session:
        first = session.table("shop.goods").history()[-1]
    moment = datetime.fromtimestamp(first["timestamp"] / 1000, tz=UTC)
    shop.run([goods, reader(columns="id", timestamp=moment.isoformat())])
    assert seen[-1] == {"id": [1, 2, 3]}


def reader_of(as_type: Any, seen: list[Any], **metadata: Any) -> dg.AssetsDefinition:
    """An asset that loads ``goods`` as a type, and notes what it got."""

    def body(goods):
        seen.append(goods if isinstance(goods, DeltaTable) else plain(goods))

    body.__annotations__ = {"goods": as_type, "return": None}
    return dg.asset(name="reader", ins={"goods": dg.AssetIn(metadata=metadata)})(body)


def test_a_dataset_is_filtered_by_the_predicate_of_the_input(shop: Any) -> None:
    @dg.asset
    def goods():
        return ROWS

    seen: list[Any] = []
    shop.run([goods, reader_of(ds.Dataset, seen, predicate="price between 2 and 3 or name = 'cy'")])
    assert [row["id"] for row in seen[0]] == [2, 3]
    message = shop.error([goods, reader_of(ds.Dataset, seen, predicate="price > id")])
    assert "Input 'goods' (asset goods)" in message and "pyarrow.dataset.Dataset cannot be filtered" in message


def test_a_handle_is_of_the_version_that_the_step_reads_and_of_the_whole_table(shop: Any) -> None:
    @dg.asset
    def goods():
        return ROWS

    seen: list[Any] = []
    shop.run([goods])
    shop.run([goods, reader_of(DeltaTable, seen, version=0)])
    assert seen[0].version() == 0
    for as_type, metadata, what in (
        (DeltaTable, {"columns": ["id"]}, "'columns' cannot narrow"),
        (duckrun.Table, {"predicate": "id > 1"}, "'predicate' cannot narrow"),
        (duckrun.Table, {"version": 0}, "toDF(version="),
        (ds.Dataset, {"columns": ["id"]}, "to_table(columns="),
    ):
        message = shop.error([goods, reader_of(as_type, seen, **metadata)])
        assert "Input 'goods' (asset goods)" in message and what in message


def test_a_handle_is_no_value_to_write(shop: Any) -> None:
    @dg.asset
    def goods():
        return ROWS

    @dg.asset
    def handle(goods: duckrun.Table) -> duckrun.Table:
        return goods

    @dg.asset
    def delta(goods: DeltaTable) -> DeltaTable:
        return goods

    assert "Asset handle: a duckrun.Table is a handle" in shop.error([goods, handle])
    assert "Asset delta: a deltalake.DeltaTable is a handle" in shop.error([goods, delta])


def test_a_type_of_ones_own_needs_one_class(shop: Any) -> None:
    from duckrun_dagster import DeltaIOManager, TypeHandler

    class Ids(list):
        pass

    class IdsHandler(TypeHandler[Ids]):
        def to_source(self, value: Ids) -> Any:
            return pa.table({"id": list(value)})

        def from_scan(self, scan: Any, as_type: type) -> Ids:
            return Ids(row["id"] for row in scan.frame().collect())

    class Manager(DeltaIOManager):
        def handlers(self) -> Any:
            return [IdsHandler()]

    @dg.asset
    def goods() -> Ids:
        return Ids([1, 2])

    @dg.asset
    def reader(goods: Ids) -> None:
        assert sorted(goods) == [1, 2]

    manager = Manager(duckrun=shop.lake)
    assert dg.materialize([goods, reader], resources={"io_manager": manager}, instance=shop.instance).success


def test_a_type_that_is_not_known_is_refused_with_those_that_are(shop: Any) -> None:
    @dg.asset
    def goods():
        return {"id": [1]}

    message = shop.error([goods])
    assert "Asset goods returned a dict" in message and "pandas.DataFrame" in message and "pyspark" in message


def test_returning_none_is_an_error_and_not_an_empty_table(shop: Any) -> None:
    @dg.asset
    def goods():
        return None

    assert "Asset goods returned None" in shop.error([goods])


def test_a_spark_output_without_spark_is_refused_by_the_asset(shop: Any) -> None:
    class DataFrame:
        pass

    DataFrame.__module__ = "pyspark.sql.classic.dataframe"

    @dg.asset
    def goods():
        return DataFrame()

    @dg.asset(metadata={"engine": "spark"})
    def bads():
        return ROWS

    message = shop.error([goods])
    assert "Asset goods" in message and "SparkResource" in message
    assert "Asset bads" in shop.error([bads])
    assert not shop.root.exists() or not list(shop.root.rglob("*.parquet"))


@pytest.mark.spark
def test_a_spark_frame_is_written_and_read_by_spark(shop: Any, with_spark: Any, spark: Any, metadata: Any) -> None:
    from pyspark.sql import DataFrame

    seen: dict[str, Any] = {}

    @dg.asset
    def goods():
        return spark.createDataFrame(ROWS)

    @dg.asset
    def dear(goods: DataFrame) -> DataFrame:
        seen["type"] = type(goods)
        return goods.where("price > 2").select("id")

    @dg.asset
    def embedded(goods: pl.LazyFrame) -> pl.LazyFrame:
        return goods.select("id", "price")

    @dg.asset
    def back(embedded: DataFrame) -> DataFrame:
        return embedded

    result = shop.run([goods, dear, embedded, back], settings=with_spark)
    assert metadata(result, "goods")["engine"] == "spark"
    assert metadata(result, "goods")["dagster/row_count"] == 3
    assert metadata(result, "embedded")["engine"] == "duckdb"
    assert metadata(result, "back")["engine"] == "spark"
    assert issubclass(seen["type"], DataFrame)
    assert shop.rows("select id from dear") == [(2,)]
    assert shop.rows("select count(*), sum(price) from back") == [(3, 4.0)]


@pytest.mark.spark
@pytest.mark.parametrize(
    "maker", ["pyarrow.Table", "pandas", "polars.LazyFrame", "duckrun.SQL", "pyarrow.RecordBatchReader"]
)
def test_one_line_of_metadata_changes_the_engine(shop: Any, with_spark: Any, metadata: Any, maker: str) -> None:
    def body(engine: str) -> Any:
        @dg.asset(name="goods", metadata={"engine": engine})
        def goods(duckrun: DuckrunResource):
            return MAKERS[maker](duckrun)

        return goods

    for engine in ("spark", "duckdb", "spark"):
        result = shop.run([body(engine)], settings=with_spark)
        assert metadata(result, "goods")["engine"] == engine
        with duckrun.connect(shop.root) as session:
            assert plain(session.scan("shop.goods").toArrow()) == EXPECTED
    assert shop.version("shop.goods") == 2


@pytest.mark.spark
def test_deleted_rows_are_left_out_by_every_type_or_refused_by_its_name(shop: Any, spark: Any) -> None:
    @dg.asset
    def goods():
        return ROWS

    shop.run([goods])
    path = f"delta.`{shop.root}/shop/goods`"
    spark.sql(f"ALTER TABLE {path} SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)")
    spark.sql(f"DELETE FROM {path} WHERE id = 2")
    assert any(file.deletion_vector for file in shop.snapshot("goods").files())
    seen: list[Any] = []
    kinds = (pa.Table, pa.RecordBatchReader, pd.DataFrame, pl.DataFrame, pl.LazyFrame, duckdb.DuckDBPyRelation)
    for as_type in (*kinds, duckrun.Frame, duckrun.Table):
        shop.run([goods, reader_of(as_type, seen)], selection=["reader"])
        assert [row["id"] for row in seen[-1]] == [1, 3]
    message = shop.error([goods, reader_of(ds.Dataset, seen)], selection=["reader"])
    assert "Table shop.goods at version 2 has deletion vectors (1 of its files" in message
    assert "pyarrow.dataset.Dataset cannot represent" in message and "polars.LazyFrame" in message
