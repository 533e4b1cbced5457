"""Outputs that were published before Dagster stores them: how each is reported then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dagster import OutputContext

from duckrun_dagster.io_managers.contexts import step_of

Report = Callable[[OutputContext], None]
_Place = tuple[str, str, int, str]

_reports: dict[_Place, Report] = {}


def _place(step: Any, output: str) -> _Place:
    return step.run_id, step.step.key, step.previous_attempt_count, output


def keep(step: Any, output: str, report: Report) -> None:
    """Remember how an output of a step is reported."""
    _reports[_place(step, output)] = report


def published(context: OutputContext) -> Report | None:
    """What reports an output that was published already, once; None for any other."""
    step = step_of(context)
    return None if step is None else _reports.pop(_place(step, context.name), None)
