"""Plain DuckDB, as the jobs' data are made and their results compared: no duckrun in it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


def extension(name: str) -> str:
    """The file of an extension, from its wheel."""
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    assert spec is not None and spec.origin is not None, f"pip install duckdb-extension-{name}"
    return next(Path(spec.origin).parent.rglob(f"{name}.duckdb_extension")).as_posix()


def plain(*extensions: str) -> duckdb.DuckDBPyConnection:
    """A connection of its own, with extensions loaded."""
    import duckdb

    con = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in extensions:
        con.execute(f"LOAD '{extension(name)}'")
    return con


def delta(table: Path) -> str:
    """SQL for the rows of a Delta table."""
    return f"delta_scan('{table.resolve().as_uri()}')"


def delta_at(table: Path) -> str:
    """SQL for the rows that a Delta table has now, whatever is committed later."""
    version = max(int(file.stem) for file in (table / "_delta_log").glob("*.json"))
    return f"delta_scan('{table.resolve().as_uri()}', version => {version})"


def parquet(path: str | Path) -> str:
    """SQL for the rows of Parquet files."""
    return f"read_parquet('{Path(path).as_posix()}')"
