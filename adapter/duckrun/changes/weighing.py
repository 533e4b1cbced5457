"""The rule over files: which rows of which files can be part of a change, and how often each of them counts.

For each file its adds less its removes, for each row of its deletion vectors one less with an add and one more with a remove. Files
and rows that sum to zero are the same before and after, and are never read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from duckrun.values.changes import CommitChange, Counted, Step, Weighed

Vectors = Callable[[Iterable[Hashable]], Mapping[Hashable, Any]]
"""Gives the rows that vectors delete, as NumPy's uint64."""


def step_of(commits: Sequence[CommitChange], vectors: Vectors) -> Step:
    """The files to read for what some commits changed together. One that has a feed says all that it changed by it."""
    counted = [file for commit in commits if not commit.feed for file in commit.files]
    feed = tuple(file for commit in commits for file in commit.feed)
    last = commits[-1]
    return Step(last.version, last.timestamp, weighed(counted, vectors), feed)


def files_that_came(commits: Sequence[CommitChange]) -> list[CommitChange]:
    """The commits without the files that were there before, or that are no longer there after all of them."""
    sums: Counter[str] = Counter()
    for each in (each for commit in commits for each in commit.files):
        sums[each.file.path] += each.count
    return [replace(c, files=tuple(each for each in c.files if sums[each.file.path] > 0)) for c in commits]


def weighed(counted: Iterable[Counted], vectors: Vectors) -> tuple[Weighed, ...]:
    """Each file once, with how often its rows count; without those that sum to zero."""
    sums: dict[tuple[str, Hashable | None], Counted] = {}
    for each in counted:
        key = (each.file.path, each.vector)
        before = sums.get(key)
        sums[key] = each if before is None else replace(_fuller(before, each), count=before.count + each.count)
    left: dict[str, list[Counted]] = {}
    for (path, _), each in sums.items():
        if each.count:
            left.setdefault(path, []).append(each)
    found = vectors({each.vector for parts in left.values() for each in parts if each.vector is not None})
    files = (_weighed(parts, found) for parts in left.values())
    return tuple(file for file in files if file.base or len(file.rows))


def _fuller(one: Counted, other: Counted) -> Counted:
    """Of two mentions of a file the one that says more: a commit need not say all of a file that it removes."""
    return one if one.file.partition_values or one.first_row_id is not None else other


def _weighed(parts: Sequence[Counted], found: Mapping[Hashable, Any]) -> Weighed:
    base = sum(part.count for part in parts)
    marked = [part for part in parts if part.vector is not None]
    rows = np.concatenate([found[part.vector] for part in marked]) if marked else np.empty(0, np.uint64)
    weights = [np.full(len(found[part.vector]), -part.count, np.int64) for part in marked]
    numbers, places = np.unique(rows, return_inverse=True)
    sums = np.zeros(len(numbers), np.int64)
    np.add.at(sums, places, np.concatenate(weights) if weights else np.empty(0, np.int64))
    kept = sums != 0
    said = next((part for part in parts if part.file.partition_values or part.first_row_id is not None), parts[0])
    return Weighed(said.file, base, numbers[kept], sums[kept], said.first_row_id, said.row_commit)
