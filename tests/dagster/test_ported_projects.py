"""PySpark projects in assets: the same functions run by plain PySpark and delta-spark first, then by Dagster, and leave the same rows.

Each project has the shape of a kind that is common on GitHub; only its session and the folder of its tables change.
Budget: 60 s with a Spark that runs, of which a day's suite draws a ninth, and 20 s for each of the three that start one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest

import duckrun
from duckrun_dagster import DeltaIOManager, DuckrunResource, SparkResource

pytestmark = [pytest.mark.slow, pytest.mark.spark]

Step = Callable[[Any, Path], None]


@dataclass(frozen=True)
class Project:
    """Steps by ``schema.table`` of the asset that they make; each takes a session and the folder that has the schemas' folders."""

    steps: dict[str, Step]
    runs: int = 1
    others: tuple[str, ...] = ()
    """Tables that steps make beside their assets."""
    hidden: tuple[str, ...] = ()
    """Columns that differ in each run."""

    @property
    def schemas(self) -> set[str]:
        return {name.split(".")[0] for name in [*self.steps, *self.others]}


# -- a job of functions: files, a transformation with a setting, a load


def extract(spark: Any, files: Path) -> Any:
    return spark.read.option("header", "true").csv(str(files))


def transform(visits: Any, rate: int) -> Any:
    from pyspark.sql.functions import abs, col, concat_ws, lit, round, sum

    types = {"hours": "double", "guests": "int", "paid": "double"}
    for column, kind in types.items():
        visits = visits.withColumn(column, col(column).cast(kind))
    visits = visits.withColumn("paid", abs(col("paid"))).withColumn("cost", round(col("hours") * lit(rate), 2))
    return (
        visits.withColumn("label", concat_ws(" ", "house", "room", lit("room")))
        .groupBy("label", "guests")
        .agg(round(sum("paid"), 2).alias("paid"), sum("cost").alias("cost"))
        .orderBy(col("paid").desc())
    )


def visits(spark: Any, root: Path) -> None:
    files = root.parent / f"{root.name}_visits"
    files.mkdir()
    lines = [f"house {n % 3},{n % 2},{n}.5,{n % 4},{'-' if n % 5 else ''}{n * 3}.25" for n in range(40)]
    (files / "a.csv").write_text("\n".join(["house,room,hours,guests,paid", *lines]))
    transform(extract(spark, files), 7).coalesce(1).write.mode("overwrite").saveAsTable("pp_jobs.visits")


# -- layers that are addressed by their folders


def put(frame: Any, path: Path, mode: str = "append", partition_by: str | None = None) -> None:
    writer = frame.write.format("delta").mode(mode).option("mergeSchema", "true")
    (writer.partitionBy(partition_by) if partition_by else writer).save(str(path))


def get(spark: Any, path: Path) -> Any:
    return spark.read.format("delta").load(str(path))


def raw(spark: Any, root: Path) -> None:
    from pyspark.sql.functions import current_timestamp, input_file_name

    files = root.parent / f"{root.name}_people"
    files.mkdir(exist_ok=True)
    (files / "a.csv").write_text("id,name,age\n" + "".join(f"{n % 30},n{n},{n or ''}\n" for n in range(35)))
    (files / "b.json").write_text("\n".join(json.dumps({"id": n, "name": f"j{n}", "age": 130}) for n in (7, 50)))
    schema = "id int, name string, age int"
    people = spark.read.csv(f"{files}/*.csv", header=True, schema=schema)
    people = people.unionByName(spark.read.json(f"{files}/*.json", schema=schema))
    put(people.withColumn("at", current_timestamp()).withColumn("file", input_file_name()), root / "pp_layers/raw", "overwrite")  # fmt: skip


def quality(spark: Any, root: Path) -> None:
    from pyspark.sql.functions import col, sum, when

    people = get(spark, root / "pp_layers/raw")
    total = people.count()
    (counts,) = people.select(
        sum(when(col("age") > 120, 1).otherwise(0)), sum(col("id").isNull().cast("int"))
    ).collect()
    doubles = total - people.dropDuplicates(["id"]).count()
    put(spark.createDataFrame([(total, counts[0], counts[1], doubles)], ["total", "old", "nulls", "doubles"]), root / "pp_layers/quality")  # fmt: skip


