"""A process with dbt imported, that forks one ``dbt`` command for each line it is given. Run by test_dbt_kills.py."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import deltalake  # noqa: F401 - so that the forked process need not
import pandas  # noqa: F401
from dbt.adapters.duckrun import Plugin  # noqa: F401
from dbt.cli.main import dbtRunner

from tests.kills.writer import serve


def build(job: dict[str, Any]) -> None:
    """Run dbt in a project; its output goes to a file there, as standard output is for what serve() says."""
    os.chdir(job["project"])
    os.environ.update(job["env"])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that put the tests aside has turned it off
    print("ready", flush=True)
    with open("dbt.out", "w") as out:
        os.dup2(out.fileno(), 1)
        result = dbtRunner().invoke([*job["args"], "--profiles-dir", ".", "--no-use-colors"])
    if result.success == job["fails"]:
        raise RuntimeError(f"dbt {job['args']}: {result.exception or Path('dbt.out').read_text()}")


if __name__ == "__main__":
    serve({"dbt": build})
