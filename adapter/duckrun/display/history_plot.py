"""A table's size over its versions, as values and as a figure."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from duckrun.errors import InvalidConfig
from duckrun.values.rows import counted_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from duckrun.table import Table
    from duckrun.values.snapshot import Snapshot


@dataclass(frozen=True)
class VersionSize:
    """Rows, data files and their bytes at one version, and the operation that made it."""

    version: int
    operation: str
    rows: int
    files: int
    bytes: int


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


def plot(name: str, versions: Sequence[VersionSize]) -> Figure:
    """Rows, files and bytes by version, one above the other. Raises InvalidConfig where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise InvalidConfig(
            f"plot_history() needs matplotlib ({error}). Install it with: pip install 'duckrun-dagster[notebook]'"
        ) from error

    class HistoryFigure(Figure):
        """A figure that a notebook shows without pyplot, whose figures stay in memory."""

        def _repr_png_(self) -> bytes:
            picture = io.BytesIO()
            self.savefig(picture, format="png", dpi=100)
            return picture.getvalue()

    figure = HistoryFigure(figsize=(7, 6), layout="constrained")
    axes = figure.subplots(3, 1, sharex=True)
    numbers = [v.version for v in versions]
    for axis, label, values in zip(
        axes,
        ("rows", "files", "MiB"),
        ([v.rows for v in versions], [v.files for v in versions], [v.bytes / 2**20 for v in versions]),
        strict=True,
    ):
        axis.step(numbers, values, where="post", marker="o", markersize=4)
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0].set_title(name)
    axes[-1].set_xlabel("version")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure
