"""What the cluster's tests run as drivers, each a process of its own: `python -m tests.cluster.driver COMMAND ...`.

example LAKE ADDRESS     the example's PySpark assets, on a master or a Connect server
         (with a third argument: on files that leave a missing value empty instead of writing NA)
graph LAKE ADDRESS PROJECT  the example's PySpark assets, then a dbt project, made in the folder PROJECT, with models on both
         engines, then a stream of what is new in raw.events into refined.events
misfit LAKE ADDRESS CONF a write of the table main.t on a Spark that cannot do it: what it said, after how many seconds, and which
         files are in the lake then, beside locks; CONF is JSON
fail LAKE ADDRESS NAME...   writes that fail on the workers, and what each said: `python` on a function that raises, `memory`
write LAKE ADDRESS SECONDS MARK TIMES    a slow append under one application id, so often; each of its tasks leaves a file in
         the folder MARK when it starts
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.cluster.standalone import EXECUTOR

ROWS, TASKS = 400, 8


def example(lake: str, address: str, empty: str = "") -> None:
    tell(assets(lake, address, empty))


def assets(lake: str, address: str, empty: str = "") -> Any:
    """The example's PySpark assets; the session that they ran in."""
    import dagster as dg
    import polars as pl

    from duckrun_dagster import DeltaIOManager, DuckrunResource, SparkResource
    from example_project import landing, settings, spark_assets
    from example_project.runner import arrivals

    for file in arrivals.arrive(settings.FIRST_MONTHS):
        if empty:
            pl.read_csv(file.path, infer_schema=False, null_values=landing.NULL).write_csv(file.path)
    landing.NULL = "" if empty else landing.NULL
    connect = address.startswith("sc://")
    spark = SparkResource(remote=address) if connect else SparkResource(master=address, conf=EXECUTOR)
    resources = {"spark": spark, "io_manager": DeltaIOManager(duckrun=DuckrunResource(root_path=lake), spark=spark)}
    with dg.instance_for_test() as instance:
        for chosen, tags in (
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
                selection=dg.AssetSelection.assets(*chosen),
            )
            assert done.success
    return spark.session()


MODELS = {
    "numbers.sql": "{{ config(engine='duckdb') }} select range as id, range % 7 as part from range(10000)",
    "parts.sql": """{{ config(materialized='incremental', incremental_strategy='merge', unique_key='part', dialect='spark') }}
        select part, count(*) as n, sum(id) as ids from (select /*+ REPARTITION(8) */ * from {{ ref('numbers') }}) group by part""",
    "largest.py": "def model(dbt, session):\n    return dbt.ref('parts').orderBy('ids', ascending=False).limit(1)\n",
}


def graph(lake: str, address: str, project: str) -> None:
    session = assets(lake, address)
    before = tasks(session)
    engines = models(lake, address, Path(project))
    after = tasks(session)
    tell(
        session,
        dbt={"engines": engines, "tasks": {each: after[each] - before[each] for each in after}},
        stream=stream(lake, session),
    )


def models(lake: str, address: str, project: Path) -> dict[str, str]:
    """A dbt build on the session of this process; the engine of each model, as the adapter told it."""
    import yaml
    from dbt.cli.main import dbtRunner

    (project / "models").mkdir(parents=True)
    for name, text in MODELS.items():
        (project / "models" / name).write_text(text)
    spark = {"remote" if address.startswith("sc://") else "master": address}
    profile = {"type": "duckrun", "root_path": lake, "schema": "main", "engine": "spark", "spark": spark}
    settings = {
        "name": "p", "profile": "p", "models": {"+materialized": "table"}, "flags": {"send_anonymous_usage_stats": False},
    }  # fmt: skip
    (project / "profiles.yml").write_text(yaml.safe_dump({"p": {"target": "t", "outputs": {"t": profile}}}))
    (project / "dbt_project.yml").write_text(yaml.safe_dump(settings))
    done = dbtRunner().invoke(["--quiet", "build", "--project-dir", str(project), "--profiles-dir", str(project)])
    assert done.success, (done.exception, [(each.node.name, each.message) for each in done.result or ()])
    return {each.node.name: each.adapter_response.get("engine", "") for each in done.result}


