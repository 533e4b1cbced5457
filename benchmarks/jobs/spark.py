"""How plain Spark names files and tables."""

from __future__ import annotations

from pathlib import Path


def rows(file: str) -> str:
    """Spark SQL for the rows of a Parquet file."""
    return f"parquet.`{file}`"


def table(folder: Path) -> str:
    """Spark SQL for a Delta table."""
    return f"delta.`{folder.as_posix()}`"
