"""Figure of a table's size over its versions, and of the rows that each version changed."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from duckrun.display.units import readable_bytes
from duckrun.errors import InvalidConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class VersionSize:
    """Size of a table at one version."""

    version: int
    rows: int
    files: int
    """Number of data files."""
    bytes: int
    """Total size of the data files."""
    changes: Mapping[str, int] = field(default_factory=dict)
    """Number of rows that the commit changed, by change type (insert, update, delete)."""


CHANGE_TYPES = ("insert", "update", "delete")
_COLOURS = {"insert": "tab:green", "update": "tab:orange", "delete": "tab:red"}


def plot(name: str, versions: Sequence[VersionSize]) -> Figure:
    """Plot rows, files, bytes and changed rows by version, one above the other.

    One version has no course over time: the figure then states its sizes in words.

    Raises:
        InvalidConfig: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise InvalidConfig(
            f"plot_history() needs matplotlib ({error}). Install it with: pip install 'duckrun-dagster[notebook]'"
        ) from error

    class HistoryFigure(Figure):
        """Figure that a notebook displays without pyplot, which would keep figures in memory."""

        def _repr_png_(self) -> bytes:
            picture = io.BytesIO()
            self.savefig(picture, format="png", dpi=100)
            return picture.getvalue()

    if len(versions) == 1:
        return _in_words(HistoryFigure(figsize=(7, 1.6), layout="constrained"), name, versions[0])
    figure = HistoryFigure(figsize=(7, 8), layout="constrained")
    axes = figure.subplots(4, 1, sharex=True)
    numbers = [v.version for v in versions]
    for axis, label, values in zip(
        axes[:3],
        ("rows", "files", "MiB"),
        ([v.rows for v in versions], [v.files for v in versions], [v.bytes / 2**20 for v in versions]),
        strict=True,
    ):
        axis.step(numbers, values, where="post", marker="o", markersize=4)
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    _draw_changes(axes[3], versions)
    axes[0].set_title(name)
    axes[-1].set_xlabel("version")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _in_words(figure: Figure, name: str, size: VersionSize) -> Figure:
    """Write the sizes of a table's only version into the figure."""
    changes = ", ".join(f"{size.changes[kind]:,} {kind}s" for kind in CHANGE_TYPES if size.changes.get(kind))
    facts = f"{size.rows:,} rows in {size.files:,} files, {readable_bytes(size.bytes)}"
    figure.suptitle(name)
    figure.text(
        0.5, 0.35, "\n".join(filter(None, (f"only version {size.version} is listed", facts, changes))), ha="center"
    )
    return figure


def _draw_changes(axis: Any, versions: Sequence[VersionSize]) -> None:
    """Draw the changed rows of each version: inserts and updates above the line, deletes below."""
    numbers = [v.version for v in versions]
    above = [0] * len(versions)
    for kind in CHANGE_TYPES:
        counts = [v.changes.get(kind, 0) for v in versions]
        if kind == "delete":
            axis.bar(numbers, [-count for count in counts], color=_COLOURS[kind], label=kind)
        else:
            axis.bar(numbers, counts, bottom=above, color=_COLOURS[kind], label=kind)
            above = [a + b for a, b in zip(above, counts, strict=True)]
    axis.axhline(0, color="black", linewidth=0.8)
    axis.set_ylabel("changed rows")
    axis.grid(alpha=0.3)
    axis.legend(loc="best", fontsize="small")
