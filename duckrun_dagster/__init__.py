"""Dagster on a lake of Delta tables: resources, an IO manager for many types and two engines, dbt models as assets."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from duckrun_dagster.definitions import check_definitions
from duckrun_dagster.io_managers import DeltaIOManager, TypeHandler
from duckrun_dagster.resources import DuckrunResource, SparkResource

if TYPE_CHECKING:
    from duckrun_dagster.dbt import DuckrunDbtCliResource, DuckrunDbtTranslator

__all__ = [
    "DeltaIOManager",
    "DuckrunDbtCliResource",
    "DuckrunDbtTranslator",
    "DuckrunResource",
    "SparkResource",
    "TypeHandler",
    "check_definitions",
]

# Importing dbt takes longer than all the rest, and each step process of a run imports this package.
_OF_DBT = ("DuckrunDbtCliResource", "DuckrunDbtTranslator")


def __getattr__(name: str) -> Any:
    if name in _OF_DBT:
        return getattr(import_module("duckrun_dagster.dbt"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
