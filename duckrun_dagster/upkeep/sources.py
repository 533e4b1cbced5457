"""Tables that other programs write, as observable source assets: Dagster observes their log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dagster import (
    AssetKey,
    DagsterInstance,
    DataVersion,
    DataVersionsByPartition,
    ObserveResult,
    OpExecutionContext,
    PartitionsDefinition,
    SourceAsset,
    observable_source_asset,
)

from duckrun.values.lake_format import DUCKLAKE
from duckrun_dagster import metadata as meta
from duckrun_dagster.config import parse_table
from duckrun_dagster.data_version import LogBackwards, data_version
from duckrun_dagster.partitions.partitions import PartitionSlice
from duckrun_dagster.private import extract_data_version_from_entry
from duckrun_dagster.resources import DuckrunResource
from duckrun_dagster.resources.duckrun_resource import StoredTable


def observable_table(
    key: str | Sequence[str],
    *,
    partitions_def: PartitionsDefinition | None = None,
    metadata: dict[str, Any] | None = None,
    resource_key: str = "duckrun",
    **arguments: Any,
) -> SourceAsset:
    """Return a source asset of a table that no asset of yours writes.

    Its observation shows the rows, the columns and the version. Its data version is that of the
    last commit that changed rows, per partition if the table has partitions.

    Args:
        key: The key; it names the table as the key of an asset does.
        partitions_def: The partitions of the table.
        metadata: ``schema``, ``table``, ``location``, ``lake``, ``format`` and ``partition_expr``,
            as in the metadata of an asset.
        resource_key: The key of the DuckrunResource of its lake.
        **arguments: Further arguments of ``observable_source_asset``.

    Example::

        hourly = AutomationCondition.on_cron("@hourly")
        orders = observable_table(["sales", "orders"], automation_condition=hourly)
    """
    asset_key = AssetKey(key)
    kind = "ducklake" if (metadata or {}).get("format") == DUCKLAKE else "deltalake"
    described = {**(metadata or {}), "dagster/storage_kind": kind}

    @observable_source_asset(
        key=asset_key,
        partitions_def=partitions_def,
        metadata=described,
        required_resource_keys={resource_key},
        **{"kinds": {kind}, **arguments},
    )
    def observe(context: OpExecutionContext) -> Any:
        resource: DuckrunResource = getattr(context.resources, resource_key)
        stored = resource.stored(parse_table(asset_key, described, default_schema=resource.default_schema))
        return observed(stored, asset_key, context.instance, partitions_def)

    assert isinstance(observe, SourceAsset)
    return observe


def observed(
    table: StoredTable, asset_key: AssetKey, instance: DagsterInstance, partitions_def: PartitionsDefinition | None
) -> ObserveResult | DataVersionsByPartition:
    """Return the observation of a table from its log.

    Raises:
        TableNotFound: The table does not exist; the text suggests the nearest names.
    """
    lake = table.lake
    snapshot = lake.snapshot(table.ref)
    if partitions_def is None:
        known = _last(instance, asset_key, None)
        return ObserveResult(
            data_version=DataVersion(data_version(lake, snapshot, known=known)),
            metadata={**meta.table_metadata(lake, snapshot), "version": snapshot.version},
        )
    column, log = table.config.partition_column(), LogBackwards(lake, snapshot)
    return DataVersionsByPartition(
        {
            key: data_version(
                lake,
                snapshot,
                partition=PartitionSlice(partitions_def, (key,)),
                column=column,
                log=log,
                known=_last(instance, asset_key, key),
            )
            for key in partitions_def.get_partition_keys(dynamic_partitions_store=instance)
        }
    )


def _last(instance: DagsterInstance, asset_key: AssetKey, partition: str | None) -> str | None:
    """Return the data version of the last observation."""
    record = instance.get_latest_data_version_record(asset_key, is_source=True, partition_key=partition)
    version = extract_data_version_from_entry(record.event_log_entry) if record is not None else None
    return version.value if version is not None else None
