"""Column lineage of a dbt model: from the SQL that dbt compiled, and the columns that its parents have in the lake."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from dagster_dbt import DbtCliInvocation
from dagster_dbt.core.dbt_cli_event import EventHistoryMetadata, _build_column_lineage_metadata

log = logging.getLogger(__name__)


def column_lineage(
    invocation: DbtCliInvocation,
    props: Mapping[str, Any],
    columns: list[str],
    columns_of: Callable[[Mapping[str, Any]], list[str]],
) -> dict[str, Any]:
    """``dagster/column_lineage`` of a model; empty where the SQL says none (a Python model, a seed) or cannot be followed.

    dagster-dbt draws it from the columns that dbt's adapter lists over a second connection, for adapters that it knows by
    name. Here ``columns_of`` gives the columns of a parent (its part of the manifest) from the table's own log.
    """
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
        return _build_column_lineage_metadata(
            event_history_metadata=known,
            dbt_resource_props=dict(props),
            manifest=with_dialect,
            dagster_dbt_translator=invocation.dagster_dbt_translator,
            target_path=invocation.target_path,
            project=invocation.project,
        )
    except Exception as error:  # the model is written: SQL that sqlglot does not follow may not fail its step
        log.warning("No column lineage of %s: %s", props.get("unique_id"), error)
        return {}


def _typed(columns: list[str]) -> dict[str, dict[str, Any]]:
    """Lineage needs names only; sqlglot wants a type with each."""
    return {column: {"data_type": "VARCHAR"} for column in columns}
