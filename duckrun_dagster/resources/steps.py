"""The sessions of one Dagster step: every read of a step, in the asset's body and in the IO manager, is of one version.

Dagster makes a copy of a resource for each place that uses it, so what a step shares is kept here, by run and step. The
sessions of a step are closed when the next step of its run asks for one, or when the resource is torn down.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from dagster import OpExecutionContext

from duckrun.lake.lakes import Lakes
from duckrun.run.pins import Pins
from duckrun.run.reruns import as_before
from duckrun.session import Session
from duckrun.values.rows import EngineName
from duckrun.values.snapshot import Snapshot
from duckrun_dagster.chain import own_works, work_of


def current_step() -> Any | None:
    """The step context of the asset or op that is running here; None outside of one."""
    from dagster._core.errors import DagsterInvariantViolationError

    try:
        return OpExecutionContext.get().get_step_execution_context()
    except DagsterInvariantViolationError:
        return None


class StepId(NamedTuple):
    """One attempt of one step of one run. A retried step reads anew."""

    run_id: str
    step_key: str
    attempt: int


class StepPins(Pins):
    """The versions that a step reads: of a table that older attempts of its work have written, the one before their commits."""

    advice = "run the step again, which reads anew: with a RetryPolicy, or retries of the run, Dagster does"

    def __init__(self, step_context: Any, lakes: Lakes) -> None:
        super().__init__(lakes.snapshot)
        self._step, self._lakes = step_context, lakes

    def _read_of(self, newest: Snapshot) -> Snapshot:
        is_own = own_works(self._step)
        if is_own is None:
            return newest
        form = self._lakes.of(newest.ref).format
        looked_at = islice(form.records_back(newest.ref, newest.version), _LOOKED_AT)
        works = {app_id for record in looked_at if is_own(app_id := record.note.get("app_id", ""))}
        before = (as_before(form, newest, work_of(app_id, self._step)) or newest for app_id in works)
        return min(before, key=lambda each: each.version, default=newest)


@dataclass
class StepSessions:
    """One session an engine, all with the same pins and on the same lakes."""

    lakes: Lakes
    pins: Pins
    sessions: dict[EngineName, Session] = field(default_factory=dict)

    def close(self) -> None:
        for session in self.sessions.values():
            session.close()


_LOOKED_AT = 200
"""How many commits of a table a retried step looks through for those of its older attempts."""
_lock = threading.Lock()
_steps: dict[tuple[StepId, str], StepSessions] = {}


def sessions_of(step_context: Any, lakes: Lakes) -> StepSessions:
    """What the step of a context of Dagster's shares on one lake; ``lakes`` are used where this is the first call of it.

    Closes what earlier steps of its run left open in this process.
    """
    step = StepId(step_context.run_id, step_context.step.key, step_context.previous_attempt_count)
    with _lock:
        for key in [key for key in _steps if key[0].run_id == step.run_id and key[0] != step]:
            _steps.pop(key).close()
        return _steps.setdefault((step, lakes.own.root), StepSessions(lakes, StepPins(step_context, lakes)))


def close_run(run_id: str | None) -> None:
    """Close the sessions of a run's steps."""
    with _lock:
        for key in [key for key in _steps if key[0].run_id == run_id]:
            _steps.pop(key).close()
