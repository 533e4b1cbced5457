"""The process that works a run off, by Dagster's own event log, and a step's part of the machine's memory beside the others."""

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


@dataclass(frozen=True)
class Worker:
    """``process`` is the id of the run's worker on this machine, ``steps`` how many it has to do; ``several_processes``
    is True where it starts a process for each."""

    process: int
    steps: int
    several_processes: bool


def worker_of_run(instance: DagsterInstance | None, run_id: str) -> Worker | None:
    """The worker of a run that this process is part of: this process, or the one that started it for a step.

    None where the log names none, or names a process on another machine (steps in containers of their own).
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
    """Raise InvalidConfig for a step in a process of its own on a lake whose catalog only one process may have open."""
    lake = next((lake for lake in lakes if lake.for_one_process), None)
    if lake is None:
        return
    worker = worker_of_run(step_context.instance, step_context.run_id)
    if worker is not None and worker.several_processes:
        raise InvalidConfig(
            f"Lake {lake.root} has its catalog in a DuckDB file, which one process may have open, and this run has a process for each step. Run "
            f"its steps in one (executor_def=in_process_executor), or {FOR_SEVERAL}."
        )


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
