"""First rows of a table, for the asset's page: of the frame that was written, or of a scan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from duckrun.libraries import pa
from duckrun.sql.char_types import padded_columns
from duckrun.sql.typed import plain_type
from duckrun.values.rows import Commit, counted_rows
from duckrun.values.snapshot import Snapshot

ROWS = 10
"""Number of rows that a preview shows."""


@dataclass(frozen=True)
class Head:
    """First rows of a frame in memory."""

    rows: pa.Table
    count: int
    """Number of rows of the frame."""

    def is_of(self, snapshot: Snapshot, commit: Commit) -> bool:
        """Return True if a commit wrote all rows of the table from the frame, unchanged."""
        is_whole = commit.rows_inserted == self.count == counted_rows(snapshot.files())
        if commit.replayed or not is_whole or padded_columns(snapshot.schema):
            return False
        return self.rows.schema.names == snapshot.schema.names and all(
            map(_is_stored_unchanged, self.rows.schema.types, snapshot.schema.types)
        )


def head_of(frame: Any) -> Head | None:
    """Return the first rows of an Arrow table or a polars frame; None for any other value."""
    if isinstance(frame, pa.Table):
        return Head(frame.slice(0, ROWS), frame.num_rows)
    if type(frame).__module__.startswith("polars.") and type(frame).__name__ == "DataFrame":
        return Head(frame.head(ROWS).to_arrow(), len(frame))
    return None


def _is_stored_unchanged(kind: pa.DataType, stored: pa.DataType) -> bool:
    """True if values of a type look alike in the table."""
    zones = {getattr(each, "tz", None) for each in (kind, stored)}
    return plain_type(kind) is not None and plain_type(kind) == plain_type(stored) and len(zones) == 1
