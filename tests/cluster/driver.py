"""What the cluster's tests run as drivers, each a process of its own: `python -m tests.cluster.driver COMMAND ...`.

example LAKE ADDRESS     the example's PySpark assets, on a master or a Connect server
         (with a third argument: on files that leave a missing value empty instead of writing NA)
fail LAKE ADDRESS        writes that fail on the workers, and what each said
write LAKE ADDRESS SECONDS MARK    a slow append; each of its tasks leaves a file in the folder MARK when it starts
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

from tests.cluster.standalone import EXECUTOR

ROWS, TASKS = 400, 8


def example(lake: str, address: str, empty: str = "") -> None:
    import dagster as dg
    import polars as pl
    from pyspark import SparkContext

    from duckrun_dagster import DeltaIOManager, DuckrunResource, SparkResource
    from example_project import landing, settings, spark_assets

    for file in landing.arrive(settings.FIRST_MONTHS):
        if empty:
            pl.read_csv(file.path, infer_schema=False, null_values=landing.NULL).write_csv(file.path)
    landing.NULL = "" if empty else landing.NULL
    connect = address.startswith("sc://")
    spark = SparkResource(remote=address) if connect else SparkResource(master=address, conf=EXECUTOR)
    resources = {"spark": spark, "io_manager": DeltaIOManager(duckrun=DuckrunResource(root_path=lake), spark=spark)}
    with dg.instance_for_test() as instance:
        for assets, tags in (
            ([spark_assets.raw_planes, spark_assets.raw_airports, spark_assets.raw_airlines], {}),
            (
                [spark_assets.raw_flights, spark_assets.raw_weather, spark_assets.refined_flights],
                {
                    "dagster/asset_partition_range_start": "2013-01-01",
                    "dagster/asset_partition_range_end": "2013-02-28",
                },
            ),
        ):
            everything = [*landing.specs(), *spark_assets.ASSETS]
            done = dg.materialize(
                everything,
                instance=instance,
                resources=resources,
                tags=tags,
                selection=dg.AssetSelection.assets(*assets),
            )
            assert done.success
    session = spark.session()
    tell(session, classic=SparkContext._active_spark_context is not None)


def fail(lake: str, address: str) -> None:
    from pyspark.sql import functions as F

    import duckrun
    from duckrun.engines.spark_session import spark_session

    session = spark_session(master=address, conf=EXECUTOR)

    def price(item: int) -> float:
        return {0: 1.0}[item]

    failing = {
        "python": session.range(5).select(F.udf(price, "double")("id").alias("price")),
        # One value that is larger than an executor.
        "memory": session.range(1).selectExpr("length(repeat(concat('x', id), 1000000000)) as n"),
    }
    said = {}
    with duckrun.connect(lake, engine="spark", spark=session) as s:
        for name, frame in failing.items():
            try:
                s.execute(f"main.{name}", duckrun.WriteSpec("error"), frame)
            except duckrun.DuckrunError as error:
                said[name] = [type(error).__name__, str(error)]
    tell(session, said=said)


def write(lake: str, address: str, seconds: str, mark: str) -> None:
    import duckrun
    from duckrun.engines.spark_session import spark_session

    session = spark_session(master=address, conf=EXECUTOR)
    pause, folder = float(seconds), mark

    def slowly(batches: Any) -> Any:
        import time
        import uuid

        Path(folder, uuid.uuid4().hex).touch()
        for batch in batches:
            time.sleep(pause)
            yield batch

    frame = session.range(0, ROWS, 1, TASKS).mapInArrow(slowly, "id long")
    spec = duckrun.WriteSpec("append", app=duckrun.AppTransaction("nightly/numbers"))
    with duckrun.connect(lake, engine="spark", spark=session) as s:
        commit = s.execute("main.numbers", spec, frame)
    tell(session, version=commit.version, replayed=commit.replayed)


def tell(session: Any, **more: Any) -> None:
    """What was done, and how many tasks each executor ended, as the last line of the output."""
    tasks = {}
    if session.conf.get("spark.ui.enabled", "false") == "true":
        page = f"http://127.0.0.1:{session.conf.get('spark.ui.port')}/api/v1/applications/{session.conf.get('spark.app.id')}"
        with urllib.request.urlopen(f"{page}/executors", timeout=20) as answer:
            tasks = {each["id"]: each["completedTasks"] for each in json.load(answer) if each["id"] != "driver"}
    print(json.dumps({"tasks": tasks, **more}), flush=True)


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    {"example": example, "fail": fail, "write": write}[sys.argv[1]](*sys.argv[2:])
