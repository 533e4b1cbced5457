"""Chains of writes: what a process does to the lake, and what a list of Python rows becomes by the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

Row = tuple[int, int, int, str]  # id, chain, step, v
KINDS = (
    "append",
    "stream",
    "merge",
    "merge_expression",
    "delete+insert",
    "replace",
    "update",
    "delete",
    "staged",
    "overwrite",
)
IDS = 20
STAGERS = 2


@dataclass(frozen=True)
class Step:
    """One write. Most kinds give other rows when they run twice, so that a doubled commit shows."""

    kind: str
    rows: tuple[Row, ...]


def chain_of(seed: int, number: int) -> list[Step]:
    """The steps of a chain: always the same for one seed and number."""
    rng = random.Random(f"{seed}/{number}")
    kinds = [rng.choice(KINDS[:-1]) for _ in range(rng.randint(4, 6))]
    if number % 3 == 0:  # keeps the table small
        kinds[rng.randrange(len(kinds))] = "overwrite"
    steps = []
    for step, kind in enumerate(kinds):
        ids = rng.sample(range(5) if kind == "replace" else range(IDS), rng.randint(2, 5))
        steps.append(Step(kind, tuple((i, number, step, f"{number}.{step}") for i in ids)))
    return steps


def apply(table: list[Row], step: Step) -> list[Row]:
    """The rows of a table after one step."""
    by_id = {row[0]: row for row in step.rows}
    here = {row[0] for row in table}
    new = [row for row in step.rows if row[0] not in here]
    changes: dict[str, Callable[[], list[Row]]] = {
        "merge": lambda: [by_id.get(row[0], row) for row in table] + new,
        "merge_expression": lambda: (
            [
                (*row[:3], f"{row[3]}+{by_id[row[0]][3]}") if row[0] in by_id and row[2] % 2 == 0 else row
                for row in table
            ]
            + new
        ),
        "delete+insert": lambda: [row for row in table if row[0] not in by_id] + list(step.rows),
        "replace": lambda: [row for row in table if row[0] >= 5] + list(step.rows),
        "update": lambda: [(*row[:3], row[3] + "!") if row[0] % 3 == 0 else row for row in table],
        "delete": lambda: [row for row in table if row[0] <= 15],
        "overwrite": lambda: list(step.rows),
    }
    return changes.get(step.kind, lambda: table + list(step.rows))()
