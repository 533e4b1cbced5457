"""The branch of a chain of runs, which its steps write and a last step publishes.

A step works in the branch if the publishing step is downstream of it in the run that began the
chain. So a retry and a re-execution from failure continue in the same branch.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dagster import AssetKey, DagsterEventType, DagsterInstance, DagsterRun, InitResourceContext

from duckrun.branches import registry
from duckrun.branches.diff import changed_tables, changed_views
from duckrun.branches.publish import tables_of
from duckrun.errors import InvalidConfig
from duckrun.lake.lake import Lake
from duckrun_dagster.chain import PARENT_BACKFILL, PARENT_RUN, OfSteps, StepWork, runs_of_chain
from duckrun_dagster.private import ExecutionStepSnap, StepEventStatus

PUBLISH_AFTER = "duckrun/publish_after"
"""Tag of the op that publishes the branch of its chain; the value is ``checks``."""
BRANCH = "duckrun/branch"
"""Tag of a run with the branch of its chain."""
_LONGEST = 50
_LETTERS_OF_ID = 13  # 48 bits of a run's id


@dataclass(frozen=True)
class ChainBranch:
    """Branch of a chain, and the steps that work in it."""

    name: str
    runs: tuple[DagsterRun, ...]
    """Runs of the chain, newest first."""
    step: str
    """Key of the step that publishes the branch."""
    asset: AssetKey
    """Asset of that step."""
    steps: frozenset[str]
    """Keys of the steps upstream of the publisher."""
    checks: frozenset[str]
    """Keys of further steps that check assets of these steps."""
    assets: frozenset[AssetKey]
    """Assets of the steps."""

    def superseded(self, instance: DagsterInstance, lake: Lake) -> dict[str, list[str]]:
        """Return the tables that a step's older attempt wrote, and its last one did not.

        Also the names that it dropped or defined as views.

        Returns:
            The steps by the name of the table.
        """
        branch = registry.find(lake.storage, self.name)
        last = self._last_attempts(instance)
        if branch is None or all(attempt == f"{self.runs[-1].run_id}:0" for attempt in last.values()):
            return {}
        written = self._materialized(instance, last)
        tables, by = tables_of(lake.storage, branch), dict[str, set[tuple[str, str]]]()
        for ref, line, change in changed_tables(lake, branch, tables):
            notes = [record.note for record in tables.commits(ref, line)]
            by[str(ref)] = {(note["step"], note["attempt_of_step"]) for note in notes if "step" in note}
            if change == "dropped":
                by[str(ref)] = registry.claimed(lake.storage, branch, str(ref))
        tables.close()
        by |= {name: registry.claimed(lake.storage, branch, name) for name, _ in changed_views(lake, branch)}
        stale = {}
        for name, writers in by.items():
            steps = {step for step, _ in writers if step in last and (step, last[step]) not in writers}
            if left := sorted(step for step in steps if (step, name) not in written):
                stale[name] = left
        return stale

    def _last_attempts(self, instance: DagsterInstance) -> dict[str, str]:
        """Return the last attempt of each step, as ``attempt_of()`` names it."""
        last: dict[str, str] = {}
        for run in self.runs:
            for each in instance.get_run_step_stats(run.run_id, sorted(self.steps)):
                if each.status is not None and each.attempts:
                    last.setdefault(each.step_key, f"{run.run_id}:{each.attempts - 1}")
        return last

    def _materialized(self, instance: DagsterInstance, last: Mapping[str, str]) -> set[tuple[str, str]]:
        """Return the steps with the tables of assets that they materialized last.

        An attempt may have nothing to commit, and a run may leave out assets of a step.
        """
        runs, pairs = {run.run_id: run for run in self.runs}, set()
        kind = DagsterEventType.ASSET_MATERIALIZATION
        for run in self.runs:
            for record in instance.get_records_for_run(run.run_id, of_type=kind).records:
                step, materialization = str(record.event_log_entry.step_key), record.asset_materialization
                newest = runs.get(last.get(step, "").rpartition(":")[0])
                if newest is None or materialization is None:
                    continue
                selected, table = newest.asset_selection, materialization.metadata.get("dagster/table_name")
                is_left_out = selected is not None and materialization.asset_key not in selected
                if table is not None and (newest is run or is_left_out):
                    pairs.add((step, str(table.value)))
        return pairs

    def unfinished(self, instance: DagsterInstance) -> list[str]:
        """Return the steps without a success in the newest run that began them."""
        # Mapped steps have other keys. A step after them collects them, and needs all of them.
        left, failed = {key for key in self.steps if not key.endswith("[?]")}, set()
        for run in self.runs if left else ():
            for each in instance.get_run_step_stats(run.run_id, sorted(self.steps)):
                if each.step_key in left and each.status is not None:
                    left.discard(each.step_key)
                    if each.status not in (StepEventStatus.SUCCESS, StepEventStatus.SKIPPED):
                        failed.add(each.step_key)
        return sorted(left | failed)


def branch_in(step: Any | None, lake: Lake) -> str | None:
    """Return the branch of a lake that a step works in; None for the configured lake.

    A lake that is configured as a branch stays that branch. A step that only checks works in the
    branch as long as it exists: it may run after the publish.

    Raises:
        InvalidConfig: Two steps would publish what the step writes.
    """
    if step is None or lake.branch_name is not None:
        return None
    branch = branch_of_step(step)
    if branch is None:
        return None
    if not _outputs(step.step.step_outputs) and registry.find(lake.storage, branch.name) is None:
        return None
    with _lock:
        is_known = step.run_id in _tagged
        _tagged.add(step.run_id)
    if not is_known:
        step.log.info(f"Works in branch {branch.name}, which {branch.asset.to_user_string()} publishes.")
        step.instance.add_run_tags(step.run_id, {BRANCH: branch.name})
    return branch.name


def refuse_no_step(context: InitResourceContext, lake: Lake) -> None:
    """Refuse a use of a lake outside of a step, in a run that writes a branch.

    Raises:
        InvalidConfig: The lake would be main. A thread does not inherit the step that starts it.
    """
    if lake.branch_name is not None or context.run is None or context.instance is None:
        return
    if any(True for _ in branches_of_chain(context.run, context.instance)):
        raise InvalidConfig(
            "DuckrunResource: this thread has no step of Dagster, so it would read and write main and not the branch "
            "of the run",
            remedy="Take the session before the thread starts, or start it with the step's context: "
            "contextvars.copy_context().run as its target",
        )


def branch_of_step(step: Any) -> ChainBranch | None:
    """Return the branch of a step's chain, cached in the process; None if it works in none.

    Raises:
        InvalidConfig: Two steps would publish what the step writes.
    """
    run = step.dagster_run
    may_continue = bool(run.parent_run_id) or PARENT_RUN in run.tags or PARENT_BACKFILL in run.tags
    if not (may_continue or any(PUBLISH_AFTER in node.definition.tags for node in step.job_def.nodes)):
        return None
    return _branches.of(step, lambda: _branch_of_step(step))


_branches = OfSteps[ChainBranch | None]()
_lock = threading.Lock()
_tagged: set[str] = set()
"""Runs whose tag this process has set."""


def _branch_of_step(step: Any) -> ChainBranch | None:
    key, assets = _key(step), _outputs(step.step.step_outputs)
    branches = [
        each
        for each in branches_of_chain(step.dagster_run, step.instance)
        if key in each.steps | each.checks or not each.assets.isdisjoint(assets)
    ]
    if len(branches) > 1:
        names = " and ".join(each.asset.to_user_string() for each in branches)
        raise InvalidConfig(f"Step {step.step.key} is upstream of {names}, and one of them publishes its branch.")
    return branches[0] if branches else None


def branches_of_chain(run: DagsterRun, instance: DagsterInstance) -> Iterator[ChainBranch]:
    """Yield the branches of a run's chain: one for each step that publishes."""
    publishers = [each for each in _plan(run, instance).values() if _publishes(each)]
    works: list[StepWork | None] = [StepWork(each.key, frozenset(_outputs(each.outputs))) for each in publishers]
    for work in works or [None]:  # a re-execution may leave the publisher out
        runs = list(runs_of_chain(run, instance, work))
        stored = tuple(each for _, each in runs if each is not None)
        plan = _plan(stored[-1], instance)
        for publisher in plan.values():
            if _publishes(publisher) and (work is None or work.step_key == publisher.key):
                yield _branch(publisher, plan, stored, chain=runs[-1][0])


