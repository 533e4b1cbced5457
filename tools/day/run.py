"""The day: what happens when, and what an engineer on call does about it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
from dagster_graphql import DagsterGraphQLClient

from example_project import landing, settings
from example_project.runner import arrivals
from example_project.runner.plan import TRANSFORM, UNDER_WAY
from tools.dagster_server import serving
from tools.day.verdict import Verdict

ROOT = Path(__file__).resolve().parent.parent.parent
LOCATION = "tools.day.definitions"
FULL_SECONDS, SETTLE_SECONDS = 60, 1200
WORKS_SECONDS = 5
"""Time for which a run has worked before its process is killed."""
MOST_AT_ONCE = 2
KILLED = "a killed process"
OF_KILLED = "marked as failed from outside", "unexpectedly exited", "seconds to start"
"""Dagster's words about a run whose process, or whose server, was killed."""
MOST_AGAIN = 5
"""Times that a run is executed again from its failure."""
DAGSTER_YAML = """\
telemetry:
  enabled: false
concurrency:
  runs:
    max_concurrent_runs: {most}
run_monitoring:
  enabled: true
  start_timeout_seconds: 180
  poll_interval_seconds: 10
"""
REEXECUTE = """mutation($params: ReexecutionParams!) { launchRunReexecution(reexecutionParams: $params) {
    __typename ... on PythonError { message } } }"""
TERMINATE = """mutation($params: String!) {
    terminateRun(runId: $params, terminatePolicy: MARK_AS_CANCELED_IMMEDIATELY) {
        __typename ... on PythonError { message } } }"""
BACKFILL = """mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
    __typename ... on PythonError { message } } }"""
BEGUN = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


