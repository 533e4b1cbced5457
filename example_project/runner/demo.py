"""Commands of `python -m example_project`: land files, plan due runs, execute and report them."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterable
from typing import Any, NoReturn
from uuid import uuid4

import dagster as dg
import sqlalchemy
import sqlalchemy.event

from example_project import landing, settings
from example_project.runner import arrivals
from example_project.runner.console import chatter_to_a_file, say
from example_project.runner.one_demo import OURS, close_abandoned_runs, only_one
from example_project.runner.plan import PARENT, RETRY, TRANSFORM, Run, left_of, plan
from example_project.runner.progress import Progress
from example_project.runner.results import show, tell_of_branch

DAGSTER_YAML = """\
# The example's own instance: `make demo` writes its runs here and `make ui` shows them.
telemetry:
  enabled: false
"""


def instance() -> dg.DagsterInstance:
    """Return the example's Dagster instance, in its own folder whatever DAGSTER_HOME is."""
    history, of_main = settings.DAGSTER_HOME / "history", settings.MAIN_DAGSTER_HOME / "history"
    if settings.BRANCH and of_main.exists() and not history.exists():
        shutil.copytree(settings.MAIN_DAGSTER_HOME, settings.DAGSTER_HOME, dirs_exist_ok=True)
    settings.DAGSTER_HOME.mkdir(parents=True, exist_ok=True)
    config = settings.DAGSTER_HOME / "dagster.yaml"
    if not config.exists():
        config.write_text(DAGSTER_YAML)
    os.environ["DAGSTER_HOME"] = str(settings.DAGSTER_HOME)
    return dg.DagsterInstance.get()


@sqlalchemy.event.listens_for(sqlalchemy.Engine, "connect")
def _no_sync_for_each_event(connection: Any, _: object) -> None:
    """Let SQLite not wait for the disk at each event of Dagster."""
    # Dagster commits every event by itself: two thousand waits for the disk in the first demo. In
    # WAL mode, NORMAL loses nothing when a process is killed, only when the machine crashes.
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=NORMAL")


def demo(months: Iterable[int], corrected: Iterable[int] = ()) -> int:
    """Land these months, some again as ``corrected``, and compute the missing or stale assets.

    Returns:
        The exit code: 1 if a step or a check failed.
    """
    started = time.monotonic()
    with only_one():
        for file in arrivals.arrive(months):
            say(f"landed  {file.path.relative_to(settings.HOME)}  {file.rows():,} rows")
        for file in arrivals.correct(corrected):
            say(f"landed  {file.path.relative_to(settings.HOME)}  again, with late corrections")
        months = list(months)
        if arrivals.report(months, wrong=settings.PUBLISHES):
            say(f"landed  {settings.REPORTED.relative_to(settings.HOME)}  the flights of each month")
        from example_project.definitions import defs, duckrun  # after landing, since it imports Spark and dbt

        with instance() as dagster:
            close_abandoned_runs(dagster)
            landing.report(dagster)
            runs = plan(dagster, defs, duckrun.lake())
            if not runs:
                say("nothing to do: nothing landed since, and every asset is up to date")
            done: list[str] = []
            with chatter_to_a_file():
                for run in runs:
                    done.append(run_id := str(uuid4()))
                    if _execute(dagster, defs, run, run_id):
                        continue
                    tell_of_branch(dagster, run_id, duckrun.lake())
                    if run.job != TRANSFORM or not arrivals.report(months):
                        break
                    say(f"landed  {settings.REPORTED.relative_to(settings.HOME)}  again, mended")
                    done.append(again := str(uuid4()))
                    if not _execute(dagster, defs, left_of(dagster, defs, run, run_id), again, parent=run_id):
                        break
            failed = show(dagster, defs, done)
            left = [] if failed else plan(dagster, defs, duckrun.lake())
            for run in left:
                say(f"[red]still to do after all runs:[/] {run.job} {_names(run)}")
    say(f"{time.monotonic() - started:.0f} s")
    return 1 if failed or left else 0


def status() -> int:
    """Print the assets, the checks and the runs of the next `demo`; return the exit code."""
    from example_project.definitions import defs, duckrun

    with instance() as dagster:
        failed = show(dagster, defs, [])
        for run in plan(dagster, defs, duckrun.lake()):
            say(f"to do: {run.job} {_names(run)}")
    return 1 if failed else 0


def ui(port: int) -> NoReturn:
    """Replace this process by `dagster dev` on the same graph and the same instance."""
    instance().dispose()
    from example_project import dbt_assets

    dbt_assets.prepare()
    os.chdir(settings.PACKAGE.parent)
    command = [sys.executable, "-m", "dagster", "dev", "-m", "example_project.definitions", "-p", str(port)]
    os.execv(sys.executable, command)


def _execute(
    dagster: dg.DagsterInstance, definitions: dg.Definitions, run: Run, run_id: str, parent: str | None = None
) -> bool:
    """Execute one run in this process; return True if every step succeeded.

    With a parent, it continues that run, and so its branch.
    """
    say(f"\n[bold]{run.job}[/] {_names(run)}  (run {run_id[:8]}{f', after {parent[:8]}' if parent else ''})")
    continued = {PARENT: parent, "dagster/root_run_id": parent, RETRY: "true"} if parent else {}
    job = definitions.resolve_job_def(run.job)
    checks = set(run.checks) if run.checks else None
    job = job.get_subset(asset_selection=set(run.assets), asset_check_selection=checks)
    # `Progress` prints to the console instead; the instance has every event for the UI.
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    with Progress(dagster, run_id):
        result = job.execute_in_process(
            run_config=quiet,
            instance=dagster,
            tags={**run.tags, **OURS, **continued},
            run_id=run_id,
            raise_on_error=False,
        )
    return result.success


def _names(run: Run) -> str:
    days = f", {run.partitions[0]} to {run.partitions[1]}" if run.partitions else ""
    return f"{len(run.assets)} assets{days}" if run.assets else f"{len(run.checks)} checks"
