"""A Spark that does not fit: without Delta's jars, with workers that do not see the lake, of another version, or no Spark at all."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pyspark
import pytest
from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc

from tests.cluster.standalone import EXECUTOR, Cluster
from tests.cluster.test_cluster import driver, told

pytestmark = [pytest.mark.cluster, pytest.mark.spark]


def refusal(lake: Path, address: str, conf: dict[str, str], *before: str) -> str:
    """What a write to main.t said, in a process of its own, within 30 seconds; nothing was written."""
    said = told(driver("misfit", lake, address, json.dumps(conf), before=before))
    kind, text = said["said"]
    assert kind == "InvalidConfig" and not said["files"] and said["seconds"] < 30, said
    assert "\tat org.apache" not in text and len(text) < 1000, text
    return str(text)


def test_a_spark_without_delta_s_jars(tmp_path: Path) -> None:
    text = refusal(tmp_path / "lake", "local[1]", {"duckrun.jars": "provided"})
    assert "main.t" in text and "no Delta jars" in text


def test_a_lake_that_the_workers_do_not_see(cluster: Cluster, tmp_path: Path) -> None:
    """The driver has a folder of its own where the workers have another, empty one, as on another machine."""
    lakes = tmp_path / "lakes"
    lakes.mkdir()
    hidden = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(lakes))
    if shutil.which("unshare") is None or subprocess.run([*hidden, "true"], capture_output=True).returncode:
        pytest.skip("needs the right to mount a folder for one process")
    text = refusal(lakes / "lake", cluster.address, EXECUTOR, *hidden)
    assert str(lakes / "lake") in text and cluster.address in text and "object store" in text


@pytest.fixture
def listener() -> Iterator[int]:
    """The port of something that takes connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        held: list[socket.socket] = []

        def take() -> None:
            try:
                while True:
                    held.append(server.accept()[0])
            except OSError:
                return

        threading.Thread(target=take, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        for connection in held:
            connection.close()


def test_what_listens_and_is_no_connect_server(listener: int, tmp_path: Path) -> None:
    text = refusal(tmp_path / "lake", f"sc://127.0.0.1:{listener}", {})
    assert f"127.0.0.1:{listener}" in text and "no Spark Connect server" in text


class Older(base_pb2_grpc.SparkConnectServiceServicer):
    """As far as a client gets with a server of an older version: its settings, and which version it is."""

    def Config(self, request: Any, context: Any) -> Any:
        return base_pb2.ConfigResponse(session_id=request.session_id)

    def AnalyzePlan(self, request: Any, context: Any) -> Any:
        assert request.WhichOneof("analyze") == "spark_version"
        answer = base_pb2.AnalyzePlanResponse.SparkVersion(version="3.5.6")
        return base_pb2.AnalyzePlanResponse(session_id=request.session_id, spark_version=answer)


def test_a_connect_server_of_another_version(tmp_path: Path) -> None:
    server = grpc.server(ThreadPoolExecutor(2))
    base_pb2_grpc.add_SparkConnectServiceServicer_to_server(Older(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        text = refusal(tmp_path / "lake", f"sc://127.0.0.1:{port}", {})
    finally:
        server.stop(None)
    assert f"127.0.0.1:{port}" in text and "3.5.6" in text and f"pyspark {pyspark.__version__}" in text
