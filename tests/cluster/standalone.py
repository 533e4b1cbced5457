"""A standalone Spark cluster of processes on loopback: a master and workers of one core each, from the pip package."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
EXECUTOR = {
    "spark.executor.memory": "640m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.databricks.delta.snapshotPartitions": "2",
}
"""Settings of an application that takes the whole of this cluster: an executor on each worker."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(what: Callable[[], object], seconds: float = 90, why: str = "") -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"waited {seconds} s: {why}"
        time.sleep(0.1)


def kill(process: subprocess.Popen[bytes]) -> None:
    """A process and all that it started, at once and without notice."""
    try:
        tree = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    except psutil.NoSuchProcess:
        tree = []
    for each in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    process.wait(timeout=30)


@dataclass
class Cluster:
    """``address`` is that of the master; ``workers`` are its worker processes, whose children are the executors."""

    folder: Path
    address: str = ""
    master: subprocess.Popen[bytes] | None = None
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, workers: int) -> None:
        port = free_port()
        self.address = f"spark://127.0.0.1:{port}"
        self.master = self._process(
            "master", "org.apache.spark.deploy.master.Master", "--port", str(port), "--webui-port", str(free_port())
        )
        wait_for(lambda: "New state: ALIVE" in self._log("master"), why="the master did not start")
        for _ in range(workers):
            self.add_worker()
        wait_for(
            lambda: self._log("master").count("Registering worker") == workers, why=f"no {workers} workers registered"
        )

    def add_worker(self) -> None:
        number = len(self.workers)
        self.workers.append(
            self._process(
                f"worker{number}",
                "org.apache.spark.deploy.worker.Worker",
                "--cores",
                "1",
                "--memory",
                "1g",
                "--webui-port",
                str(free_port()),
                "--work-dir",
                str(self.folder / f"work{number}"),
                self.address,
            )  # fmt: skip
        )

    def stop(self) -> None:
        for process in (*self.workers, *([self.master] if self.master else [])):
            kill(process)

    def _log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _process(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        env = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [str(SPARK_CLASS), main, "--host", "127.0.0.1", *arguments],
                stdout=log, stderr=subprocess.STDOUT, env=env, start_new_session=True,
            )  # fmt: skip
