"""What is asked of a table as a whole: make it, alter it, keep it in order. Frozen values that know no engine.

What is asked of its rows is in rows.py; the result of both is a Commit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from duckrun.errors import InvalidConfig
from duckrun.values.layout import Layout
from duckrun.values.rows import Spec

SORT_BY = "duckrun.sortBy"
"""The table property that holds the columns by which every write sorts, as a JSON list."""
CLUSTERING = "liquid clustering (cluster_by) is Spark's. Run this with engine: spark"


def sort_order(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The columns by which every write sorts. Raises InvalidConfig for a property that is no JSON list."""
    try:
        found = json.loads(properties.get(SORT_BY, "[]"))
        return tuple(str(name) for name in found)
    except (ValueError, TypeError) as error:
        raise InvalidConfig(f"The table property {SORT_BY} is no JSON list of columns: {error}.") from error


@dataclass(frozen=True)
class ColumnSpec:
    """A column of a table to make. ``type`` is SQL in the dialect of the spec that holds it.

    Example::

        s.execute("sales.items", CreateSpec((ColumnSpec("name", "VARCHAR", nullable=False, comment="as it is sold"),)))
    """

    name: str
    type: str
    nullable: bool = True
    comment: str | None = None


@dataclass(frozen=True)
class CreateSpec(Layout, Spec):
    """Make a table with no rows. ``checks`` maps the name of a constraint to its SQL.

    ``if_exists`` is what a table that is there already means: an error, nothing to do, or a table to put this one
    in place of.

    Example::

        s.execute("sales.items", CreateSpec((ColumnSpec("name", "VARCHAR"),), checks={"named": "name <> ''"}))
    """

    columns: tuple[ColumnSpec, ...]
    if_exists: str = "error"  # error | ignore | replace
    checks: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None

    mode = "create"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.columns:
            raise InvalidConfig("A table needs at least one column.")
        if self.if_exists not in ("error", "ignore", "replace"):
            raise InvalidConfig(f"Unknown if_exists {self.if_exists!r}; it is error, ignore or replace.")


@dataclass(frozen=True)
class AddColumn:
    """A new column, last; NULL in the rows that are there.

    Example::

        s.execute("sales.orders", AlterSpec((AddColumn(ColumnSpec("day", "DATE")),)))
    """

    column: ColumnSpec


@dataclass(frozen=True)
class DropColumn:
    """A column goes, with its values.

    Example::

        s.execute("sales.orders", AlterSpec((DropColumn("item"),)))
    """

    name: str


@dataclass(frozen=True)
class RenameColumn:
    """A column gets another name, and keeps its values.

    Example::

        s.execute("sales.orders", AlterSpec((RenameColumn("item", to="fruit"),)))
    """

    name: str
    to: str


@dataclass(frozen=True)
class ChangeType:
    """Another type that holds every value of the present one (Delta protocol, Type Widening).

    Example::

        s.execute("sales.orders", AlterSpec((ChangeType("id", "BIGINT"),)))
    """

    name: str
    type: str


@dataclass(frozen=True)
class SetNotNull:
    """A column takes no NULL from now on; rows that have one are an error.

    Example::

        s.execute("sales.orders", AlterSpec((SetNotNull("id"),)))
    """

    name: str


@dataclass(frozen=True)
class DropNotNull:
    """A column takes NULL again.

    Example::

        s.execute("sales.orders", AlterSpec((SetNotNull("id"), DropNotNull("id"))))
    """

    name: str


@dataclass(frozen=True)
class AddCheck:
    """A named condition that every row satisfies, those there included.

    Example::

        s.execute("sales.orders", AlterSpec((AddCheck("positive", "price > 0"),)))
    """

    name: str
    expression: str


@dataclass(frozen=True)
class DropCheck:
    """A condition goes; one that is not there is an error but with ``if_exists``.

    Example::

        s.execute("sales.orders", AlterSpec((DropCheck("positive", if_exists=True),)))
    """

    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class SetProperties:
    """Table properties are added, or get another value.

    Example::

        s.execute("sales.orders", AlterSpec((SetProperties({"delta.appendOnly": "true"}),)))
    """

    properties: Mapping[str, str]


@dataclass(frozen=True)
class UnsetProperties:
    """Table properties go; one that is not there is an error but with ``if_exists``.

    Example::

        s.execute("sales.orders", AlterSpec((UnsetProperties(("delta.appendOnly",), if_exists=True),)))
    """

    names: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True)
