"""What the tables of a life hold, in plain Python: the last value that was computed, and each append once per chain."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.lives.jobs import Asset, Attempt, Out

Row = tuple[Any, ...]


@dataclass
class Appended:
    """Rows of one work in one chain. ``moved``: a compaction has put them into other files since."""

    rows: list[Row]
    moved: bool = False


@dataclass
class Model:
    """The tables of a lake, and what each attempt makes of them."""

    compares: bool = True
    """Whether rows in other files cannot be taken back, and are compared. A DuckLake takes them back by their ids."""
    _whole: dict[str, list[Row]] = field(default_factory=dict)
    _keyed: dict[str, dict[int, int]] = field(default_factory=dict)
    _parts: dict[str, dict[str, list[Row]]] = field(default_factory=dict)
    _appended: dict[str, dict[tuple[Any, ...], Appended]] = field(default_factory=dict)

    def rows(self) -> dict[str, Counter[Row]]:
        """The rows of each table that there is."""
        found: dict[str, Counter[Row]] = {table: Counter(rows) for table, rows in self._whole.items()}
        found |= {table: Counter(rows.items()) for table, rows in self._keyed.items()}
        found |= {
            table: Counter(row for part in parts.values() for row in part) for table, parts in self._parts.items()
        }
        for table, works in self._appended.items():
            found[table] = Counter(row for work in works.values() for row in work.rows)
        return found

    def succeeds(self, chain: str, asset: Asset, partition: str | None, attempt: Attempt) -> bool:
        """Apply one attempt; True if its step succeeds with it."""
        if attempt.fails == "before":
            return False
        for out in asset.outs:
            if attempt.fails == "during" and out == asset.outs[-1]:
                return False
            if not self._written(chain, out, partition, attempt.rows[out.name]):
                return False
            if attempt.fails == "between":
                return False
        return attempt.fails is None

    def others_insert(self, out: Out, rows: list[Row], name: str) -> None:
        """Rows of somebody else's."""
        if out.is_append:
            self._appended[out.table][("others", name)] = Appended(rows)
        elif out.kind in ("merge", "delete+insert"):
            self._keyed[out.table].update(dict(rows))
        else:
            self._whole[out.table].extend(rows)

    def others_compact(self, out: Out) -> None:
        for each in self._appended[out.table].values():
            each.moved = True

    def _written(self, chain: str, out: Out, partition: str | None, rows: list[tuple[int, int]]) -> bool:
        if out.kind == "overwrite":
            self._whole[out.table] = list(rows)
        elif out.kind in ("merge", "delete+insert"):
            self._keyed.setdefault(out.table, {}).update(dict(rows))
        elif out.kind == "partition":
            assert partition is not None
            self._parts.setdefault(out.table, {})[partition] = [(*row, partition) for row in rows]
        else:
            new: list[Row] = [row if partition is None or not out.is_partitioned else (*row, partition) for row in rows]
            works = self._appended.setdefault(out.table, {})
            work = (chain, out.name, partition if out.is_partitioned else None)
            if work in works and works[work].moved and self.compares:
                return Counter(works[work].rows) == Counter(new)  # replayed, else CommitConflict
            works[work] = Appended(new)
        return True
