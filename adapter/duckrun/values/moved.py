"""Result of moving tables between lakes and databases."""

from __future__ import annotations

from duckrun.values.frozen import frozen


@frozen
class Moved:
    """One imported or exported table, by its name in the target.

    Example::

        [moved.left_out for moved in s.import_from("old_lake/")]  # format: ducklake
    """

    table: str
    rows: int
    """Rows at its newest version."""
    versions: int = 1
    """Number of versions moved."""
    adopted: bool = False
    """True if the target adopted the files instead of copying them."""
    left_out: tuple[str, ...] = ()
    """Features that the target cannot represent, in words."""
