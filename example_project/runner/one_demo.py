"""One demo at a time, and nothing left of one that was killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
import psutil
from filelock import FileLock, Timeout

from example_project import settings
from example_project.runner.console import say

# Read by every process that the demo starts, so that the next demo finds what a killed one left running.
OWNER = "DUCKRUN_EXAMPLE_DEMO"
OURS = {"example/by": "demo"}


@contextmanager
def only_one() -> Iterator[None]:
    """One demo at a time, and nothing left of one that was killed."""
    settings.HOME.mkdir(parents=True, exist_ok=True)
    settings.DAGSTER_HOME.mkdir(parents=True, exist_ok=True)
    lock = FileLock(settings.DAGSTER_HOME / "demo.lock")
    try:
        # The operating system gives the lock back when its holder dies.
        lock.acquire(timeout=0)
    except Timeout:
        raise SystemExit(f"Another demo is at work in {settings.HOME}; wait for it, or end it.") from None
    try:
        _end_orphans()
        os.environ[OWNER] = str(settings.HOME)
        yield
    finally:
        lock.release()


def _end_orphans() -> None:
    """End what a killed demo left running: its dbt or its Spark might still be about to commit."""
    own = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    orphans = []
    for process in psutil.process_iter():
        try:
            if process.pid not in own and process.environ().get(OWNER) == str(settings.HOME):
                process.terminate()
                orphans.append(process)
        except psutil.Error:
            continue  # somebody else's, or just gone
    _, alive = psutil.wait_procs(orphans, timeout=20)
    for process in alive:
        process.kill()
    psutil.wait_procs(alive, timeout=20)
    if orphans:
        say(f"ended {len(orphans)} processes that an earlier demo left behind")


def close_abandoned_runs(dagster: dg.DagsterInstance) -> None:
    """Fail the runs of a killed demo, which seem to be running: their process held the lock that this one holds now."""
    status = dg.DagsterRunStatus
    unfinished = [status.NOT_STARTED, status.STARTING, status.STARTED, status.CANCELING]
    for run in dagster.get_runs(dg.RunsFilter(statuses=unfinished, tags=OURS)):
        dagster.report_run_failed(run, message="The demo that ran this was killed.")
        say(f"run {run.run_id[:8]} of an earlier demo was cut short: what it did not finish is made now")
