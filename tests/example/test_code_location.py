"""The example's definitions load without starting Spark and without looking at a table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LOAD = """
import json, sys

lake, looked, started = sys.argv[1], [], []

def audit(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(lake):
        looked.append(str(arguments[0]))
    if event == "subprocess.Popen":
        started.append(str(arguments[0]))

sys.addaudithook(audit)
from example_project.definitions import defs

assets = len(defs.get_repository_def().asset_graph.get_all_asset_keys())
from pyspark import SparkContext

spark = SparkContext._active_spark_context is not None or SparkContext._gateway is not None
print(json.dumps({"assets": assets, "looked": looked, "started": started, "spark": spark}))
"""


@pytest.mark.slow
def test_the_code_location_loads_without_spark_and_without_opening_a_table(tmp_path: Path) -> None:
    lake = tmp_path / ".lake"
    for table in ("raw/flights", "refined/flights", "marts/fct_flights", "analytics/plane_months"):
        (lake / table / "_delta_log").mkdir(parents=True)
        # Native code, which an audit hook does not see, cannot open this one without an error.
        (lake / table / "_delta_log" / f"{0:020d}.json").write_text("no log")
    environment = {**os.environ, "DUCKRUN_EXAMPLE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", LOAD, str(lake)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, "each command of the example prints it"
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found["assets"] > 15
    assert found["looked"] == []
    assert not found["spark"]
    assert {Path(each).name for each in found["started"]}.isdisjoint({"java", "spark-submit"})


SCHEDULE = """
from datetime import datetime

import dagster as dg
from example_project.definitions import defs, every_morning
from example_project.runner import arrivals
from example_project.runner.plan import Run, can_start

arrivals.arrive([1, 3])
with dg.DagsterInstance.local_temp() as instance, dg.build_schedule_context(
    instance, scheduled_execution_time=datetime(2013, 4, 1), repository_def=defs.get_repository_def()
) as context:
    for _ in range(2):
        requests = every_morning.evaluate_tick(context).run_requests
        print("requests", *sorted(request.tags["dagster/asset_partition_range_start"] for request in requests if request.tags))

flights, weather, planes, refined, hours = (
    dg.AssetKey(each.split("/")) for each in ("raw/flights", "raw/weather", "raw/planes", "refined/flights", "marts/mart_hours")
)
january, march = ("2013-01-01", "2013-01-31"), ("2013-03-01", "2013-03-31")
for planned in (
    [Run("ingest", (flights, refined), january), Run("ingest", (flights, refined), march), Run("report")],
    [Run("ingest", (weather,), january), Run("ingest", (refined,), march)],
    [Run("ingest", (planes, flights, refined), january), Run("ingest", (flights, refined), march)],
    [Run("ingest", (flights,), january), Run("ingest", (planes,)), Run("ingest", (refined,), january)],
    [Run("transform", (hours,)), Run("report", (flights,), january)],
):
    print("starts", *(planned.index(run) for run in can_start(defs, planned)))
"""


@pytest.mark.slow
def test_the_schedule_requests_the_runs_that_wait_for_no_other(tmp_path: Path) -> None:
    environment = {**os.environ, "DUCKRUN_EXAMPLE_HOME": str(tmp_path), "DUCKRUN_EXAMPLE_SAMPLE": "40"}
    command = [sys.executable, "-W", "ignore", "-c", SCHEDULE]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    # The run of March reads the planes that the run of January writes.
    assert [line for line in lines if line.startswith("requests")] == ["requests 2013-01-01"] * 2
    assert [line for line in lines if line.startswith("starts")] == [
        "starts 0 1",
        "starts 0",
        "starts 0",
        "starts 0 1",
        "starts 0",
    ]


LACKS = """
import json
from itertools import chain

from example_project.definitions import defs

graph, lacks = defs.resolve_asset_graph(), []
for node in map(graph.get, graph.get_all_asset_keys()):
    metadata, name = node.metadata, node.key.to_user_string()
    schema = metadata.get("dagster/column_schema")
    described = metadata.get("column_descriptions") or (
        {column.name: column.description for column in schema.columns} if schema else {}
    )
    parts = {
        "a description": node.description,
        "an owner": node.owners,
        "kinds": node.kinds,
        "code": "dagster/code_references" in metadata or node.is_external,
        "columns": described or node.group_name in ("landing", "publish", "report"),
        "a description of each column": all(described.values()),
    }
    lacks += [f"{name}: {part}" for part, value in parts.items() if not value]
repository = defs.get_repository_def()
for each in chain(repository.get_all_jobs(), repository.schedule_defs, repository.sensor_defs):
    if not each.description and not each.name.startswith("__"):
        lacks.append(f"{each.name}: a description")
for check in graph.asset_check_keys:
    if not graph.get_check_spec(check).description:
        lacks.append(f"{check.to_user_string()}: a description")
print(json.dumps(lacks))
"""


@pytest.mark.slow
def test_each_asset_job_and_check_of_the_example_is_described_and_owned(tmp_path: Path) -> None:
    environment = {**os.environ, "DUCKRUN_EXAMPLE_HOME": str(tmp_path)}
    command = [sys.executable, "-W", "ignore", "-c", LACKS]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.strip().splitlines()[-1]) == []
