"""Maintenance of tables as assets, on a schedule.

The operations are compaction and z-order, checkpoint, log cleanup and vacuum.

Every operation is one commit of its own, or none, by the code of the lake. A writer that commits in
between is handled as any concurrent writer is. No reader of a version within the retention loses a
file.
"""

# No "from __future__ import annotations" here: Dagster must see the class of an asset's
# configuration, not its name.

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetsDefinition,
    AssetSelection,
    Config,
    Definitions,
    MaterializeResult,
    Resolvable,
    ResolvedAssetKey,
    ScheduleDefinition,
    asset,
    define_asset_job,
)
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from duckrun.errors import InvalidConfig
from duckrun.values.choices import EngineName
from duckrun.values.snapshot import TableRef
from duckrun.values.tables import (
    CheckpointSpec,
    CleanupLogSpec,
    MaintenanceResult,
    MaintenanceSpec,
    OptimizeSpec,
    VacuumSpec,
)
from duckrun_dagster.config import parse_table
from duckrun_dagster.resources import DuckrunResource

if TYPE_CHECKING:
    from duckrun.session import Session

_MB = 1024 * 1024
_SMALL_FILE = 100 * _MB
_REMOVING = ("vacuum", "cleanup_log", "cleanup", "orphans")


@dataclass(frozen=True, config=ConfigDict(arbitrary_types_allowed=True, extra="forbid"))
class MaintainedTable(Resolvable):
    """A table and its maintenance, in this order: optimize, checkpoint, cleanup_log, vacuum.

    ``key`` is the key of the asset whose table it is; ``location`` is a folder other than the key
    names. ``z_order_by`` and ``predicate`` (over partition columns) go with optimize.
    ``retention_hours`` goes with vacuum: None is the table's own retention, by default a week, and
    less than that is refused. The same settings are written in YAML, where ``key`` is a text with
    slashes.

    Example::

        orders = dg.AssetKey(["sales", "orders"])
        MaintainedTable(orders, z_order_by=("customer",), retention_hours=24 * 14)
    """

    key: ResolvedAssetKey
    optimize: bool = True
    z_order_by: tuple[str, ...] = ()
    predicate: str | None = None
    target_file_size: int | None = None
    checkpoint: bool = True
    cleanup_log: bool = True
    vacuum: bool = True
    retention_hours: float | None = None
    engine: EngineName = "duckdb"
    location: str | None = None

    def specs(self, *, dry_run: bool, of_lake: bool = False) -> Iterator[MaintenanceSpec]:
        """Yield the operations on the table.

        With ``of_lake``, only optimize: the lake has the log, and lake_maintenance does the rest.
        """
        if self.optimize and not dry_run:
            yield OptimizeSpec(self.predicate, self.z_order_by, self.target_file_size)
        if of_lake:
            return
        if self.checkpoint and not dry_run:
            yield CheckpointSpec()
        if self.cleanup_log and not dry_run:
            yield CleanupLogSpec()
        if self.vacuum:
            yield VacuumSpec(self.retention_hours, dry_run=dry_run)


class MaintenanceConfig(Config):
    """Configuration of one run: a dry run or not."""

    dry_run: bool = Field(
        default=False, description="List what vacuum would remove and count small files; change nothing."
    )


