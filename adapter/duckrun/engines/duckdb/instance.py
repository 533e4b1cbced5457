"""A DuckDB instance: its settings, its extensions out of wheels, and the secrets of what it reads."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import duckdb

from duckrun.errors import StorageError
from duckrun.lake.lake import Lake
from duckrun.run.memory import threads_within
from duckrun.sql.names import quote_literal
from duckrun.storage.storage import Storage

UNSIGNED = "allow_unsigned_extensions"
"""DuckDB reads a whole extension, 80 MB for Delta, to check its signature: a quarter of a second for each instance. The files of
the wheels are as trusted as the wheels' Python is, so an instance starts with this setting, and loses it once they are loaded;
DuckDB lets nobody set it again.
"""


def extension_path(name: str) -> Path:
    """The file of a DuckDB extension in its wheel, of exactly this DuckDB's version. Raises StorageError."""
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    version = f"v{duckdb.__version__}"
    if spec is None or spec.origin is None:
        raise StorageError(
            f"DuckDB's extension {name} is not installed: pip install duckdb-extension-{name}=={duckdb.__version__}"
        )
    path = Path(spec.origin).parent / "extensions" / version / f"{name}.duckdb_extension"
    if not path.is_file():
        raise StorageError(
            f"The wheel duckdb-extension-{name} is not of {version}: install duckdb-extension-{name}=={duckdb.__version__}"
        )
    return path


def load_extensions(
    connection: duckdb.DuckDBPyConnection, storages: Sequence[Storage] = (), *, narrow: bool = False
) -> None:
    """Load what reading these storages needs from wheels, and set their secrets, for the root alone with ``narrow``.
    Nothing is downloaded.
    """
    needed = ["delta"]
    kinds = {storage.kind for storage in storages}
    needed += ["httpfs"] if kinds & {"s3", "gcs"} else []
    needed += ["azure"] if "azure" in kinds else []
    for name in needed:
        connection.execute(f"LOAD {quote_literal(extension_path(name).as_posix())}")
    for storage in storages:
        for statement in storage.duckdb_secrets(narrow=narrow):
            connection.execute(statement)


def instance_config(limit: int, scratch: str) -> dict[str, str]:
    """Settings of a DuckDB instance of ours: its memory in bytes, the threads that this is enough for, and the folder that
    it spills to.

    A Delta table has no order of rows, and keeping that of the input costs memory; ORDER BY holds all the same.
    """
    return {
        "memory_limit": f"{limit}B",
        "threads": str(threads_within(limit)),
        "temp_directory": scratch,
        "preserve_insertion_order": "false",
        "autoinstall_known_extensions": "false",
    }


def open_connection(lake: Lake, limit: int, scratch: str) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB with the extensions and the secrets that a lake needs."""
    connection = duckdb.connect(":memory:", config={**instance_config(limit, scratch), UNSIGNED: "true"})
    connection.execute("SET GLOBAL TimeZone = 'UTC'")  # without GLOBAL its cursors keep the machine's zone
    load_extensions(connection, [lake.storage])
    connection.execute(f"SET GLOBAL {UNSIGNED} = false")
    return connection


def has_ended(connection: duckdb.DuckDBPyConnection) -> bool:
    """True for an instance that DuckDB refuses every statement of, since an assertion of its own failed."""
    try:
        connection.cursor().execute("SELECT 1")
    except duckdb.FatalException:
        return True
    return False
