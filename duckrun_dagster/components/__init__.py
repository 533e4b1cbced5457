"""Components for `dg`, in YAML: a lake, maintained tables, and a dbt project on the lake."""

from duckrun_dagster.components.lake import DuckrunLakeComponent, MaintainedTablesComponent

__all__ = ["DuckrunLakeComponent", "MaintainedTablesComponent"]
