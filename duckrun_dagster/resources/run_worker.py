"""The worker process of a run, from Dagster's event log, and each step's share of the memory."""

from __future__ import annotations

import ast
import multiprocessing
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dagster import DagsterEventType, DagsterInstance

from duckrun.errors import InvalidConfig
from duckrun.lake.lakes import Lakes

FOR_SEVERAL = "name a catalog in SQLite (sqlite:<file>) or PostgreSQL (postgres:<dsn>)"


def second_process(root: str, why: str) -> InvalidConfig:
    """Return the error about a second process that would open the catalog of a lake."""
    return InvalidConfig(f"Lake {root} has its catalog in a DuckDB file, which one process may have open, and {why}.")


@dataclass(frozen=True)
class Worker:
    """The process of a run's worker on this machine."""

    process: int
    """Process id of the worker."""
    steps: int
    """Number of steps that the worker executes."""
    several_processes: bool
    """True if the worker starts a process for each step."""


def worker_of_run(instance: DagsterInstance | None, run_id: str) -> Worker | None:
    """Return the worker of a run: this process, or the one that started it for a step.

    Returns:
        The worker; None if the log names none, or names a process on another machine (steps in
        containers of their own).
    """
    if instance is None:
        return None
    parent = multiprocessing.parent_process()
    near = {os.getpid(), *([] if parent is None or parent.pid is None else [parent.pid])}
    for entry in reversed(instance.all_logs(run_id, of_type=DagsterEventType.ENGINE_EVENT)):
        event = entry.dagster_event
        metadata: dict[str, Any] = {} if event is None else dict(event.engine_event_data.metadata)
        if "pid" not in metadata or "step_keys" not in metadata:
            continue
        process = int(metadata["pid"].value)
        if process not in near:
            return None
        steps = len(ast.literal_eval(str(metadata["step_keys"].value)))
        return Worker(process, steps, several_processes=process != os.getpid())
    return None


def refuse_several_processes(step_context: Any, lakes: Lakes) -> None:
    """Refuse a step in a separate process on a lake whose catalog only one process may open.

    Raises:
        InvalidConfig: The run has a process for each step.
    """
    lake = next((lake for lake in lakes if lake.for_one_process), None)
    if lake is None:
        return
    worker = worker_of_run(step_context.instance, step_context.run_id)
    if worker is not None and worker.several_processes:
        how = f"Run its steps in one (executor_def=in_process_executor), or {FOR_SEVERAL}"
        raise second_process(lake.root, f"this run has a process for each step. {how}")


def share_of_step(step_context: Any) -> float:
    """Return the fraction of the machine's memory for a step.

    It is 1 for a run that executes its steps one after the other. Otherwise it is 1 divided by the
    number of processes that the run may have at once. That number is the executor's
    ``max_concurrent`` (by default the number of processors), or the number of steps if there are
    fewer. A run cannot know of other runs on the machine: they need a ``memory_fraction``.
    """
    worker = worker_of_run(step_context.instance, step_context.run_id)
    if worker is None or not worker.several_processes:
        return 1.0
    at_once = _max_concurrent(step_context.resolved_run_config.execution.execution_engine_config)
    return 1.0 / max(1, min(at_once or multiprocessing.cpu_count(), worker.steps))


def _max_concurrent(config: Any) -> int | None:
    """Return ``max_concurrent`` of an executor's configuration."""
    if not isinstance(config, Mapping):
        return None
    # The default executor has it one level down.
    limit = config.get("max_concurrent")
    return int(limit) if limit else _max_concurrent(config.get("multiprocess"))
