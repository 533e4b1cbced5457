"""``publish_after: checks``: a job whose tables are published together after its checks.

Its steps work in the branch of their chain (see ``branches.py``). The last step publishes it.
"""

# No "from __future__ import annotations" here: Dagster must see the class of an asset's context,
# not its name.

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dagster import (
    AssetCheckEvaluation,
    AssetCheckResult,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetExecutionContext,
    AssetKey,
    AssetObservation,
    AssetsDefinition,
    AssetSelection,
    DagsterEvent,
    DagsterEventType,
    DagsterInstance,
    Definitions,
    Failure,
    HookContext,
    HookDefinition,
    MaterializeResult,
    MetadataValue,
    TableColumn,
    TableRecord,
    TableSchema,
    asset,
    define_asset_job,
    failure_hook,
)

from duckrun.errors import CommitConflict
from duckrun.values.branches import Published
from duckrun_dagster.branches import PUBLISH_AFTER, ChainBranch, branches_of_chain
from duckrun_dagster.resources import DuckrunResource
from duckrun_dagster.upkeep.maintenance import scheduled

if TYPE_CHECKING:
    from duckrun.session import Session

IS_PUBLISHED = "is_published"
"""Check of the publishing asset."""


def publish_after_checks(
    name: str,
    assets: Sequence[AssetsDefinition | AssetKey | str | Sequence[str]],
    *,
    cron_schedule: str | None = None,
    execution_timezone: str | None = None,
    group_name: str = "publish",
    resource_key: str = "duckrun",
    **job: Any,
) -> Definitions:
    """Return a job that publishes its tables together, or none of them, with its schedule.

    Each run writes a branch of the lake, and its checks read that branch. The last asset,
    ``publish/<name>``, publishes the branch if all steps upstream have succeeded. A blocking check
    that fails with severity ERROR fails its step. Then main is unchanged, the branch stays, and the
    check ``is_published`` of the last asset says why. Retries and re-executions from failure
    continue in the branch. Assets that read the published tables depend on ``publish/<name>``.

    Args:
        name: Name of the job and last part of the key of the publishing asset.
        assets: The assets, also dbt models, whose tables are published.
        cron_schedule: The schedule; None for none.
        execution_timezone: Time zone of the schedule.
        group_name: Group of the publishing asset.
        resource_key: The key of the DuckrunResource of the lake.
        **job: Further arguments of ``define_asset_job``.

    Example::

        # Dagster loads one Definitions object of a module, so this one has no name.
        defs = Definitions.merge(mine, publish_after_checks("nightly", [orders, totals]))
    """
    keys = [key for each in assets for key in _keys(each)]
    definitions = [each for each in assets if isinstance(each, AssetsDefinition)]
    published = _asset(name, keys, definitions, group_name, resource_key)
    hooks = {*job.pop("hooks", ()), _hook(resource_key)}
    job.setdefault("description", "Publishes its tables together, after its checks.")
    selection = AssetSelection.assets(published, *keys)
    return scheduled(
        [published],
        define_asset_job(name, selection, hooks=hooks, **job),
        cron_schedule,
        execution_timezone,
    )


def _keys(assets: AssetsDefinition | AssetKey | str | Sequence[str]) -> list[AssetKey]:
    return sorted(assets.keys) if isinstance(assets, AssetsDefinition) else [AssetKey.from_coercible(assets)]


def _asset(
    name: str, keys: Sequence[AssetKey], definitions: Sequence[AssetsDefinition], group_name: str, resource_key: str
) -> AssetsDefinition:
    key = AssetKey(["publish", name])
    # Dagster's backfills put assets of other partitions or policies into runs of their own.
    partitions = {each.partitions_def for each in definitions}
    policies = {each.backfill_policy for each in definitions}

    @asset(
        key=key,
        deps=keys,
        group_name=group_name,
        kinds={"deltalake"},
        required_resource_keys={resource_key},
        op_tags={PUBLISH_AFTER: "checks"},
        partitions_def=partitions.pop() if len(partitions) == 1 else None,
        backfill_policy=policies.pop() if len(policies) == 1 else None,
        check_specs=[
            AssetCheckSpec(IS_PUBLISHED, asset=key, description="The branch of the last run is published to main.")
        ],
        description=f"Publishes the tables of {', '.join(each.to_user_string() for each in keys)} together.",
    )
    def publish(context: AssetExecutionContext) -> MaterializeResult:
        resource: DuckrunResource = getattr(context.resources, resource_key)
        (branch,) = (each for each in branches_of_chain(context.run, context.instance) if each.asset == key)
        lake = resource.lake()
        if lake.branch_name is not None:
            text = f"The tables are in branch {lake.branch_name}, which this deployment works in, and not in main."
            context.log.info(text)
            return _result({"branch": lake.branch_name}, text)
        if not branch.steps:
            raise Failure(f"None of the assets to publish is in this run. Run job {name}.", allow_retries=False)
        if unfinished := branch.unfinished(context.instance):
            text = f"Branch {branch.name} is not published, since {', '.join(unfinished)} did not succeed."
            raise Failure(f"{text} {_advice(branch.name, lake.root)}", allow_retries=False)
        if superseded := branch.superseded(context.instance, lake):
            tables = ", ".join(f"{table} ({', '.join(steps)})" for table, steps in superseded.items())
            raise Failure(_superseded(tables, branch.name, lake.root), allow_retries=False)
        published = _published(resource.session(), branch.name)
        for event in _observations(context.instance, branch, published):
            context.log_event(event)
        return _result(_metadata(published))

    return publish