def clean(spark: Any, root: Path) -> None:
    from pyspark.sql.functions import col

    people = get(spark, root / "pp_layers/raw").groupBy("id").agg({"age": "max", "name": "min"})
    people = people.withColumnRenamed("max(age)", "age").withColumnRenamed("min(name)", "name").fillna({"age": 45})
    put(
        people.withColumn("decade", (col("age") / 10).cast("int") * 10), root / "pp_layers/clean", "overwrite", "decade"
    )


def gold(spark: Any, root: Path) -> None:
    from pyspark.sql.functions import avg, count

    ages = (
        get(spark, root / "pp_layers/clean").groupBy("decade").agg(avg("age").alias("age"), count("*").alias("people"))
    )
    put(ages, root / "pp_layers/gold", "overwrite", "decade")


# -- tables by their names, with a registry of columns: tableExists, forName, createIfNotExists, read.table, saveAsTable


def columns(spark: Any, root: Path) -> None:
    spark.sql("CREATE SCHEMA IF NOT EXISTS `pp_meta`")
    if not spark.catalog.tableExists("pp_meta.columns"):
        rows = [("id", "string", True), ("name", "string", False), ("seats", "long", False), ("signature", "string", False)]  # fmt: skip
        spark.createDataFrame(rows, "name string, type string, is_key boolean").write.format("delta").saveAsTable("pp_meta.columns")  # fmt: skip


def fields(spark: Any) -> list[Any]:
    from delta import DeltaTable
    from pyspark.sql.types import LongType, StringType, StructField

    types = {"string": StringType(), "long": LongType()}
    rows = DeltaTable.forName(spark, "pp_meta.columns").toDF().collect()
    return [StructField(row.name, types[row.type], not row.is_key) for row in rows]


def staged(spark: Any, root: Path) -> None:
    """The second run updates a school, drops one and adds one; it replaces what is staged of its own upload only."""
    from delta import DeltaTable
    from pyspark.sql.functions import concat_ws, lit, sha2

    spark.sql("CREATE SCHEMA IF NOT EXISTS pp_staging")
    name = "pp_staging.schools"
    upload = DeltaTable.forName(spark, name).toDF().select("upload").distinct().count() if spark.catalog.tableExists(name) else 0  # fmt: skip
    if not upload:
        table = DeltaTable.createOrReplace(spark).tableName(name).addColumns(fields(spark)).addColumn("upload", "int", nullable=False)  # fmt: skip
        table.property("delta.enableChangeDataFeed", "true").partitionedBy("upload").execute()
    else:
        DeltaTable.forName(spark, name).delete(f"upload = {upload}")
    schools = [(f"s{n}", f"school {n}", n * 10 + (1 if n == 3 and upload else 0)) for n in range(upload, 6 + upload)]
    frame = spark.createDataFrame(schools, "id string, name string, seats long")
    frame = frame.withColumn("signature", sha2(concat_ws("|", *sorted(frame.columns)), 256))
    frame.withColumn("upload", lit(upload)).write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable(name)  # fmt: skip


def schools(spark: Any, root: Path) -> None:
    from delta import DeltaTable
    from pyspark.sql.functions import col, max

    spark.sql("CREATE SCHEMA IF NOT EXISTS pp_schools")
    name = "pp_schools.kenya"
    table = DeltaTable.createIfNotExists(spark).tableName(name).addColumns(fields(spark))
    table.property("delta.enableChangeDataFeed", "true").execute()
    pending = spark.read.table("pp_staging.schools")
    last = pending.agg(max("upload")).collect()[0][0]
    pending = pending.where(col("upload") == last).drop("upload")
    values = {column: f"incoming.{column}" for column in pending.columns if column != "id"}
    master = DeltaTable.forName(spark, name).alias("master")
    merge = master.merge(pending.alias("incoming"), col("master.id") == col("incoming.id"))
    merge = merge.whenMatchedUpdate("master.signature <> incoming.signature", values).whenNotMatchedInsertAll()
    merge.whenNotMatchedBySourceDelete().execute()


def counts(spark: Any, root: Path) -> None:
    spark.catalog.refreshTable("pp_schools.kenya")
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
    changes = feed.table("pp_schools.kenya").groupBy("_change_type", "_commit_version").count()
    changes.write.format("delta").mode("overwrite").option("overwriteSchema", "true").saveAsTable("pp_schools.counts")


