"""The sessions of one Dagster step: every read of a step, in the asset's body and in the IO manager, is of one version.

Dagster makes a copy of a resource for each place that uses it, so what a step shares is kept here, by run and step. The
sessions of a step are closed when the next step of its run asks for one, or when the resource is torn down.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from duckrun.lake.lakes import Lakes
from duckrun.run.pins import Pins
from duckrun.session import Session
from duckrun.values.rows import EngineName


class StepId(NamedTuple):
    """One attempt of one step of one run. A retried step reads anew."""

    run_id: str
    step_key: str
    attempt: int


@dataclass
class StepSessions:
    """One session an engine, all with the same pins and on the same lakes."""

    lakes: Lakes
    pins: Pins
    sessions: dict[EngineName, Session] = field(default_factory=dict)

    def close(self) -> None:
        for session in self.sessions.values():
            session.close()


_AGAIN = "run the step again, which reads anew: with a RetryPolicy, or retries of the run, Dagster does"
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
        return _steps.setdefault((step, lakes.own.root), StepSessions(lakes, Pins(lakes.snapshot, advice=_AGAIN)))


def close_run(run_id: str | None) -> None:
    """Close the sessions of a run's steps."""
    with _lock:
        for key in [key for key in _steps if key[0].run_id == run_id]:
            _steps.pop(key).close()
