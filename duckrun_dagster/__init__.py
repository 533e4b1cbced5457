"""Dagster on a lake of Delta or DuckLake tables.

Resources, an IO manager for many types and two engines, and dbt models as assets.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from duckrun_dagster.components import DuckrunLakeComponent, MaintainedTablesComponent
from duckrun_dagster.definitions import check_definitions
from duckrun_dagster.io_managers import DeltaIOManager, TypeHandler
from duckrun_dagster.io_managers.together import publish_together
from duckrun_dagster.resources import DuckrunResource, SparkResource
from duckrun_dagster.resources.lake_config import LakeConfig
from duckrun_dagster.upkeep.checks import table_checks
from duckrun_dagster.upkeep.lakes import lake_maintenance
from duckrun_dagster.upkeep.maintenance import MaintainedTable, maintenance
from duckrun_dagster.upkeep.sources import observable_table
from duckrun_dagster.upkeep.unseen import UnseenChanges, changes_sensor

if TYPE_CHECKING:
    from duckrun_dagster.components.dbt_project import DuckrunDbtProjectComponent
    from duckrun_dagster.dbt.translator import DuckrunDbtCliResource, DuckrunDbtTranslator, partition_vars

__all__ = [
    "DeltaIOManager",
    "DuckrunDbtCliResource",
    "DuckrunDbtProjectComponent",
    "DuckrunDbtTranslator",
    "DuckrunLakeComponent",
    "DuckrunResource",
    "LakeConfig",
    "MaintainedTablesComponent",
    "MaintainedTable",
    "SparkResource",
    "TypeHandler",
    "UnseenChanges",
    "changes_sensor",
    "check_definitions",
    "lake_maintenance",
    "maintenance",
    "observable_table",
    "partition_vars",
    "publish_together",
    "table_checks",
]

# Importing dbt takes longer than all the rest, and each step process of a run imports this package.
_OF_DBT = {
    "DuckrunDbtCliResource": "duckrun_dagster.dbt.translator",
    "DuckrunDbtProjectComponent": "duckrun_dagster.components.dbt_project",
    "DuckrunDbtTranslator": "duckrun_dagster.dbt.translator",
    "partition_vars": "duckrun_dagster.dbt.translator",
}


def __getattr__(name: str) -> Any:
    if name in _OF_DBT:
        return getattr(import_module(_OF_DBT[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_OF_DBT})
