"""Files, deleted rows and inlined rows of a version, for an engine that reads them by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

SNAPSHOT_COLUMN = "_ducklake_internal_snapshot_id"
"""Column of merged or flushed files with the snapshot of each row."""
SNAPSHOT_FIELD = 2147483539
"""Field id of that column."""
IN_CATALOG = "ducklake:rows-in-catalog"
"""Path that stands for the inlined rows in a planned scan."""


@dataclass(frozen=True)
class LakeColumn:
    """Column, or nested field, of a table."""

    id: int
    name: str
    type: str
    """DuckLake's own type name, as ``int32`` or ``struct``."""
    begun: int
    """First snapshot with the column."""
    typed: int
    """First snapshot with the current type."""
    default: str | None
    """Value of rows that are older than the column, as text."""
    inner: tuple[LakeColumn, ...] = ()

    @property
    def sql_type(self) -> str:
        """Type as users know it, for messages."""
        return _WORDS.get(self.type, self.type).upper()


_WORDS = {"int128": "hugeint", "uint128": "uhugeint", "uint64": "ubigint", "time_tz": "timetz"}


@dataclass(frozen=True)
class NamedColumn:
    """Name of a column in files that identify columns by name."""

    source: str
    in_path: bool
    """True if the value is in the path of each file (``name=value/``)."""
    inner: Mapping[int, NamedColumn] = field(default_factory=dict)


@dataclass(frozen=True)
class DeleteFile:
    """Parquet file with deleted positions, in the column ``pos``.

    If it has the snapshot of each position, only those up to the version count. The catalog claims
    for some such files that they have none (duckdb 1.5.5).
    """

    path: str
    count: int
    """Number of deleted positions."""


@dataclass(frozen=True)
class LakeFile:
    """Data file of a version."""

    path: str
    mapping: int | None
    """Number of the name mapping that identifies the file's columns; None for field ids."""
    bound: bool
    """True if only rows with a snapshot up to the version count."""
    absent: frozenset[int]
    """Ids of columns that the file lacks."""
    stored: tuple[tuple[int, str], ...]
    """(column id, DuckLake type) of columns and fields that the file stores in another type.

    A merged file has the types of the newest snapshot.
    """
    deletes: tuple[DeleteFile, ...]
    deleted: tuple[int, ...]
    """Positions that are deleted only in the catalog."""


@dataclass(frozen=True)
class LakeFiles:
    """Files of a table at a version.

    Example:
        ``lake.snapshot(ref).parts().files[0].path``
    """

    version: int
    columns: tuple[LakeColumn, ...]
    files: tuple[LakeFile, ...]
    mappings: Mapping[int, Mapping[int, NamedColumn]]
    inlined: pa.Table | None
    """Inlined rows; None if there are none."""
    defaults: Mapping[int, Any]
    """Column id -> value for rows that are older than the column."""
