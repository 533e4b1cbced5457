"""Outcomes of outputs that were published before Dagster stores them."""

from __future__ import annotations

from typing import Any

from dagster import OutputContext

from duckrun_dagster.contexts import step_of
from duckrun_dagster.io_managers.outcome import Outcome
from duckrun_dagster.resources.steps import StepId

_outcomes: dict[tuple[StepId, str], Outcome] = {}


def keep(step: Any, output: str, outcome: Outcome) -> None:
    """Remember the outcome of an output of a step."""
    _outcomes[StepId.of(step), output] = outcome


def published(context: OutputContext) -> Outcome | None:
    """Return the outcome of an output that was published already, once; None for any other."""
    step = step_of(context)
    return None if step is None else _outcomes.pop((StepId.of(step), context.name), None)
