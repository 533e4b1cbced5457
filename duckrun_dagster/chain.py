"""Chains, works and attempts: which commits of a step an execution of it takes the place of.

A chain is a run with its automatic retries and its re-executions from failure. Any other run, "re-execute all" too, is
a new chain and writes again. Source: docs/reliability.md, Reruns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dagster import AssetKey, DagsterInstance, DagsterRun

from duckrun.values.rows import WorkTransaction
from duckrun_dagster.partitions.partitions import PartitionSlice

# Dagster sets them; dagster._core.storage.tags has no public home.
RETRY_NUMBER = "dagster/retry_number"
RESUME_RETRY = "dagster/is_resume_retry"
PARENT_RUN = "dagster/parent_run_id"
_LONGEST_CHAIN = 1000


def chain_of(run: DagsterRun, instance: DagsterInstance | None) -> str:
    """The id of the run that began this chain.

    Walks from parent to parent: ``dagster/root_run_id`` names the first run of all, which a "re-execute all" in
    between has left behind. A parent that is no longer stored ends the walk with its id, if the run's own tags say that it
    continues one.
    """
    run_id, current = run.run_id, run
    for _ in range(_LONGEST_CHAIN):
        parent_id = current.parent_run_id or current.tags.get(PARENT_RUN)
        if not parent_id:
            return run_id
        parent = instance.get_run_by_id(parent_id) if instance is not None else None
        if not _continues(current, parent, instance):
            return run_id
        run_id = parent_id
        if parent is None:
            return run_id
        current = parent
    return run_id


def application(asset_key: AssetKey, partitions: PartitionSlice | None, step: Any) -> WorkTransaction:
    """The write of one asset (or of one range of its partitions) by an attempt of a chain."""
    what = asset_key.to_user_string() if partitions is None else f"{asset_key.to_user_string()}[{partitions.label}]"
    return _work(f"dagster:{what}", step)


def application_of_op(output: str, step: Any) -> WorkTransaction:
    """The write of an op's output by an attempt of a chain; a step key has no spaces, so no asset has the name."""
    return _work(f"dagster:op {step.step.key} {output}", step)


def own_works(step: Any) -> Callable[[str], bool] | None:
    """Tells the application ids of a step's works in its chain; None where no older attempt can have committed."""
    run = step.dagster_run
    chain = chain_of(run, step.instance)
    if chain == run.run_id and not step.previous_attempt_count:
        return None
    keys = [key.to_user_string() for key in step.get_output_asset_keys()]
    starts = (f"dagster:op {step.step.key} ", *(f"dagster:{key}{end}" for key in keys for end in (":", "[")))
    return lambda app_id: app_id.startswith(starts) and app_id.endswith(f":{chain}")


def _work(name: str, step: Any) -> WorkTransaction:
    return work_of(f"{name}:{chain_of(step.dagster_run, step.instance)}", step)


def work_of(app_id: str, step: Any) -> WorkTransaction:
    """The attempt that a step is at a work of its chain."""
    run, retried = step.dagster_run, step.previous_attempt_count
    record = step.instance.get_run_record_by_id(run.run_id)
    began = 0.0 if record is None else record.create_timestamp.timestamp()
    return WorkTransaction(
        app_id,
        attempt=f"{run.run_id}:{retried}",
        started=began + retried / 1000,  # a retry of the step comes later than the step
    )


def _continues(run: DagsterRun, parent: DagsterRun | None, instance: DagsterInstance | None) -> bool:
    """True if a run goes on with the work of its parent.

    Dagster's Python API sets no tag but the parent's: a part of the parent's steps or assets goes on with it, as does any
    run whose parent has succeeded in nothing. ``dagster/is_asset_resume_retry`` stays in the tags of a later "re-execute
    all", and decides nothing.
    """
    if RETRY_NUMBER in run.tags or run.tags.get(RESUME_RETRY) == "true":
        return True
    if parent is None or instance is None:
        return False
    if _is_part(_steps(run, instance), _steps(parent, instance)) or _is_part(
        run.asset_selection, parent.asset_selection
    ):
        return True
    return parent.is_finished and instance.get_run_stats(parent.run_id).steps_succeeded == 0


def _steps(run: DagsterRun, instance: DagsterInstance) -> Sequence[str] | None:
    """The keys of the steps that a run executes; None for all of its job.

    A schedule and the web server leave them out of a run of all steps, and the Python API names each: the plan has them of both.
    """
    if run.step_keys_to_execute is not None or run.execution_plan_snapshot_id is None:
        return run.step_keys_to_execute
    return instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id).step_keys_to_execute


def _is_part(selected: Any, of: Any) -> bool:
    """True if a selection is a proper part of another; None selects all."""
    return selected is not None and (of is None or set(selected) < set(of))
