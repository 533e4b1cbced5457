"""Plain Spark with Delta, on both cores; it is started, and has run a query, before the clock starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def session() -> Any:
    from duckrun.spark import spark_session

    spark = spark_session(master="local[2]", conf={"spark.driver.memory": "6g"})
    spark.range(10).count()
    return spark


def rows(file: str) -> str:
    """Spark SQL for the rows of a Parquet file."""
    return f"parquet.`{file}`"


def table(folder: Path) -> str:
    """Spark SQL for a Delta table."""
    return f"delta.`{folder.as_posix()}`"
