"""A step's part of the machine's memory: the step processes that a run may have at once share it evenly."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from typing import Any

from duckrun_dagster.resources.run_worker import worker_of_run


def share_of_step(step_context: Any) -> float:
    """1 for a run that works its steps off one after the other, else one by the processes that it may have at once.

    That is the executor's ``max_concurrent`` (Dagster's default: the number of processors), or the steps of the run where
    those are fewer. A run cannot know of other runs on the machine: they need a ``memory_fraction``.
    """
    worker = worker_of_run(step_context.instance, step_context.run_id)
    if worker is None or not worker.several_processes:
        return 1.0
    at_once = _max_concurrent(step_context.resolved_run_config.execution.execution_engine_config)
    return 1.0 / max(1, min(at_once or multiprocessing.cpu_count(), worker.steps))


def _max_concurrent(config: Any) -> int | None:
    """``max_concurrent`` of an executor's configuration, which the default executor has one level down."""
    if not isinstance(config, Mapping):
        return None
    found = config.get("max_concurrent")
    return int(found) if found else _max_concurrent(config.get("multiprocess"))
