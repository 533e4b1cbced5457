"""The seam between the lake and what computes: an engine scans and executes, and knows its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

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
    from duckrun.values.rows import Commit, ReadSpec, RowSpec, StagedFile
    from duckrun.values.snapshot import Scan, Snapshot
    from duckrun.values.tables import MaintenanceResult, OptimizeSpec, PurgeSpec, TableSpec


@runtime_checkable
class Engine(Protocol):
    """DuckDB or Spark, which inherit what is the same for both. Everything above this seam is written once."""

    name: str
    temp_names: AnyCase[Reads]
    """What the rows under the names were computed from that register(), keep() or a frame's createOrReplaceTempView() gave."""
    temp_tables: bool
    """Whether keep() is there."""
    returns_rows: bool
    """Whether a write fills what RETURNING asks for."""
    casts_structs_by_name: bool
    """True if its cast of a struct goes by the names of the fields, and not by their position."""
    shares_scans: bool
    """True if a query that names a small table many times is to scan it once, by a common table expression."""
    subqueries_in_changes: bool
    """Whether the predicates and values of updates, deletes and merges may hold subqueries."""

    def scan(self, snapshot: Snapshot, spec: ReadSpec) -> LazyRows:
        """The rows of one snapshot, pruned by columns and predicate: lazy."""

    def open(self, scan: Scan) -> LazyRows:
        """The rows of the files of a scan, which may come from another process."""

    def weighed(self, read: WeighedRead, query: Callable[[str], str]) -> LazyRows:
        """A query, in DuckDB's SQL, over rows of data files with how often each counts: lazy. ``query`` makes it of the name of those
        rows. Raises StorageError where a file is gone.
        """

    def inlined(self, rows: LazyRows) -> exp.Expr:
        """Rows of this engine, as they stand in the syntax tree of a query for select()."""

    def pinned(self, snapshot: Snapshot) -> exp.Expr:
        """A table at a version, as it stands in the syntax tree of a query for select()."""

    def select(self, query: exp.Expr, what: str = "query") -> LazyRows:
        """A query whose tables are pinned(), in any dialect's tree: lazy. ``what`` begins the message of an error about it."""

    def explain(self, query: exp.Expr, *, analyze: bool = False, what: str = "explain") -> str:
        """How the engine would compute a query; with ``analyze`` it does, and says how long each step took."""

    def local(self, rows: pa.Table) -> LazyRows:
        """Rows of this process as rows of the engine."""

    def cast(self, value: exp.Expr, kind: str, rows: LazyRows, column: int) -> exp.Expr:
        """A value in a type of the engine's SQL, the fields of structs by their names. Its own type is that of a column of ``rows``.

        Raises SchemaMismatch for a struct that shares no field with the type.
        """

    def column_types(self, snapshot: Snapshot) -> dict[str, str]:
        """A table's columns with their types, in the engine's SQL."""

    def read_files(self, format: str, path: str, options: Mapping[str, Any]) -> LazyRows:
        """The rows of ``parquet`` or ``csv`` files, by Spark's options: lazy."""

    def reach(self, lake: Lake) -> None:
        """Take the credentials and the catalog of another lake, so that its tables can be read and written. Again is fine."""

    def can_fence(self, storage: Storage) -> bool:
        """Whether a write can be fenced to the version that it was computed from (``read_version``)."""

    def execute(
        self,
        spec: RowSpec | TableSpec,
        source: Any | None,
        transaction: Transaction,
        driver: Callable[[], Engine] | None = None,
    ) -> Commit | MaintenanceResult:
        """Carry out one spec as one commit. ``source`` is any value the session accepts, or None. ``driver`` gives the engine of this process, where
        that applies what another one's workers wrote.
        """

    # -- a table as a whole: what tables.carry_out() asks for, where rows are needed

    def instead(
        self, spec: TableSpec, snapshot: Snapshot | None, transaction: Transaction
    ) -> Callable[[], Commit] | None:
        """The engine's own statement for this, where a commit of ours cannot say it; None where one can."""
        return None

    def count_breaking(self, snapshot: Snapshot, alteration: Alteration, condition: str) -> int:
        """How many rows, as they are after an alteration, a condition in Spark SQL is not true for."""

    def rewritten(
        self, snapshot: Snapshot, alteration: Alteration, transaction: Transaction
    ) -> AbstractContextManager[Sequence[StagedFile]]:
        """All rows as they are after an alteration, in files that are the table's if the block commits them."""

    def optimize(self, spec: OptimizeSpec | PurgeSpec, snapshot: Snapshot, transaction: Transaction) -> Commit:
        """Write small files together, or all in z-order, or those with rows marked as deleted: one commit that changes no row."""

    # -- values and their names

    def schema_of(self, source: Any) -> pa.Schema:
        """The Arrow schema with which a value would be stored. A stream is not consumed, nothing is computed."""

    def register(self, name: str, value: Any, reads: Reads = NOTHING) -> None:
        """Give a Frame or a local table a name that later queries can read; ``reads`` is what it was computed from."""

    def keep(self, name: str, rows: LazyRows) -> None:
        """Compute rows and keep them under a name that later queries of this session can read."""

    def forget(self, name: str) -> None:
        """Take away a name that register(), keep() or a frame gave; none is fine."""

    def is_kept(self, name: str) -> bool:
        """True for a name that keep() gave, whose rows change_kept() may change."""
        return False

    def change_kept(self, name: str, statement: str, reads: Reads) -> pa.Table:
        """Carry out an INSERT, UPDATE or DELETE, in the engine's SQL, of what keep() keeps: the rows of its RETURNING, or their count."""

    def has_name(self, name: str) -> bool:
        """True for a name among temp_names."""
        return name in self.temp_names

    def named_reads(self, name: str) -> Reads:
        """What the rows under such a name were computed from."""
        return self.temp_names.get(name, NOTHING)

    def reads_of(self, value: Any) -> Reads:
        """What a value that is to be written was computed from, as far as that can be known: a Frame says it."""

    def close(self) -> None:
        """Give back what the engine holds. A Spark session that was handed in stays open."""