# -- a script of SQL with a helper table in another format


def script(spark: Any, root: Path) -> None:
    spark.sql("DROP TABLE IF EXISTS pp_script.news")
    for statement in (
        "CREATE TABLE pp_script.numbers (id BIGINT) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)",
        "INSERT INTO pp_script.numbers VALUES 0, 1, 2, 3, 4",
        "CREATE TABLE pp_script.news (id BIGINT) USING parquet",
        "INSERT INTO pp_script.news VALUES 3, 4, 5, 6",
        "MERGE INTO pp_script.numbers t USING pp_script.news s ON t.id = s.id WHEN MATCHED THEN UPDATE SET t.id = s.id + 100 WHEN NOT MATCHED THEN INSERT *",  # fmt: skip
        "DELETE FROM pp_script.numbers WHERE id % 2 = 0",
        "UPDATE pp_script.numbers SET id = id + 1000 WHERE id > 100",
        "DROP TABLE pp_script.news",
        "CREATE TABLE pp_script.changes USING delta AS SELECT id, _change_type, _commit_version FROM table_changes('pp_script.numbers', 1)",  # fmt: skip
        "CREATE TABLE pp_script.first AS SELECT * FROM pp_script.numbers VERSION AS OF 1",
    ):
        spark.sql(statement)


# -- Delta's writers, and a stream


def parts(spark: Any, root: Path) -> None:
    name = "pp_writers.parts"
    spark.range(9).selectExpr("id", "id % 3 as p").write.format("delta").partitionBy("p").saveAsTable(name)
    spark.range(10, 12).selectExpr("id", "1L as p").write.mode("overwrite").option("replaceWhere", "p = 1").saveAsTable(name)  # fmt: skip
    dynamic = spark.range(20, 22).selectExpr("id", "2L as p").write.mode("overwrite")
    dynamic.option("partitionOverwriteMode", "dynamic").saveAsTable(name)
    spark.sql(f"INSERT INTO {name} REPLACE WHERE p = 0 SELECT 30L, 0L")
    spark.range(2).selectExpr("id", "0L as p", "'new' as note").write.mode("append").option("mergeSchema", "true").saveAsTable(name)  # fmt: skip


def itself(spark: Any, root: Path) -> None:
    name = "pp_writers.itself"
    if not spark.catalog.tableExists(name):
        spark.range(3).writeTo(name).using("delta").create()
    spark.table(name).selectExpr("id * 2 as id").write.mode("overwrite").saveAsTable(name)
    first = spark.read.option("versionAsOf", 0).table(name)
    spark.table(name).join(first, "id", "full").write.mode("append").saveAsTable(name)


def streamed(spark: Any, root: Path) -> None:
    """The second run has the rows that the first one has not read."""
    from delta import DeltaTable

    spark.range(2).write.mode("append").saveAsTable("pp_writers.source")
    spark.sql("CREATE TABLE IF NOT EXISTS pp_writers.streamed (id BIGINT, times BIGINT) USING delta")

    def merge(batch: Any, number: int) -> None:
        batch = batch.groupBy("id").count().withColumnRenamed("count", "times")
        target = DeltaTable.forName(spark, "pp_writers.streamed").alias("t")
        merge = target.merge(batch.alias("s"), "t.id = s.id").whenMatchedUpdate(set={"times": "t.times + s.times"})
        merge.whenNotMatchedInsertAll().execute()

    checkpoint = str(root.parent / f"{root.name}_checkpoint")
    stream = spark.readStream.table("pp_writers.source").writeStream.foreachBatch(merge)
    stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


PROJECTS = {
    "a job of functions": Project({"pp_jobs.visits": visits}),
    "layers by folders": Project(
        {"pp_layers.raw": raw, "pp_layers.quality": quality, "pp_layers.clean": clean, "pp_layers.gold": gold},
        runs=2,
        hidden=("at", "file"),
    ),
    "tables by names": Project(
        {
            "pp_meta.columns": columns,
            "pp_staging.schools": staged,
            "pp_schools.kenya": schools,
            "pp_schools.counts": counts,
        },
        runs=2,
    ),  # fmt: skip
    "a script of SQL": Project({"pp_script.numbers": script}, others=("pp_script.changes", "pp_script.first")),
    "writers and a stream": Project(
        {"pp_writers.parts": parts, "pp_writers.itself": itself, "pp_writers.streamed": streamed},
    ),
}


