"""A lake under its names in Spark's catalog, read back by DuckDB. Budget: 15 s with a Spark that runs."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.lake.catalogued import open_lake
from duckrun.lake.lake import Lake
from duckrun.spark import name_tables
from duckrun.storage.locks import lock_path, try_file_lock
from duckrun.values.lake_format import LakeFormat
from duckrun_dagster import DeltaIOManager, DuckrunResource, SparkResource

needs_spark = pytest.mark.spark
NAMES = ("ns_main", "ns_sales", "ns_new", "ns_own", "ns_twin")


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
        registered = name_tables(spark, lake, ["ns_sales.orders"], limit=5)
    assert registered == ["ns_sales.orders"]
    assert "'odd-name'" in caplog.text and "ns_sales.broken" in caplog.text
    if "DUCKRUN_TEST_SPARK_REMOTE" not in os.environ:  # a Connect session finds names when it computes
        with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND") as refused:
            spark.table("ns_sales.broken")
        assert "Spark cannot read table `ns_sales`.`broken`" in refused.value.__notes__[0]

    write_deltalake(orders, pa.table({"id": [3]}), mode="append")
    assert spark.table("ns_sales.orders").count() == 3, "a commit that another writer made later"
    spark.sql("merge into ns_sales.orders t using (select 3L as id) s on t.id = s.id when matched then delete")
    spark.table("ns_sales.orders").write.format("delta").saveAsTable("ns_sales.saved")
    spark.range(3).writeTo("ns_sales.written").using("delta").create()
    spark.range(4).write.saveAsTable("unqualified")
    assert (ids(orders), ids(root, "ns_sales", "saved"), ids(root, "ns_sales", "written")) == (
        [1, 2],
        [1, 2],
        [0, 1, 2],
    )
    assert ids(root, "ns_main", "unqualified") == [0, 1, 2, 3], (
        "a name without schema is of the default schema, and Delta"
    )
    assert {*lake.tables("ns_sales")} >= {"orders", "saved", "written"}

    spark.sql("drop table ns_sales.orders")
    spark.sql("drop table ns_sales.saved")
    assert ids(orders) == [1, 2], "a registered table keeps its files"
    assert not (root / "ns_sales" / "saved").exists(), "one that Spark made is removed"


@needs_spark
def test_of_names_that_differ_in_case_spark_reads_and_writes_none(catalog: Any, tmp_path: Path) -> None:
    spark, root = catalog, tmp_path / "lake"
    tables = {"ns_sales/T": 1, "ns_sales/t": 2, "ns_main/u": 3, "ns_twin/t": 4, "NS_twin/t": 5}
    for name, number in tables.items():
        write_deltalake(str(root / name), pa.table({"id": [number]}))
    lake = Lake(root, schema="ns_main")
    assert name_tables(spark, lake) == ["ns_main.u"]
    for name, twins in {"ns_sales.T": r"ns_sales\.T, ns_sales\.t", "ns_twin.t": "NS_twin, ns_twin"}.items():
        with pytest.raises(InvalidConfig, match=f"has {twins}, which differ in letter case only"):
            name_tables(spark, lake, [name])
        with pytest.raises(InvalidConfig, match=f"has {twins}, which differ in letter case only"):
            spark.sql(f"create database if not exists {name.partition('.')[0]}")
        with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
            spark.table(name)
        for mode in ("append", "overwrite", "overwrite"):
            with pytest.raises(Exception, match="SCHEMA_NOT_FOUND"):
                spark.range(9).write.format("delta").mode(mode).saveAsTable(name)
    assert {name: ids(root, name) for name in tables} == {name: [number] for name, number in tables.items()}


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
    spark.sql.lake = None
    spark.sql(f"create database ns_own location '{tmp_path / 'own'}'")
    write_deltalake(str(tmp_path / "ns_own" / "orders"), pa.table({"id": [1]}))
    with pytest.raises(InvalidConfig, match="has a database ns_own at .*Drop or rename that database"):
        name_tables(spark, Lake(tmp_path, schema="ns_main"))


@needs_spark
def test_a_session_has_the_names_of_one_lake_at_a_time(catalog: Any, tmp_path: Path) -> None:
    spark = catalog
    for name, rows in {"one": [1], "two": [2, 3]}.items():
        write_deltalake(str(tmp_path / name / "ns_sales" / "orders"), pa.table({"id": rows}))
    one, two = (Lake(tmp_path / name, schema="ns_main") for name in ("one", "two"))
    spark.sql("use default")
    name_tables(spark, one, ["ns_new"])
    assert spark.table("ns_sales.orders").count() == 1
    name_tables(spark, two)
    assert spark.table("ns_sales.orders").count() == 2, "not the rows of the lake before"
    spark.range(3).write.format("delta").saveAsTable("ns_new.made")
    assert ids(tmp_path, "two", "ns_new", "made") == [0, 1, 2]
    with pytest.raises(InvalidConfig, match="made table ns_new.made of lake .*two by its name.*Use one lake"):
        name_tables(spark, one)
    assert ids(tmp_path, "two", "ns_new", "made") == [0, 1, 2]
    spark.sql("drop table ns_new.made")
    name_tables(spark, one, limit=0)
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.table("ns_sales.orders").collect()


@needs_spark
def test_lakes_whose_tables_get_no_names(spark: Any, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "ns_sales" / "orders"), pa.table({"id": [1]}))
    with pytest.raises(InvalidConfig, match=r"read-only.*session\.table"):
        name_tables(spark, Lake(tmp_path, read_only=True))
    duck = open_lake(tmp_path / "duck", form=LakeFormat.of("ducklake", None, None, None))
    with pytest.raises(UnsupportedFeature, match="is a DuckLake"):
        name_tables(spark, duck)


@needs_spark
@pytest.mark.skipif("DUCKRUN_TEST_SPARK_REMOTE" in os.environ, reason="DeltaTable needs a plugin of the Connect server")
def test_an_asset_in_pyspark_s_own_words(catalog: Any, tmp_path: Path) -> None:
    @dg.asset(key_prefix="ns_sales", io_manager_key="io")
    def orders() -> pa.Table:
        return pa.table({"id": [1, 2, 3]})

    @dg.asset(key_prefix="ns_sales", deps=[orders], io_manager_key="io")
    def recent(spark: SparkResource) -> None:
        from delta.tables import DeltaTable as Named

        s = spark.session()  # the lake is the IO manager's
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
    result = dg.materialize([orders, recent, after], resources=resources)
    (event,) = (each for each in result.get_asset_materialization_events() if each.asset_key == recent.key)
    assert event.materialization.metadata["duckrun/version"].value == 2, "written, inserted into, deleted from"
    assert event.materialization.metadata["duckrun/versions"].value == "0 to 2"
    assert ids(tmp_path, "ns_sales", "after") == [3, 9]


@needs_spark
@pytest.mark.skipif("DUCKRUN_TEST_SPARK_REMOTE" in os.environ, reason="a Connect session finds names when it computes")
def test_an_asset_that_writes_by_name_reports_versions_of_the_table_that_its_io_manager_names(
    catalog: Any, tmp_path: Path
) -> None:
    @dg.asset(io_manager_key="io")
    def recent(spark: SparkResource) -> None:
        spark.session().range(3).write.format("delta").saveAsTable("ns_sales.recent")

    @dg.asset(key_prefix="ns_sales")
    def plain(spark: SparkResource, duckrun: DuckrunResource) -> None:
        spark.session().range(2).write.format("delta").saveAsTable("ns_sales.plain")

    lake = DuckrunResource(root_path=str(tmp_path), schema="ns_main")
    manager = DeltaIOManager(duckrun=lake, schema="ns_sales")
    result = dg.materialize([recent, plain], resources={"duckrun": lake, "spark": SparkResource(), "io": manager})
    for event in result.get_asset_materialization_events():
        assert event.materialization.metadata["duckrun/version"].value == 0, event.asset_key


@needs_spark
@pytest.mark.skipif("DUCKRUN_TEST_SPARK_REMOTE" in os.environ, reason="a Connect session finds names when it computes")
def test_a_write_by_name_into_the_table_of_another_asset_of_the_run_is_warned_of(catalog: Any, tmp_path: Path) -> None:
    @dg.asset(key_prefix="ns_sales", io_manager_key="io")
    def orders() -> pa.Table:
        return pa.table({"id": [1, 2, 3]})

    @dg.asset(key_prefix="ns_sales", deps=[orders], io_manager_key="io")
    def recent(spark: SparkResource) -> None:
        session = spark.session()
        session.range(3).write.format("delta").saveAsTable("ns_sales.recent")
        spark.session().sql("insert into ns_sales.orders values (9)")

    lake = DuckrunResource(root_path=str(tmp_path), schema="ns_main")
    resources = {"duckrun": lake, "spark": SparkResource(), "io": DeltaIOManager(duckrun=lake)}

    def warnings(*selection: dg.AssetsDefinition) -> list[str]:
        with dg.DagsterInstance.ephemeral() as instance:
            result = dg.materialize(
                [orders, recent], instance=instance, resources=resources, selection=selection, raise_on_error=False
            )
            records = instance.all_logs(result.run_id)
            return [each.user_message for each in records if "which this run materializes too" in each.user_message]

    (told,) = warnings(orders, recent)
    assert "Table ns_sales.orders of asset ns_sales/orders" in told and "got version 1 during" in told
    assert ids(tmp_path, "ns_sales", "orders") == [1, 2, 3, 9]
    shutil.rmtree(tmp_path / "ns_sales" / "recent")
    catalog.sql("drop table if exists ns_sales.recent")
    assert not warnings(recent), "a run that does not materialize the other asset"
    assert ids(tmp_path, "ns_sales", "orders") == [1, 2, 3, 9, 9]


@needs_spark
def test_a_run_s_log_says_which_tables_have_no_names_and_that_another_process_writes_one(
    catalog: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dg.asset(key_prefix="ns_sales", io_manager_key="io")
    def orders(spark: SparkResource) -> None:
        spark.session()

    def said(lake: DuckrunResource) -> str:
        resources = {"spark": SparkResource(), "io": DeltaIOManager(duckrun=lake)}
        with dg.DagsterInstance.ephemeral() as instance:
            result = dg.materialize([orders], resources=resources, instance=instance)
            return "\n".join(record.user_message for record in instance.all_logs(result.run_id))

    lake = DuckrunResource(root_path=str(tmp_path), schema="ns_main")
    other = try_file_lock(lock_path(lake.lake().resolve("ns_sales", "orders")).with_suffix(".names"))
    assert other is not None
    assert "another process writes table ns_sales.orders by its name" in said(lake)
    other.release()
    for _ in range(2):
        assert "another process" not in said(lake), "the run before has let go of it"
    monkeypatch.setattr("duckrun_dagster.resources.names.OTHERS_OF_STEP", 1)
    for name in ("broken", "left_out"):
        (tmp_path / "ns_sales" / name / "_delta_log").mkdir(parents=True)
        (tmp_path / "ns_sales" / name / "_delta_log" / f"{0:020}.json").write_text("no json")
    text = said(lake)
    assert "ns_sales.broken of lake" in text and "has no name in Spark" in text
    assert "1 of 2 tables of lake" in text and "get no names in Spark (limit=1)" in text
    text = said(DuckrunResource(root_path=str(tmp_path / "duck"), format="ducklake"))
    assert "Tables have no names in Spark: Lake" in text and "is a DuckLake" in text


@needs_spark
@pytest.mark.skipif("DUCKRUN_TEST_SPARK_REMOTE" in os.environ, reason="a Connect session finds names when it computes")
def test_a_step_s_session_has_names_of_its_one_lake_and_says_how_to_name_more(catalog: Any, tmp_path: Path) -> None:
    names = [f"ns_sales.t{number:02}" for number in range(10)]
    for name in names:
        write_deltalake(str(tmp_path.joinpath("one", *name.split("."))), pa.table({"id": [1]}))
    one = DuckrunResource(root_path=str(tmp_path / "one"), schema="ns_main")
    other = DuckrunResource(root_path=str(tmp_path / "other"), schema="ns_main")
    duck = DuckrunResource(root_path=str(tmp_path / "duck"), format="ducklake")
    seen: dict[str, Any] = {}

    def listed(session: Any) -> list[str]:
        if not session.catalog.databaseExists("ns_sales"):
            return []
        rows = session.sql("show tables in ns_sales").collect()
        return [f"ns_sales.{row['tableName']}" for row in rows if not row["isTemporary"]]

    @dg.op
    def first(spark: SparkResource, lake: DuckrunResource) -> None:
        session = spark.session()
        seen["first"] = listed(session)
        missing = names[9]
        for read in (session.table, lambda name: session.sql(f"select * from {name}")):
            with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND") as refused:
                read(missing)
            assert "Name the table: session(lake=…, names=" in "".join(refused.value.__notes__)
        assert spark.session(names=[missing]).table(missing).count() == 1

    @dg.op
    def second(spark: SparkResource, lake: DuckrunResource, other: DuckrunResource) -> None:
        seen["second"] = listed(spark.session())
        with pytest.raises(InvalidConfig, match=r"names=\['ns_sales.t00'\].*the step has 2\. Say which"):
            spark.session(names=names[:1])

    @dg.op
    def third(spark: SparkResource, duck: DuckrunResource) -> None:
        seen["third"] = listed(spark.session())

    def run(op: Any, **lakes: DuckrunResource) -> None:
        @dg.job
        def job() -> None:
            op()

        assert job.execute_in_process(resources={"spark": SparkResource(), **lakes}).success

    run(second, lake=one, other=other)
    run(third, duck=duck)
    catalog.range(3).createOrReplaceTempView("t00")  # SHOW TABLES lists it in every schema
    run(first, lake=one)
    catalog.catalog.dropTempView("t00")
    assert seen["second"] == [] and seen["third"] == []
    assert seen["first"] == names[:8], "eight tables that the step does not name"
