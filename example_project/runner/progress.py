"""The steps of a run, printed as they begin and end, from the run's event log."""

from __future__ import annotations

import threading
import time

import dagster as dg

from example_project.runner.console import console, say

HEARTBEAT = 15  # seconds of silence after which a running step says that it still runs

Event = dg.DagsterEventType
STEPS = {Event.STEP_START, Event.STEP_SUCCESS, Event.STEP_FAILURE}
SHOWN = STEPS | {Event.ASSET_MATERIALIZATION, Event.ASSET_CHECK_EVALUATION}


class Progress:
    """Printer of the steps of a run as they begin and end, from the run's event log."""

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
            page = self._dagster.get_records_for_run(self._run_id, self._cursor, of_type=SHOWN, limit=500)
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
        elif entry.dagster_event_type == Event.ASSET_CHECK_EVALUATION:
            check = event.asset_check_evaluation_data
            if not check.passed:
                self._say(f"     [red]check failed: {check.asset_key.to_user_string()} {check.check_name}[/]")

    def _say(self, line: str) -> None:
        self._said = time.time()
        say(line)
