"""A lakehouse of plain Delta tables, read and written by DuckDB with delta_rs or by Spark."""

from importlib import import_module as _import_module
from importlib.metadata import distributions as _distributions
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckrun.engines.duckdb.source import SQL
    from duckrun.errors import (
        CommitConflict,
        DuckrunError,
        DuplicateSourceKeys,
        InvalidConfig,
        ReadOnlyLake,
        RowsOutsidePartition,
        SchemaMismatch,
        SourceOutdated,
        StorageError,
        TableNotFound,
        UnsupportedFeature,
        VersionNotReadable,
    )
    from duckrun.frame import Frame
    from duckrun.lake.lake import Lake
    from duckrun.session import Session, connect
    from duckrun.statements.values import Done
    from duckrun.table import DeltaTable, Table
    from duckrun.values.rows import AppTransaction, Commit, MergeClause, MergeSpec, ReadSpec, WriteSpec
    from duckrun.values.tables import MaintenanceResult

if any((d.metadata["Name"] or "").lower() == "duckrun" for d in _distributions(name="duckrun")):
    raise ImportError(
        "The distribution 'duckrun' is installed too and owns the same import names: pip uninstall duckrun, then reinstall duckrun-dagster."
    )

__all__ = [
    "SQL",
    "AppTransaction",
    "Commit",
    "CommitConflict",
    "DeltaTable",
    "Done",
    "DuckrunError",
    "DuplicateSourceKeys",
    "Frame",
    "InvalidConfig",
    "Lake",
    "MaintenanceResult",
    "MergeClause",
    "MergeSpec",
    "ReadOnlyLake",
    "ReadSpec",
    "RowsOutsidePartition",
    "SchemaMismatch",
    "Session",
    "SourceOutdated",
    "StorageError",
    "Table",
    "TableNotFound",
    "UnsupportedFeature",
    "VersionNotReadable",
    "WriteSpec",
    "connect",
]

_HOMES = {
    "DeltaTable": "table",
    "Done": "statements.values",
    "Frame": "frame",
    "Lake": "lake.lake",
    "MaintenanceResult": "values.tables",
    "SQL": "engines.duckdb.source",
    "Session": "session",
    "Table": "table",
    "connect": "session",
    **dict.fromkeys(("AppTransaction", "Commit", "MergeClause", "MergeSpec", "ReadSpec", "WriteSpec"), "values.rows"),
}


def __getattr__(name: str) -> Any:
    """Names are imported when they are used, so that the command line answers at once."""
    if name not in __all__:
        raise AttributeError(f"module 'duckrun' has no attribute {name!r}")
    value = getattr(_import_module(f"duckrun.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
