"""The process that works a run off, by Dagster's own event log."""

from __future__ import annotations

import ast
import multiprocessing
import os
from dataclasses import dataclass
from typing import Any

from dagster import DagsterEventType, DagsterInstance


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
