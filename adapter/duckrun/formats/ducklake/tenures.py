"""The tables that a name stood for, by snapshots: CREATE OR REPLACE, a drop, a swap and a restore put another table in a table's place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from duckrun.formats.ducklake.catalog import Catalog
from duckrun.formats.ducklake.state import TableState


@dataclass(frozen=True)
class Tenure:
    """A table under a name, from the snapshot ``begun`` to the one before ``ended`` (None: still)."""

    number: int
    schema: str
    name: str
    begun: int
    ended: int | None

    def is_there(self, snapshot: int) -> bool:
        """True for a snapshot that has it."""
        return self.begun <= snapshot and (self.ended is None or self.ended > snapshot)


class Tenures:
    """Which table the name of a state stood for at each snapshot: what ``AT (VERSION => n)`` reads by that name."""

    def __init__(self, state: TableState, entries: list[Tenure]) -> None:
        self._state, self._entries = state, entries

    @classmethod
    def of(cls, catalog: Catalog, state: TableState) -> Self:
        meta = catalog.meta
        ended = "CASE WHEN t.end_snapshot IS NULL THEN s.end_snapshot WHEN s.end_snapshot IS NULL THEN t.end_snapshot ELSE least(t.end_snapshot, s.end_snapshot) END"
        rows = catalog.ask(
            f"SELECT t.table_id, s.schema_name, t.table_name, greatest(t.begin_snapshot, s.begin_snapshot), {ended} FROM {meta('ducklake_table')} AS t "
            f"JOIN {meta('ducklake_schema')} AS s USING (schema_id) WHERE (s.schema_name = ? AND t.table_name = ?) OR t.table_id = {state.id} ORDER BY 4",
            [state.schema, state.name],
        )
        return cls(state, [Tenure(*row) for row in rows])

    def at(self, snapshot: int) -> Tenure | None:
        """The table that has the name at a snapshot, else the state's own under the name that it had then; None where neither is there."""
        there = [entry for entry in self._entries if entry.is_there(snapshot)]
        own = (self._state.schema, self._state.name)
        return next((entry for entry in there if (entry.schema, entry.name) == own), there[0] if there else None)

    def first(self, after: int) -> int | None:
        """The first snapshot behind one at which there is a table."""
        return min(
            (max(e.begun, after + 1) for e in self._entries if e.ended is None or e.ended > after + 1), default=None
        )

    def turns(self, after: int, to: int) -> list[int]:
        """The snapshots of (after, to] at which another table has the name than before, or none."""
        ends = {end for entry in self._entries for end in (entry.begun, entry.ended) if end is not None}

        def number(snapshot: int) -> int | None:
            found = self.at(snapshot)
            return None if found is None else found.number

        return sorted(end for end in ends if after < end <= to and number(end) != number(end - 1))

    @property
    def numbers(self) -> list[int]:
        """The ids of all these tables, newest first."""
        return list(dict.fromkeys(entry.number for entry in reversed(self._entries)))
