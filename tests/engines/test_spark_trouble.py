"""What Spark says when a job fails, as a few lines that say what to do."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from typing import Any

import polars as pl
import pyspark
import pytest

import duckrun
from duckrun import WriteSpec
from duckrun.engines.spark.errors import errors_about
from duckrun.engines.spark.process.trouble import trouble
from duckrun.errors import (
    DuckrunError,
    FunctionFailed,
    InvalidConfig,
    SchemaMismatch,
    StorageError,
    UnsupportedFeature,
)
from duckrun.formats.commits import CommitTaken

JAVA = "\n\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2935)\n\t... 26 more"


@pytest.mark.spark
def test_a_table_that_another_writer_made_meanwhile_is_a_conflict(root: Any, spark: Any) -> None:
    """As the Spark of a killed process does, which ends what it began: the work is then looked for, and found committed."""
    target = f"delta.`{root.as_posix()}/main/t`"
    spark.range(3).writeTo(target).using("delta").create()
    with pytest.raises(CommitTaken), errors_about("error on table main.t", analysis=InvalidConfig):
        spark.range(3).writeTo(target).using("delta").create()
    assert spark.table(target).count() == 3


@pytest.mark.spark
@pytest.mark.drawn(1)
def test_a_row_that_cannot_be_computed_is_an_error_of_ours(root: Any, spark: Any) -> None:
    """PySpark has several classes for it, and an error of py4j for some jobs that write."""
    with duckrun.connect(root, engine="spark", spark=spark) as s:
        s.sql("create table main.t as select 1 as id, 0 as z")
        with pytest.raises(InvalidConfig, match="cannot compute a row: .REMAINDER_BY_ZERO") as read:
            s.sql("select id % z from main.t").toArrow()
        assert str(read.value).startswith("query on table main.t: ") and "written" not in str(read.value)
        for query in ("select (select id from main.t union all select 2)", "select cast('x' || id as int) from main.t"):
            with pytest.raises(
                InvalidConfig, match=r"^query on table main\.t: Spark cannot compute a row: \[[A-Z_]+\]"
            ):
                s.sql(query).toArrow()
        for lacking in ("nofunction", "list_zip"):
            with pytest.raises(InvalidConfig, match=rf"^query: Spark has no function {lacking}\(\)\. Write it with"):
                s.sql(f"select {lacking}([1], [2])")
        for statement in (
            "insert into main.t select id % z, 1 from main.t",
            "update main.t set id = id % z",
            "delete from main.t where id = (select id from main.t union all select 2)",
            "merge into main.t using (select 1 as id, 0 as z) s on t.id = s.id when matched then update set z = s.id % s.z",
            "create table main.u as select id % z as q from main.t",
        ):
            with pytest.raises(InvalidConfig, match=r"main\.[tu]: Spark cannot compute a row.*Nothing was written"):
                s.sql(statement)
        assert s.tables() == ["main.t"] and s.snapshot("main.t").version == 0


REFUSED = {
    "alter table main.t set tblproperties ('delta.feature.columnMapping' = 'yes')": UnsupportedFeature,
    "alter table main.t set tblproperties ('delta.columnMapping.mode' = 'id')": UnsupportedFeature,
    "alter table main.t set tblproperties ('delta.columnMapping.mode' = 'what')": UnsupportedFeature,
    "alter table main.t set tblproperties ('delta.enableIcebergCompatV2' = 'true')": InvalidConfig,
    "alter table main.t set tblproperties ('delta.checkpointPolicy' = 'v3')": InvalidConfig,
    "alter table main.t set tblproperties ('delta.enableDeletionVectors' = 'perhaps')": InvalidConfig,
    "create table main.u (id int) using delta tblproperties ('delta.checkpointPolicy' = 'v3')": InvalidConfig,
    "optimize main.t zorder by (p)": InvalidConfig,
}
"""Statements that Delta refuses as they run, by five classes of Java's, four of them without a class of PySpark's."""


@pytest.mark.spark
def test_what_delta_refuses_as_it_runs_is_an_error_of_ours(root: Any, spark: Any) -> None:
    """By the class of its SQLSTATE, or of Java's exception: each came out as PySpark's or py4j's own, or as a failure of Spark's."""
    with duckrun.connect(root, engine="spark", spark=spark) as s:
        s.sql("create table main.t (id int, p int) using delta partitioned by (p)", dialect="spark")
        for statement, error in REFUSED.items():
            with pytest.raises(error, match=r"on table main\.[tu]: .*Nothing was written") as refused:
                s.sql(statement, dialect="spark")
            assert type(refused.value) is error, statement
        assert s.tables() == ["main.t"] and s.snapshot("main.t").version == 0
        with pytest.raises(
            InvalidConfig, match=r"^query on table main\.t: Spark cannot compute a row: \[DUPLICATED_MAP_KEY"
        ):
            s.sql("insert into main.t values (1, 1); select map {id: 1, p: 2} from main.t").toArrow()
        assert s.sql("select (map {p: 'q'})[1] as v, row(id, p) = (1, 1) as same from main.t").collect() == [
            {"v": "q", "same": True}
        ]


BROKEN = {
    "insert into main.t values (2, -1.0, 'a', 1)": "CHECK constraint positive .v > 0. violated by row with values: - v : -1.0",
    "insert into main.t values (null, 1.0, 'a', 1)": "NOT NULL constraint violated for column: id",
    "insert into main.t values (2, 1.0, 'long', 1)": "[Ee]xceeds .*length limitation",
    "update main.t set v = v - 9": "CHECK constraint positive .v > 0. violated by row with values: - v : -8.0",
    "insert into main.t replace where p = 1 values (2, -1.0, 'a', 1)": "CHECK constraint positive .v > 0. violated",
    "merge into main.t using (select 1 as id) s on t.id = s.id when matched then update set v = -1.0": "positive .v > 0.",
}
"""Statements with a row that Delta refuses, and the reason in its words."""


@pytest.mark.spark
def test_a_row_that_breaks_a_constraint_is_refused_without_names_of_java(root: Any, spark: Any) -> None:
    with duckrun.connect(root, engine="spark", spark=spark) as s:
        s.sql(
            "create table main.t (id int not null, v double, c varchar(2), p int) using delta partitioned by (p)",
            dialect="spark",
        )
        s.sql("alter table main.t add constraint positive check (v > 0)", dialect="spark")
        s.sql("insert into main.t values (1, 1.0, 'a', 1)", dialect="spark")
        version = s.snapshot("main.t").version
        for statement, reason in BROKEN.items():
            with pytest.raises(SchemaMismatch, match=f"main.t.*: .*{reason}") as refused:
                s.sql(statement, dialect="spark")
            message = str(refused.value)
            assert not re.search(r"org\.apache|java\.|SQLSTATE|::|: :", message) and "\n" not in message, message
        assert s.snapshot("main.t").version == version


@pytest.mark.spark
def test_a_table_that_tracks_rows_needs_statistics(root: Any, spark: Any) -> None:
    with duckrun.connect(root, engine="spark", spark=spark) as s:
        s.sql(
            "create table main.t (id int) using delta tblproperties ('delta.enableRowTracking' = 'true')",
            dialect="spark",
        )
        spark.conf.set("spark.databricks.delta.stats.collect", "false")
        try:
            for statement in (
                "insert into main.t values (1)",
                "merge into main.t using (select 1 as id) s on t.id = s.id when not matched then insert *",
            ):
                with pytest.raises(InvalidConfig, match=r"main\.t: it tracks its rows.*stats\.collect"):
                    s.sql(statement)
        finally:
            spark.conf.unset("spark.databricks.delta.stats.collect")
        assert s.snapshot("main.t").version == 0


@pytest.mark.spark
def test_rows_of_files_without_statistics_are_numbered_by_the_embedded_engine(root: Any, spark: Any) -> None:
    turned_on = "alter table main.t set tblproperties ('delta.enableRowTracking' = 'true')"
    with duckrun.connect(root, engine="spark", spark=spark) as s:
        s.sql("create table main.t (id int) using delta", dialect="spark")
        spark.conf.set("spark.databricks.delta.stats.collect", "false")
        try:
            s.sql("insert into main.t values (1), (2)")
        finally:
            spark.conf.unset("spark.databricks.delta.stats.collect")
        with pytest.raises(InvalidConfig, match=r"main\.t: it is to track its rows.*engine: duckdb"):
            s.sql(turned_on, dialect="spark")
        assert s.snapshot("main.t").version == 1
        with duckrun.connect(root) as duck:
            duck.sql(turned_on)
        s.sql("insert into main.t values (3)")
        assert sorted(row["_row_id"] for row in s.table("main.t").toDF(row_ids=True).collect()) == [0, 1, 2]


@pytest.mark.spark
def test_a_python_function_that_raises_gives_its_own_traceback_and_no_java(root: Any, spark: Any) -> None:
    from pyspark.sql import functions as F

    def price(item: int) -> float:
        return {0: 1.0}[item]

    frame = spark.range(5, numPartitions=1).select(F.udf(price, "double")("id").alias("price"))
    with duckrun.connect(root, engine="spark", spark=spark) as s:
        with pytest.raises(FunctionFailed) as raised:
            s.execute("sales.orders", WriteSpec("error"), frame)
        assert not s.lake.exists(s.ref("sales.orders"))
    said = str(raised.value)
    for part in ("sales.orders", "Nothing was written", "in price", "KeyError: 1\nCalled with item=1"):
        assert part in said, said
    assert "org.apache" not in said and "/pyspark/" not in said and len(said) < 1000


NO_MASTER = """
import sys
from duckrun.engines.spark.process.session import spark_session
try:
    spark_session(master=sys.argv[1])
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.slow
def test_a_master_that_takes_no_application_is_told() -> None:
    """As one of another version: it takes the connection, and Spark gives up after a minute."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"spark://127.0.0.1:{listener.getsockname()[1]}"
        done = subprocess.run([sys.executable, "-c", NO_MASTER, address], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]
    (told,) = done.stdout.splitlines()
    assert (
        told.startswith("InvalidConfig")
        and address in told
        and "another version" in told
        and pyspark.__version__ in told
    )


class Unprintable:
    def __repr__(self) -> str:
        raise ValueError("no")


class Method:
    def __call__(self, n: Any) -> None:
        raise KeyError(n)


def of_batch(prices: Any, rows: Any, *rest: Any, **named: Any) -> None:
    raise KeyError(1)


def raises(n: Any) -> None:
    raise KeyError(n)


@pytest.mark.parametrize(
    ("function", "arguments", "named", "told"),
    [
        (raises, (None,), {}, "n=None"),
        (raises, ("x\n" * 1000,), {}, "n='x\\n"),
        (Method(), (3,), {}, "n=3"),
        (raises, (Unprintable(),), {}, "n=<Unprintable instance at "),
        (
            of_batch,
            (pl.Series([1.0, 2.0]).to_pandas(), iter(()), 3),
            {"by": "day"},
            "prices=<Series of 2>, rest=(3,), named={'by': 'day'}",
        ),
        (of_batch, (iter(()), iter(())), {}, "rest=(), named={}"),
    ],
)
def test_what_a_function_was_called_with(function: Any, arguments: Any, named: Any, told: str) -> None:
    from duckrun.engines.spark.process.spark_daemon import called_with

    with pytest.raises(KeyError) as raised:
        function(*arguments, **named)
    error = raised.value
    assert error.__traceback__ is not None
    said = called_with(error.with_traceback(error.__traceback__.tb_next))  # PySpark calls it, and not a test
    assert said is not None and said.startswith(told) and len(said) < 150


def test_an_error_of_pyspark_s_own_has_no_arguments() -> None:
    from pyspark.sql.types import StructType

    from duckrun.engines.spark.process.spark_daemon import called_with

    with pytest.raises(KeyError) as raised:
        StructType([])["price"]
    error = raised.value
    assert error.__traceback__ is not None
    assert called_with(error.with_traceback(error.__traceback__.tb_next)) is None


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        ("ExecutorLostFailure: Command exited with code 52", InvalidConfig, "spark.executor.memory"),
        ("java.lang.OutOfMemoryError: Java heap space", InvalidConfig, "ran out of memory"),
        (
            "ExecutorLostFailure (executor 3 exited caused by one of the running tasks) Reason: Remote RPC client disassociated. "
            "Likely due to containers exceeding thresholds, or network issues.",
            InvalidConfig,
            "spark.executor.memory",
        ),
        (
            "Lost task 1.3 in stage 4.0 (TID 12) (10.0.0.7 executor 0): java.util.concurrent.RejectedExecutionException: Task "
            "org.apache.spark.executor.Executor$TaskRunner@77d3af98 rejected from java.util.concurrent.ThreadPoolExecutor@1b17"
            "[Shutting down, pool size = 1, active threads = 1, queued tasks = 0, completed tasks = 6]",
            InvalidConfig,
            "spark.executor.memory",
        ),
        ("Container killed by YARN for exceeding physical memory limits. 2 GB used", InvalidConfig, "memoryOverhead"),
        (
            "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found",
            InvalidConfig,
            "hadoop-aws:3.4.2",
        ),
        (
            "Cannot find catalog plugin class for catalog 'spark_catalog': org.apache.spark.sql.delta.catalog.DeltaCatalog.",
            InvalidConfig,
            "no Delta jars",
        ),
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta.", InvalidConfig, "no Delta jars"),
        (
            "java.io.InvalidClassException: org.apache.spark.rdd.RDD; local class incompatible: stream classdesc",
            InvalidConfig,
            "different versions",
        ),
        (
            "java.io.FileNotFoundException: File file:/lake/a.parquet does not exist",
            StorageError,
            "mount it at the same",
        ),
    ],
)
def test_failures_that_are_not_the_table_s_say_what_to_do(text: str, kind: type[DuckrunError], told: str) -> None:
    found = trouble(f"Job aborted due to stage failure:\n{text}{JAVA}", "append on table sales.orders")
    assert type(found) is kind and told in str(found) and "append on table sales.orders" in str(found)
    assert "DAGScheduler" not in str(found) and "(java." not in str(found)


def test_what_spark_says_well_itself_is_left_alone() -> None:
    assert trouble("[ARITHMETIC_OVERFLOW] integer overflow", "append on table t") is None
