"""DuckDB extensions, loaded from their Python wheels: nothing is downloaded."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from duckrun.errors import StorageError
from duckrun.sql.quoting import quote_literal

if TYPE_CHECKING:
    from duckrun.storage.storage import Storage

UNSIGNED = "allow_unsigned_extensions"
"""Setting that skips signature checks; an instance starts with it and loses it after loading.

DuckDB reads a whole extension (80 MB for Delta) to check its signature: a quarter of a second per
instance. The wheels' files are as trusted as their Python code. DuckDB does not allow turning the
setting on again.
"""


_EXTRAS = {"ducklake": "ducklake", "sqlite_scanner": "ducklake", "postgres_scanner": "ducklake-postgres"}
"""Extra of this package that installs an extension; the other extensions are dependencies."""


def extension_path(name: str) -> Path:
    """Return the file of an extension in its wheel, for exactly this DuckDB version.

    Raises:
        StorageError: The wheel is not installed, or is for another version.
    """
    try:
        spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    except ImportError:  # what an importer may say instead of nothing
        spec = None
    version, wheel = f"v{duckdb.__version__}", f"duckdb-extension-{name.replace('_', '-')}"
    if spec is None or spec.origin is None:
        package = f'"duckrun-dagster[{_EXTRAS[name]}]"' if name in _EXTRAS else f"{wheel}=={duckdb.__version__}"
        raise StorageError(f"DuckDB's extension {name} is not installed. Install it with: pip install {package}")
    path = Path(spec.origin).parent / "extensions" / version / f"{name}.duckdb_extension"
    if not path.is_file():
        raise StorageError(f"The wheel {wheel} is not of {version}: install {wheel}=={duckdb.__version__}")
    return path


def load(
    connection: duckdb.DuckDBPyConnection, names: Iterable[str], storages: Sequence[Storage], *, narrow: bool
) -> None:
    """Load extensions, and those of some storages, from wheels, and set the storages' secrets.

    Nothing is downloaded. With ``narrow``, a secret applies to the storage's root only.
    """
    of_kinds = {"s3": "httpfs", "gcs": "httpfs", "azure": "azure"}
    of_storages = (of_kinds[storage.kind] for storage in storages if storage.kind in of_kinds)
    for name in dict.fromkeys((*names, *of_storages)):
        connection.execute(f"LOAD {quote_literal(extension_path(name).as_posix())}")
    for storage in storages:
        for statement in storage.duckdb_secrets(narrow=narrow):
            connection.execute(statement)


def keep_forever(connection: duckdb.DuckDBPyConnection) -> None:
    """Never free a connection.

    If a DuckLake is attached and an internal error has ended the instance, freeing one ends the
    process (duckdb 1.5.5: a destructor raises).
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
