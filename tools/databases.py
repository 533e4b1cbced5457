"""Database servers for tests and benchmarks: Debian's PostgreSQL and MariaDB.

Each starts on a free port of loopback in a temporary folder. Neither runs as root, so root starts
them as their own users.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

PASSWORD = "not-to-be-shown-7319"
"""The password of the user ``duckrun`` on each server: tests search outputs for it."""
_names = count(1)


class Program:
    """The process of a server, which can be ended and started again on the same files."""

    def __init__(self, command: Sequence[str], user: str, client: Sequence[str]) -> None:
        self._command, self._user, self._client = command, user, client
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        groups: list[int] | None = [] if _user(self._user) else None
        with tempfile.TemporaryFile("w+") as output:
            self._process = process = subprocess.Popen(
                self._command, stdout=output, stderr=output, cwd="/", user=_user(self._user), extra_groups=groups,
                start_new_session=True, text=True,
            )  # fmt: skip
            deadline = time.monotonic() + 60
            while subprocess.run([*self._client, "SELECT 1"], capture_output=True).returncode:
                if process.poll() is not None or time.monotonic() > deadline:
                    output.seek(0)
                    raise RuntimeError(f"{self._command[0]} did not start: {output.read()[-2000:]}")
                time.sleep(0.1)

    def end(self, how: signal.Signals) -> None:
        """End it by a signal, and kill it if that fails."""
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass(frozen=True)
class Server:
    """A running server."""

    port: int
    client: tuple[str, ...]
    """Command that runs the SQL of its next argument."""
    program: Program

    def run(self, sql: str) -> str:
        """Return the output of the server's own client for some SQL."""
        done = subprocess.run([*self.client, sql], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def database(self) -> str:
        """Create an empty database and return its name."""
        name = f"lake_{os.getpid()}_{next(_names)}"
        self.run(f"CREATE DATABASE {name}")
        return name

    def address(self, database: str, password: str = PASSWORD) -> str:
        """Return the ``catalog`` of a lake in a database."""
        return f"postgres:host=127.0.0.1 port={self.port} user=duckrun password={password} dbname={database}"


@contextmanager
def postgres(*, durable: bool = False) -> Iterator[Server]:
    """Run a PostgreSQL server. Without ``durable`` it does not wait for the disk."""
    programs = _programs("initdb", "postgres", "psql", within="/usr/lib/postgresql")
    with _folder("postgres") as folder, _free_port() as port:
        data, secret = folder / "data", folder / "password"
        secret.write_text(PASSWORD)
        _run(
            [programs["initdb"], "-D", str(data), "-U", "duckrun", "--pwfile", str(secret), "-E", "UTF8", "--no-sync"]
            + ["--auth-host=scram-sha-256", "--auth-local=trust", "--locale=C.UTF-8"],
            "postgres",
        )
        options = [] if durable else ["fsync=off", "synchronous_commit=off", "full_page_writes=off"]
        options += [f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={folder}"]
        options += ["max_connections=200", "shared_buffers=64MB", "autovacuum_naptime=5s"]
        command = [programs["postgres"], "-D", str(data), *(word for each in options for word in ("-c", each))]
        client = (
            programs["psql"], "-h", str(folder), "-p", str(port), "-U", "duckrun", "-d", "postgres", "-tAqX",
            "-v", "ON_ERROR_STOP=1", "-c",
        )  # fmt: skip
        program = Program(command, "postgres", client)
        with _served(Server(port, client, program), signal.SIGINT) as server:
            yield server


def _programs(*names: str, within: str) -> dict[str, str]:
    """Return the paths of programs that Debian has installed ``within`` a folder, by name.

    The paths are those of the newest version.
    """
    paths = {}
    for name in names:
        here = sorted((str(path) for path in Path(within).glob(f"*/bin/{name}")), reverse=True) + [f"{within}/{name}"]
        path = next((each for each in here if os.access(each, os.X_OK)), None) or shutil.which(name)
        if path is None:
            raise FileNotFoundError(f"{name} is not installed (Debian: apt-get install postgresql)")
        paths[name] = path
    return paths


def _user(name: str) -> str | None:
    """Return the user of a server's process if this process is root's, else None."""
    return name if os.getuid() == 0 else None


def _run(command: Sequence[str], user: str) -> None:
    done = subprocess.run(
        command, user=_user(user), extra_groups=[] if _user(user) else None, cwd="/", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr + done.stdout


@contextmanager
def _folder(user: str) -> Iterator[Path]:
    """Yield a folder of the server's user with a short path, which a socket requires."""
    folder = Path(tempfile.mkdtemp(prefix="duckrun-db-"))
    if _user(user):
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _free_port() -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    yield port


@contextmanager
def _served(server: Server, stop: signal.Signals) -> Iterator[Server]:
    try:
        server.program.start()
        yield server
    finally:
        server.program.end(stop)
