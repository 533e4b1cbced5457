"""What commits changed, as sums over data files: each row of a file counts so many times, and what sums to nothing did not change.

Source: ``docs/changes.md``, How it is computed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import TableRef

ChangeKind = Literal["append_only", "upsert", "min_delta", "full_delta", "feed"]
"""The four change queries, and the rows of the change feed as they are."""
KINDS: tuple[ChangeKind, ...] = ("append_only", "upsert", "min_delta", "full_delta", "feed")

OwnFunction = Literal["table_changes", "table_insertions", "table_deletions"]
LakeFunction = Literal["snapshots", "current_snapshot", "table_info", "settings", "options"]
"""DuckLake's own functions over the changes of a table."""

Identity = Literal["key", "row_id", "none"]
"""By what a row is known to be the same one: the key that the caller names, its row id, or nothing."""

Source = Literal["feed", "row_tracking", "files", "snapshots"]
"""Where the rows of a commit's change were read: its feed, the ids of rows, its data files, or the states before and after it."""


CHANGE_TYPE = "_change_type"
"""The column by which rows of answers, and of a change feed, say what happened to them."""
FEED_WEIGHTS = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
"""What a row of the change feed counts, by its ``_change_type``. Source: Delta protocol, Change Data Files."""


@dataclass(frozen=True)
class Counted:
    """A data file that a commit added (1) or removed (-1). ``vector`` stands for its deletion vector, None without one: the same
    for two files means the same rows deleted. ``first_row_id`` is the id of its first row, and ``row_commit`` the
    version at which its rows came, where the table tracks rows.
    """

    file: ScanFile
    count: int
    vector: Hashable | None = None
    first_row_id: int | None = None
    row_commit: int | None = None


@dataclass(frozen=True)
class CommitChange:
    """What one commit changed. ``timestamp`` is in milliseconds since 1970. ``moves`` is true where no row came or went; ``feed`` are
    the files of its change feed, which then say all that it changed; ``redefines`` where it changed the table's definition.
    """

    version: int
    timestamp: int | None
    operation: str
    files: tuple[Counted, ...]
    feed: tuple[ScanFile, ...] = ()
    moves: bool = False
    redefines: bool = False

    @property
    def source(self) -> Source:
        """Where its rows are to be read."""
        return "feed" if self.feed else "files"


@dataclass(frozen=True)
class Weighed:
    """A data file whose rows each count ``base`` times, and those at ``rows`` (numbers in the file from 0, NumPy's uint64, each once)
    ``weights`` (NumPy's int64) more.
    """

    file: ScanFile
    base: int
    rows: Any
    weights: Any
    first_row_id: int | None = None
    row_commit: int | None = None


@dataclass(frozen=True)
class Step:
    """Files to sum up, of one commit or of several at once. ``number`` is the version of the last, ``timestamp`` its time in
    milliseconds since 1970. The rows of ``feed`` count as their ``_change_type`` says.
    """

    number: int
    timestamp: int | None
    files: tuple[Weighed, ...]
    feed: tuple[ScanFile, ...] = ()


@dataclass(frozen=True)
class Between:
    """Two states of a table, whose difference is a step: at the version ``before`` (None: it has no rows) and at ``after``. ``number`` and
    ``timestamp`` are those of the step.
    """

    before: int | None
    after: int
    number: int
    timestamp: int | None = None


@dataclass(frozen=True)
class FileRows:
    """How often the rows of a data file count in a step: those that came by a version above ``since`` and up to ``until``, None for no
    bound. ``file`` is the name that the format's own reading gives it; None stands for all rows of the table.
    """

    file: str | None
    step: int
    weight: int
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True)
class StateRows:
    """Rows of a table at a version, as its format reads them, without those that are deleted then. ``columns`` are those of the read, each as
    an expression (DuckDB's SQL) over the columns that the table has at this version. ``seen`` is the newest version of the lake when this was
    planned, None where it does not matter. With ``deleted_since`` they are the rows that were deleted after that version up to this one, each as
    it was; ``since`` and ``until`` of a count are then those of its deletion. ``source`` is what they are read from (DuckDB's SQL behind FROM), where
    that is not the table itself, and ``row_id`` then their id.
    """

    version: int
    columns: Mapping[str, str]
    counts: tuple[FileRows, ...]
    seen: int | None = None
    deleted_since: int | None = None
    source: str | None = None
    row_id: str = "rowid"


@dataclass(frozen=True)
class WeighedRead:
    """What an engine is to read: the rows of some steps in the columns of ``schema``, and beside them the columns ``weight`` (BIGINT,
    never 0) and ``step`` (the step's number).

    ``stored`` is ``schema`` by the names that columns and fields have in the files, in the same order; ``fed`` names one more
    column with what the change feed says of a row, NULL for rows that are not of it; ``row_id`` one with the id of each row, and ``stored_row_id`` the column of files that may hold it;
    ``row_commit`` and ``stored_row_commit`` are the same for the version at which the row came or changed. ``same`` names, for a column whose
    equal values may be spelled in several ways (maps), another column in one spelling; ``variants`` are the columns of VARIANT, which are structs in ``schema``.

    Of a format that reads its rows itself, ``states`` are what is to be read, in the place of ``steps``; ``sql`` is the same as DuckDB's
    SQL behind FROM, with all columns but those of ``same`` and ``fed``.
    """

    ref: TableRef
    schema: pa.Schema
    stored: pa.Schema
    partition_columns: tuple[str, ...]
    steps: Sequence[Step]
    weight: str
    step: str
    fed: str | None = None
    row_id: str | None = None
    stored_row_id: str | None = None
    row_commit: str | None = None
    stored_row_commit: str | None = None
    states: Sequence[StateRows] = ()
    sql: str | None = None
    same: Mapping[str, str] = field(default_factory=dict)
    variants: frozenset[str] = frozenset()
