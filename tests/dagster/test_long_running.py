"""A `dagster dev` that runs for long: materializations leave nothing behind in its processes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from dagster import DagsterRunStatus
from dagster_graphql import DagsterGraphQLClient

from tools.dagster_server import serving

MATERIALIZATIONS = 200 if os.environ.get("DUCKRUN_SOAK") else 20
ASSETS = 2  # that one run materializes
WARM_UP = 3  # runs, after which the page and the daemon have what they keep

DEFINITIONS = """
import dagster as dg, polars as pl
from duckrun_dagster import DeltaIOManager, DuckrunResource

@dg.asset(key_prefix=["main"])
def numbers() -> pl.DataFrame:
    return pl.DataFrame({{"n": range(1000)}})

@dg.asset(key_prefix=["main"])
def doubled(numbers: pl.LazyFrame) -> pl.LazyFrame:
    return numbers.select(pl.col("n") * 2)

defs = dg.Definitions(
    assets=[numbers, doubled],
    jobs=[dg.define_asset_job("all", executor_def=dg.in_process_executor)],
    resources={{"io_manager": DeltaIOManager(duckrun=DuckrunResource(root_path={root!r}))}},
)
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600 if MATERIALIZATIONS > 20 else 900)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[psutil.Process, int]]:
    """`dagster dev` and its port."""
    (tmp_path / "home").mkdir()
    (tmp_path / "defs.py").write_text(DEFINITIONS.format(root=str(tmp_path / "lake")))
    command = [sys.executable, "-m", "dagster", "dev", "-f", str(tmp_path / "defs.py"), "-h", "127.0.0.1"]
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path / "home"), "DAGSTER_DISABLE_TELEMETRY": "1"}
    with serving(command, cwd=tmp_path, env=environment) as (pid, port):
        yield psutil.Process(pid), port


def materialize(client: DagsterGraphQLClient) -> None:
    """One run, in a process of its own, as the page starts it; waits until it has succeeded."""
    run = client.submit_job_execution("all")
    deadline = time.monotonic() + 240
    while (status := client.get_run_status(run)) not in (DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE):
        assert time.monotonic() < deadline, f"a run is {status}"
        time.sleep(0.5)
    assert status == DagsterRunStatus.SUCCESS


def held(server: psutil.Process) -> tuple[int, int, int]:
    """Processes, open files and resident bytes of the server and all that it started, when no run is left of it."""
    deadline = time.monotonic() + 60
    while True:
        processes = [server, *server.children(recursive=True)]
        try:
            workers = [p for p in processes if "execute_run" in " ".join(p.cmdline())]
            if not workers or time.monotonic() > deadline:
                return len(processes), sum(p.num_fds() for p in processes), sum(p.memory_info().rss for p in processes)
        except psutil.NoSuchProcess:
            pass
        time.sleep(0.5)


def test_materializations_leave_no_process_file_or_memory_behind(server: tuple[psutil.Process, int]) -> None:
    process, port = server
    client = DagsterGraphQLClient("127.0.0.1", port_number=port)
    for _ in range(WARM_UP):
        materialize(client)
    time.sleep(5)
    before = held(process)
    for _ in range(MATERIALIZATIONS // ASSETS):
        materialize(client)
    time.sleep(5)
    after = held(process)
    print(f"processes, files, bytes: {before} before, {after} after {MATERIALIZATIONS} materializations")
    assert after[0] <= before[0]
    assert after[1] <= before[1] + 20  # connections that the page and the daemon keep in their pools
    assert after[2] <= before[2] * 1.1
