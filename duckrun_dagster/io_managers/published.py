"""Outcomes of outputs that were published before Dagster stores them."""

from __future__ import annotations

from typing import Any

from dagster import OutputContext

from duckrun_dagster.io_managers.contexts import step_of
from duckrun_dagster.io_managers.outcome import Outcome

_Place = tuple[str, str, int, str]

_outcomes: dict[_Place, Outcome] = {}


def _place(step: Any, output: str) -> _Place:
    return step.run_id, step.step.key, step.previous_attempt_count, output


def keep(step: Any, output: str, outcome: Outcome) -> None:
    """Remember the outcome of an output of a step."""
    _outcomes[_place(step, output)] = outcome


def published(context: OutputContext) -> Outcome | None:
    """Return the outcome of an output that was published already, once; None for any other."""
    step = step_of(context)
    return None if step is None else _outcomes.pop(_place(step, context.name), None)
