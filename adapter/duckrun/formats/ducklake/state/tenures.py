"""Tables that one name stood for over time.

CREATE OR REPLACE, a drop, a swap and a restore can put another table in a table's place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from duckrun.formats.ducklake.state.state import States, TableState


@dataclass(frozen=True)
class Tenure:
    """Use of a name by one table, for a range of snapshots."""

    number: int
    schema: str
    name: str
    begun: int
    """First snapshot of the range."""
    ended: int | None
    """First snapshot after the range; None if it lasts."""

    def is_there(self, snapshot: int) -> bool:
        """True for a snapshot in the range."""
        return self.begun <= snapshot and (self.ended is None or self.ended > snapshot)


class Tenures:
    """Tables that the name of a state stood for, as ``AT (VERSION => n)`` resolves it."""

    def __init__(self, state: TableState, entries: list[Tenure]) -> None:
        self._state, self._entries = state, entries

    @classmethod
    def of(cls, states: States, state: TableState) -> Self:
        """Read the uses of a state's name, and the names of its table, from the catalog."""
        ended = (
            "CASE WHEN t.end_snapshot IS NULL THEN s.end_snapshot WHEN s.end_snapshot IS NULL THEN "
            "t.end_snapshot ELSE least(t.end_snapshot, s.end_snapshot) END"
        )
        rows = states.tables(
            f"t.table_id, s.schema_name, t.table_name, greatest(t.begin_snapshot, s.begin_snapshot), {ended}",
            f"(s.schema_name = ? AND t.table_name = ?) OR t.table_id = {state.id}",
            state.schema,
            state.name,
        )
        return cls(state, sorted((Tenure(*row) for row in rows), key=lambda tenure: tenure.begun))

    def at(self, snapshot: int) -> Tenure | None:
        """Return the table with the name at a snapshot, else the state's own table.

        Returns:
            None if neither exists. The own table has the name that it had then.
        """
        there = [entry for entry in self._entries if entry.is_there(snapshot)]
        name = (self._state.schema, self._state.name)
        return next((entry for entry in there if (entry.schema, entry.name) == name), there[0] if there else None)

    def first(self, after: int) -> int | None:
        """Return the first snapshot after one that has a table."""
        return min(
            (max(e.begun, after + 1) for e in self._entries if e.ended is None or e.ended > after + 1), default=None
        )

    def turns(self, after: int, to: int) -> list[int]:
        """Return the snapshots in (after, to] at which the name changed its table, or lost it."""
        ends = {end for entry in self._entries for end in (entry.begun, entry.ended) if end is not None}

        def number(snapshot: int) -> int | None:
            tenure = self.at(snapshot)
            return None if tenure is None else tenure.number

        return sorted(end for end in ends if after < end <= to and number(end) != number(end - 1))

    @property
    def numbers(self) -> list[int]:
        """Ids of all these tables, newest first."""
        return list(dict.fromkeys(entry.number for entry in reversed(self._entries)))
