"""dbt in a process that holds nothing but its code.

To import dbt takes three seconds of a processor, more than most commands of the tests do. So a server that only
imported dbt, one for each process of tests, forks a process for each command. `command()` is an executable that
asks the server: what starts `dbt` by name, as Dagster does, can start it in its place.

    python -P tests/dbt/fresh.py SOCKET     # the server, until its standard input ends
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path

# Run without site-packages: its start takes 20 ms. A signal to it goes to dbt, and so does its end.
_CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(request)
    dbt = int.from_bytes(server.recv(8, socket.MSG_WAITALL), "big")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, frame: os.kill(dbt, received))
    status = server.recv(1)
sys.exit(status[0] if status else 1)
"""


@cache
def command() -> str:
    """Path of an executable that does what `dbt` does, in a fork of a process that has imported it."""
    folder = Path(tempfile.mkdtemp(prefix="dbt-"))
    address, executable = str(folder / "socket"), folder / "dbt"
    server = subprocess.Popen(
        [sys.executable, "-P", __file__, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder
    )
    assert server.stdin is not None and server.stdout is not None
    assert server.stdout.readline() == b"ready\n", "the server of dbt did not start"
    atexit.register(_stop, server, folder)
    executable.write_text(_CLIENT.format(python=sys.executable, address=address), encoding="utf-8")
    executable.chmod(0o755)
    return str(executable)


def _stop(server: subprocess.Popen[bytes], folder: Path) -> None:
    assert server.stdin is not None
    server.stdin.close()
    server.wait()
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def forked(arguments: list[str], root: Path) -> tuple[bool, str]:
    """Run a dbt command in a folder: did it succeed, and all that it said."""
    done = subprocess.run(
        [command(), *arguments],
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode == 0, done.stdout


def _serve(address: str) -> None:
    """Fork a process for each connection until the standard input ends."""
    import dbt.adapters.duckrun
    import dbt.cli.main  # noqa: F401

    # Reaped here, so that the processor time of a command counts as that of the tests.
    signal.signal(signal.SIGCHLD, lambda number, frame: _reap())
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        os.write(1, b"ready\n")
        while True:
            ready, _, _ = select.select([0, listening], [], [])
            if 0 in ready:
                return
            connection, _ = listening.accept()
            with connection:
                if os.fork() == 0:
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    listening.close()
                    _handle(connection)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _handle(connection: socket.socket) -> None:
    """Start dbt in a fork, answer with its status, and end; dbt ends with the one that asked for it."""
    size, streams, _, _ = socket.recv_fds(connection, 8, 3)
    request = connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
    arguments, folder, environment = json.loads(request)
    ends, kept = os.pipe()  # the second end is closed when dbt ends
    child = os.fork()
    if child == 0:
        os.close(ends)
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        _run(arguments, folder, environment)
    os.close(kept)
    for stream in streams:
        os.close(stream)
    connection.sendall(child.to_bytes(8, "big"))
    ready, _, _ = select.select([ends, connection], [], [])
    if ends not in ready:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(OSError):
        connection.sendall(bytes([status % 256]))
    os._exit(0)


def _run(arguments: list[str], folder: str, environment: dict[str, str]) -> None:
    """What `dbt` does, ended with the status that it ends with."""
    status = 1
    try:
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.argv = ["dbt", *arguments]
        from dbt.cli.main import cli

        cli(arguments, prog_name="dbt")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:  # a forked process ends without them
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve(sys.argv[1])
