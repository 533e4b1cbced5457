"""Resources of a code location: the lake, and Spark."""

from duckrun_dagster.resources.duckrun_resource import DuckrunResource
from duckrun_dagster.resources.spark_resource import SparkResource

__all__ = ["DuckrunResource", "SparkResource"]