class ClusterBy:
    """The columns of liquid clustering; none ends it. The rows that are there are clustered by the next OPTIMIZE.

    Example::

        s.execute("sales.orders", AlterSpec((ClusterBy(("item",)),)))  # engine: spark
    """

    columns: tuple[str, ...]


@dataclass(frozen=True)
class SetComment:
    """The description of the table, or of one column.

    Example::

        s.execute("sales.orders", AlterSpec((SetComment("what was bought", column="item"),)))
    """

    comment: str | None
    column: str | None = None


Change = (
    AddColumn
    | DropColumn
    | RenameColumn
    | ChangeType
    | SetNotNull
    | DropNotNull
    | AddCheck
    | DropCheck
    | SetProperties
    | UnsetProperties
    | ClusterBy
    | SetComment
)


@dataclass(frozen=True)
class AlterSpec(Spec):
    """Changes of a table's definition, carried out in their order, in one commit where the engine can.

    Example::

        s.execute("sales.orders", AlterSpec((AddColumn(ColumnSpec("day", "DATE")), RenameColumn("item", "fruit"))))
    """

    changes: tuple[Change, ...]

    mode = "alter"

    def __post_init__(self) -> None:
        if not self.changes:
            raise InvalidConfig("ALTER TABLE names no change.")


@dataclass(frozen=True)
class OptimizeSpec(Spec):
    """Fewer, larger files with the same rows; ``z_order_by`` puts rows that are near in these columns into the same
    files. ``predicate`` (over partition columns) limits it to some partitions; ``target_file_size`` is in bytes.

    Example::

        s.execute("sales.orders", OptimizeSpec(z_order_by=("item",)))
    """

    predicate: str | None = None
    z_order_by: tuple[str, ...] = ()
    target_file_size: int | None = None

    mode = "optimize"


@dataclass(frozen=True)
class VacuumSpec(Spec):
    """Remove the files that no version within ``retention_hours`` uses (None: the table's own retention, a week unless
    it says otherwise). ``dry_run`` only lists them. ``enforce_retention`` refuses less than the table's retention.

    Example::

        s.execute("sales.orders", VacuumSpec(dry_run=True)).removed
    """

    retention_hours: float | None = None
    dry_run: bool = False
    enforce_retention: bool = True

    mode = "vacuum"


@dataclass(frozen=True)
class CheckpointSpec(Spec):
    """Write a checkpoint of the newest version (Delta protocol, Checkpoints).

    Example::

        s.execute("sales.orders", CheckpointSpec())
    """

    mode = "checkpoint"


@dataclass(frozen=True)
class CleanupLogSpec(Spec):
    """Remove entries of the log that are older than the table's ``delta.logRetentionDuration`` and covered by a
    checkpoint.

    Example::

        s.execute("sales.orders", CleanupLogSpec())
    """

    mode = "cleanup_log"


@dataclass(frozen=True)
class RestoreSpec(Spec):
    """Make the table what it was at a version or at a time (ISO 8601), as a new commit.

    Example::

        s.execute("sales.orders", RestoreSpec(version=0))
    """

    version: int | None = None
    timestamp: str | None = None

    mode = "restore"

    def __post_init__(self) -> None:
        if (self.version is None) == (self.timestamp is None):
            raise InvalidConfig("RESTORE names a version or a timestamp, one of the two.")


@dataclass(frozen=True)
class ConvertSpec(Spec):
    """Make a Delta table of a folder of Parquet files, which stay as they are. ``partition_by`` names the columns,
    with their types, that the folder's ``name=value`` levels hold.

    Example::

        s.execute("sales.old", ConvertSpec((ColumnSpec("day", "DATE"),)))  # a folder of Parquet files in day=… folders
    """

    partition_by: tuple[ColumnSpec, ...] = ()

    mode = "convert"


@dataclass(frozen=True)
class MaintenanceResult:
    """What maintenance did, or would do: counts of files and bytes of the table before and after, the paths that it
    removed (relative to the table), and the version it made, None where none was needed.

    Example::

        done = s.execute("sales.orders", OptimizeSpec())
        done.files_before, done.files_after
    """

    table: str
    mode: str
    engine: str
    version: int | None = None
    files_before: int | None = None
    files_after: int | None = None
    bytes_before: int | None = None
    bytes_after: int | None = None
    removed: tuple[str, ...] = ()
    dry_run: bool = False
    seconds: float = 0.0


CommitSpec = CreateSpec | AlterSpec | RestoreSpec | ConvertSpec
MaintenanceSpec = OptimizeSpec | VacuumSpec | CheckpointSpec | CleanupLogSpec
TableSpec = CommitSpec | MaintenanceSpec
