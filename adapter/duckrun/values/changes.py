"""Changes of commits, as sums over data files.

Each row of a file has a multiplicity. Rows whose multiplicities sum to 0 did not change.
Source: ``docs/changes.md``, How it is computed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from duckrun.libraries import pa
from duckrun.values.frozen import frozen
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import TableRef

ChangeKind = Literal["append_only", "upsert", "min_delta", "full_delta", "feed"]
"""The four change queries, and the rows of the change feed as they are."""
KINDS: tuple[ChangeKind, ...] = ("append_only", "upsert", "min_delta", "full_delta", "feed")
"""The four change queries, and the unchanged rows of the change feed."""

OwnFunction = Literal["table_changes", "table_insertions", "table_deletions"]
LakeFunction = Literal["snapshots", "current_snapshot", "table_info", "settings", "options"]
"""DuckLake's own functions over a table and its changes."""

Identity = Literal["key", "row_id", "none"]
"""Identity of a row: the key that the caller names, its row id, or none."""

Source = Literal["feed", "row_tracking", "files", "snapshots"]
"""Source of a commit's changed rows: its feed, row ids, data files, or the states around it."""


CHANGE_TYPE = "_change_type"
"""Column of change queries and change feeds with the kind of change."""
FEED_WEIGHTS = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
"""Multiplicity of a change feed row, by its ``_change_type``.

Source: Delta protocol, Change Data Files.
"""


@frozen
class Counted:
    """A data file that a commit added (1) or removed (-1)."""

    file: ScanFile
    count: int
    vector: Hashable | None = None
    """Identity of its deletion vector, equal if the same rows are deleted; None without one."""
    first_row_id: int | None = None
    """Id of its first row, if the table tracks rows."""
    row_commit: int | None = None
    """Version at which its rows came, if the table tracks rows."""


@dataclass(frozen=True)
class CommitChange:
    """Changes of one commit."""

    version: int
    timestamp: int | None
    """Milliseconds since 1970."""
    operation: str
    files: tuple[Counted, ...]
    feed: tuple[ScanFile, ...] = ()
    """Files of its change feed, which are then complete."""
    moves: bool = False
    """True if rows only moved between files."""
    redefines: bool = False
    """True if the commit changed the table's definition."""

    @property
    def source(self) -> Source:
        """Source of its changed rows."""
        return "feed" if self.feed else "files"


@frozen
class Weighed:
    """A data file with the multiplicities of its rows."""

    file: ScanFile
    base: int
    """Multiplicity of each row."""
    rows: Any
    """Distinct row numbers in the file, from 0 (NumPy uint64), whose multiplicity differs."""
    weights: Any
    """Amounts to add to ``base`` for ``rows`` (NumPy int64)."""
    first_row_id: int | None = None
    row_commit: int | None = None


@frozen
class Step:
    """Files to sum up, of one commit or of several."""

    number: int
    """Version of the last commit."""
    timestamp: int | None
    """Time of the last commit, in milliseconds since 1970."""
    files: tuple[Weighed, ...]
    feed: tuple[ScanFile, ...] = ()
    """Change feed files, whose rows count by their ``_change_type``."""


@frozen
class Between:
    """Two states of a table, whose difference is a step."""

    before: int | None
    """Version of the first state; None is the empty table."""
    after: int
    number: int
    timestamp: int | None = None
    """Time of the step, in milliseconds since 1970."""


@dataclass(frozen=True)
class FileRows:
    """Multiplicity of a data file's rows in a step, for the rows of a range of versions."""

    file: str | None
    """File name as the format's own reader reports it; None stands for all rows of the table."""
    step: int
    weight: int
    since: int | None = None
    """Count only rows that came after this version; None for no bound."""
    until: int | None = None
    """Count only rows that came at or before this version; None for no bound."""


@dataclass(frozen=True)
class StateRows:
    """Live rows of a table at a version, as its format reads them."""

    version: int
    columns: Mapping[str, str]
    """Columns of the read, as DuckDB expressions over the table's columns at this version."""
    counts: tuple[FileRows, ...]
    seen: int | None = None
    """Newest version of the lake at planning time; None if irrelevant."""
    deleted_since: int | None = None
    """Read the rows deleted after this version up to ``version``, as they were, instead.

    ``since`` and ``until`` of the counts are then versions of the deletion.
    """
    source: str | None = None
    """DuckDB FROM source, if not the table itself."""
    row_id: str = "rowid"
    """Row id column of ``source``."""


@frozen
class WeighedRead:
    """Rows of some steps for an engine to read, with their multiplicity and step.

    A format that reads its rows itself sets ``states`` and ``sql`` instead of ``steps``.
    """

    ref: TableRef
    schema: pa.Schema
    stored: pa.Schema
    """``schema`` by physical names, in the same order."""
    partition_columns: tuple[str, ...]
    steps: Sequence[Step]
    weight: str
    """Name of the column of multiplicities (BIGINT, never 0)."""
    step: str
    """Name of the column of step numbers."""
    fed: str | None = None
    """Name of the column of the feed's change type, NULL for rows from elsewhere."""
    row_id: str | None = None
    """Name of the column of row ids."""
    stored_row_id: str | None = None
    """Column of the files that may hold row ids."""
    row_commit: str | None = None
    """Name of the column of the version at which a row came or changed."""
    stored_row_commit: str | None = None
    """Column of the files that may hold these versions."""
    states: Sequence[StateRows] = ()
    sql: str | None = None
    """``states`` as a DuckDB FROM source, with all columns but those of ``same`` and ``fed``."""
    same: Mapping[str, str] = field(default_factory=dict)
    """Canonical twin columns, for columns whose equal values have several spellings (maps)."""
    variants: frozenset[str] = frozenset()
    """VARIANT columns, which are structs in ``schema``."""
