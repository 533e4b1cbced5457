"""dbt in a process that holds nothing but its code.

To import dbt takes three seconds of a processor, more than most commands of the tests do. So a server that did nothing
else (multiprocessing's, one for each process of tests) forks a process for each command.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path

_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["dbt.cli.main", "dbt.adapters.duckrun"])


def forked(command: list[str], root: Path) -> tuple[bool, str]:
    """Run a dbt command in a folder: did it succeed, and all that it said."""
    with tempfile.NamedTemporaryFile(mode="r", encoding="utf-8") as words:
        process = _server.Process(target=_dbt, args=(command, str(root), dict(os.environ), words.name))
        process.start()
        process.join()
        return process.exitcode == 0, words.read()


def _dbt(command: list[str], folder: str, environment: dict[str, str], words: str) -> None:
    """What `dbt` does, ended with the status that it ends with."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    with open(words, "wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    from dbt.cli.main import cli

    try:
        cli(command, prog_name="dbt")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        atexit._run_exitfuncs()  # a forked process of multiprocessing ends without them
