from .change_set import ChangeSet as ChangeSet
from .engines.duckdb.rows.source import SQL as SQL
from .errors import (
    CommitConflict as CommitConflict,
    CommitUnknown as CommitUnknown,
    DuckrunError as DuckrunError,
    DuplicateSourceKeys as DuplicateSourceKeys,
    InvalidConfig as InvalidConfig,
    ReadOnlyLake as ReadOnlyLake,
    RowsOutsidePartition as RowsOutsidePartition,
    SchemaMismatch as SchemaMismatch,
    SourceOutdated as SourceOutdated,
    StorageError as StorageError,
    TableNotFound as TableNotFound,
    UnsupportedFeature as UnsupportedFeature,
    VersionNotReadable as VersionNotReadable,
)
from .frame import Frame as Frame
from .lake.lake import Lake as Lake
from .session import Session as Session, connect as connect
from .statements.values import Done as Done
from .table import DeltaTable as DeltaTable, Table as Table
from .values.applying import ApplySpec as ApplySpec
from .values.branches import (
    BranchDiff as BranchDiff,
    BranchInfo as BranchInfo,
    BranchList as BranchList,
    Published as Published,
    TableDiff as TableDiff,
)
from .values.moved import Moved as Moved
from .values.rows import (
    AppTransaction as AppTransaction,
    Commit as Commit,
    DeleteInsertSpec as DeleteInsertSpec,
    DeleteSpec as DeleteSpec,
    MemoryShares as MemoryShares,
    MergeClause as MergeClause,
    MergeSpec as MergeSpec,
    ReadSpec as ReadSpec,
    ScanFile as ScanFile,
    StagedFile as StagedFile,
    TableConstraints as TableConstraints,
    UpdateSpec as UpdateSpec,
    WriteSpec as WriteSpec,
)
from .values.snapshot import Scan as Scan, Snapshot as Snapshot, TableRef as TableRef
from .values.tables import (
    AddCheck as AddCheck,
    AddColumn as AddColumn,
    AlterSpec as AlterSpec,
    ChangeType as ChangeType,
    CheckpointSpec as CheckpointSpec,
    CleanupLogSpec as CleanupLogSpec,
    ClusterBy as ClusterBy,
    ColumnSpec as ColumnSpec,
    ConvertSpec as ConvertSpec,
    CreateSpec as CreateSpec,
    DropCheck as DropCheck,
    DropColumn as DropColumn,
    DropNotNull as DropNotNull,
    Identity as Identity,
    IdentityGenerator as IdentityGenerator,
    InStruct as InStruct,
    MaintenanceResult as MaintenanceResult,
    OptimizeSpec as OptimizeSpec,
    PartitionBy as PartitionBy,
    PurgeSpec as PurgeSpec,
    RenameColumn as RenameColumn,
    RestoreSpec as RestoreSpec,
    SetComment as SetComment,
    SetDefault as SetDefault,
    SetNotNull as SetNotNull,
    SetProperties as SetProperties,
    UnsetProperties as UnsetProperties,
    VacuumSpec as VacuumSpec,
)
from .values.upkeep import (
    CleanupSpec as CleanupSpec,
    ExpireSpec as ExpireSpec,
    FlushSpec as FlushSpec,
    LakeCheckpointSpec as LakeCheckpointSpec,
    MergeFilesSpec as MergeFilesSpec,
    OrphansSpec as OrphansSpec,
    RestoreLakeSpec as RestoreLakeSpec,
    RewriteSpec as RewriteSpec,
)
