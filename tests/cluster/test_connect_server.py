"""One Spark for the processes of a run: who starts it, who joins, and when it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from duckrun.engines.spark.process import connect
from duckrun.engines.spark.process.connect import RunServer
from duckrun.errors import InvalidConfig
from tests.cluster.standalone import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.spark]
CONF = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}
ASK = """
from duckrun.engines.spark.process.session import spark_session
spark = spark_session(master="local[7]")  # as a profile for runs of its own would say
print(spark.conf.get("spark.app.id"), spark.range(3).count(), type(spark).__module__)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's servers are written down."""
    monkeypatch.setattr(connect.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for a run's worker."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def test_processes_share_the_server_which_is_gone_seconds_after_its_worker_was_killed(
    folder: Path, worker: subprocess.Popen[bytes]
) -> None:
    server = RunServer.of_process("nightly", worker.pid, master="local[2]", conf=CONF)
    asking = [
        subprocess.Popen(
            [sys.executable, "-c", ASK], env={**os.environ, **server.environment()},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    said = []
    for process in asking:
        output, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors[-3000:]
        said.append(output.split())
    assert said[0] == said[1], "two processes, one application"
    assert said[0][1:] == ["3", "pyspark.sql.connect.session"]
    (state,) = folder.glob("duckrun-spark-*/nightly-*.json")
    assert state.stat().st_mode & 0o077 == 0 and state.parent.stat().st_mode & 0o077 == 0, "it holds the server's key"
    running = psutil.Process(json.loads(state.read_text())["pid"])
    everything = [running, *running.children(recursive=True)]
    assert any("java" in process.name() for process in everything)
    worker.kill()
    worker.wait()
    _, alive = psutil.wait_procs(everything, timeout=15)
    assert not alive
    assert not list(state.parent.iterdir())


def test_a_server_that_cannot_start_says_why(folder: Path, worker: subprocess.Popen[bytes]) -> None:
    server = RunServer.of_process("nightly", worker.pid, master="spark://127.0.0.1:1")
    with pytest.raises(InvalidConfig, match=r"(?s)run nightly did not start on spark://127.0.0.1:1.*cannot be reached"):
        server.remote()


JOB = """
import dagster as dg
from pyspark.sql import DataFrame
from duckrun_dagster import DeltaIOManager, DuckrunResource, SparkResource

spark = SparkResource(master="local[2]", conf={conf!r})

@dg.asset(key=["raw", "numbers"])
def numbers(context: dg.AssetExecutionContext, spark: SparkResource) -> DataFrame:
    context.log.info(f"APPLICATION {{spark.session().conf.get('spark.app.id')}}")
    return spark.session().range(10)

@dg.asset(key=["raw", "doubled"], ins={{"numbers": dg.AssetIn(["raw", "numbers"])}})
def doubled(context: dg.AssetExecutionContext, spark: SparkResource, numbers: DataFrame) -> DataFrame:
    context.log.info(f"APPLICATION {{numbers.sparkSession.conf.get('spark.app.id')}}")
    context.log.info(f"FOR DBT {{'DUCKRUN_SPARK_SERVER' in spark.environment()}}")
    return numbers.selectExpr("id", "id * 2 as twice")

defs = dg.Definitions(
    assets=[numbers, doubled],
    jobs=[dg.define_asset_job("both", [numbers, doubled])],
    resources={{
        "spark": spark,
        "io_manager": DeltaIOManager(duckrun=DuckrunResource(root_path={lake!r}), spark=spark),
    }},
)
"""


@pytest.mark.timeout(500)
def test_the_steps_of_a_multiprocess_run_share_one_spark(folder: Path) -> None:
    file = folder / "job.py"
    file.write_text(JOB.format(lake=str(folder / "lake"), conf=CONF))
    (folder / "home").mkdir()
    (folder / "home" / "dagster.yaml").touch()
    env = {**os.environ, "DAGSTER_HOME": str(folder / "home")}

    command = [sys.executable, "-m", "dagster", "job", "execute", "-f", str(file), "-j", "both"]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-4000:]
    applications = {line.split("APPLICATION ")[1].strip() for line in said.splitlines() if "APPLICATION " in line}
    assert len(applications) == 1, said[-4000:]
    assert "FOR DBT True" in said
    wait_for(lambda: not list(folder.glob("duckrun-spark-*/*.json")), 15, "the run's server is still there")
