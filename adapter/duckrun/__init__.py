"""A lakehouse of plain Delta tables, read and written by DuckDB with delta_rs or by Spark.

Every public name is here, but for Spark's own (``duckrun.spark``) and the command line (``duckrun.cli``); each is imported
when it is first used, so that the command line answers at once. Example::

    import duckrun

    with duckrun.connect("lake/") as s:
        s.sql("create table sales.orders as select 1 as id")
        s.table("sales.orders").toDF().show()
"""

from importlib.metadata import distributions as _distributions
from typing import TYPE_CHECKING

from duckrun import former as _former
from duckrun.lazy import names_from as _names_from

if any((d.metadata["Name"] or "").lower() == "duckrun" for d in _distributions(name="duckrun")):
    raise ImportError(
        "The distribution 'duckrun' is installed too and owns the same import names: pip uninstall duckrun, then reinstall duckrun-dagster."
    )

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
    from duckrun.values.rows import (
        AppTransaction,
        Commit,
        DeleteInsertSpec,
        DeleteSpec,
        MemoryShares,
        MergeClause,
        MergeSpec,
        ReadSpec,
        ScanFile,
        StagedFile,
        TableConstraints,
        UpdateSpec,
        WriteSpec,
    )
    from duckrun.values.snapshot import Scan, Snapshot, TableRef
    from duckrun.values.tables import (
        AddCheck,
        AddColumn,
        AlterSpec,
        ChangeType,
        CheckpointSpec,
        CleanupLogSpec,
        ClusterBy,
        ColumnSpec,
        ConvertSpec,
        CreateSpec,
        DropCheck,
        DropColumn,
        DropNotNull,
        MaintenanceResult,
        OptimizeSpec,
        RenameColumn,
        RestoreSpec,
        SetComment,
        SetNotNull,
        SetProperties,
        UnsetProperties,
        VacuumSpec,
    )
else:
    __getattr__ = _names_from(
        __name__,
        {
            "duckrun.engines.duckdb.source": ("SQL",),
            "duckrun.errors": (
                "CommitConflict",
                "DuckrunError",
                "DuplicateSourceKeys",
                "InvalidConfig",
                "ReadOnlyLake",
                "RowsOutsidePartition",
                "SchemaMismatch",
                "SourceOutdated",
                "StorageError",
                "TableNotFound",
                "UnsupportedFeature",
                "VersionNotReadable",
            ),
            "duckrun.frame": ("Frame",),
            "duckrun.lake.lake": ("Lake",),
            "duckrun.session": ("Session", "connect"),
            "duckrun.statements.values": ("Done",),
            "duckrun.table": ("DeltaTable", "Table"),
            "duckrun.values.rows": (
                "AppTransaction",
                "Commit",
                "DeleteInsertSpec",
                "DeleteSpec",
                "MemoryShares",
                "MergeClause",
                "MergeSpec",
                "ReadSpec",
                "ScanFile",
                "StagedFile",
                "TableConstraints",
                "UpdateSpec",
                "WriteSpec",
            ),
            "duckrun.values.snapshot": ("Scan", "Snapshot", "TableRef"),
            "duckrun.values.tables": (
                "AddCheck",
                "AddColumn",
                "AlterSpec",
                "ChangeType",
                "CheckpointSpec",
                "CleanupLogSpec",
                "ClusterBy",
                "ColumnSpec",
                "ConvertSpec",
                "CreateSpec",
                "DropCheck",
                "DropColumn",
                "DropNotNull",
                "MaintenanceResult",
                "OptimizeSpec",
                "RenameColumn",
                "RestoreSpec",
                "SetComment",
                "SetNotNull",
                "SetProperties",
                "UnsetProperties",
                "VacuumSpec",
            ),
        },
    )

__all__ = [
    "AddCheck",
    "AddColumn",
    "AlterSpec",
    "AppTransaction",
    "ChangeType",
    "CheckpointSpec",
    "CleanupLogSpec",
    "ClusterBy",
    "ColumnSpec",
    "Commit",
    "CommitConflict",
    "ConvertSpec",
    "CreateSpec",
    "DeleteInsertSpec",
    "DeleteSpec",
    "DeltaTable",
    "Done",
    "DropCheck",
    "DropColumn",
    "DropNotNull",
    "DuckrunError",
    "DuplicateSourceKeys",
    "Frame",
    "InvalidConfig",
    "Lake",
    "MaintenanceResult",
    "MemoryShares",
    "MergeClause",
    "MergeSpec",
    "OptimizeSpec",
    "ReadOnlyLake",
    "ReadSpec",
    "RenameColumn",
    "RestoreSpec",
    "RowsOutsidePartition",
    "SQL",
    "Scan",
    "ScanFile",
    "SchemaMismatch",
    "Session",
    "SetComment",
    "SetNotNull",
    "SetProperties",
    "Snapshot",
    "SourceOutdated",
    "StagedFile",
    "StorageError",
    "Table",
    "TableConstraints",
    "TableNotFound",
    "TableRef",
    "UnsetProperties",
    "UnsupportedFeature",
    "UpdateSpec",
    "VacuumSpec",
    "VersionNotReadable",
    "WriteSpec",
    "connect",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_former.install()
