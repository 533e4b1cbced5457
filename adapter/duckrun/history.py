"""A table's size over its versions, as values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duckrun.display.history_plot import VersionSize
from duckrun.values.rows import counted_rows

if TYPE_CHECKING:
    from duckrun.table import Table
    from duckrun.values.snapshot import Snapshot


def sizes(table: Table, limit: int) -> list[VersionSize]:
    """The newest ``limit`` versions that the log holds, oldest first."""
    found = []
    for entry in reversed(table.history(limit)):
        snapshot = table.snapshot(version=entry["version"])
        files = snapshot.files()
        found.append(
            VersionSize(
                version=snapshot.version,
                operation=str(entry.get("operation", "")),
                rows=_rows(table, snapshot),
                files=len(files),
                bytes=sum(file.size for file in files),
            )
        )
    return found


def _rows(table: Table, snapshot: Snapshot) -> int:
    """Counted by the log where each file's statistics say it and no row of it is deleted, else by a query."""
    counted = counted_rows(snapshot.files())
    return table.toDF(version=snapshot.version).count() if counted is None else counted
