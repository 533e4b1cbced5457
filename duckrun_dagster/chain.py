"""Chains, works and attempts: they tell which earlier commits an execution of a step replaces.

A chain is a run with its automatic retries and its re-executions from failure. Any other run is a
new chain and writes again; "re-execute all" is one too. Runs of a re-executed backfill have no
parent run. A step of such a run continues the parent backfill's run that it failed in. Source:
docs/reliability.md, Reruns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from dagster import AssetKey, DagsterInstance, DagsterRun, RunsFilter

from duckrun.values.rows import WorkTransaction
from duckrun_dagster.partitions.partitions import PartitionSlice
from duckrun_dagster.private import StepEventStatus

# Dagster sets them; dagster._core.storage.tags has no public home.
RETRY_NUMBER = "dagster/retry_number"
RESUME_RETRY = "dagster/is_resume_retry"
PARENT_RUN = "dagster/parent_run_id"
BACKFILL = "dagster/backfill"
PARENT_BACKFILL = "dagster/parent_backfill_id"
PARTITION = "dagster/partition"
RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"
_LONGEST_CHAIN = 1000  # runs that a walk from parent to parent visits at most
_PAGE = 200  # runs of a backfill that one query reads
Value = TypeVar("Value")


class StepWork(NamedTuple):
    """A step and the assets that it writes: identifies its older attempts in a backfill."""

    step_key: str
    assets: frozenset[AssetKey] = frozenset()

    @classmethod
    def of(cls, step: Any) -> StepWork:
        """Return the work of a running step."""
        return cls(step.step.key, frozenset(step.get_output_asset_keys()))


def chain_of(run: DagsterRun, instance: DagsterInstance | None, work: StepWork | None = None) -> str:
    """Return the id of the run that began this chain of a step's work.

    Args:
        run: The run whose chain is looked up.
        instance: Dagster's instance, which stores the parent runs; a test may have none.
        work: The step; without it, only parent runs are followed, not parent backfills.
    """
    *_, (chain, _) = runs_of_chain(run, instance, work)
    return chain


def runs_of_chain(
    run: DagsterRun, instance: DagsterInstance | None, work: StepWork | None = None
) -> Iterator[tuple[str, DagsterRun | None]]:
    """Yield the runs of a chain with their ids, from this run back to the one that began it.

    A run that Dagster no longer stores is None. Arguments as in ``chain_of()``.
    """
    # Walk from parent to parent. The tag dagster/root_run_id is no help: it names the very first
    # run, and a "re-execute all" in between has already begun a new chain.
    current = run
    yield current.run_id, current
    for _ in range(_LONGEST_CHAIN):
        parent_id = current.parent_run_id or current.tags.get(PARENT_RUN)
        if not parent_id:
            parent = _unfinished_in_parent_backfill(current, work, instance)
            if parent is None:
                return
            parent_id = parent.run_id
        else:
            parent = instance.get_run_by_id(parent_id) if instance is not None else None
            if not _continues(current, parent, instance):
                return
        yield parent_id, parent
        # The parent is no longer stored, but the run's own tags say that it continues one.
        if parent is None:
            return
        current = parent


def application(asset_key: AssetKey, partitions: PartitionSlice | None, step: Any) -> WorkTransaction:
    """Return an attempt's write of one asset, or of one range of its partitions, in its chain."""
    what = asset_key.to_user_string() if partitions is None else f"{asset_key.to_user_string()}[{partitions.label}]"
    return _work(f"dagster:{what}", step)


def application_of_op(output: str, step: Any) -> WorkTransaction:
    """Return the write of an op's output by an attempt of a chain."""
    # A step key has no spaces, so no asset can have this name.
    return _work(f"dagster:op {step.step.key} {output}", step)


def own_works(step: Any) -> Callable[[str], bool] | None:
    """Return a test for the application ids of a step's works in its chain.

    Returns:
        A function of an application id; None if no older attempt can have committed.
    """
    if not is_rerun(step):
        return None
    chain = chain_of_step(step)
    keys = [key.to_user_string() for key in step.get_output_asset_keys()]
    starts = (f"dagster:op {step.step.key} ", *(f"dagster:{key}{end}" for key in keys for end in (":", "[")))
    return lambda app_id: app_id.startswith(starts) and app_id.endswith(f":{chain}")


def is_rerun(step: Any) -> bool:
    """Return True if an older attempt of a step's works may have committed."""
    return bool(step.previous_attempt_count) or chain_of_step(step) != step.run_id


def _work(name: str, step: Any) -> WorkTransaction:
    return work_of(f"{name}:{chain_of_step(step)}", step)


def work_of(app_id: str, step: Any) -> WorkTransaction:
    """Return the work with this application id, as the step's current attempt."""
    run, retried = step.dagster_run, step.previous_attempt_count
    record = step.instance.get_run_record_by_id(run.run_id)
    began = 0.0 if record is None else record.create_timestamp.timestamp()
    return WorkTransaction(
        app_id,
        attempt=attempt_of(step),
        started=began + retried / 1000,  # a retry of the step comes later than the step
    )


