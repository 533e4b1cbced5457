"""Components for `dg`, in YAML: a lake, maintained tables, and a dbt project on the lake."""

from duckrun_dagster.components.lake import DuckrunLakeComponent
from duckrun_dagster.components.maintained_tables import MaintainedTablesComponent

__all__ = ["DuckrunLakeComponent", "MaintainedTablesComponent"]
