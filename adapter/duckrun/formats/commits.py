"""Requests and records of commits, independent of file formats and engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from duckrun.formats.definitions import TableDefinition
from duckrun.values.choices import WriterName
from duckrun.values.frozen import frozen
from duckrun.values.rows import AppTransaction, Commit, Retracted, RowSpec, ScanFile, StagedFile
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.tables import TableSpec

if TYPE_CHECKING:
    from pyroaring import BitMap64

WORDS = "metadata"
"""Key of the caller's own metadata (Spec.commit_metadata) in the note of a commit."""

READS = "reads"
"""Key of the note of a commit in a branch: conditions on the target's rows that it depends on.

They are DuckDB's SQL. An empty list means no row; without the key it may be any row.
"""

_NOTED = ("mode", "engine", "writer", "reason", "files_pruned", "rows_inserted", "rows_updated", "rows_deleted")
"""Facts of a commit that its note may tell."""
ROW_COUNTS = ("rows_inserted", "rows_updated", "rows_deleted")
RowCounts = tuple[int | None, int | None, int | None]
"""Numbers of rows inserted, updated and deleted; None for an unknown count."""
Bounds = Mapping[str, tuple[Any, Any]]
"""Least and greatest value of columns, as the log has them."""


class CommitTaken(Exception):
    """Another writer took the version that this commit wanted."""


class Behind(CommitTaken):
    """The snapshot was stale before any work was done: retry at once, without a pause."""


class WentAhead(CommitTaken):
    """A preparatory commit was made at ``version``; restart from it."""

    def __init__(self, what: str, version: int) -> None:
        super().__init__(what)
        self.version = version


@dataclass(frozen=True)
class Marked:
    """Rows of one data file that a commit deletes without rewriting the file."""

    file: ScanFile
    rows: BitMap64
    """Row numbers in the file, from 0."""


@frozen
class NewCommit:
    """Request for a commit."""

    spec: RowSpec | TableSpec | None
    """The user's spec; None if only descriptions change."""
    definition: TableDefinition | None = None
    """New definition of the table; None keeps the current one."""
    adds: Sequence[StagedFile] = ()
    removes: Sequence[ScanFile] = ()
    """Files of the previous version that the commit removes."""
    rows: RowCounts = (0, 0, 0)
    """Expected row counts. A commit whose files do not match them is refused."""
    writer: WriterName = "none"
    reason: str = ""
    anew: bool = False
    """True if the commit replaces a table with another one."""
    data_change: bool = True
    """False if the commit only moves rows to other files."""
    blind: bool = False
    """True if the write read nothing from the table."""
    marks: Sequence[Marked] = ()
    """Partial deletes. No row in them was deleted before."""
    pruned: int | None = None
    """Number of files that the search for rows skipped; None without a search."""
    feed: Sequence[StagedFile] = ()
    """Files of the change feed. If there are any, they describe the whole change."""
    reads: Sequence[str] | None = None
    """Conditions on the table's rows that the commit depends on; None if only its spec tells."""
    work: Any = None
    """Transaction of a TransactionalLake that already wrote the rows."""
    note: Mapping[str, Any] = field(default_factory=dict)
    """Note about the commit, for the log."""
    app: AppTransaction | None = None
    """Application transaction to record."""
    vectors: dict[str, tuple[Any, Any]] = field(default_factory=dict, repr=False, compare=False)
    """Old and new deletion vector of each marked file, written by an attempt that lost its version.

    Private to the format.
    """


@dataclass(frozen=True)
class FileChange:
    """One file that a commit added or removed."""

    name: str
    """File name as the log spells it."""
    size: int = 0
    """Size in bytes; 0 if the log has none."""
    partition_values: Mapping[str, str | None] | None = None
    changes_rows: bool = True
    find_bounds: Callable[[], Bounds] | None = field(default=None, repr=False, compare=False)
    """Function that returns the bounds in the log; None if there are none."""

    def bounds(self) -> Bounds:
        """Return the least and the greatest value of each column with bounds, by physical name."""
        return {} if self.find_bounds is None else self.find_bounds()


@dataclass(frozen=True)
class CommitRecord:
    """Changes of one commit, as the log records them."""

    version: int
    operation: str
    added: tuple[FileChange, ...]
    removed: tuple[FileChange, ...]
    transactions: tuple[AppTransaction, ...]
    changes_metadata: bool
    rows: RowCounts
    timestamp: int | None
    """Milliseconds since 1970, by the committer's clock."""
    note: Mapping[str, Any]
    """Metadata written by this engine; empty for commits of other writers."""

    @property
    def changes_rows(self) -> bool:
        """True if rows were added or removed.

        False for a commit that only moves rows or changes the definition.
        """
        return any(file.changes_rows for file in (*self.added, *self.removed))

    @property
    def added_paths(self) -> set[str]:
        """Paths of the files that the commit added, decoded like ``ScanFile.path``."""
        return {unquote(file.name) for file in self.added}

    def as_commit(self, ref: TableRef, **known: str) -> Commit:
        """Return the Commit as its writer received it.

        Args:
            known: Mode, engine, writer and reason, if the note lacks them.
        """
        # A commit that adds a deletion vector removes and adds the same file.
        marked = {file.name for file in self.added} & {file.name for file in self.removed}
        retracted = self.note.get("retracted")
        return commit_of(
            ref,
            self.version,
            self.note,
            **known,
            **dict(zip(ROW_COUNTS, self.rows, strict=True)),
            files_added=len(self.added) - len(marked),
            files_removed=len(self.removed) - len(marked),
            files_marked=len(marked),
            bytes_added=sum(file.size for file in self.added if file.name not in marked),
            retracted=Retracted(**retracted) if retracted else None,
        )


def commit_of(ref: TableRef, version: int, note: Mapping[str, Any], **known: Any) -> Commit:
    """Return a commit as its note describes it, and by ``known`` where the note is silent."""
    facts: dict[str, Any] = {"mode": "unknown", "engine": "unknown", "writer": "none", **known}
    facts |= {name: note[name] for name in _NOTED if name in note}
    return Commit(table=str(ref), location=ref.location, version=version, **facts)


@frozen
class TakenBack:
    """Older attempt of a write that a new commit undoes."""

    records: Sequence[CommitRecord]
    """Commits of the older attempt, oldest first."""
    newest: Snapshot
    """Current snapshot of the table."""
    base: Snapshot | None = None
    """Version that the write restarts from.

    Without one, exactly the rows of ``records`` are removed.
    """
    anew: bool = False
    """True if the older attempt created the table."""
    files: Sequence[ScanFile] = ()
    """Delta files whose rows are removed."""

    @property
    def version(self) -> int:
        """Newest version that is undone."""
        return self.records[-1].version

    @property
    def by_rows(self) -> bool:
        """True if exactly the added rows are removed."""
        return self.base is None and not self.anew


def sums_of(records: Sequence[CommitRecord]) -> dict[str, int]:
    """Return the sums of the row counts of commits; a count that one does not tell is missing."""
    sums = {}
    for at, name in enumerate(ROW_COUNTS):
        counts = [each.note.get(name, each.rows[at]) if each.changes_rows else 0 for each in records]
        if None not in counts:
            sums[name] = sum(counts)
    return sums