@pytest.fixture
def catalog(spark: Any) -> Iterator[Any]:
    """The shared session, without the databases of these tests before and after one."""

    def forget() -> None:
        spark.sql("use default")
        spark.sql.lake = None
        for name in {schema for project in PROJECTS.values() for schema in project.schemas}:
            spark.sql._sql(f"drop database if exists {name} cascade")  # the guard's own session.sql

    forget()
    yield spark
    forget()


def stored(spark: Any, root: Path, project: Project) -> dict[str, list[str]]:
    """The rows of a project's tables, as plain delta-spark reads their folders."""
    frames = {name: get(spark, root / name.replace(".", "/")) for name in [*project.steps, *project.others]}
    return {name: sorted(map(str, frame.drop(*project.hidden).collect())) for name, frame in frames.items()}


def plainly(spark: Any, root: Path, project: Project) -> dict[str, list[str]]:
    """The rows that plain PySpark leaves, with databases in a folder."""
    for schema in project.schemas:
        spark.sql._sql(f"create database {schema} location '{root / schema}'")
    for _ in range(project.runs):
        for step in project.steps.values():
            step(spark, root)
    rows = stored(spark, root, project)
    for schema in project.schemas:
        spark.sql._sql(f"drop database {schema} cascade")
    return rows


def as_assets(project: Project, root: Path) -> list[dg.AssetsDefinition]:
    """An asset for each step, after the one before."""

    def asset(name: str, step: Step, after: list[dg.AssetKey]) -> dg.AssetsDefinition:
        @dg.asset(key=name.split("."), deps=after, io_manager_key="io")
        def made(spark: SparkResource) -> None:
            step(spark.spark_session, root)

        return made

    keys = [dg.AssetKey(name.split(".")) for name in project.steps]
    return [asset(name, step, keys[max(0, n - 1) : n]) for n, (name, step) in enumerate(project.steps.items())]


@pytest.mark.skipif("DUCKRUN_TEST_SPARK_REMOTE" in os.environ, reason="DeltaTable needs a plugin of the Connect server")
@pytest.mark.parametrize("name", PROJECTS)
def test_a_project_in_assets_has_the_rows_of_plain_pyspark(catalog: Any, tmp_path: Path, name: str) -> None:
    project, root = PROJECTS[name], tmp_path / "lake"
    expected = plainly(catalog, tmp_path / "plain", project)
    lake = DuckrunResource(root_path=str(root), schema=min(project.schemas))
    resources = {"spark": SparkResource(), "io": DeltaIOManager(duckrun=lake)}
    for _ in range(project.runs):
        result = dg.materialize(as_assets(project, root), resources=resources)
        assert result.success
    assert stored(catalog, root, project) == expected
    for table, rows in expected.items():
        schema, _, short = table.partition(".")
        assert rows and lake.lake().snapshot(lake.lake().resolve(schema, short)).version >= 0


STOPS = """
import dagster as dg, sys
from duckrun_dagster import DeltaIOManager, DuckrunResource, SparkResource


@dg.asset(key_prefix="main", io_manager_key="io")
def first(spark: SparkResource) -> None:
    from pyspark.sql import SparkSession

    spark.session().range(3).write.saveAsTable("main.first")
    mine = SparkSession.builder.appName("mine").getOrCreate()
    assert mine is spark.session() and mine.table("first").count() == 3
    mine.stop()


@dg.asset(key_prefix="main", deps=[first], io_manager_key="io")
def second(spark: SparkResource) -> None:
    spark.session().table("first").write.saveAsTable("second")


lake = DuckrunResource(root_path=sys.argv[1])
conf = {"spark.ui.enabled": "false"}
spark = SparkResource(master="local[1]", conf=conf)
assert dg.materialize([first, second], resources={"spark": spark, "io": DeltaIOManager(duckrun=lake)}).success
with lake.session() as session:
    print("rows", session.table("main.second").toDF().count())
"""


