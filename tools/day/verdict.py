"""Report of a day: the causes of failed runs, and each table beside a full recompute."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb

import duckrun
from example_project import settings
from example_project.runner.plan import UNDER_WAY

BY_SQL = {
    "day.published": "select carrier, count(*) as flights from marts_fct_flights group by all",
    "day.followed": "select flight_id, carrier, arr_delay from refined_flights",
    "day.by_month": "select flight_date, count(*) as flights, sum(arr_delay) as late, "
    "date_trunc('month', flight_date)::timestamp as month from refined_flights group by all",
}
"""Tables of the day's own assets, as queries of the recomputed tables."""
HISTORIES = {"live.planes": "select tailnum, carrier, flights, minutes_late from {} where valid_to is null"}
"""Tables that keep their history, which depends on the runs: their present rows are compared."""


class Verdict:
    """Facts and faults of the day; `show` prints them."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self._allowed: dict[str, str] = {}
        self._most: Counter[str] = Counter()
        self._blames: list[str] = []
        self._lines: list[str] = []

    def allow(self, cause: str, *texts: str, most: int) -> None:
        """Accept so many more failures of a cause, whose messages hold one of these texts."""
        self._allowed |= dict.fromkeys(texts, cause)
        self._most[cause] += most

    def blame(self, text: str) -> None:
        """Note something that should not be."""
        self._blames.append(text)

    def of_runs(self, instance: dg.DagsterInstance) -> None:
        """Judge the runs: none is left, and each that failed has a cause that the day made."""
        runs = instance.get_runs()
        statuses = Counter(run.status.value.lower() for run in runs)
        self._lines.append(f"runs: {', '.join(f'{number} {status}' for status, number in statuses.most_common())}")
        for run in runs:
            if run.status in UNDER_WAY:
                self.blame(f"run {run.run_id[:8]} of {run.job_name} is {run.status.value} at the end")
        causes: Counter[str] = Counter()
        for run in runs:
            if run.status == dg.DagsterRunStatus.FAILURE:
                causes[self._cause(instance, run)] += 1
        for cause in self._most:
            if not causes[cause]:
                self.blame(f"no run failed by {cause}")
        for cause, number in causes.items():
            if number > self._most[cause]:
                self.blame(f"{number} failures by {cause}, at most {self._most[cause]} were expected")
        self._lines.append(
            f"failures: {', '.join(f'{number} by {cause}' for cause, number in causes.items()) or 'none'}"
        )
        for state in instance.all_instigator_state():
            for tick in instance.get_ticks(state.instigator_origin_id, state.selector_id):
                if tick.error is not None:
                    error = tick.error.cause or tick.error
                    self.blame(f"a tick of {state.instigator_name} failed: {error.message}")
        for beat in instance.get_daemon_heartbeats().values():
            if beat.errors:
                self._lines.append(f"errors of the daemon {beat.daemon_type}: {beat.errors[0].message[:200]}")

    def _cause(self, instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
        texts = []
        for entry in instance.all_logs(run.run_id):
            event = entry.dagster_event
            if event and event.is_failure:
                texts += [str(event.message), *_messages(getattr(event.event_specific_data, "error", None))]
        message = " ".join(texts)
        if cause := next((cause for text, cause in self._allowed.items() if text in message), None):
            return cause
        self.blame(f"run {run.run_id[:8]} of {run.job_name} failed for another reason: {message[:2000]}")
        return "something else"

    def of_tables(self) -> None:
        """Recompute everything in another lake, and compare the rows of each table."""
        home = self.work / "recompute"
        shutil.copytree(settings.LANDING, home / settings.LANDING.name)
        env = {**os.environ, "DUCKRUN_EXAMPLE_HOME": str(home)}
        log = self.work / "recompute.log"
        with log.open("wb") as output:
            code = subprocess.run(
                [sys.executable, "-m", "example_project", "demo"], env=env, stdout=output, stderr=output
            ).returncode
        if code:
            self.blame(f"the recompute ended with {code}: {log}")
            return
        rows = 0
        with duckrun.connect(settings.LAKE) as ours, duckrun.connect(home / settings.LAKE.name) as others:
            names, recomputed = _tables(ours), _tables(others)
            expected = sorted([*recomputed, *BY_SQL])
            if names != expected:
                self.blame(f"the lake has the tables {names}, and should have {expected}")
            duck = duckdb.connect()
            for name in recomputed:
                duck.register(name.replace(".", "_"), others.table(name).toDF().toArrow())
            for name in names:
                duck.register("ours", ours.table(name).toDF().toArrow())
                query = HISTORIES.get(name, "select * from {}")
                theirs = BY_SQL.get(name) or query.format(name.replace(".", "_"))
                rows += self._compare(duck, name, query.format("ours"), theirs)
        self._lines.append(f"tables: {len(names)} compared with their recompute, {rows:,} rows")

    def _compare(self, duck: duckdb.DuckDBPyConnection, name: str, ours: str, theirs: str) -> int:
        columns = ", ".join(f'"{column}"' for column in duck.sql(ours).columns)
        sides = [f"select {columns} from ({query})" for query in (ours, theirs)]
        for what, (one, other) in {"more": sides, "fewer": sides[::-1]}.items():
            count = _number(duck, f"select count(*) from ({one} except all {other})")
            if count:
                self.blame(f"table {name} has {count} rows {what} than its recompute")
        return _number(duck, f"select count(*) from ({ours})")

    def show(self, seconds: float) -> int:
        """Print the report; return the exit code."""
        print(f"\n== the day: {seconds / 60:.0f} minutes")
        for line in self._lines:
            print(line)
        for line in self._blames:
            print(f"WRONG: {line}")
        print("every table equals its recompute, and nothing is left" if not self._blames else "the day went wrong")
        return 1 if self._blames else 0


def _number(duck: duckdb.DuckDBPyConnection, query: str) -> int:
    row = duck.sql(query).fetchone()
    assert row is not None, "an aggregate has a row"
    return int(row[0])


def _tables(session: duckrun.Session) -> list[str]:
    schemas = session.lake.schemas()
    return sorted(f"{schema}.{name}" for schema in schemas for name in session.lake.tables(schema))


def _messages(error: Any) -> list[str]:
    """Return the messages of an error and its causes."""
    return [] if error is None else [str(error.message), *_messages(error.cause)]
