"""What a lake is as a whole: one catalog that its tables share, or a log of each table. A format has the one or the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.upkeep import UpkeepSpec

if TYPE_CHECKING:
    import duckdb


@dataclass
class Kept:
    """What upkeep did: the last snapshot that was made (None: none was needed), the rows that left the catalog for files, the snapshots that expired, those that
    were ``spared`` for what they are needed by, and the files that were removed.
    """

    version: int | None = None
    rows_flushed: int = 0
    expired: list[int] = field(default_factory=list)
    spared: list[int] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class CommitFiles:
    """Data files that came with one commit and their bytes, those that went with all of their rows, and those of which some rows went."""

    added: int
    removed: int
    marked: int
    bytes_added: int


class WholeLake(Protocol):
    """A lake whose tables share one catalog, and so one order of snapshots."""

    @property
    def encrypted(self) -> bool:
        """Whether its files are."""

    def together_on(
        self, cursor: duckdb.DuckDBPyConnection, database: str | None = None, *, lazily: bool = False
    ) -> AbstractContextManager[Any]:
        """One transaction over several tables, on a cursor on which all that the lake is asked meanwhile runs; the lake is that ``database``
        of DuckDB's meanwhile, where one is given. ``lazily`` waits for other writers at the first write, not at the beginning.
        """

    def snapshots(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The snapshots of the lake, newest first."""

    def maintain(self, spec: UpkeepSpec, ref: TableRef | None, needed_from: int | None) -> Kept:
        """Keep the lake, or a table of it, in order; snapshots from ``needed_from`` on stay."""

    def restore(self, version: int, note: Mapping[str, Any]) -> list[str]:
        """Within a transaction over several tables, make the lake what it was at a snapshot; what was done, a line for each table and view."""

    def set_inline_rows(self, rows: int, ref: TableRef | None) -> None:
        """Up to how many rows of an insert lie in the catalog, for a table or the lake."""

    def figures(self, ref: TableRef | None) -> tuple[int, int]:
        """How many data files a table, or (None) the lake, has now, and their bytes."""

    def commit_files(self, snapshot: Snapshot, version: int) -> CommitFiles | None:
        """What the commit of a version did to the files of a snapshot's table: one query. None of a transaction that is open."""

    def staging_folder(self, ref: TableRef, snapshot: Snapshot | None) -> str:
        """The folder in which files of a table's rows lie until the commit that takes them. Raises UnsupportedFeature where rows may not lie in files as
        they are.
        """

    def add_files(self, ref: TableRef, paths: Sequence[str], *, hive: bool) -> None:
        """Within a transaction over several tables, make files rows of a table where they lie; ``hive``: their folders say the partitions."""

    def owners_of(self, paths: Sequence[str]) -> dict[str, str]:
        """Those of some files that are the lake's, in any snapshot: path -> schema.name."""

    def owners_below(self, folder: str) -> dict[str, str]:
        """The lake's files below a folder: path -> schema.name."""


class TableLogs(Protocol):
    """The logs of a lake whose tables have one each, while files of such a table become another lake's."""

    def set_aside(self, ref: TableRef, whose: str) -> None:
        """Hide a table, which is locked, from all readers, while its files become another lake's."""

    def whose(self, ref: TableRef) -> str | None:
        """Whose the files of a table with a log aside become; None where it is not."""

    def bring_back(self, ref: TableRef, *, away: bool) -> None:
        """Make a log that is aside the table's again, or put it ``away`` for good."""

    def all_aside(self) -> list[TableRef]:
        """The tables whose log is aside: an adoption was ended in between."""
