"""Which piece of work a commit belongs to, so that a retry does not write it twice.

A chain is a run with its automatic retries and its re-executions from failure. Any other run, "re-execute all" too, is
a new chain and writes again.
"""

from __future__ import annotations

from dagster import AssetKey, DagsterInstance, DagsterRun

from duckrun.values.rows import AppTransaction
from duckrun_dagster.partitions.partitions import PartitionSlice

# Dagster sets them; dagster._core.storage.tags has no public home.
RETRY_NUMBER = "dagster/retry_number"
RESUME_RETRY = "dagster/is_resume_retry"
ASSET_RESUME_RETRY = "dagster/is_asset_resume_retry"
PARENT_RUN = "dagster/parent_run_id"
_LONGEST_CHAIN = 1000


def chain_of(run: DagsterRun, instance: DagsterInstance | None) -> str:
    """The id of the run that began this chain.

    Walks from parent to parent: ``dagster/root_run_id`` names the first run of all, which a "re-execute all" in
    between has left behind. A parent that is no longer stored ends the walk with its id.
    """
    run_id, current = run.run_id, run
    for _ in range(_LONGEST_CHAIN):
        parent_id = current.parent_run_id or current.tags.get(PARENT_RUN)
        if not _continues(current) or not parent_id:
            return run_id
        run_id = parent_id
        parent = instance.get_run_by_id(parent_id) if instance is not None else None
        if parent is None:
            return run_id
        current = parent
    return run_id


def application(asset_key: AssetKey, partitions: PartitionSlice | None, chain: str) -> AppTransaction:
    """The name of one asset's write (or one range of its partitions) within a chain."""
    what = asset_key.to_user_string() if partitions is None else f"{asset_key.to_user_string()}[{partitions.label}]"
    return AppTransaction(f"dagster:{what}:{chain}")


def application_of_op(step_key: str, output: str, chain: str) -> AppTransaction:
    """The name of the write of an op's output within a chain; a step key has no spaces, so no asset has the name."""
    return AppTransaction(f"dagster:op {step_key} {output}:{chain}")


def _continues(run: DagsterRun) -> bool:
    tags = run.tags
    return RETRY_NUMBER in tags or any(tags.get(tag) == "true" for tag in (RESUME_RETRY, ASSET_RESUME_RETRY))
