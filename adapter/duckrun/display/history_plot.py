"""A table's size over its versions as a figure."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from duckrun.errors import InvalidConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class VersionSize:
    """Rows, data files and their bytes at one version."""

    version: int
    rows: int
    files: int
    bytes: int


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
