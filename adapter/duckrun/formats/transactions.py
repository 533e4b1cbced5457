"""Protocol of a lake whose tables share one catalog, as the tables of a DuckLake do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from duckrun.formats.commits import NewCommit, TakenBack
from duckrun.formats.states import StateReader
from duckrun.values.frozen import frozen
from duckrun.values.lake_format import CatalogAddress
from duckrun.values.macros import Macro
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.upkeep import UpkeepSpec

if TYPE_CHECKING:
    import duckdb


@dataclass
class Kept:
    """Result of lake maintenance."""

    version: int | None = None
    """Last snapshot that was made; None if none was needed."""
    rows_flushed: int = 0
    """Number of rows moved from the catalog into files."""
    expired: list[int] = field(default_factory=list)
    """Snapshots that expired."""
    spared: list[int] = field(default_factory=list)
    """Snapshots that were not expired because consumers still need them."""
    removed: list[str] = field(default_factory=list)
    """Paths of files that were removed."""


@frozen
class CommitFiles:
    """Counts of the data files that one commit changed."""

    added: int
    removed: int
    """Files of which every row was removed."""
    marked: int
    """Files of which some rows were deleted."""
    bytes_added: int
    """Total size of the added files."""


class LakeWork(Protocol):
    """Open transaction of one commit."""

    changed: bool
    """True once rows, or the definition of a table, were changed."""

    @property
    def cursor(self) -> duckdb.DuckDBPyConnection: ...

    def table(self, ref: TableRef) -> str:
        """Return the current name of a table in SQL."""

    def execute(self, sql: str) -> int:
        """Run a statement, and return the number of rows that it changed."""


class LakeViews(Protocol):
    """Views that a catalog stores."""

    def find(self, schema: str, name: str) -> tuple[str, str | None] | None:
        """Return the SQL and the comment of a view; None if there is none of that name."""

    def is_as(self, ref: TableRef, sql: str, comment: str | None) -> bool:
        """True if the catalog's view has equivalent SQL and this comment."""

    def put(self, ref: TableRef, sql: str, comment: str | None) -> None:
        """Create or replace a view, and drop a table of its name."""

    def rename(self, ref: TableRef, new: TableRef, sql: str, comment: str | None) -> None:
        """Rename a view within its schema."""

    def drop(self, ref: TableRef) -> None:
        """Drop a view; a missing one is no error."""


class LakeMacros(Protocol):
    """Macros that a catalog stores."""

    def all(self) -> Mapping[tuple[str, str], Macro]:
        """Return the current macros by schema and name."""

    def put(self, macro: Macro) -> None:
        """Create a macro, or replace the one of its name."""

    def drop(self, schema: str, name: str) -> None:
        """Drop an existing macro."""


