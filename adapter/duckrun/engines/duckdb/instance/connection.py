"""A DuckDB instance: settings, extensions from wheels, and secrets of the storage."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from duckrun.lake.lake import Lake
from duckrun.run.memory import threads_within
from duckrun.storage.extensions import UNSIGNED as UNSIGNED, extension_path as extension_path, load


def load_extensions(connection: duckdb.DuckDBPyConnection, lakes: Sequence[Lake] = (), *, narrow: bool = False) -> None:
    """Load the extensions that these lakes need, and set their secrets; see ``load()``."""
    needed = [name for lake in lakes for name in lake.format.extensions] or ["delta"]
    load(connection, needed, [lake.storage for lake in lakes], narrow=narrow)


def instance_config(limit: int, scratch: str) -> dict[str, str]:
    """Settings of our DuckDB instances.

    Args:
        limit: Memory in bytes; it also determines the number of threads.
        scratch: Folder for spilled data.
    """
    # A Delta table has no row order, and to preserve that of the input costs memory. ORDER BY still
    # holds.
    return {
        "memory_limit": f"{limit}B",
        "threads": str(threads_within(limit)),
        "temp_directory": scratch,
        "preserve_insertion_order": "false",
        "autoinstall_known_extensions": "false",
    }


def open_connection(lake: Lake, limit: int, scratch: str) -> duckdb.DuckDBPyConnection:
    """Open an in-memory DuckDB with the extensions and secrets that a lake needs."""
    connection = duckdb.connect(":memory:", config={**instance_config(limit, scratch), UNSIGNED: "true"})
    connection.execute("SET GLOBAL TimeZone = 'UTC'")  # without GLOBAL its cursors keep the machine's zone
    load_extensions(connection, [lake])
    connection.execute(f"SET GLOBAL {UNSIGNED} = false")
    lake.format.lend(connection)
    return connection


def has_ended(connection: duckdb.DuckDBPyConnection) -> bool:
    """True if an internal error has invalidated the instance: it refuses every later statement."""
    try:
        connection.cursor().execute("SELECT 1")
    except duckdb.FatalException:
        return True
    return False
