"""What a commit is to do, and what one did: values of no format's files and of no engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from duckrun.formats.definitions import TableDefinition
from duckrun.values.rows import AppTransaction, Commit, Retracted, RowSpec, ScanFile, StagedFile, WriterName
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.tables import TableSpec

WORDS = "metadata"
"""The key, in the note of a commit, of the caller's own words (Spec.commit_metadata)."""

RowCounts = tuple[int | None, int | None, int | None]
"""Rows inserted, updated and deleted; None where a count is not known."""


class CommitTaken(Exception):
    """The version that a commit wanted was taken by another writer."""


class Behind(CommitTaken):
    """What a commit was to begin from was not the newest version; nothing was computed from it yet."""


class WentAhead(CommitTaken):
    """A commit that this one needs before it was made by itself, as ``version``, and this one is to begin again from there."""

    def __init__(self, what: str, version: int) -> None:
        super().__init__(what)
        self.version = version


@dataclass(frozen=True)
class Marked:
    """Rows of one data file that a commit deletes and leaves in the file: their numbers in it, from 0, as NumPy's uint64."""

    file: ScanFile
    rows: Any


@dataclass(frozen=True)
class NewCommit:
    """What a commit is to say.

    ``spec`` is what was asked for; None where only descriptions change. ``definition`` is the table's new one; None leaves it as
    it is. ``anew``: it makes another table in the place of one. ``removes`` are files of the version before, ``marks`` those of
    which only some rows go, none of them deleted before. ``rows`` are held
    against the files: a commit whose rows do not add up is not made. ``data_change``: rows come or go, where False only moves
    them to other files. ``blind``: nothing of the table was read for it. ``pruned`` is how many files of the version before were not opened to
    look for its rows, None where none were looked for. ``feed`` are the files of the change feed, which then say all that it changed.
    """

    spec: RowSpec | TableSpec | None
    definition: TableDefinition | None = None
    adds: Sequence[StagedFile] = ()
    removes: Sequence[ScanFile] = ()
    rows: RowCounts = (0, 0, 0)
    writer: WriterName = "none"
    reason: str = ""
    anew: bool = False
    data_change: bool = True
    blind: bool = False
    marks: Sequence[Marked] = ()
    pruned: int | None = None
    feed: Sequence[StagedFile] = ()
    work: Any = None
    """The transaction of the format's own in which the rows were written already, where it ``transacts``."""


@dataclass(frozen=True)
class FileChange:
    """One file that a commit added or removed. ``name`` is the file as the log spells it; ``size`` is in bytes, 0 where the log
    has none.
    """

    name: str
    size: int = 0
    partition_values: Mapping[str, str | None] | None = None
    changes_rows: bool = True


@dataclass(frozen=True)
class CommitRecord:
    """What one commit changed, as the log has it. ``timestamp`` is in milliseconds since 1970, by the clock of who committed;
    ``note`` is what the engine wrote into it of its own, empty for other writers."""

    version: int
    operation: str
    added: tuple[FileChange, ...]
    removed: tuple[FileChange, ...]
    transactions: tuple[AppTransaction, ...]
    changes_metadata: bool
    rows: RowCounts
    timestamp: int | None
    note: Mapping[str, Any]

    @property
    def changes_rows(self) -> bool:
        """Whether rows came or went; False where the same rows lie in other files, or only the definition changed."""
        return any(file.changes_rows for file in (*self.added, *self.removed))

    @property
    def added_paths(self) -> set[str]:
        """The paths of the files that the commit added, decoded as ScanFile.path is."""
        return {unquote(file.name) for file in self.added}

    def as_commit(
        self, ref: TableRef, *, mode: str = "unknown", engine: str = "unknown", writer: str = "none", reason: str = ""
    ) -> Commit:
        """The Commit that whoever made it got; what it did not note of itself is as given here."""
        counts = zip(("rows_inserted", "rows_updated", "rows_deleted"), self.rows, strict=True)
        marked = {file.name for file in self.added} & {file.name for file in self.removed}
        return Commit(
            table=str(ref),
            location=ref.location,
            version=self.version,
            mode=self.note.get("mode", mode),
            engine=self.note.get("engine", engine),
            writer=self.note.get("writer", writer),
            reason=self.note.get("reason", reason),
            files_added=len(self.added) - len(marked),
            files_removed=len(self.removed) - len(marked),
            files_marked=len(marked),
            files_pruned=self.note.get("files_pruned"),
            bytes_added=sum(file.size for file in self.added if file.name not in marked),
            retracted=Retracted(**said) if (said := self.note.get("retracted")) else None,
            **{name: self.note.get(name, count) for name, count in counts},
        )


@dataclass(frozen=True)
class TakenBack:
    """What a commit takes back beside what it adds: ``records`` are the commits of an older attempt, oldest first.

    ``newest`` is the table as it is. With ``base`` it is that version which the write begins from; ``anew`` says that there was no
    table. Otherwise the rows go that ``records`` added: of Delta those of ``files``.
    """

    records: Sequence[CommitRecord]
    newest: Snapshot
    base: Snapshot | None = None
    anew: bool = False
    files: Sequence[ScanFile] = ()

    @property
    def version(self) -> int:
        """The newest version that is taken back."""
        return self.records[-1].version

    @property
    def by_rows(self) -> bool:
        """True if exactly the rows go that were added."""
        return self.base is None and not self.anew
