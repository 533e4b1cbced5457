"""The terminal, and a log file for the output of Spark and dbt."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from example_project import settings

LOG = settings.DAGSTER_HOME / "demo.log"

console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
say = console.print


@contextmanager
def chatter_to_a_file() -> Iterator[None]:
    """Redirect the output of Spark and dbt to a log file."""
    # File descriptors are redirected, not sys.stdout: the JVM and dbt are processes that inherit
    # them.
    sys.stdout.flush()
    out, err = os.dup(1), os.dup(2)
    reading, writing = os.pipe()
    os.dup2(writing, 1)
    os.dup2(writing, 2)
    os.close(writing)
    console.file = os.fdopen(os.dup(out), "w", encoding="utf-8")

    def copy() -> None:
        with LOG.open("wb", buffering=0) as log:
            while chunk := os.read(reading, 65536):
                log.write(chunk)

    threading.Thread(target=copy, name="chatter", daemon=True).start()
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.close(out)
        os.close(err)
        shown, console.file = console.file, sys.stdout
        shown.close()
