"""Database servers of Debian's, started on a free port of loopback in a temporary folder: PostgreSQL and MariaDB, for tests and benchmarks.

Neither runs as root, so that root starts them as their own users.
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
"""The password of the user ``duckrun`` on each server: tests look for it in what is shown."""
_names = count(1)


class Program:
    """The process of a server: ended, and started again on the same files."""

    def __init__(self, command: Sequence[str], user: str, client: Sequence[str]) -> None:
        self._command, self._user, self._client = command, user, client
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        groups: list[int] | None = [] if _user(self._user) else None
        with tempfile.TemporaryFile("w+") as said:
            self._process = process = subprocess.Popen(
                self._command, stdout=said, stderr=said, cwd="/", user=_user(self._user), extra_groups=groups,
                start_new_session=True, text=True,
            )  # fmt: skip
            deadline = time.monotonic() + 60
            while subprocess.run([*self._client, "SELECT 1"], capture_output=True).returncode:
                if process.poll() is not None or time.monotonic() > deadline:
                    said.seek(0)
                    raise RuntimeError(f"{self._command[0]} did not start: {said.read()[-2000:]}")
                time.sleep(0.1)

    def end(self, how: signal.Signals) -> None:
        """End it by a signal, by force where that does not."""
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
    """A running server. ``address`` is how the catalog of a lake names a database of it."""

    kind: str
    port: int
    client: tuple[str, ...]
    """The command that carries out the SQL that follows it."""
    program: Program

    def run(self, sql: str) -> str:
        """What the server's own client prints for some SQL."""
        done = subprocess.run([*self.client, sql], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def database(self) -> str:
        """The name of a new, empty database."""
        name = f"lake_{os.getpid()}_{next(_names)}"
        self.run(f"CREATE DATABASE {name}")
        if self.kind == "mysql":
            self.run(f"GRANT ALL ON {name}.* TO duckrun@'%'")
        return name

    def address(self, database: str, password: str = PASSWORD) -> str:
        """The ``catalog`` of a lake in a database."""
        if self.kind == "postgres":
            return f"postgres:host=127.0.0.1 port={self.port} user=duckrun password={password} dbname={database}"
        return f"mysql:host=127.0.0.1 port={self.port} user=duckrun passwd={password} db={database}"


@contextmanager
def postgres(*, durable: bool = False) -> Iterator[Server]:
    """A PostgreSQL server. One that is not ``durable`` does not wait for the disk: its files are gone with it."""
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
        with _served(Server("postgres", port, client, program), signal.SIGINT) as server:
            yield server


@contextmanager
def mariadb(*, durable: bool = False) -> Iterator[Server]:
    """A MariaDB server, which speaks MySQL's protocol."""
    programs = _programs("mariadb-install-db", "mariadbd", "mariadb", within="/usr/sbin")
    with _folder("mysql") as folder, _free_port() as port:
        data = folder / "data"
        install = [programs["mariadb-install-db"], "--no-defaults", f"--datadir={data}", "--skip-test-db"]
        _run([*install, "--auth-root-authentication-method=normal"], "mysql")
        options = [] if durable else ["--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--sync-binlog=0"]
        command = [
            programs["mariadbd"], "--no-defaults", f"--datadir={data}", f"--port={port}", "--bind-address=127.0.0.1",
            f"--socket={folder / 'socket'}", f"--pid-file={folder / 'pid'}", "--max-connections=200",
            "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=48M", *options,
        ]  # fmt: skip
        client = (programs["mariadb"], "--no-defaults", f"--socket={folder / 'socket'}", "-u", "root", "-N", "-B", "-e")
        program = Program(command, "mysql", client)
        with _served(Server("mysql", port, client, program), signal.SIGTERM) as server:
            server.run(f"CREATE USER duckrun@'%' IDENTIFIED BY '{PASSWORD}'")
            yield server


def _programs(*names: str, within: str) -> dict[str, str]:
    """The paths of programs, of the newest version that Debian has put ``within`` a folder."""
    found = {}
    for name in names:
        here = sorted((str(path) for path in Path(within).glob(f"*/bin/{name}")), reverse=True) + [f"{within}/{name}"]
        path = next((each for each in here if os.access(each, os.X_OK)), None) or shutil.which(name)
        if path is None:
            raise FileNotFoundError(f"{name} is not installed (Debian: apt-get install postgresql mariadb-server)")
        found[name] = path
    return found


def _user(name: str) -> str | None:
    """Whose process a server is: another one's than root's."""
    return name if os.getuid() == 0 else None


def _run(command: Sequence[str], user: str) -> None:
    done = subprocess.run(
        command, user=_user(user), extra_groups=[] if _user(user) else None, cwd="/", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr + done.stdout


@contextmanager
def _folder(user: str) -> Iterator[Path]:
    """A folder with a short path, as a socket's has to be, that belongs to the server's user."""
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