def stream(lake: str, session: Any) -> list[list[int]]:
    """The rows of each commit of a stream that finds two rows, then one; a row with the id 2 is left out."""
    import pyarrow as pa

    import duckrun
    from duckrun.engines.spark.streams import stream_table

    counts = []
    with duckrun.connect(lake, engine="spark", spark=session) as s, duckrun.connect(lake) as embedded:
        for ids in ([1, 2], [3]):
            embedded.execute("raw.events", duckrun.WriteSpec("append"), pa.table({"id": ids}))
            commits = stream_table(s, "raw.events", "refined.events", lambda rows: rows.where("id <> 2"))
            counts.append([commit.rows_inserted for commit in commits])
    return counts


def fail(lake: str, address: str, *names: str) -> None:
    from pyspark.sql import functions as F

    import duckrun
    from duckrun.engines.spark.process.session import spark_session

    remote = address.startswith("sc://")
    session = spark_session(remote=address) if remote else spark_session(master=address, conf=EXECUTOR)

    def price(item: int) -> float:
        return {0: 1.0}[item]

    failing = {
        "python": session.range(0, 5, 1, 1).select(F.udf(price, "double")("id").alias("price")),
        # One value that is larger than an executor.
        "memory": session.range(1).selectExpr("length(repeat(concat('x', id), 1000000000)) as n"),
    }
    said = {}
    with duckrun.connect(lake, engine="spark", spark=session) as s:
        for name in names:
            try:
                s.execute(f"main.{name}", duckrun.WriteSpec("error"), failing[name])
            except duckrun.DuckrunError as error:
                said[name] = [type(error).__name__, str(error)]
    tell(session, said=said)


def misfit(lake: str, address: str, conf: str) -> None:
    import duckrun
    from duckrun.engines.spark.process.session import spark_session

    said, started = ["", ""], time.monotonic()
    try:
        where = {"remote" if address.startswith("sc://") else "master": address}
        session = spark_session(**where, conf=json.loads(conf))
        started = time.monotonic()
        with duckrun.connect(lake, engine="spark", spark=session) as s:
            s.execute("main.t", duckrun.WriteSpec("error"), session.range(3))
    except duckrun.DuckrunError as error:
        said = [type(error).__name__, str(error)]
    seconds = time.monotonic() - started
    files = [str(file) for file in Path(lake).rglob("*") if file.is_file() and file.suffix != ".lock"]
    print(json.dumps({"said": said, "seconds": seconds, "files": files}), flush=True)


def write(lake: str, address: str, seconds: str, mark: str, times: str) -> None:
    import duckrun
    from duckrun.engines.spark.process.session import spark_session

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
        commits = [s.execute("main.numbers", spec, frame) for _ in range(int(times))]
    tell(session, commits=[(commit.version, commit.replayed) for commit in commits])


def tasks(session: Any) -> dict[str, int]:
    """How many tasks each executor has ended, by Spark's page; none where it has no page."""
    if session.conf.get("spark.ui.enabled", "false") != "true":
        return {}
    page = (
        f"http://127.0.0.1:{session.conf.get('spark.ui.port')}/api/v1/applications/{session.conf.get('spark.app.id')}"
    )
    with urllib.request.urlopen(f"{page}/executors", timeout=20) as answer:
        return {each["id"]: each["completedTasks"] for each in json.load(answer) if each["id"] != "driver"}


def tell(session: Any, **more: Any) -> None:
    """What was done, by which kind of session, and how many tasks each executor ended, as the last line of the output."""
    from pyspark import SparkContext

    classic = SparkContext._active_spark_context is not None
    print(json.dumps({"classic": classic, "tasks": tasks(session), **more}), flush=True)


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    {"example": example, "graph": graph, "fail": fail, "misfit": misfit, "write": write}[sys.argv[1]](*sys.argv[2:])