@pytest.mark.drawn(3)
def test_a_session_that_a_project_stops_starts_again_with_the_lake_s_names(tmp_path: Path) -> None:
    script = tmp_path / "stops.py"
    script.write_text(STOPS)
    done = subprocess.run([sys.executable, str(script), str(tmp_path / "lake")], capture_output=True, text=True, timeout=240)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rows 3" in done.stdout


SLOW = """
import time, dagster as dg, sys
from duckrun_dagster import DeltaIOManager, DuckrunResource, SparkResource


@dg.asset(key_prefix="main", io_manager_key="io")
def slow(spark: SparkResource) -> None:
    from pyspark.sql.functions import udf

    session = spark.session()
    session.range(3).write.saveAsTable("main.slow")
    nap = udf(lambda n: time.sleep(0.5) or n, "long")
    print("writing", flush=True)
    session.range(0, 400, 1, 2).select(nap("id").alias("id")).write.mode("overwrite").saveAsTable("main.slow")


lake = DuckrunResource(root_path=sys.argv[1])
spark = SparkResource(master="local[2]", conf={"spark.ui.enabled": "false"})
dg.materialize([slow], resources={"spark": spark, "io": DeltaIOManager(duckrun=lake)})
"""


@pytest.mark.drawn(3)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_ends_within_a_write_by_name_leaves_no_java_and_the_table_as_it_was(
    tmp_path: Path, how: signal.Signals
) -> None:
    script = tmp_path / "slow.py"
    script.write_text(SLOW)
    with subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "lake")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as run:
        assert run.stdout is not None
        assert any("writing" in line for line in run.stdout)
        time.sleep(2)
        children = psutil.Process(run.pid).children(recursive=True)
        assert "java" in {child.name() for child in children}
        run.send_signal(how)
        assert run.wait(120) != 0
    _, left = psutil.wait_procs(children, timeout=60)
    assert not left
    with duckrun.connect(tmp_path / "lake") as session:
        assert session.snapshot("main.slow").version == 0
        assert sorted(row["id"] for row in session.table("main.slow").toDF().collect()) == [0, 1, 2]


class ByNames(dg.ConfigurableIOManager):
    """An IO manager of a project's own, in PySpark's words."""

    spark: SparkResource

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        from delta import DeltaTable

        session, name = self.spark.spark_session, ".".join(context.asset_key.path)
        session.sql(f"CREATE SCHEMA IF NOT EXISTS `{context.asset_key.path[0]}`")
        DeltaTable.createIfNotExists(session).tableName(name).addColumns(obj.schema).execute()
        merge = DeltaTable.forName(session, name).alias("m").merge(obj.alias("n"), "m.id = n.id")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().whenNotMatchedBySourceDelete().execute()

    def load_input(self, context: dg.InputContext) -> Any:
        return self.spark.spark_session.read.table(".".join(context.asset_key.path))


@pytest.mark.skipif("DUCKRUN_TEST_SPARK_REMOTE" in os.environ, reason="DeltaTable needs a plugin of the Connect server")
def test_an_io_manager_by_names_has_those_of_the_resource_s_lake(catalog: Any, tmp_path: Path) -> None:
    @dg.asset(key_prefix="pp_schools")
    def rooms(spark: SparkResource):  # type: ignore[no-untyped-def]  # as projects of dagster-pyspark have it
        return spark.spark_session.range(3)

    @dg.asset(key_prefix="pp_schools")
    def seats(rooms):  # type: ignore[no-untyped-def]
        return rooms.selectExpr("id", "id * 20 as seats")

    @dg.op
    def report(spark: SparkResource) -> int:
        return int(spark.spark_session.read.table("pp_schools.seats").agg({"seats": "sum"}).collect()[0][0])

    @dg.job
    def reports() -> None:
        report()

    lake = DuckrunResource(root_path=str(tmp_path), schema="pp_schools")
    spark = SparkResource(duckrun=lake)
    for _ in range(2):
        assert dg.materialize([rooms, seats], resources={"spark": spark, "io_manager": ByNames(spark=spark)}).success
    assert reports.execute_in_process(resources={"spark": spark}).output_for_node("report") == 60
    with lake.session() as session:
        assert session.table("pp_schools.seats").toDF().count() == 3
