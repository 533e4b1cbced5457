"""Assets that run on Spark as tables of a DuckLake: partitions, changes, and catalogs in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame

import duckrun
from duckrun import SQL, MergeSpec, WriteSpec
from duckrun_dagster import DeltaIOManager, DuckrunResource, SparkResource

pytestmark = pytest.mark.spark
DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-05")
RAW = dg.AssetSpec("raw").with_io_manager_key("io_manager")


@pytest.fixture(params=["sqlite", "postgres"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> DuckrunResource:
    catalog = {"catalog": request.getfixturevalue("postgres_catalog")} if request.param == "postgres" else {}
    return DuckrunResource(root_path=str(tmp_path / "lake"), format="ducklake", **catalog)


@pytest.fixture
def run(lake: DuckrunResource, spark: Any) -> Callable[..., dict[str, Any]]:
    instance = dg.DagsterInstance.ephemeral()
    manager = DeltaIOManager(duckrun=lake, spark=SparkResource())

    def materialize(*assets: Any, **arguments: Any) -> dict[str, Any]:
        done = dg.materialize(assets, instance=instance, resources={"io_manager": manager}, **arguments)
        [found] = done.asset_materializations_for_node(assets[-1].key.path[-1])
        return {name: getattr(value, "value", value) for name, value in found.metadata.items()}

    return materialize


def rows(lake: DuckrunResource, sql: str) -> list[tuple[Any, ...]]:
    with lake.session() as session:
        return [tuple(row.values()) for row in session.sql(sql).collect()]


def test_a_partition_of_a_spark_frame_replaces_itself_alone(
    lake: DuckrunResource, run: Callable[..., dict[str, Any]], spark: Any
) -> None:
    made = {"n": 0}

    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day", "partition_by": "day", "engine": "spark"})
    def visits(context) -> DataFrame:
        made["n"] += 1
        one = f"id + {100 * made['n']} AS id", f"date'{context.partition_key}' AS day", "1.5BD AS price"
        return spark.range(4).selectExpr(*one)

    for key in ("2026-01-01", "2026-01-02", "2026-01-01"):
        told = run(visits, partition_key=key)
    assert (told["engine"], told["writer"], told["rows_inserted"], told["rows_deleted"]) == ("spark", "ducklake", 4, 4)
    assert told["snapshot_id"] == told["version"] and told["dagster/row_count"] == 8
    by_day = "select cast(day as varchar), min(id), count(*) from visits group by day order by day"
    assert rows(lake, by_day) == [("2026-01-01", 300, 4), ("2026-01-02", 200, 4)]
    with lake.session() as session:
        assert {file.partition_values["day"] for file in session.table("visits").snapshot().files()} == {
            "2026-01-01",
            "2026-01-02",
        }

    @dg.asset(partitions_def=DAYS, metadata={"engine": "spark"})
    def seen(visits: DataFrame) -> None:
        assert visits.sparkSession is not None and visits.count() == 4
        assert visits.agg({"id": "min"}).collect()[0][0] == 200

    dg.materialize(
        [visits, seen],
        selection=[seen],
        partition_key="2026-01-02",
        resources={"io_manager": DeltaIOManager(duckrun=lake, spark=SparkResource())},
    )


def test_an_asset_on_spark_follows_what_changed(lake: DuckrunResource, run: Callable[..., dict[str, Any]]) -> None:
    kind: list[Any] = []

    @dg.asset(
        ins={"raw": dg.AssetIn(metadata={"changes": "min_delta", "key": ["id"]})},
        metadata={"merge_keys": "id", "engine": "spark"},
    )
    def copy(raw: DataFrame) -> DataFrame:
        kind.append(raw.sparkSession)
        return raw

    with lake.session() as session:
        session.execute("raw", WriteSpec("overwrite"), SQL("select range as id, range * 10 as v from range(5)"))
    first = run(RAW, copy)
    assert (first["engine"], first["raw_from"], first["rows_inserted"]) == ("spark", -1, 5)
    with lake.session() as session:
        session.sql("update raw set v = 7 where id = 1")
        session.sql("delete from raw where id = 2")
        session.sql("insert into raw values (9, 90)")
    second = run(RAW, copy)
    assert (second["rows_inserted"], second["rows_updated"], second["rows_deleted"]) == (1, 1, 1)
    assert rows(lake, "from copy order by id") == rows(lake, "from raw order by id")
    with lake.session() as session:
        before = session.snapshots(1)[0]["snapshot_id"]
        third = run(RAW, copy)
        assert third["raw_from"] == third["raw_to"] == second["raw_to"]
        assert session.snapshots(1)[0]["snapshot_id"] == before, "nothing changed, and there is another snapshot"
    assert None not in kind and len(kind) >= 2


def test_spark_reads_and_writes_by_a_catalog_in_postgresql(postgres_catalog: str, tmp_path: Path, spark: Any) -> None:
    options: dict[str, Any] = {"format": "ducklake", "catalog": postgres_catalog, "inline_rows": 3}
    with (
        duckrun.connect(tmp_path / "lake", **options) as duck,
        duckrun.connect(tmp_path / "lake", **options, engine="spark", spark=spark) as lake,
    ):
        numbers = spark.range(0, 1000, 1, 3).selectExpr("id", "id % 4 AS part", "id * 1.5D AS x")
        done = lake.execute("t", WriteSpec("error", partition_by=("part",)), numbers)
        assert (done.rows_inserted, done.writer) == (1000, "ducklake") and "workers wrote the files" in done.reason
        first = done.version
        duck.sql("insert into t values (5000, 1, 0.5)")  # in the catalog
        duck.sql("alter table t rename column x to price")
        duck.sql("delete from t where id < 10")
        lake.execute("t", MergeSpec(("id",)), numbers.where("id < 20").selectExpr("id", "part", "-1D AS price"))
        lake.execute(
            "t", WriteSpec("replace", predicate="part = 3"), numbers.where("id = 3").toDF("id", "part", "price")
        )
        for query in (
            "select count(*) as n, sum(price) as s from t",
            f"select count(*) as n, sum(x) as s from t at (version => {first})",
        ):
            assert lake.sql(query).collect() == duck.sql(query).collect()
        for name in ("min_delta", "full_delta"):
            both = [
                sorted(map(repr, session.table("t").changes(name, first, key=["id"]).toArrow().to_pylist()))
                for session in (duck, lake)
            ]
            assert both[0] == both[1] and both[0]
