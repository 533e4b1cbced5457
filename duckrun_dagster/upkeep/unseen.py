"""Runs of incremental assets on demand: when an upstream table has new row-changing versions.

The logs of the tables and the offsets of the asset decide, so it does not matter who wrote, inside
or outside of Dagster. A commit that changes no row (a compaction, a comment) starts no run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dagster import (
    AssetKey,
    AssetsDefinition,
    AutomationCondition,
    AutomationContext,
    AutomationResult,
    DefaultSensorStatus,
    RunRequest,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
)

from duckrun.changes.cursors import Cursor, Upstream
from duckrun.errors import InvalidConfig, TableNotFound, VersionNotReadable
from duckrun.lake.lake import Lake, TableRef
from duckrun.values.cursors import Range
from duckrun_dagster.config import parse_changes
from duckrun_dagster.io_managers import DeltaIOManager
from duckrun_dagster.io_managers.incremental import consumer_name

log = logging.getLogger(__name__)
MetadataOf = Callable[[AssetKey], Mapping[str, Any]]


def unseen_changes(asset: AssetsDefinition, manager: DeltaIOManager, metadata_of: MetadataOf) -> dict[str, Range]:
    """Return the new row-changing versions of an asset's upstream tables, by the tables' names.

    An asset that only a full refresh can bring up to date has none, which a warning says.

    Args:
        asset: The incremental asset.
        manager: Its IO manager.
        metadata_of: Returns the metadata of an asset by its key.

    Raises:
        InvalidConfig: The asset has partitions, or no input of changes.
    """
    upstreams = {asset.keys_by_input_name[name] for name in parse_changes(asset.node_def)}
    name = asset.key.to_user_string()
    if not upstreams:
        raise InvalidConfig(
            f"Asset {name} has no input of changes (metadata 'changes'), so there is nothing that it has not seen."
        )
    if asset.partitions_def is not None:
        raise InvalidConfig(
            f"Asset {name} has a cursor for each of its partitions: run it by its partitions, "
            "with AutomationCondition.eager() or a schedule."
        )

    output, *stored = (manager.stored(key, metadata_of(key)) for key in (asset.key, *upstreams))
    tables = {str(each.ref): each for each in stored}
    try:
        versions = {name: Upstream.of(each.lake, each.lake.snapshot(each.ref)) for name, each in tables.items()}
        begun = Cursor(output.lake, output.ref, consumer_name(asset.key)).begin(versions, note=False)
    except TableNotFound:
        return {}
    except VersionNotReadable as error:
        log.warning("Asset %s is not run for changes: %s", name, error)
        return {}
    if begun.whole:
        return dict(begun.ranges)
    return {
        name: each
        for name, each in begun.ranges.items()
        if _has_other_rows(tables[name].lake, tables[name].ref, each.from_version, versions[name].snapshot.version)
    }


def _has_other_rows(lake: Lake, ref: TableRef, after: int, to: int) -> bool:
    """Return True if a commit after one version, up to another, may have changed rows."""
    # A commit that the log no longer holds may have changed rows.
    commits = [each for each in lake.format.records_after(ref, after) if each.version <= to]
    return not lake.format.tells_since(ref, after, to, commits) or any(each.changes_rows for each in commits)


class UnseenChanges(AutomationCondition):
    """Condition that is true if an upstream table of changes has new row-changing versions.

    It reads logs of the lake, so it is evaluated where the code is: by an
    ``AutomationConditionSensorDefinition`` with ``use_user_code_server=True``.

    Example::

        condition = UnseenChanges(io_manager) & ~AutomationCondition.in_progress()

        @asset(ins={...}, automation_condition=condition)
    """

    def __init__(self, io_manager: DeltaIOManager) -> None:
        self._manager = io_manager

    @property
    def name(self) -> str:
        return "unseen_changes"

    @property
    def description(self) -> str:
        return "A table that the asset reads the changes of has versions that it has not seen"

    def evaluate(self, context: AutomationContext) -> AutomationResult:
        graph: Any = context.asset_graph
        asset = graph.get(context.key).assets_def
        new_versions = unseen_changes(asset, self._manager, lambda key: graph.get(key).metadata)
        subset = context.candidate_subset if new_versions else context.get_empty_subset()
        return AutomationResult(context, true_subset=subset)


def changes_sensor(
    name: str,
    assets: Sequence[AssetsDefinition],
    *,
    io_manager_key: str = "io_manager",
    minimum_interval_seconds: int | None = None,
    default_status: DefaultSensorStatus = DefaultSensorStatus.STOPPED,
) -> SensorDefinition:
    """Return a sensor that requests a run when an upstream table has new row-changing versions.

    It requests one run per new version, however often it looks.

    Args:
        name: The name of the sensor.
        assets: The incremental assets.
        io_manager_key: The key of their DeltaIOManager.
        minimum_interval_seconds: Least time between two looks.
        default_status: Status of the sensor when it is deployed.

    Example::

        sensor = changes_sensor("late_corrections", [fact, mart])
    """
    keys = [asset.key for asset in assets]

    def evaluate(context: SensorEvaluationContext) -> Iterator[RunRequest | SkipReason]:
        manager = getattr(context.resources, io_manager_key)
        graph: Any = context.repository_def.asset_graph if context.repository_def is not None else None
        known = {each.key: each.metadata_by_key[each.key] for each in assets}

        def metadata_of(key: AssetKey) -> Mapping[str, Any]:
            return graph.get(key).metadata if graph is not None and graph.has(key) else known.get(key, {})

        requested = False
        for asset in assets:
            new_versions = unseen_changes(asset, manager, metadata_of)
            if new_versions:
                requested = True
                versions = ",".join(
                    f"{table}@{each.table_id}:{each.to_version}" for table, each in sorted(new_versions.items())
                )
                yield RunRequest(run_key=f"{asset.key.to_user_string()}:{versions}", asset_selection=[asset.key])
        if not requested:
            yield SkipReason("No table has changes that its consumers have not seen.")

    return SensorDefinition(
        name=name,
        evaluation_fn=evaluate,
        asset_selection=keys,
        required_resource_keys={io_manager_key},
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        description="Runs incremental assets where their upstreams have changes that they have not seen.",
    )
