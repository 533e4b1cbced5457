"""A lake under its names in Spark's catalog, read back by DuckDB. Budget: 15 s with a Spark that runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.lake.lake import Lake
from duckrun.spark import name_tables
from duckrun.values.lake_format import LakeFormat
from duckrun_dagster import DeltaIOManager, DuckrunResource, SparkResource

needs_spark = pytest.mark.spark
NAMES = ("ns_main", "ns_sales", "ns_new")


@pytest.fixture
def catalog(spark: Any) -> Iterator[Any]:
    """The shared session; databases of these tests are forgotten, with the lake's folders, when a test ends."""
    yield spark
    spark.sql("use default")
    for name in NAMES:
        spark.sql.lake = None
        spark.sql._sql(f"drop database if exists {name} cascade")  # the guard's own session.sql


def ids(*parts: Any) -> list[int]:
    return sorted(DeltaTable("/".join(map(str, parts))).to_pyarrow_table()["id"].to_pylist())


@needs_spark
def test_tables_of_a_lake_are_read_and_written_by_pyspark_s_own_names(
    catalog: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spark, root = catalog, tmp_path / "a lake"
    orders = str(root / "ns_sales" / "orders")
    write_deltalake(orders, pa.table({"id": [1, 2]}))
    write_deltalake(str(root / "ns_sales" / "odd-name"), pa.table({"id": [1]}))
    broken = root / "ns_sales" / "broken" / "_delta_log"
    broken.mkdir(parents=True)
    (broken / f"{0:020}.json").write_text("no json")
    lake = Lake(root, schema="ns_main")
    with caplog.at_level(logging.WARNING):
        assert name_tables(spark, lake, ["ns_sales.orders"], limit=5) == ["ns_sales.orders"]
    assert "'odd-name'" in caplog.text and "ns_sales.broken" in caplog.text

    write_deltalake(orders, pa.table({"id": [3]}), mode="append")
    assert spark.table("ns_sales.orders").count() == 3, "a commit that another writer made later"
    spark.sql("merge into ns_sales.orders t using (select 3L as id) s on t.id = s.id when matched then delete")
    spark.table("ns_sales.orders").write.format("delta").saveAsTable("ns_sales.saved")
    spark.range(3).writeTo("ns_sales.written").using("delta").create()
    spark.range(4).write.format("delta").saveAsTable("unqualified")
    assert (ids(orders), ids(root, "ns_sales", "saved"), ids(root, "ns_sales", "written")) == (
        [1, 2],
        [1, 2],
        [0, 1, 2],
    )
    assert ids(root, "ns_main", "unqualified") == [0, 1, 2, 3], "a name without schema is of the default schema"
    assert {*lake.tables("ns_sales")} >= {"orders", "saved", "written"}

    spark.sql("drop table ns_sales.orders")
    spark.sql("drop table ns_sales.saved")
    assert ids(orders) == [1, 2], "a registered table keeps its files"
    assert not (root / "ns_sales" / "saved").exists(), "one that Spark made is removed"


@needs_spark
def test_databases_are_schemas_of_the_lake_and_are_not_dropped_with_its_tables(catalog: Any, tmp_path: Path) -> None:
    spark = catalog
    write_deltalake(str(tmp_path / "ns_sales" / "orders"), pa.table({"id": [1]}))
    assert name_tables(spark, Lake(tmp_path, schema="ns_main"), limit=0) == []
    for text in ("create schema if not exists ns_new comment 'no location'", "CREATE DATABASE IF NOT EXISTS `ns_new`;"):
        spark.sql(text)
    spark.range(1).write.format("delta").saveAsTable("ns_new.t")
    assert ids(tmp_path, "ns_new", "t") == [0]
    for text in (
        "drop database ns_sales",
        "/* again */ DROP SCHEMA IF EXISTS ns_new CASCADE",
        "drop namespace `ns_new`",
    ):
        with pytest.raises(InvalidConfig, match="is a schema of lake.*delete its folder"):
            spark.sql(text)
    spark.sql("drop schema if exists ns_nowhere")
    assert ids(tmp_path, "ns_sales", "orders") == [1] and ids(tmp_path, "ns_new", "t") == [0]
    with pytest.raises(InvalidConfig, match="has a database ns_main at .*Use one lake"):
        name_tables(spark, Lake(tmp_path / "other", schema="ns_main"))


@needs_spark
def test_lakes_whose_tables_get_no_names(spark: Any, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "ns_sales" / "orders"), pa.table({"id": [1]}))
    with pytest.raises(InvalidConfig, match=r"read-only.*session\.table"):
        name_tables(spark, Lake(tmp_path, read_only=True))
    duck = Lake(tmp_path / "duck", form=LakeFormat.of("ducklake", None, None, None))
    with pytest.raises(UnsupportedFeature, match="is a DuckLake"):
        name_tables(spark, duck)


@needs_spark
@pytest.mark.skipif("DUCKRUN_TEST_SPARK_REMOTE" in os.environ, reason="DeltaTable needs a plugin of the Connect server")
def test_an_asset_in_pyspark_s_own_words(catalog: Any, tmp_path: Path) -> None:
    @dg.asset(key_prefix="ns_sales", io_manager_key="io")
    def orders() -> pa.Table:
        return pa.table({"id": [1, 2, 3]})

    @dg.asset(key_prefix="ns_sales", deps=[orders], io_manager_key="io")
    def recent(duckrun: DuckrunResource, spark: SparkResource) -> None:
        from delta.tables import DeltaTable as Named

        s = spark.session(lake=duckrun.lake())
        s.table("ns_sales.orders").where("id > 1").write.format("delta").mode("overwrite").saveAsTable(
            "ns_sales.recent"
        )
        s.sql("insert into ns_sales.recent values (9)")
        Named.forName(s, "ns_sales.recent").delete("id = 2")

    @dg.asset(key_prefix="ns_sales", io_manager_key="io")
    def after(recent: pa.Table) -> pa.Table:
        return recent

    lake = DuckrunResource(root_path=str(tmp_path), schema="ns_main")
    resources = {"duckrun": lake, "spark": SparkResource(), "io": DeltaIOManager(duckrun=lake)}
    assert dg.materialize([orders, recent, after], resources=resources).success
    assert ids(tmp_path, "ns_sales", "after") == [3, 9]
