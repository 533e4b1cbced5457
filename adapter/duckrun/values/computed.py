"""How a column gets its values where rows come without them. Source: Delta protocol, Generated Columns, Identity Columns, Default Columns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NumberedBy:
    """The numbers of an identity column: ``start``, ``start + step`` … of which ``mark`` is the last that was given, None before the first.
    With ``always`` no row brings its own.
    """

    start: int
    step: int
    mark: int | None
    always: bool

    @property
    def next(self) -> int:
        """The number of the next row."""
        return self.start if self.mark is None else self.mark + self.step

    def after(self, rows: int) -> int:
        """The mark once so many rows have got numbers; at least one."""
        return self.next + (rows - 1) * self.step


@dataclass(frozen=True)
class ComputedColumn:
    """One of three: ``generated`` is an expression over other columns, ``default`` one over none, both in Spark SQL."""

    name: str
    generated: str | None = None
    default: str | None = None
    numbered: NumberedBy | None = None
