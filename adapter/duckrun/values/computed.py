"""Columns that writers compute if the rows lack them.

Source: Delta protocol, Generated Columns, Identity Columns, Default Columns.
"""

from __future__ import annotations

from duckrun.values.frozen import frozen


@frozen
class NumberedBy:
    """Numbers of an identity column: ``start``, ``start + step`` and so on."""

    start: int
    step: int
    mark: int | None
    """Last number assigned; None before the first (the high water mark)."""
    always: bool
    """True if rows may not bring their own numbers."""

    @property
    def next(self) -> int:
        """Number of the next row."""
        return self.start if self.mark is None else self.mark + self.step

    def after(self, rows: int) -> int:
        """Return the mark after ``rows`` more rows; at least one."""
        return self.next + (rows - 1) * self.step


@frozen
class ComputedColumn:
    """A generated, default or identity column; exactly one of the three fields is set."""

    name: str
    generated: str | None = None
    """Spark SQL expression over other columns."""
    default: str | None = None
    """Spark SQL expression over no column."""
    numbered: NumberedBy | None = None
