"""What `python -m example_project` does: land, ask Dagster what is to be made, run that, and say what was made."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn
from uuid import uuid4

import dagster as dg
import psutil
import sqlalchemy
import sqlalchemy.event
from filelock import FileLock, Timeout
from rich.console import Console
from rich.table import Table

from example_project import landing, settings
from example_project.plan import Run, plan

# Read by every process that the demo starts, so that one that outlives a killed demo can be told from others.
OWNER = "DUCKRUN_EXAMPLE_DEMO"
OURS = {"example/by": "demo"}
LOG = settings.DAGSTER_HOME / "demo.log"
HEARTBEAT = 15  # seconds of silence after which a running step says that it still runs

console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
say = console.print

DAGSTER_YAML = """\
# The example's own instance: `make demo` writes its runs here and `make ui` shows them.
telemetry:
  enabled: false
"""


def instance() -> dg.DagsterInstance:
    """The example's Dagster instance, in its own folder whatever DAGSTER_HOME was."""
    settings.DAGSTER_HOME.mkdir(parents=True, exist_ok=True)
    config = settings.DAGSTER_HOME / "dagster.yaml"
    if not config.exists():
        config.write_text(DAGSTER_YAML)
    os.environ["DAGSTER_HOME"] = str(settings.DAGSTER_HOME)
    return dg.DagsterInstance.get()


@sqlalchemy.event.listens_for(sqlalchemy.Engine, "connect")
def _no_sync_for_each_event(connection: Any, _: object) -> None:
    """Dagster commits every event by itself: two thousand waits for the disk in the first demo.

    Its files are in SQLite's WAL mode, in which NORMAL loses nothing when a process is killed, only when the machine is.
    """
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=NORMAL")


def demo(months: Iterable[int]) -> int:
    """Land these months and make what is missing or stale. Gives the exit code: 1 if a step or a check failed."""
    started = time.monotonic()
    with _only_one():
        for file in landing.arrive(months):
            say(f"landed  {file.path.relative_to(settings.HOME)}  {file.rows():,} rows")
        from example_project.definitions import defs, duckrun  # after landing: this imports Spark, dbt and all

        with instance() as dagster:
            _close_abandoned_runs(dagster)
            landing.report(dagster)
            repository = defs.get_repository_def()
            runs = plan(dagster, repository.asset_graph, duckrun.lake())
            if not runs:
                say("nothing to do: nothing landed since, and every asset is up to date")
            done: list[str] = []
            with _chatter_to_a_file():
                for run in runs:
                    done.append(run_id := str(uuid4()))
                    if not _execute(dagster, repository, run, run_id):
                        break
            failed = _show(dagster, repository, done)
            left = [] if failed else plan(dagster, repository.asset_graph, duckrun.lake())
            for run in left:
                say(f"[red]still to do after all runs:[/] {run.job} {_names(run)}")
    say(f"{time.monotonic() - started:.0f} s")
    return 1 if failed or left else 0


def status() -> int:
    """The table of assets and checks, and what the next `demo` would run."""
    from example_project.definitions import defs, duckrun

    with instance() as dagster:
        repository = defs.get_repository_def()
        failed = _show(dagster, repository, [])
        for run in plan(dagster, repository.asset_graph, duckrun.lake()):
            say(f"to do: {run.job} {_names(run)}")
    return 1 if failed else 0


def ui(port: int) -> NoReturn:
    """Become `dagster dev` on the same graph and the same instance, until Ctrl-C."""
    instance().dispose()
    from example_project import dbt_assets

    dbt_assets.prepare()
    os.chdir(settings.PACKAGE.parent)
    command = [sys.executable, "-m", "dagster", "dev", "-m", "example_project.definitions", "-p", str(port)]
    os.execv(sys.executable, command)


# ---------------------------------------------------------------- running