def maintenance(
    tables: Sequence[MaintainedTable | AssetKey | str | Sequence[str]],
    *,
    cron_schedule: str | None = None,
    execution_timezone: str | None = None,
    name: str = "maintenance",
    group_name: str = "maintenance",
    resource_key: str = "duckrun",
) -> Definitions:
    """Return an asset for each table that maintains it, a job over them, and its schedule.

    The asset of table ``sales.orders`` is ``maintenance/sales/orders``, downstream of
    ``sales/orders``. Its metadata has files and bytes before and after. ``dry_run: true`` in the
    configuration of a run changes nothing.

    Args:
        tables: The tables, or keys of their assets.
        cron_schedule: The schedule; None for none.
        execution_timezone: Time zone of the schedule.
        name: Name of the job and first part of the asset keys.
        group_name: Group of the assets.
        resource_key: The key of the DuckrunResource.

    Raises:
        InvalidConfig: A table is named twice.

    Example::

        defs = Definitions.merge(
            Definitions(assets=[orders], resources=resources),
            maintenance([["sales", "orders"]], cron_schedule="0 3 * * *"),
        )
    """
    wanted = [
        each if isinstance(each, MaintainedTable) else MaintainedTable(AssetKey.from_coercible(each)) for each in tables
    ]
    keys = [table.key for table in wanted]
    twice = sorted({key.to_user_string() for key in keys if keys.count(key) > 1})
    if twice:
        raise InvalidConfig(f"{name}: {', '.join(twice)} is named twice; one asset keeps a table in order.")
    assets = [_asset(table, name, group_name, resource_key) for table in wanted]
    job = define_asset_job(name, AssetSelection.assets(*assets), description="Keeps tables in order.")
    return scheduled(assets, job, cron_schedule, execution_timezone)


def scheduled(
    assets: Sequence[AssetsDefinition], job: Any, cron_schedule: str | None, execution_timezone: str | None
) -> Definitions:
    """Return assets with a job over them and its schedule, if any."""
    schedules = []
    if cron_schedule is not None:
        schedules.append(
            ScheduleDefinition(job=job, cron_schedule=cron_schedule, execution_timezone=execution_timezone)
        )
    return Definitions(assets=assets, jobs=[job], schedules=schedules)


def _asset(table: MaintainedTable, name: str, group_name: str, resource_key: str) -> AssetsDefinition:
    @asset(
        key=[name, *table.key.path],
        deps=[table.key],
        group_name=group_name,
        kinds={"deltalake", table.engine},
        required_resource_keys={resource_key},
        description=f"Keeps the table of {table.key.to_user_string()} in order.",
    )
    def maintain(context: AssetExecutionContext, config: MaintenanceConfig) -> MaterializeResult:
        resource: DuckrunResource = getattr(context.resources, resource_key)
        spark = getattr(context.resources, "spark", None) if table.engine == "spark" else None
        metadata = {"location": table.location} if table.location else {}
        ref = resource.stored(parse_table(table.key, metadata, default_schema=resource.default_schema)).ref
        session = resource.session(table.engine, spark=spark)  # the step's session, which the step closes
        results = [
            session.execute(ref, spec)
            for spec in table.specs(dry_run=config.dry_run, of_lake=session.lakes.of(ref).has_catalog)
        ]
        return MaterializeResult(metadata=_metadata(session, ref, results, dry_run=config.dry_run))

    return maintain


def _metadata(
    session: "Session", ref: TableRef, results: Sequence[MaintenanceResult], *, dry_run: bool
) -> dict[str, Any]:
    """Return files and bytes before the first operation and after the last, and each result."""
    snapshot = session.lake.snapshot(ref)
    sizes = [file.size for file in snapshot.files()]
    values = {
        "dagster/table_name": str(ref),
        "version": snapshot.version,
        **figures(results, len(sizes), sum(sizes), dry_run=dry_run),
        "small_files": sum(size < _SMALL_FILE for size in sizes),
        **{f"{result.mode}_version": result.version for result in results},
    }
    return {key: value for key, value in values.items() if value is not None}


def figures(results: Sequence[MaintenanceResult], files: int, size: int, *, dry_run: bool) -> dict[str, Any]:
    """Return files and bytes before the operations and now, and the result of each operation."""
    before = next((result for result in results if result.files_before is not None), None)
    values: dict[str, Any] = {
        "dry_run": dry_run,
        "files_before": files if before is None else before.files_before,
        "files_after": files,
        "bytes_before": size if before is None else before.bytes_before,
        "bytes_after": size,
    }
    for result in results:
        values[f"{result.mode}_seconds"] = result.seconds
        if result.mode in _REMOVING:
            values[f"{result.mode}_removed"] = len(result.removed)
    if warnings := [each for result in results for each in result.warnings]:
        values["warnings"] = "\n".join(warnings)
    return values