def _superseded(tables: str, branch: str, root: str) -> str:
    """Return why a branch with tables of older attempts is not published, and what to do."""
    place = f"duckrun.connect({root!r}, branch={branch!r})"
    return (
        f"Branch {branch} is not published, since an earlier attempt of a step has written, dropped or defined "
        f"tables or views, and the last attempt has not: {tables}. Run the job again, which begins a new branch. "
        f"Or correct them in the branch, by {place}, and execute this step again. Publish them, too, by: "
        f"{_command('publish', branch, root)}. Remove the branch by: {_command('discard', branch, root)}"
    )


def _published(session: "Session", branch: str) -> Published:
    try:
        return session.publish(branch)
    except CommitConflict as error:
        root = session.lake.root
        raise CommitConflict(
            error.reason,
            remedy="Run the job again, which begins a new branch. Look at this one by: "
            f"{_command('diff', branch, root)}. Remove it by: {_command('discard', branch, root)}",
        ) from error


def _result(metadata: Mapping[str, Any], text: str | None = None) -> MaterializeResult:
    """Return the materialization; ``text`` says why nothing is published."""
    check = AssetCheckResult(
        passed=text is None, check_name=IS_PUBLISHED, severity=AssetCheckSeverity.WARN, description=text
    )
    return MaterializeResult(metadata=metadata, check_results=[check])


def _metadata(published: Published) -> dict[str, Any]:
    records = [
        TableRecord({"table": table, "version_before": published.before.get(table), "version": version})
        for table, version in published.versions.items()
    ]
    columns = [TableColumn("table", "string"), TableColumn("version_before", "int"), TableColumn("version", "int")]
    return {
        "branch": published.branch,
        "publish": published.id,
        "tables": MetadataValue.table(records, TableSchema(columns)),
        "seconds": published.seconds,
        **({"replayed": True} if published.replayed else {}),
    }


def _observations(instance: DagsterInstance, branch: ChainBranch, published: Published) -> Iterator[AssetObservation]:
    """Yield the published version of each asset, for its page."""
    for key in sorted(branch.assets):
        event = instance.get_latest_materialization_event(key)
        materialization = None if event is None else event.asset_materialization
        metadata = {} if materialization is None else materialization.metadata
        table = metadata.get("dagster/table_name")
        version = None if table is None else published.versions.get(str(table.value))
        if version is not None:
            words: dict[str, Any] = {"published_version": version, "branch": published.branch, "publish": published.id}
            yield AssetObservation(key, metadata=words, description=f"Published as version {version} of main.")


def _hook(resource_key: str) -> HookDefinition:
    """Return the hook that reports on the publishing asset's page why a run publishes nothing."""

    @failure_hook(name="reports_unpublished_branch", required_resource_keys={resource_key})
    def report(context: HookContext) -> None:
        run = context.instance.get_run_by_id(context.run_id)
        lake = getattr(context.resources, resource_key).lake()
        for branch in () if run is None else branches_of_chain(run, context.instance):
            if context.step_key not in branch.steps | {branch.step}:
                continue
            error = str(context.op_exception or "")
            text = error
            if context.step_key != branch.step:  # the publishing step says more itself
                why = f"Branch {branch.name} is not published, since {context.step_key} failed. Main is unchanged."
                text = f"{why} {_advice(branch.name, lake.root)}"
                context.log.error(text)
            evaluation = AssetCheckEvaluation(
                branch.asset,
                IS_PUBLISHED,
                passed=False,
                description=text,
                metadata={"branch": branch.name, "failed_step": context.step_key, "error": error},
            )
            event = DagsterEvent(
                event_type_value=DagsterEventType.ASSET_CHECK_EVALUATION.value,
                job_name=context.job_name,
                step_key=context.step_key,
                event_specific_data=evaluation,
                message=text,
            )
            context.instance.report_dagster_event(event, context.run_id)

    return report


def _advice(branch: str, root: str) -> str:
    """Return what to do with a branch that is not published."""
    return (
        f"Look at it by: {_command('diff', branch, root)}. After a fix run the job again, which begins a new "
        "branch, or re-execute steps of this run up to the last one, which continue in this branch. "
        f"Remove the branch by: {_command('discard', branch, root)}"
    )


def _command(word: str, branch: str, root: str) -> str:
    return f"duckrun branch {word} {branch} --root {root}"
