"""A lakehouse of plain Delta tables, read and written by DuckDB with delta_rs or by Spark."""

from importlib.metadata import distributions as _distributions

from duckrun.delta_table import Table
from duckrun.engines.duckdb_source import SQL
from duckrun.errors import (
    CommitConflict,
    DuckrunError,
    DuplicateSourceKeys,
    InvalidConfig,
    ReadOnlyLake,
    RowsOutsidePartition,
    SchemaMismatch,
    StorageError,
    TableNotFound,
    UnsupportedFeature,
    VersionNotReadable,
)
from duckrun.frame import Frame
from duckrun.lake import Lake
from duckrun.session import Session, connect
from duckrun.specs import AppTransaction, Commit, MergeClause, MergeSpec, ReadSpec, WriteSpec

if any((d.metadata["Name"] or "").lower() == "duckrun" for d in _distributions(name="duckrun")):
    raise ImportError(
        "The distribution 'duckrun' is installed too and owns the same import names: pip uninstall duckrun, then reinstall duckrun-dagster."
    )

DeltaTable = Table

__all__ = [
    "SQL",
    "AppTransaction",
    "Commit",
    "CommitConflict",
    "DeltaTable",
    "DuckrunError",
    "DuplicateSourceKeys",
    "Frame",
    "InvalidConfig",
    "Lake",
    "MergeClause",
    "MergeSpec",
    "ReadOnlyLake",
    "ReadSpec",
    "RowsOutsidePartition",
    "SchemaMismatch",
    "Session",
    "StorageError",
    "Table",
    "TableNotFound",
    "UnsupportedFeature",
    "VersionNotReadable",
    "WriteSpec",
    "connect",
]
