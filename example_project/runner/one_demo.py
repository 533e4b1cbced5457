"""A lock for one demo at a time, and the clean-up after a killed one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
import psutil
from filelock import FileLock, Timeout

from example_project import settings
from example_project.runner.console import say

# Every process of a demo inherits this variable, so that the next demo finds processes of a killed
# one.
OWNER = "DUCKRUN_EXAMPLE_DEMO"
OURS = {"example/by": "demo"}


@contextmanager
def only_one() -> Iterator[None]:
    """Allow one demo at a time, and end the processes of a killed one."""
    settings.HOME.mkdir(parents=True, exist_ok=True)
    settings.DAGSTER_HOME.mkdir(parents=True, exist_ok=True)
    lock = FileLock(settings.DAGSTER_HOME / "demo.lock")
    try:
        # The operating system releases the lock when its holder dies.
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
    """End the processes of a killed demo: its dbt or its Spark might still commit."""
    own_processes = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    orphans = []
    for process in psutil.process_iter():
        try:
            if process.pid not in own_processes and process.environ().get(OWNER) == str(settings.HOME):
                process.terminate()
                orphans.append(process)
        except psutil.Error:
            continue  # another user's process, or one that has ended
    _, alive = psutil.wait_procs(orphans, timeout=20)
    for process in alive:
        process.kill()
    psutil.wait_procs(alive, timeout=20)
    if orphans:
        say(f"ended {len(orphans)} processes that an earlier demo left behind")


def close_abandoned_runs(dagster: dg.DagsterInstance) -> None:
    """Mark the runs of a killed demo as failed."""
    # They look as if they were running, but their process held the lock that this one holds now.
    status = dg.DagsterRunStatus
    unfinished = [status.NOT_STARTED, status.STARTING, status.STARTED, status.CANCELING]
    for run in dagster.get_runs(dg.RunsFilter(statuses=unfinished, tags=OURS)):
        dagster.report_run_failed(run, message="The demo that ran this was killed.")
        say(f"run {run.run_id[:8]} of an earlier demo was cut short: what it did not finish is made now")
