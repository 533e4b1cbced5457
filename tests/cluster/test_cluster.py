"""Assets on a real cluster: a master and two workers, with tasks on both, and processes killed in the middle of a write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import duckrun
from duckrun.engines.spark.process.connect import RunServer
from tests.cluster.driver import ROWS, TASKS
from tests.cluster.standalone import EXECUTOR, Cluster, kill, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.spark]
ROOT = Path(__file__).parents[2]


def driver(*arguments: object, before: Sequence[str] = (), **env: str) -> subprocess.Popen[bytes]:
    """A command of driver.py as a process of its own; ``before`` is a command that starts it."""
    return subprocess.Popen(
        [*before, sys.executable, "-m", "tests.cluster.driver", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env={**os.environ, **env},
    )  # fmt: skip


def told(process: subprocess.Popen[bytes], seconds: float = 240) -> dict[str, Any]:
    """What a driver said last."""
    output, errors = process.communicate(timeout=seconds)
    assert process.returncode == 0, errors.decode()[-4000:]
    said: dict[str, Any] = json.loads(output.decode().strip().splitlines()[-1])
    return said


def check_example(lake: Path, home: Path) -> None:
    """The lake holds what has landed, by another reader than the one that wrote it."""
    landed = pl.concat(pl.read_csv(file, infer_schema=False) for file in sorted(home.glob(".landing/flights/*.csv")))
    with duckrun.connect(lake) as s:
        (found,) = s.sql(
            "select count(*) as n, count(distinct flight_id) as ids, sum(distance) as miles, count(temp) as weather from refined.flights"
        ).collect()
        assert (found["n"], found["ids"]) == (len(landed), len(landed))
        assert found["miles"] == landed["distance"].cast(pl.Int64).sum()
        assert found["weather"] > 0.9 * len(landed)
        assert s.sql("select count(*) as n from raw.planes").collect()[0]["n"] > 3000


def check_graph(said: dict[str, Any], lake: Path, home: Path) -> None:
    """What assets, dbt models and a stream wrote, by another reader than the one that wrote it."""
    check_example(lake, home)
    assert said["dbt"]["engines"] == {"numbers": "duckdb", "parts": "spark", "largest": "spark"}
    assert said["stream"] == [[1], [1]]
    ids = range(10000)
    parts = [{"part": part, "n": len(ids[part::7]), "ids": sum(ids[part::7])} for part in range(7)]
    with duckrun.connect(lake) as s:
        assert s.sql("select * from main.parts order by part").collect() == parts
        assert s.sql("select * from main.largest").collect() == [max(parts, key=lambda row: row["ids"])]
        assert s.sql("select id from refined.events order by id").collect() == [{"id": 1}, {"id": 3}]


def check_function_failed(kind: str, text: str) -> None:
    """The driver's function that raises is told with its own traceback and its row."""
    assert kind == "FunctionFailed" and "in price" in text and "org.apache" not in text
    assert "KeyError: 1\nCalled with item=1" in text


def on_both(tasks: dict[str, int]) -> bool:
    return sorted(tasks) == ["0", "1"] and all(count > 0 for count in tasks.values())


@pytest.mark.timeout(500)
def test_assets_dbt_models_and_a_stream_run_on_both_workers(cluster: Cluster, tmp_path: Path) -> None:
    env = {"DUCKRUN_EXAMPLE_HOME": str(tmp_path / "home"), "DUCKRUN_EXAMPLE_SAMPLE": "100"}
    said = told(driver("graph", tmp_path / "lake", cluster.address, tmp_path / "project", **env), 400)
    assert said["classic"]
    assert on_both(said["tasks"]) and on_both(said["dbt"]["tasks"]), said
    check_graph(said, tmp_path / "lake", tmp_path / "home")


@pytest.mark.timeout(500)
def test_the_same_runs_through_spark_connect_with_no_classic_session(cluster: Cluster, tmp_path: Path) -> None:
    env = {"DUCKRUN_EXAMPLE_HOME": str(tmp_path / "home"), "DUCKRUN_EXAMPLE_SAMPLE": "100"}
    server = RunServer.of_process(f"cluster-{os.getpid()}", os.getpid(), master=cluster.address, conf=EXECUTOR)
    try:
        said = told(driver("graph", tmp_path / "lake", server.remote(), tmp_path / "project", **env), 400)
        failed = told(driver("fail", tmp_path / "empty", server.remote(), "python"))
    finally:
        server.stop()
    assert not said["classic"] and not failed["classic"]
    check_function_failed(*failed["said"]["python"])
    check_graph(said, tmp_path / "lake", tmp_path / "home")


def test_what_fails_on_a_worker_is_told_in_a_few_lines(cluster: Cluster, tmp_path: Path) -> None:
    said = told(driver("fail", tmp_path / "lake", cluster.address, "python", "memory"))["said"]
    check_function_failed(*said["python"])
    kind, text = said["memory"]
    assert kind == "InvalidConfig" and "main.memory" in text and "spark.executor.memory" in text and len(text) < 1000
    with duckrun.connect(tmp_path / "lake") as s:
        assert s.tables() == []


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    """A lake with one table of one row, at version 0; beside it the folder in which tasks say that they started."""
    (tmp_path / "started").mkdir()
    with duckrun.connect(tmp_path / "lake") as s:
        s.execute("main.numbers", duckrun.WriteSpec("error"), pa.table({"id": [-1]}))
    return tmp_path / "lake"


def started(lake: Path, tasks: int) -> bool:
    return len(list((lake.parent / "started").iterdir())) >= tasks


def state(lake: Path) -> tuple[int, Counter[int]]:
    with duckrun.connect(lake) as s:
        rows = s.sql("select id from main.numbers").toArrow()["id"].to_pylist()
        return s.snapshot("main.numbers").version, Counter(rows)


ALL = Counter(range(-1, ROWS))


def test_a_driver_killed_in_a_write_leaves_the_table_and_its_retry_commits_once(
    cluster: Cluster, numbers: Path
) -> None:
    mark = numbers.parent / "started"
    killed = driver("write", numbers, cluster.address, 2, mark, 1)
    try:
        wait_for(lambda: started(numbers, 3) or killed.poll() is not None, 180, "no task started")
        assert killed.poll() is None, killed.stderr and killed.stderr.read().decode()[-4000:]
    finally:
        kill(killed)
    assert state(numbers) == (0, Counter([-1]))
    again = told(driver("write", numbers, cluster.address, 0, mark, 2))
    assert again["commits"] == [[1, False], [1, True]], "the second time it is found committed"
    assert state(numbers) == (1, ALL)


def test_a_worker_killed_in_a_write_costs_no_row_and_doubles_none(cluster: Cluster, numbers: Path) -> None:
    writing = driver("write", numbers, cluster.address, 1.5, numbers.parent / "started", 1)
    try:
        wait_for(lambda: started(numbers, 4) or writing.poll() is not None, 180, "no task started")
        kill(cluster.workers[0])
        said = told(writing)
    finally:
        kill(writing)
        cluster.add_worker()
    assert started(numbers, TASKS + 1), "some task ran again"
    assert said["commits"] == [[1, False]]
    assert state(numbers) == (1, ALL)
