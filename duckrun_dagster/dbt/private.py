"""Names of dagster-dbt outside of its public interface; ruff's TID251 refuses them elsewhere."""

from __future__ import annotations

from dagster_dbt.asset_utils import (
    DAGSTER_DBT_TRANSLATOR_METADATA_KEY,
    group_from_dbt_resource_props_fallback_to_directory,
)
from dagster_dbt.components.dbt_project.scaffolder import DbtProjectComponentScaffolder
from dagster_dbt.core.dbt_cli_event import (
    EventHistoryMetadata,
    _build_column_lineage_metadata as build_column_lineage_metadata,
)
from dagster_dbt.core.dbt_event_iterator import DbtEventIterator
from dagster_dbt.utils import ASSET_RESOURCE_TYPES
