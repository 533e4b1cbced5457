"""One Spark for the processes of a run: a Spark Connect server on this machine.

A run with several Spark processes (Dagster's steps, dbt) describes its server once, as a RunServer.
The first process that needs Spark starts it, under a lock named after the run; the others join. The
server is a separate process (``serve.py``), which ends with the run's worker.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
from filelock import FileLock

from duckrun.errors import InvalidConfig

log = logging.getLogger(__name__)

ENVIRONMENT = "DUCKRUN_SPARK_SERVER"
"""Environment variable that names the run's server to a process of the run, such as dbt."""

START_SECONDS = 300  # a first start may fetch jars
STOP_SECONDS = 5


@dataclass(frozen=True)
class RunServer:
    """Description of a run's Spark Connect server.

    Example::

        server = RunServer.of_process("nightly", os.getpid(), master="local[2]")
        spark = spark_session(server=server)
    """

    name: str
    """Name of the run."""
    worker: int
    """Process id that the server ends with."""
    worker_started: float
    """Start of that process (seconds since 1970), since ids are reused."""
    master: str = "local[*]"
    conf: dict[str, str] = field(default_factory=dict, repr=False)
    packages: tuple[str, ...] = ()

    @classmethod
    def of_process(cls, name: str, worker: int, **values: Any) -> RunServer:
        """Return the server of a run whose worker is the process with this id.

        Raises:
            InvalidConfig: There is no such process.
        """
        try:
            started = psutil.Process(worker).create_time()
        except psutil.NoSuchProcess:
            raise InvalidConfig(f"There is no process {worker} on this machine to share Spark with.") from None
        return cls(name, worker, started, **values)

    @classmethod
    def from_environment(cls) -> RunServer | None:
        """Return the server of the run that started this process; None outside of a run."""
        text = os.environ.get(ENVIRONMENT)
        return cls.from_json(text) if text else None

    @classmethod
    def from_json(cls, text: str) -> RunServer:
        values = json.loads(text)
        return cls(**{**values, "packages": tuple(values["packages"])})

    def environment(self) -> dict[str, str]:
        """Return the environment variables that lead a process to this server.

        They contain ``conf`` with its credentials.
        """
        return {ENVIRONMENT: json.dumps(asdict(self))}

    def remote(self) -> str:
        """Return the server's address with its key, and start the server if no process has.

        Raises:
            InvalidConfig: The server does not start. The error has its last output.
        """
        state = self._state()
        with FileLock(str(state.with_suffix(".lock"))):
            running = _running(state)
            return _address(running if running is not None else self._start(state))

    def stop(self) -> None:
        """Stop the server before its run ends, if it runs."""
        try:
            record = json.loads(self._state().read_text())
        except FileNotFoundError:
            return
        if is_process(record["pid"], record["started"]):
            process = psutil.Process(record["pid"])
            process.terminate()
            process.wait(timeout=2 * STOP_SECONDS)

    def _state(self) -> Path:
        name = "".join(c if c.isalnum() or c in "-_." else "_" for c in f"{self.name}-{self.worker}")
        return _private_folder() / f"{name}.json"

    def _start(self, state: Path) -> dict[str, Any]:
        state.unlink(missing_ok=True)
        words = state.with_suffix(".log")
        log.info("starting a Spark Connect server on %s for run %s; its log is %s", self.master, self.name, words)
        with words.open("wb") as output:
            os.chmod(words, 0o600)
            process = subprocess.Popen(
                [sys.executable, "-m", "duckrun.engines.spark.process.serve", str(state)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C must stop the run; the server then follows
            )
        assert process.stdin is not None
        # Not as an argument, which every user can see.
        process.stdin.write(json.dumps(asdict(self)).encode())
        process.stdin.close()
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            running = _running(state)
            if running is not None:
                return running
            if process.poll() is not None:
                break
            time.sleep(0.1)
        process.kill()
        process.wait()
        last_words = [line for line in words.read_text(errors="replace").splitlines() if line.strip()]
        raise InvalidConfig(
            f"The Spark Connect server of run {self.name} did not start on {self.master}. Its last words:\n"
            + "\n".join(last_words[-5:])
        )


def _private_folder() -> Path:
    """Return a folder for the records of servers, which no other user may read."""
    # The records hold the servers' keys.
    folder = Path(tempfile.gettempdir()) / f"duckrun-spark-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise InvalidConfig(f"{folder} belongs to somebody else; remove it, or set TMPDIR to a folder of your own.")
    return folder


def _running(state: Path) -> dict[str, Any] | None:
    """Return the record of a server, if it still runs and answers."""
    try:
        record: dict[str, Any] = json.loads(state.read_text())
    except FileNotFoundError:
        return None
    if not is_process(record["pid"], record["started"]):
        return None
    try:
        socket.create_connection(("127.0.0.1", record["port"]), timeout=5).close()
    except OSError:
        return None
    return record


def _address(record: dict[str, Any]) -> str:
    return f"sc://localhost:{record['port']}/;token={quote(record['token'])}"


def is_process(pid: int, started: float) -> bool:
    """True while the process with this id is the one that started at this time."""
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - started) < 1 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
