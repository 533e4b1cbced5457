"""PySpark DataFrames, classic or Connect: read and written by Spark's workers, never collected."""

from __future__ import annotations

from typing import Any

from duckrun.frame import Frame
from duckrun_dagster.compat import is_spark_frame_type
from duckrun_dagster.io_managers.handler import TypeHandler


class PySparkHandler(TypeHandler[Any]):
    """Spark's DataFrame is known by its name, so that no definition imports PySpark."""

    engine = "spark"

    def handles(self, declared: Any) -> bool:
        return is_spark_frame_type(declared)

    def to_source(self, value: Any) -> Any:
        return value

    def from_scan(self, frame: Frame, as_type: type) -> Any:
        return frame.native