@contextmanager
def _chatter_to_a_file() -> Iterator[None]:
    """What Spark's start and dbt print goes to a log file; Spark's progress bar goes to the terminal too.

    Descriptors are redirected, not sys.stdout: the JVM and dbt are processes of their own, and inherit them.
    """
    sys.stdout.flush()
    out, err = os.dup(1), os.dup(2)
    reading, writing = os.pipe()
    os.dup2(writing, 1)
    os.dup2(writing, 2)
    os.close(writing)
    console.file = os.fdopen(os.dup(out), "w", encoding="utf-8")

    def copy() -> None:
        bar = os.isatty(err)
        with LOG.open("wb", buffering=0) as log:
            while chunk := os.read(reading, 65536):
                if not chunk.startswith(b"\r"):
                    log.write(chunk)
                elif bar:
                    os.write(err, chunk)

    threading.Thread(target=copy, name="chatter", daemon=True).start()
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.close(out)  # `err` stays open for the bar: the JVM lives until this process ends
        shown, console.file = console.file, sys.stdout
        shown.close()


def _execute(dagster: dg.DagsterInstance, repository: dg.RepositoryDefinition, run: Run, run_id: str) -> bool:
    """Carry out one run in this process; True if every step succeeded."""
    say(f"\n[bold]{run.job}[/] {_names(run)}  (run {run_id[:8]})")
    job = repository.get_job(run.job)
    if run.checks:
        job = job.get_subset(asset_selection=set(run.assets), asset_check_selection=set(run.checks))
    # The console gets the lines of `_Progress` instead; every event is in the instance, for the UI.
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    with _Progress(dagster, run_id):
        result = job.execute_in_process(
            run_config=quiet,
            instance=dagster,
            asset_selection=list(run.assets) or None,
            tags={**run.tags, **OURS},
            run_id=run_id,
            raise_on_error=False,
        )
    return result.success


def _names(run: Run) -> str:
    days = f", {run.partitions[0]} to {run.partitions[1]}" if run.partitions else ""
    return f"{len(run.assets)} assets{days}" if run.assets else f"{len(run.checks)} checks"


class _Progress:
    """Prints the steps of a run as they begin and end, from the run's event log."""

    EVENTS = {
        dg.DagsterEventType.STEP_START,
        dg.DagsterEventType.STEP_SUCCESS,
        dg.DagsterEventType.STEP_FAILURE,
        dg.DagsterEventType.ASSET_MATERIALIZATION,
        dg.DagsterEventType.ASSET_CHECK_EVALUATION,
    }

    def __init__(self, dagster: dg.DagsterInstance, run_id: str) -> None:
        self._dagster, self._run_id = dagster, run_id
        self._cursor: str | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="progress", daemon=True)
        self._running: dict[str, float] = {}
        self._seen: set[dg.AssetKey] = set()
        self._said = time.time()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._print_new()

    def _follow(self) -> None:
        while not self._stop.wait(0.5):
            self._print_new()
            if self._running and time.time() - self._said > HEARTBEAT:
                for step, begun in self._running.items():
                    self._say(f"  …  {step} runs for {time.time() - begun:.0f} s")

    def _print_new(self) -> None:
        while True:
            page = self._dagster.get_records_for_run(self._run_id, self._cursor, of_type=self.EVENTS, limit=500)
            for record in page.records:
                self._print(record.event_log_entry)
            self._cursor = page.cursor
            if not page.has_more:
                return

    def _print(self, entry: dg.EventLogEntry) -> None:
        event = entry.dagster_event
        assert event is not None
        step = event.step_key or ""
        if event.is_step_start:
            self._running[step] = entry.timestamp
            self._say(f"  ▸  {step}")
        elif event.is_step_success:
            self._say(f"  ✓  {step}  {entry.timestamp - self._running.pop(step, entry.timestamp):.1f} s")
        elif event.is_step_failure:
            self._running.pop(step, None)
            error = event.step_failure_data.error
            while error is not None and error.cause is not None:
                error = error.cause
            self._say(f"  [red]✗  {step}[/]")
            console.print(error.message.strip() if error else "", style="red", markup=False)
        elif event.asset_key is not None and event.is_step_materialization and event.asset_key not in self._seen:
            self._seen.add(event.asset_key)
            self._say(f"     {event.asset_key.to_user_string()}")
        elif entry.dagster_event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            check = event.asset_check_evaluation_data
            if not check.passed:
                self._say(f"     [red]check failed: {check.asset_key.to_user_string()} {check.check_name}[/]")

    def _say(self, line: str) -> None:
        self._said = time.time()
        say(line)


# ---------------------------------------------------------------- after a kill


@contextmanager
def _only_one() -> Iterator[None]:
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


