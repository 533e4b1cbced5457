"""DuckDB's extensions out of their wheels: nothing is downloaded."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

import duckdb

from duckrun.errors import StorageError

UNSIGNED = "allow_unsigned_extensions"
"""DuckDB reads a whole extension, 80 MB for Delta, to check its signature: a quarter of a second for each instance. The files of
the wheels are as trusted as the wheels' Python is, so an instance starts with this setting, and loses it once they are loaded;
DuckDB lets nobody set it again.
"""


def extension_path(name: str) -> Path:
    """The file of a DuckDB extension in its wheel, of exactly this DuckDB's version. Raises StorageError."""
    try:
        spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    except ImportError:  # what an importer may say instead of nothing
        spec = None
    version, wheel = f"v{duckdb.__version__}", f"duckdb-extension-{name.replace('_', '-')}"
    if spec is None or spec.origin is None:
        raise StorageError(f"DuckDB's extension {name} is not installed: pip install {wheel}=={duckdb.__version__}")
    path = Path(spec.origin).parent / "extensions" / version / f"{name}.duckdb_extension"
    if not path.is_file():
        raise StorageError(f"The wheel {wheel} is not of {version}: install {wheel}=={duckdb.__version__}")
    return path


def keep_forever(connection: duckdb.DuckDBPyConnection) -> None:
    """Never free a connection. Of an instance that an assertion of its own has ended, freeing one ends the process where a DuckLake is attached
    (duckdb 1.5.5: a destructor raises).
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
