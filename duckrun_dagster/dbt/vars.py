"""The partitions of a run as dbt variables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import Any

from dagster import AssetExecutionContext, MultiPartitionKey, MultiPartitionsDefinition, TimeWindowPartitionsDefinition

_WALL, _INSTANT = "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S+00:00"


def partition_vars(context: AssetExecutionContext) -> dict[str, Any]:
    """Return the partitions of a run as variables for dbt's ``--vars``; empty without partitions.

    ``partition_keys`` is the list of the keys. Time partitions have ``partition_start`` and
    ``partition_end`` (exclusive), by the clock of their time zone. Both exist again with ``_utc``,
    as instants. Each of several dimensions has a list ``partition_<dimension>``.

    Example::

        variables = json.dumps(partition_vars(context))
        yield from dbt.cli(["build", "--vars", variables], context=context).stream()
    """
    if not (context.has_partition_key or context.has_partition_key_range):
        return {}
    keys: Sequence[str] = sorted(context.partition_keys)
    values: dict[str, Any] = {"partition_keys": [str(key) for key in keys]}
    definition = context.assets_def.partitions_def
    if isinstance(definition, TimeWindowPartitionsDefinition):
        window = context.partition_time_window
        for name, moment in (("start", window.start), ("end", window.end)):
            values[f"partition_{name}"] = moment.strftime(_WALL)
            values[f"partition_{name}_utc"] = moment.astimezone(UTC).strftime(_INSTANT)
    if isinstance(definition, MultiPartitionsDefinition):
        whole = [k if isinstance(k, MultiPartitionKey) else definition.get_partition_key_from_str(k) for k in keys]
        for name in definition.partition_dimension_names:
            values[f"partition_{name}"] = sorted({key.keys_by_dimension[name] for key in whole})
    return values
