"""Column lineage of a dbt model, from its compiled SQL and its parents' columns in the lake."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from dagster_dbt import DbtCliInvocation

from duckrun_dagster.dbt.private import EventHistoryMetadata, build_column_lineage_metadata

log = logging.getLogger(__name__)


def column_lineage(
    invocation: DbtCliInvocation,
    props: Mapping[str, Any],
    columns: list[str],
    columns_of: Callable[[Mapping[str, Any]], list[str]],
) -> dict[str, Any]:
    """Return ``dagster/column_lineage`` of a model.

    Args:
        invocation: The dbt command.
        props: The model's part of the manifest.
        columns: The model's columns.
        columns_of: Returns the columns of a parent (its part of the manifest) from the table's log.

    Returns:
        The metadata; empty for a Python model or a seed, or if the SQL cannot be followed.
    """
    # dagster-dbt's own lineage knows only some adapters by name, and lists columns over a second
    # connection.
    if props.get("resource_type") != "model" or props.get("language", "sql") != "sql":
        return {}
    manifest = invocation.manifest
    known_nodes = {**manifest["nodes"], **manifest["sources"]}
    parents = [known_nodes.get(unique_id) for unique_id in props.get("depends_on", {}).get("nodes", [])]
    dialect = props.get("config", {}).get("dialect") or "duckdb"
    known = EventHistoryMetadata(
        columns=_typed(columns),
        parents={
            p["relation_name"]: _typed(columns_of(p)) for p in parents if p is not None and p.get("relation_name")
        },
    )
    # sqlglot has no dialect of our adapter's name.
    with_dialect = {**manifest, "metadata": {**manifest["metadata"], "adapter_type": dialect}}
    try:
        return build_column_lineage_metadata(
            event_history_metadata=known,
            dbt_resource_props=dict(props),
            manifest=with_dialect,
            dagster_dbt_translator=invocation.dagster_dbt_translator,
            target_path=invocation.target_path,
            project=invocation.project,
        )
    except Exception as error:  # the model is written already, so a failure of sqlglot must not fail its step
        log.warning("No column lineage of %s: %s", props.get("unique_id"), error)
        return {}


def _typed(columns: list[str]) -> dict[str, dict[str, Any]]:
    """Return the columns with a type each, which sqlglot requires; lineage uses the names only."""
    return {column: {"data_type": "VARCHAR"} for column in columns}