class Day:
    """One day.

    Args:
        seconds: Time until the last event.
        disk: Mount point of the lake's own disk; without it the disk is never full.
    """

    def __init__(self, work: Path, seconds: float, disk: Path | None) -> None:
        self.work = work
        self.seconds = seconds
        self.disk = disk
        self.verdict = Verdict(work)
        self._kill_next = 0
        self._landed = list(settings.FIRST_MONTHS)
        self._report_is_wrong = True
        self._instance: Any = None
        self._client: Any = None
        self._server = 0
        self._servers = ExitStack()
        self._begun = 0.0

    def events(self) -> list[tuple[float, str, Callable[[], object]]]:
        """Return each event with its time as a share of the day."""
        months = [(0.05 + 0.08 * (month - 3), f"month {month} lands", self._land(month)) for month in range(3, 13)]
        others: list[tuple[float, str, Callable[[], object]]] = [
            (0.0, "months 1 and 2 land, with a wrong report", self._first),
            (0.18, "a run is killed", self._kill),
            (0.36, "the disk is full", self._fill),
            (0.48, "corrections of month 3 land", self._correct(3)),
            (0.55, "the code location is reloaded", self._reload),
            (0.60, "a backfill of all months begins", self._backfill),
            (0.66, "a run is killed", self._kill),
            (0.72, "dagster dev is killed with all its processes", self._restart),
            (0.85, "corrections of month 5 land", self._correct(5)),
        ]
        return sorted([*months, *others], key=lambda event: event[0])

    def run(self) -> int:
        """Run the day; print its report and return the exit code."""
        home = Path(os.environ["DAGSTER_HOME"])
        home.mkdir(parents=True)
        (home / "dagster.yaml").write_text(DAGSTER_YAML.format(most=MOST_AT_ONCE))
        self._begun = time.monotonic()
        with self._servers, dg.DagsterInstance.get() as instance:
            self._instance = instance
            self._serve()
            self._start_sensors()
            begun = time.monotonic()
            for share, what, act in self.events():
                while time.monotonic() < begun + share * self.seconds:
                    self._look()
                self._say(what)
                act()
            self._settle()
            self._say("a backfill of all months begins, as nothing follows late months")
            self._backfill()
            self._settle()
            self.verdict.of_runs(instance)
        self.verdict.of_tables()
        return self.verdict.show(time.monotonic() - self._begun)

    def _say(self, text: str) -> None:
        print(f"{(time.monotonic() - self._begun) / 60:5.1f} min  {text}", flush=True)

    # -- what happens

    def _first(self) -> None:
        arrivals.arrive(settings.FIRST_MONTHS)
        arrivals.report(settings.FIRST_MONTHS, wrong=True)
        self.verdict.allow("the wrong report", "agrees_with_the_airports", most=MOST_AGAIN)

    def _land(self, month: int) -> Callable[[], object]:
        def act() -> None:
            arrivals.arrive([month])
            self._landed.append(month)
            if not self._report_is_wrong:
                arrivals.report(self._landed)

        return act

    def _correct(self, month: int) -> Callable[[], object]:
        return lambda: arrivals.correct([month])

    def _kill(self) -> None:
        self._kill_next += 1
        self.verdict.allow(KILLED, *OF_KILLED, most=1)

    def _fill(self) -> None:
        if self.disk is None:
            self._say("left out: this process may not mount a disk of its own")
            return
        self.verdict.allow("the full disk", "the disk is full", "No space left on device", most=MOST_AT_ONCE)
        filler = self.disk / "filler"
        with open(filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                self._say("the disk has no byte left")
        # Nobody runs anything again meanwhile. A minute without a write is no full disk.
        failed, ends = self._failures(), time.monotonic() + FULL_SECONDS
        while time.monotonic() < ends or (self._failures() == failed and time.monotonic() < ends + 2 * FULL_SECONDS):
            time.sleep(2)
        filler.unlink()
        self._say("the disk has room again")

    def _reload(self) -> None:
        self._client.reload_repository_location(LOCATION)

    def _backfill(self) -> None:
        months = sorted({file.partition for file in landing.landed("flights") if file.partition})
        self._ask(
            BACKFILL,
            {"assetSelection": [{"path": ["day", "by_month"]}], "partitionNames": months, "fromFailure": False},
        )

    def _restart(self) -> None:
        self.verdict.allow(KILLED, *OF_KILLED, most=MOST_AT_ONCE)
        for process in psutil.Process(self._server).children(recursive=True):
            process.kill()
        os.killpg(self._server, signal.SIGKILL)
        self._servers.close()
        lost = [each.run_id for each in self._instance.get_runs(dg.RunsFilter(statuses=BEGUN))]
        self._serve()
        # Dagster does not notice that their processes are gone. Such a run stays under way.
        for run_id in lost:
            self._say(f"run {run_id[:8]} is marked as canceled: its process is gone")
            self._ask(TERMINATE, run_id)

    # -- the engineer on call

    def _look(self) -> None:
        """Kill a run if one is due, and execute failed runs again."""
        time.sleep(2)
        if self._kill_next and not self._report_is_wrong:  # the first failure is that of the wrong report
            self._kill_a_run()
        failed = dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED])
        for run in self._instance.get_runs(failed):
            if self._is_taken_up(run) or int(run.tags.get("day/again", 0)) >= MOST_AGAIN:
                continue
            if run.job_name == TRANSFORM and self._report_is_wrong:
                self._report_is_wrong = False
                arrivals.report(self._landed)
                self._say("the report is mended")
            tags = [{"key": "day/again", "value": str(int(run.tags.get("day/again", 0)) + 1)}]
            self._say(f"run {run.run_id[:8]} of {run.job_name} failed: it is executed again from its failure")
            self._ask(REEXECUTE, {"parentRunId": run.run_id, "strategy": "FROM_FAILURE", "extraTags": tags})

    def _kill_a_run(self) -> None:
        """Kill the process of a run that has worked for some seconds, if there is one."""
        for record in self._instance.get_run_records(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])):
            run_id = record.dagster_run.run_id
            process = self._process(run_id)
            if process is None or time.time() < (record.start_time or time.time()) + WORKS_SECONDS:
                continue
            process.kill()
            process.wait()
            # Its last event may have been that of its success.
            if self._instance.get_run_by_id(run_id).status == dg.DagsterRunStatus.STARTED:
                self._kill_next -= 1
                self._say(f"killed process {process.pid} of run {run_id[:8]}")
                return

    def _process(self, run_id: str) -> psutil.Process | None:
        """Return the process of a run, by the event that Dagster writes when it has started one."""
        for entry in self._instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
            event = entry.dagster_event
            if event and "Started process for run" in str(event.message):
                try:
                    return psutil.Process(int(event.engine_event_data.metadata["pid"].text))
                except psutil.NoSuchProcess:
                    return None
        return None

    def _failures(self) -> int:
        return int(self._instance.get_runs_count(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE])))

    def _is_taken_up(self, run: dg.DagsterRun) -> bool:
        return bool(self._instance.get_runs_count(dg.RunsFilter(tags={"dagster/parent_run_id": run.run_id})))

    def _settle(self) -> None:
        """Wait until nothing runs, and nothing is requested for two minutes."""
        quiet, ends = time.monotonic(), time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < quiet + 120:
            self._look()
            if self._instance.get_runs_count(dg.RunsFilter(statuses=UNDER_WAY)):
                quiet = time.monotonic()
            if time.monotonic() > ends:
                self.verdict.blame("runs are still under way after twenty minutes")
                return

    # -- Dagster

    def _serve(self) -> None:
        command = [sys.executable, "-m", "dagster", "dev", "-m", LOCATION]
        self._server, port = self._servers.enter_context(serving(command, cwd=ROOT, env=dict(os.environ)))
        self._client = DagsterGraphQLClient("127.0.0.1", port_number=port)

    def _ask(self, mutation: str, params: dict[str, Any] | str) -> None:
        answer = self._client._execute(mutation, {"params": params})
        result = next(iter(answer.values()))
        if not result["__typename"].endswith("Success"):
            self.verdict.blame(f"{next(iter(answer))}: {result}")

    def _start_sensors(self) -> None:
        command = [sys.executable, "-m", "dagster", "sensor", "start", "--start-all", "-m", LOCATION]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if ended.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{ended.stdout}{ended.stderr}")