def _close_abandoned_runs(dagster: dg.DagsterInstance) -> None:
    """Runs of ours that seem to be running are not: their process held the lock that we hold now."""
    unfinished = [
        dg.DagsterRunStatus.NOT_STARTED,
        dg.DagsterRunStatus.STARTING,
        dg.DagsterRunStatus.STARTED,
        dg.DagsterRunStatus.CANCELING,
    ]
    for run in dagster.get_runs(dg.RunsFilter(statuses=unfinished, tags=OURS)):
        dagster.report_run_failed(run, message="The demo that ran this was killed.")
        say(f"run {run.run_id[:8]} of an earlier demo was cut short: what it did not finish is made now")


# ---------------------------------------------------------------- what was made


def _show(dagster: dg.DagsterInstance, repository: dg.RepositoryDefinition, runs: Sequence[str]) -> bool:
    """Print the assets, the checks and the report's path; True if a run or a check failed."""
    graph = repository.asset_graph
    table = Table(title="assets", title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in ("asset", "made by", "engine"):
        table.add_column(column, no_wrap=True)
    for column in ("rows", "version", "seconds"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("this time", no_wrap=True)
    for key in graph.toposorted_asset_keys:
        if graph.get(key).is_materializable:
            table.add_row(*_row(dagster, graph, key, runs))
    say()
    say(table)
    failed = [run for run in runs if (record := dagster.get_run_by_id(run)) is None or not record.is_success]
    for run in failed:
        say(f"[red]run {run[:8]} failed[/]: `python -m example_project ui` shows it, {LOG} has what its tools printed")
    checks_failed = _show_checks(dagster, graph)
    if settings.REPORT.exists():
        say(f"report: {settings.REPORT}", soft_wrap=True)
    return bool(failed) or checks_failed


def _row(dagster: dg.DagsterInstance, graph: Any, key: dg.AssetKey, runs: Sequence[str]) -> list[str]:
    event = dagster.get_latest_materialization_event(key)
    made = event.asset_materialization if event else None
    kinds = " ".join(sorted(graph.get(key).kinds))
    if event is None or made is None:
        return [key.to_user_string(), kinds, "", "", "", "", "[yellow]not made yet[/]"]
    facts = {name: value.value for name, value in made.metadata.items()}
    return [
        key.to_user_string(),
        kinds,
        _text(facts.get("engine")),
        _text(facts.get("dagster/row_count")),
        _text(facts.get("version")),
        _text(facts.get("seconds")),
        _this_time(dagster, key, facts, runs) if event.run_id in runs else "—",
    ]


def _this_time(dagster: dg.DagsterInstance, key: dg.AssetKey, facts: dict[str, Any], runs: Sequence[str]) -> str:
    said = [
        f"{facts[name]:,} {name.removeprefix('rows_')}"
        for name in ("rows_inserted", "rows_updated", "rows_deleted")
        if facts.get(name)
    ]
    partitions = sum(
        record.partition_key is not None
        for run in runs
        for record in dagster.get_records_for_run(run, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION).records
        if (event := record.event_log_entry.dagster_event) is not None and event.asset_key == key
    )
    if partitions:
        said.append("1 partition" if partitions == 1 else f"{partitions} partitions")
    what = f"{facts['mode']}: " if facts.get("mode") else "made "
    return what + ", ".join(said)


def _show_checks(dagster: dg.DagsterInstance, graph: Any) -> bool:
    table = Table(title="checks", title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in ("asset", "check", "result"):
        table.add_column(column, no_wrap=True)
    passed, failed = 0, 0
    for key in sorted(graph.asset_check_keys, key=lambda check: (check.asset_key.path, check.name)):
        last = dagster.get_latest_asset_check_evaluation_record(key)
        outcome = last.event.dagster_event if last and last.event else None
        evaluation = (
            outcome.asset_check_evaluation_data
            if outcome and outcome.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION
            else None
        )
        passed += bool(evaluation and evaluation.passed)
        failed += not (evaluation and evaluation.passed)
        result = "not run" if evaluation is None else "passed" if evaluation.passed else "[red]failed[/]"
        table.add_row(key.asset_key.to_user_string(), key.name, result)
    say()
    say(table)
    say(f"\n{passed} of {passed + failed} checks passed")
    return failed > 0


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
