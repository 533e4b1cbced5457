"""What change queries must answer, by brute force: whole snapshots compared in plain Python, row by row.

Source: docs/changes.md, Definitions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

Row = tuple[str, ...]
State = Counter[Row]


class KeyRepeated(Exception):
    """The key is that of several rows that changed."""


def state(table: pa.Table, columns: Sequence[str]) -> State:
    """Rows as texts: repr() takes NaN for equal to itself; -0.0 counts as 0.0."""
    listed = [[repr(v + 0.0 if isinstance(v, float) else v) for v in table.column(c).to_pylist()] for c in columns]
    return Counter(zip(*listed, strict=True)) if columns else Counter()


def compared(before: State, after: State, key: Sequence[int]) -> list[tuple[str, Row]]:
    """What changed from one state to another: (change type, row), pairs as pre- and post-image one after the other."""
    gone, came = before - after, after - before
    if not key:
        return [("delete", row) for row in gone.elements()] + [("insert", row) for row in came.elements()]
    sides: dict[Row, list[list[Row]]] = defaultdict(lambda: [[], []])
    for side, rows in enumerate((gone, came)):
        for row in rows.elements():
            sides[tuple(row[i] for i in key)][side].append(row)
    found: list[tuple[str, Row]] = []
    for pre, post in sides.values():
        if len(pre) > 1 or len(post) > 1:
            raise KeyRepeated
        if pre and post:
            found += [("update_preimage", pre[0]), ("update_postimage", post[0])]
        else:
            found += [("delete", row) for row in pre] + [("insert", row) for row in post]
    return found


def min_delta(states: Mapping[int, State], first: int, last: int, key: Sequence[int]) -> Counter[Any]:
    return Counter(compared(states[first], states[last], key))


def full_delta(states: Mapping[int, State], first: int, last: int, key: Sequence[int]) -> Counter[Any]:
    """Each with its version."""
    return Counter(
        (version, *change)
        for version in range(first + 1, last + 1)
        for change in compared(states[version - 1], states[version], key)
    )


def append_only(states: Mapping[int, State], first: int, last: int, key: Sequence[int]) -> Counter[Any]:
    return Counter(row for kind, row in compared(states[first], states[last], key) if kind == "insert")


def upsert(states: Mapping[int, State], first: int, last: int, key: Sequence[int]) -> Counter[Any]:
    found = compared(states[first], states[last], key)
    return Counter(
        ("insert" if kind == "insert" else "update", row)
        for kind, row in found
        if kind in ("insert", "update_postimage")
    )


def versions(states: Mapping[int, State], first: int, last: int, key: Sequence[int], kind: str) -> Counter[Any]:
    """append_only or upsert, each row with the version at which it came about: (row, version)."""
    kinds = ("insert",) if kind == "append_only" else ("insert", "update_postimage")
    found = [row for what, row in compared(states[first], states[last], key) if what in kinds]
    came: dict[Row, list[int]] = defaultdict(list)
    for version in range(first + 1, last + 1):
        for what, row in compared(states[version - 1], states[version], key):
            if what in kinds:
                came[tuple(row[i] for i in key) if key else row].append(version)
    answer: Counter[Any] = Counter()
    if key:
        return Counter((row, max(came[tuple(row[i] for i in key)])) for row in found)
    for row, n in Counter(found).items():
        answer.update((row, version) for version in sorted(came[row])[-n:])
    return answer