class TransactionalLake(Protocol):
    """Role of a format whose tables share one catalog, and therefore one sequence of snapshots.

    SQL statements in a transaction of the lake write the rows.
    """

    @property
    def states(self) -> StateReader:
        """Reader of table states for change queries."""

    @property
    def encrypted(self) -> bool:
        """True if the data files are encrypted."""

    @property
    def address(self) -> CatalogAddress:
        """Address of the catalog."""

    @property
    def data_path(self) -> str:
        """Folder of all data files, with a slash at the end."""

    @property
    def is_open(self) -> bool:
        """True while a multi-table transaction is open."""

    def close(self) -> None:
        """Close the catalog; the next use opens it again."""

    def refuse_other_format(self) -> None:
        """Raise StorageError if the root holds Delta tables instead of a catalog."""

    def refuse_type(self, column: str, kind: Any, *, inside: bool = False) -> None:
        """Raise SchemaMismatch for a DuckDB type that the lake cannot store.

        Args:
            inside: The type is part of another type.
        """

    # -- names in the catalog

    @property
    def views(self) -> LakeViews: ...

    @property
    def macros(self) -> LakeMacros: ...

    def is_known(self, ref: TableRef) -> bool:
        """True for a table whose newest state is cached."""

    def schemas(self) -> list[str]:
        """Current schemas, as an open multi-table transaction sees them."""

    def names(self, kind: Literal["table", "view"], schema: str) -> list[str]:
        """Current tables or views of a schema, as an open multi-table transaction sees them."""

    def make_schema(self, schema: str) -> None:
        """Create a schema, unless it exists."""

    def drop_schema(self, schema: str) -> None:
        """Drop an empty schema; a missing one is no error."""

    # -- the lake as a whole

    def together_on(
        self, cursor: duckdb.DuckDBPyConnection, database: str | None = None, *, lazily: bool = False
    ) -> AbstractContextManager[Any]:
        """Open a transaction over several tables on a cursor.

        All requests to the lake run on this cursor until the block ends.

        Args:
            database: Name under which the lake is attached for the transaction; None chooses one.
            lazily: Take the writers' lock at the first write, not at the beginning.
        """

    def snapshots(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Snapshots of the lake, newest first."""

    def maintain(self, spec: UpkeepSpec, ref: TableRef | None, needed_from: int | None) -> Kept:
        """Run one maintenance step on the lake, or on one table.

        Args:
            ref: Table to maintain; None for the whole lake.
            needed_from: Oldest snapshot that a consumer needs; it and later ones do not expire.
        """

    def restore(self, version: int, note: Mapping[str, Any]) -> list[str]:
        """Restore all tables and views to a snapshot, within a multi-table transaction.

        Returns:
            One line of text per restored table and view.
        """

    def set_inline_rows(self, rows: int, ref: TableRef | None) -> None:
        """Set the largest insert that stays in the catalog, for a table or (None) for the lake."""

    def figures(self, ref: TableRef | None) -> tuple[int, int]:
        """Number and total bytes of the current data files of a table, or (None) of the lake."""

    def commit_files(self, snapshot: Snapshot, version: int) -> CommitFiles | None:
        """Return what the commit of a version did to a table's files, by one query.

        Returns:
            None for a transaction that is still open.
        """

    def staging_folder(self, ref: TableRef, snapshot: Snapshot | None) -> str:
        """Return the folder for staged files of a table.

        Staged files wait there until a commit adopts them.

        Raises:
            UnsupportedFeature: Rows must not lie in plain files, as in an encrypted lake.
        """

    def add_files(self, ref: TableRef, paths: Sequence[str], *, hive: bool) -> None:
        """Add existing files to a table in place, within a multi-table transaction.

        Args:
            hive: Take partition values from the folder names.
        """

    def add_written(self, work: Any, ref: TableRef, paths: Sequence[str], *, hive: bool) -> None:
        """Add files that were written for a table, within a ``transaction()``.

        Args:
            hive: Take partition values from the folder names.

        Raises:
            SchemaMismatch: A file has other columns or types.
        """

    def has_files_in(self, folder: str) -> bool:
        """True if a data file of the lake lies in a folder with a unique name."""

    def owners_of(self, paths: Sequence[str]) -> dict[str, str]:
        """Return those of some files that belong to the lake: path -> schema.name.

        Files of any snapshot count.
        """

    def owners_below(self, folder: str) -> dict[str, str]:
        """Return the lake's files below a folder: path -> schema.name."""

    # -- one commit

    def transaction(
        self, cursor: duckdb.DuckDBPyConnection | None, snapshot: Snapshot | None
    ) -> AbstractContextManager[Any]:
        """Open the transaction of one commit, whose statements write the rows.

        It is rolled back if the block raises.

        Args:
            cursor: Cursor that runs the statements; None opens one.
            snapshot: Version that the commit follows; None for a new table.
        """

    def define(self, work: Any, ref: TableRef, snapshot: Snapshot | None, new: NewCommit) -> None:
        """Carry out the definition changes of a commit within a ``transaction()``."""

    def taken_back(self, work: Any, taken: TakenBack) -> tuple[Snapshot, int]:
        """Undo the commits of an older attempt within a ``transaction()``.

        Returns:
            The table as the transaction then sees it, and the number of its rows that were removed.
        """
