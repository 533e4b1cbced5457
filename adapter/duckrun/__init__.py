"""A lakehouse of plain Delta tables, read and written by DuckDB with delta_rs or by Spark."""

from importlib import import_module as _import_module
from importlib.metadata import distributions as _distributions
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckrun.delta_table import DeltaTable, Table
    from duckrun.engines.duckdb_source import SQL
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
    from duckrun.lake import Lake
    from duckrun.session import Session, connect
    from duckrun.specs import AppTransaction, Commit, MergeClause, MergeSpec, ReadSpec, WriteSpec
    from duckrun.statements.values import Done
    from duckrun.table_specs import MaintenanceResult

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
    "DeltaTable": "delta_table",
    "Done": "statements.values",
    "Frame": "frame",
    "Lake": "lake",
    "MaintenanceResult": "table_specs",
    "SQL": "engines.duckdb_source",
    "Session": "session",
    "Table": "delta_table",
    "connect": "session",
    **dict.fromkeys(("AppTransaction", "Commit", "MergeClause", "MergeSpec", "ReadSpec", "WriteSpec"), "specs"),
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
