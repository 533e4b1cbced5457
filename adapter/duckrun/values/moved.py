"""What was moved from one lake or database to another."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Moved:
    """One table that was moved, by its name in the target: its rows at its newest version, how many versions came with it, whether its files
    were ``adopted`` and not copied, and what of it does not fit there, in words.

    Example::

        [moved.left_out for moved in s.import_from("old_lake/")]  # format: ducklake
    """

    table: str
    rows: int
    versions: int = 1
    adopted: bool = False
    left_out: tuple[str, ...] = ()