def attempt_of(step: Any) -> str:
    """Return the identity of a running step's attempt among all of its chain."""
    return f"{step.run_id}:{step.previous_attempt_count}"


def chain_of_step(step: Any) -> str:
    """Return the id of the run that began the chain of a running step, cached in the process."""
    return _chains.of(step, lambda: chain_of(step.dagster_run, step.instance, StepWork.of(step)))


class OfSteps(Generic[Value]):
    """Values of steps, computed once per process. Those of the newest run are cached."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[tuple[str, str], Value] = {}

    def of(self, step: Any, compute: Callable[[], Value]) -> Value:
        """Return the value of a running step; call ``compute`` if it is not cached."""
        place = (step.run_id, step.step.key)
        with self._lock:
            if place in self._values:
                return self._values[place]
        value = compute()
        with self._lock:
            for old in [old for old in self._values if old[0] != step.run_id]:
                del self._values[old]
            self._values[place] = value
        return value


_chains = OfSteps[str]()


def _unfinished_in_parent_backfill(
    run: DagsterRun, work: StepWork | None, instance: DagsterInstance | None
) -> DagsterRun | None:
    """Return the parent backfill's run that this run continues, if the step did not succeed there.

    It is the newest run of the same partitions and assets. If the parent backfill never started
    these partitions, its own parent is searched.
    """
    if BACKFILL not in run.tags or work is None or instance is None:
        return None
    # A re-executed backfill copies tags of its parent to itself and to its runs, and its runs get
    # no parent run. Source: dagster_graphql, retry_partition_backfill.
    parent = run.tags.get(PARENT_BACKFILL)
    for _ in range(_LONGEST_CHAIN):
        if not parent:
            return None
        before = next(_runs_of(parent, run, work, instance), None)
        if before is not None:
            stats = instance.get_run_step_stats(before.run_id, [work.step_key])
            return None if any(each.status is StepEventStatus.SUCCESS for each in stats) else before
        backfill = instance.get_backfill(parent)
        parent = None if backfill is None else backfill.tags.get(PARENT_BACKFILL)
    return None


def _runs_of(backfill: str, like: DagsterRun, work: StepWork, instance: DagsterInstance) -> Iterator[DagsterRun]:
    """Yield a backfill's runs that execute a step for the partitions of ``like``, newest first."""
    bounds = _partitions(like)
    spelled: list[dict[str, str]] = [{}]
    if bounds is not None:
        spelled = [{RANGE_START: bounds[0], RANGE_END: bounds[1]}]
        if bounds[0] == bounds[1]:  # a backfill policy makes a range of one
            spelled.append({PARTITION: bounds[0]})
    for tags in spelled:
        cursor = None
        while True:
            runs = instance.get_runs(RunsFilter(tags={BACKFILL: backfill, **tags}), cursor=cursor, limit=_PAGE)
            for run in runs:
                if _partitions(run) == bounds and _executes(run, work, instance):
                    yield run
            if len(runs) < _PAGE:
                break
            cursor = runs[-1].run_id


def _executes(run: DagsterRun, work: StepWork, instance: DagsterInstance) -> bool:
    """Return True if a run has the step, or a step that writes some of the same assets."""
    # A run of a part of a job may have other step keys, so its assets are compared first.
    if work.assets and run.asset_selection is not None:
        return not work.assets.isdisjoint(run.asset_selection)
    steps = _steps(run, instance)
    return steps is None or work.step_key in steps


def _partitions(run: DagsterRun) -> tuple[str, str] | None:
    """Return the first and the last partition of a run; None if it is not partitioned."""
    if PARTITION in run.tags:
        return run.tags[PARTITION], run.tags[PARTITION]
    if RANGE_START in run.tags:
        return run.tags[RANGE_START], run.tags.get(RANGE_END, "")
    return None


def _continues(run: DagsterRun, parent: DagsterRun | None, instance: DagsterInstance | None) -> bool:
    """Return True if a run continues the work of its parent."""
    if RETRY_NUMBER in run.tags or run.tags.get(RESUME_RETRY) == "true":
        return True
    if parent is None or instance is None:
        return False
    # Dagster's Python API sets only the parent's tag. A run of some of the parent's steps or assets
    # continues it, as does any run whose parent had no successful step. The tag
    # dagster/is_asset_resume_retry decides nothing: a later "re-execute all" still carries it.
    if _is_part(_steps(run, instance), _steps(parent, instance)) or _is_part(
        run.asset_selection, parent.asset_selection
    ):
        return True
    return parent.is_finished and instance.get_run_stats(parent.run_id).steps_succeeded == 0


def _steps(run: DagsterRun, instance: DagsterInstance) -> Sequence[str] | None:
    """Return the keys of the steps that a run executes; None for all steps of its job."""
    # For a run of all steps, a schedule and the web server leave the keys out, while the Python API
    # lists them. The execution plan has them in both cases.
    if run.step_keys_to_execute is not None or run.execution_plan_snapshot_id is None:
        return run.step_keys_to_execute
    return instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id).step_keys_to_execute


def _is_part(selected: Any, of: Any) -> bool:
    """Return True if a selection is a proper subset of another; None selects everything."""
    return selected is not None and (of is None or set(selected) < set(of))
