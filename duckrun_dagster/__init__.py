"""Dagster on a lake of Delta tables: resources, an IO manager for many types and two engines, dbt models as assets."""

from duckrun_dagster.dbt import DuckrunDbtCliResource, DuckrunDbtTranslator
from duckrun_dagster.definitions import check_definitions
from duckrun_dagster.io_managers import DeltaIOManager, TypeHandler
from duckrun_dagster.resources import DuckrunResource, SparkResource

__all__ = [
    "DeltaIOManager",
    "DuckrunDbtCliResource",
    "DuckrunDbtTranslator",
    "DuckrunResource",
    "SparkResource",
    "TypeHandler",
    "check_definitions",
]