def _branch(
    publisher: ExecutionStepSnap, plan: Mapping[str, ExecutionStepSnap], runs: tuple[DagsterRun, ...], chain: str
) -> ChainBranch:
    (asset,) = _outputs(publisher.outputs)
    steps: set[str] = set()
    further = [publisher]
    while further:
        upstream = {key for key in _upstream(further.pop()) if key in plan} - steps
        steps |= upstream
        further += [plan[key] for key in upstream]
    checks = {key for key, each in plan.items() if not _outputs(each.outputs) and not steps.isdisjoint(_upstream(each))}
    prefix = re.sub(r"[^A-Za-z0-9_]+", "-", asset.path[-1]).strip("-_")[:_LONGEST]
    return ChainBranch(
        name=f"{prefix}-{chain[:_LETTERS_OF_ID]}",
        runs=runs,
        step=publisher.key,
        asset=asset,
        steps=frozenset(steps),
        checks=frozenset(checks),
        assets=frozenset(key for step in steps for key in _outputs(plan[step].outputs)),
    )


def _plan(run: DagsterRun, instance: DagsterInstance) -> dict[str, ExecutionStepSnap]:
    """Return the steps of a run's job by their keys; empty if Dagster stores none."""
    if run.execution_plan_snapshot_id is None:
        return {}
    return {each.key: each for each in instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id).steps}


def _publishes(step: ExecutionStepSnap) -> bool:
    return PUBLISH_AFTER in (step.tags or {})


def _upstream(step: ExecutionStepSnap) -> set[str]:
    return {key for each in step.inputs for key in each.upstream_step_keys}


def _outputs(outputs: Iterable[Any]) -> set[AssetKey]:
    """Return the assets of a step's outputs; empty for a step that only checks."""
    return {each.properties.asset_key for each in outputs if each.properties and each.properties.asset_key}


def _key(step: Any) -> str:
    """Return the key of a running step as plans have it, where mapped steps are one."""
    return re.sub(r"\[[^\]]*\]$", "[?]", step.step.key)
