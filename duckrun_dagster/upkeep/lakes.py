"""Scheduled maintenance of a DuckLake: one asset for the lake, whose metadata has the results."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetSelection,
    Definitions,
    MaterializeResult,
    asset,
    define_asset_job,
)

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.formats.transactions import TransactionalLake
from duckrun.values.nearest import did_you_mean
from duckrun.values.tables import MaintenanceResult
from duckrun.values.upkeep import (
    ExpireSpec,
    LakeCheckpointSpec,
    RemovalSpec,
    UpkeepSpec,
    moment_of,
)
from duckrun_dagster.resources import DuckrunResource
from duckrun_dagster.upkeep.maintenance import MaintenanceConfig, figures, scheduled

STEPS = ("flush", "expire", "merge", "rewrite", "cleanup", "orphans")
"""Maintenance steps, in DuckLake's order."""


def lake_maintenance(
    *,
    steps: Sequence[str] = STEPS,
    expire_older_than: str | None = None,
    older_than: str | None = None,
    delete_threshold: float | None = None,
    spare_consumers: bool = True,
    deps: Sequence[AssetKey | str | Sequence[str]] = (),
    cron_schedule: str | None = None,
    execution_timezone: str | None = None,
    name: str = "lake_maintenance",
    group_name: str = "maintenance",
    resource_key: str = "duckrun",
) -> Definitions:
    """Return an asset that maintains the DuckLake of a DuckrunResource, with a job and a schedule.

    ``dry_run: true`` in the configuration of a run only lists the files and snapshots to remove.

    Args:
        steps: Some of flush, expire, merge, rewrite, cleanup and orphans, done in this order.
        expire_older_than: Age of snapshots to expire (``"30 days"``); without it, none expire.
        older_than: Age of files for cleanup and orphans; None keeps seven days.
        delete_threshold: Fraction of deleted rows above which a file is rewritten.
        spare_consumers: Keep the snapshots that consumers of changes continue from.
        deps: Upstream assets.
        cron_schedule: The schedule; None for none.
        execution_timezone: Time zone of the schedule.
        name: Name of the asset; the job is ``<name>_job``.
        group_name: Group of the asset.
        resource_key: The key of the DuckrunResource.

    Raises:
        InvalidConfig: A step does not exist, or an age is invalid.

    Example::

        defs = Definitions.merge(
            Definitions(assets=[orders], resources=resources),
            lake_maintenance(expire_older_than="30 days", cron_schedule="0 3 * * *"),
        )
    """
    for step in steps:
        if step not in STEPS:
            hint = did_you_mean(step, STEPS)
            raise InvalidConfig(f"{name}: there is no step {step!r}; the steps are {', '.join(STEPS)}.{hint}")

    def specs(dry_run: bool) -> list[UpkeepSpec]:
        before = None if expire_older_than is None else moment_of(expire_older_than, f"{name}: expire_older_than")
        moment = None if older_than is None else moment_of(older_than, f"{name}: older_than")
        upkeep = LakeCheckpointSpec(before, moment, delete_threshold, spare_consumers)
        chosen = [spec for spec in upkeep.steps if spec.mode in steps]
        if not dry_run:
            return chosen
        return [replace(spec, dry_run=True) for spec in chosen if isinstance(spec, ExpireSpec | RemovalSpec)]

    specs(dry_run=False)  # refuses a bad age or threshold when definitions load

    @asset(
        key=name,
        deps=[AssetKey.from_coercible(key) for key in deps],
        group_name=group_name,
        kinds={"ducklake", "duckdb"},
        required_resource_keys={resource_key},
        description="Keeps the DuckLake in order.",
    )
    def maintain(context: AssetExecutionContext, config: MaintenanceConfig) -> MaterializeResult:
        resource: DuckrunResource = getattr(context.resources, resource_key)
        session = resource.session("duckdb")  # the step's session, which the step closes
        transactions = session.lake.format.transactions
        if transactions is None:
            raise UnsupportedFeature(
                f"{name}: lake {session.lake.root} is of format {session.lake.format.name}; "
                "maintenance() keeps its tables in order, and "
                "lake_maintenance() is of a DuckLake."
            )
        if not session.snapshots(1):  # in a run of all assets, this one may come first
            session.lake.refuse_other_format()
            context.log.info(f"{name}: nothing was written to lake {session.lake.root} yet")
            return MaterializeResult(metadata={"dry_run": config.dry_run, "files_before": 0, "files_after": 0})
        results = [session.maintain(spec) for spec in specs(config.dry_run)]
        return MaterializeResult(metadata=_metadata(session, transactions, results, dry_run=config.dry_run))

    # The asset's op has its name, and Dagster loads no job beside an op of the same name.
    job = define_asset_job(f"{name}_job", AssetSelection.assets(maintain), description="Keeps the DuckLake in order.")
    return scheduled([maintain], job, cron_schedule, execution_timezone)


def _metadata(
    session: Any, transactions: TransactionalLake, results: Sequence[MaintenanceResult], *, dry_run: bool
) -> dict[str, Any]:
    """Return files and bytes of the lake before and after, and the result of each step."""
    files, size = transactions.figures(None)
    return {
        "snapshot": session.snapshots(1)[0]["snapshot_id"],
        **figures(results, files, size, dry_run=dry_run),
        "rows_flushed": sum(result.rows_flushed or 0 for result in results),
        "snapshots_expired": sum(len(result.expired) for result in results),
    }
