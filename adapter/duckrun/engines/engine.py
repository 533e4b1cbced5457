"""Interface between the lake and the engines: an engine scans, executes, and knows its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from duckrun.errors import UnsupportedFeature
from duckrun.run.pins import NOTHING
from duckrun.values.any_case import AnyCase

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa
    from sqlglot import exp

    from duckrun.engines.frame import LazyRows
    from duckrun.formats.definitions import Alteration
    from duckrun.lake.lake import Lake
    from duckrun.run.pins import Reads
    from duckrun.run.transaction import Transaction
    from duckrun.storage.storage import Storage
    from duckrun.values.changes import WeighedRead
    from duckrun.values.choices import EngineName
    from duckrun.values.rows import Commit, ReadSpec, RowSpec, StagedFile
    from duckrun.values.snapshot import Scan, Snapshot
    from duckrun.values.tables import MaintenanceResult, OptimizeSpec, PurgeSpec, TableSpec


@runtime_checkable
class Engine(Protocol):
    """DuckDB or Spark. Code above this interface is written once; shared defaults are inherited."""

    name: EngineName
    temp_names: AnyCase[Reads]
    """Tables that the temporary names were computed from.

    register(), keep() and a frame's createOrReplaceTempView() define these names.
    """
    temp_tables: bool
    """True if the engine supports keep()."""
    returns_rows: bool
    """True if a write fills the rows of RETURNING."""
    casts_structs_by_name: bool
    """True if a cast of a struct matches fields by name, not by position."""
    shares_scans: bool
    """True if a query that often names a small table should scan it once, in a CTE."""
    subqueries_in_changes: bool
    """True if predicates and values of updates, deletes and merges may contain subqueries."""

    def scan(self, snapshot: Snapshot, spec: ReadSpec) -> LazyRows:
        """Rows of one snapshot, lazily, pruned by columns and predicate."""

    def open(self, scan: Scan) -> LazyRows:
        """Rows of the files of a scan, which may come from another process."""

    def weighed(self, read: WeighedRead, query: Callable[[str], str]) -> LazyRows:
        """Query, lazily, the rows of data files with their multiplicities.

        Args:
            read: Files, and the multiplicity of their rows.
            query: Returns the query in DuckDB's SQL for the name of these rows.

        Raises:
            StorageError: A file no longer exists.
        """

    def inlined(self, rows: LazyRows) -> exp.Expr:
        """Rows of this engine as a node in the syntax tree of a query for select()."""

    def pinned(self, snapshot: Snapshot, where: exp.Expr | None = None) -> exp.Expr:
        """A table at one version as a node in the syntax tree of a query for select().

        Args:
            snapshot: The table.
            where: Condition of all rows that the query needs; others may be missing.
        """

    def select(self, query: exp.Expr, what: str = "query", tables: Sequence[exp.Expr] = ()) -> LazyRows:
        """Run a query whose tables are pinned(), lazily.

        Args:
            query: Tree of any dialect.
            what: Start of error messages.
            tables: Results of pinned() that the query may contain. Without them, an engine may open
                each log once more to check the query.
        """

    def explain(self, query: exp.Expr, *, analyze: bool = False, what: str = "explain") -> str:
        """Query plan as text; with ``analyze`` the query runs, and each step has its time."""

    def local(self, rows: pa.Table) -> LazyRows:
        """Make rows of this process available to the engine."""

    def cast(self, value: exp.Expr, kind: str, rows: LazyRows, column: int) -> exp.Expr:
        """Cast a value to a type of the engine's SQL; struct fields match by name.

        Args:
            value: Expression to cast.
            kind: Target type in the engine's SQL.
            rows: Rows that have the expression's current type.
            column: Position of the column of ``rows`` that has this type.

        Raises:
            SchemaMismatch: A struct shares no field with the target type.
        """

    def column_types(self, snapshot: Snapshot) -> dict[str, str]:
        """Types of a table's columns in the engine's SQL."""

    def read_files(self, format: str, path: str, options: Mapping[str, Any]) -> LazyRows:
        """Rows of ``parquet`` or ``csv`` files, lazily, by Spark's options."""

    def reach(self, lake: Lake) -> None:
        """Attach another lake: its credentials and its catalog. A second call does nothing."""

    def can_fence(self, storage: Storage) -> bool:
        """True if a write can be fenced to the version it was computed from (``read_version``)."""

    def execute(
        self, spec: RowSpec | TableSpec, source: Any | None, transaction: Transaction
    ) -> Commit | MaintenanceResult:
        """Carry out one spec as one commit.

        Args:
            spec: The operation.
            source: Any value that the session accepts, or None.
            transaction: Transaction of the table.

        Raises:
            CommitConflict: Other writers' commits conflict, or the table exists already.
            DuplicateSourceKeys: A key repeats in the source of a merge.
            InvalidConfig: The spec is invalid for this table.
            RowsOutsidePartition: A row lies outside the part being written.
            SchemaMismatch: The columns, or present rows, do not fit the table's definition.
            TableNotFound: There is no such table.
            UnsupportedFeature: The format or the engine does not support the operation. After any
                of these errors the table is unchanged.
        """

    # -- a table as a whole: what tables.py asks for, where rows are needed

    def instead(
        self, spec: TableSpec, snapshot: Snapshot | None, transaction: Transaction
    ) -> Callable[[], Commit] | None:
        """The engine's own statement for a spec that our commits cannot express; else None."""
        return None

    def count_breaking(self, snapshot: Snapshot, alteration: Alteration, condition: str) -> int:
        """Number of altered rows that do not satisfy a condition in Spark SQL (false or NULL)."""

    def rewritten(
        self, snapshot: Snapshot, alteration: Alteration, transaction: Transaction
    ) -> AbstractContextManager[Sequence[StagedFile]]:
        """Yield files with all altered rows; they become the table's if the block commits them."""

    def optimize(self, spec: OptimizeSpec | PurgeSpec, snapshot: Snapshot, transaction: Transaction) -> Commit:
        """Compact small files, z-order all, or purge deleted rows; the commit changes no row."""

    # -- values and their names

    def schema_of(self, source: Any) -> pa.Schema:
        """Arrow schema that a value would be stored as.

        Nothing is computed, and no stream consumed.
        """

    def register(self, name: str, value: Any, reads: Reads = NOTHING) -> None:
        """Name a Frame or a local table, so that later queries can read it.

        ``reads`` are the tables that it was computed from.
        """

    def keep(self, name: str, rows: LazyRows) -> None:
        """Materialize rows under a name that later queries of this session can read.

        Raises:
            UnsupportedFeature: The engine has no temporary tables.
        """
        raise UnsupportedFeature(f"{name}: engine {self.name} has no temporary tables; make a temporary view.")

    def forget(self, name: str) -> None:
        """Remove a name of register(), keep() or a frame; an unknown name is ignored."""

    def is_kept(self, name: str) -> bool:
        """True for a name of keep(), whose rows change_kept() may change."""
        return False

    def change_kept(self, name: str, statement: str, reads: Reads) -> pa.Table:
        """Run an INSERT, UPDATE or DELETE, in the engine's SQL, on a table of keep().

        Returns:
            The rows of its RETURNING, or the number of changed rows.

        Raises:
            UnsupportedFeature: The engine has no temporary tables.
        """
        raise UnsupportedFeature(f"{name}: engine {self.name} has no temporary tables.")

    def has_name(self, name: str) -> bool:
        """True for a name in temp_names."""
        return name in self.temp_names

    def named_reads(self, name: str) -> Reads:
        """Tables that the rows of a temporary name were computed from."""
        return self.temp_names.get(name, NOTHING)

    def reads_of(self, value: Any) -> Reads:
        """Tables that a value to write was computed from, as far as known; a Frame records them."""

    def close(self) -> None:
        """Release the engine's resources. A Spark session that the caller supplied stays open."""
