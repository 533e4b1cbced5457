"""Program of a run's Spark Connect server, which ``connect.py`` starts.

It holds a classic session with Spark's Connect plugin, and ends with the run's worker.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from duckrun.engines.spark.process.connect import ENVIRONMENT, STOP_SECONDS, RunServer, is_process
from duckrun.engines.spark.process.session import remove_empty_warehouses, spark_session

WATCH_SECONDS = 0.5
_PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"


def serve(server: RunServer, state: Path) -> None:
    """Hold a session with the Connect plugin until the run's worker is gone."""
    signal.signal(signal.SIGTERM, lambda *_: _end(state, None))
    os.environ.pop("SPARK_REMOTE", None)
    os.environ.pop(ENVIRONMENT, None)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_urlsafe(24)
    conf: dict[str, Any] = {
        # End the statements of a killed client soon, so that they do not commit later.
        "spark.connect.execute.manager.detachedTimeout": "10s",
        "spark.connect.execute.manager.maintenanceInterval": "5s",
        **server.conf,
        "spark.plugins": ",".join(p for p in (server.conf.get("spark.plugins"), _PLUGIN) if p),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.authenticate.token": token,
    }
    session = spark_session(
        master=server.master, conf=conf, packages=server.packages, app_name=f"duckrun {server.name}"
    )
    process = psutil.Process()
    values = {"pid": process.pid, "started": process.create_time(), "port": port, "token": token}
    written = state.with_suffix(f".{process.pid}")
    written.touch(mode=0o600)
    written.write_text(json.dumps(values))
    os.replace(written, state)
    while is_process(server.worker, server.worker_started):
        time.sleep(WATCH_SECONDS)
    _end(state, session)


def _end(state: Path, session: Any | None) -> None:
    """Stop Spark and this process.

    That takes seconds even if Spark does not answer, since its JVM ends with this process.
    """
    for kind in (".json", ".log", ".lock"):
        state.with_suffix(kind).unlink(missing_ok=True)
    if session is not None:
        stopping = threading.Thread(target=session.stop, daemon=True)
        stopping.start()
        stopping.join(STOP_SECONDS)
        remove_empty_warehouses()
    os._exit(0)


if __name__ == "__main__":
    serve(RunServer.from_json(sys.stdin.read()), Path(sys.argv[1]))
