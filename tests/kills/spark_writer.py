"""A process that forks one piece of Spark's work on a branch for each line it is given. Run by test_branch_kills.py.

Each fork attaches to one JVM, which lives on when the fork is killed. So Spark may go on with a write whose caller is gone.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import duckrun
from duckrun import AppTransaction, MergeSpec, Session, UpdateSpec, WriteSpec
from duckrun.engines.spark.process.session import spark_session
from tests.kills.branch_writer import die_at, rows
from tests.kills.writer import say_ready, serve


def attached() -> SparkSession:
    """The session of the JVM that the parent process has started."""
    gateway = launch_gateway()  # the environment names its port
    SparkContext._ensure_initialized(gateway=gateway)
    jvm = gateway.jvm
    context = jvm.JavaSparkContext(jvm.org.apache.spark.SparkContext.getOrCreate())
    return SparkSession(SparkContext(conf=SparkConf(_jconf=context.getConf()), gateway=gateway, jsc=context))


def begin(job: dict[str, Any], spark: SparkSession, *, in_branch: bool) -> Session:
    branch = job["branch"] if in_branch else None
    session = duckrun.connect(job["lake"], branch=branch, engine="spark", spark=spark, memory_limit="512MB")
    session.sql("select 1").collect()
    say_ready(session)
    if job["dies_at"] is not None:
        die_at(job["dies_at"], after=job["after"])
    return session


def write(job: dict[str, Any]) -> None:
    """Write each table once: the first write of a branch forks it."""
    number, spark = job["round"], attached()
    with begin(job, spark, in_branch=True) as session:
        for name in job["tables"]:
            app = AppTransaction(f"round {number}")
            if job["how"] == "append":
                spec: Any = WriteSpec("append", app=app)
            elif job["how"] == "merge":
                spec = MergeSpec(("id", "round"), app=app)
            else:
                session.execute(name, UpdateSpec({"round": str(number)}, "id = 1", app=app))
                continue
            session.execute(name, spec, spark.createDataFrame(rows(number).to_pandas()))
        Path(job["answer"]).touch()


def publish(job: dict[str, Any]) -> None:
    with begin(job, attached(), in_branch=False) as session:
        session.publish(job["branch"])
        Path(job["answer"]).touch()


if __name__ == "__main__":
    spark = spark_session(master="local[2]", conf={"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"})
    gateway = spark.sparkContext._gateway
    os.environ["PYSPARK_GATEWAY_PORT"] = str(gateway.gateway_parameters.port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = gateway.gateway_parameters.auth_token
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    serve({"write": write, "publish": publish})
