"""Multiplicity of rows, computed file by file.

A file counts once per add and minus once per remove. A row in its deletion vector counts one less
with an add, and one more with a remove. Files and rows that sum to zero are equal before and after,
so they are never read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from duckrun.libraries import np
from duckrun.values.changes import CommitChange, Counted, Step, Weighed

Vectors = Callable[[Iterable[Hashable]], Mapping[Hashable, Any]]
"""Returns the row numbers that each deletion vector deletes, as NumPy's uint64."""


def step_of(commits: Sequence[CommitChange], vectors: Vectors) -> Step:
    """Return the files to read for the combined changes of some commits.

    The change feed of a commit replaces its data files.
    """
    counted = [file for commit in commits if not commit.feed for file in commit.files]
    feed = tuple(file for commit in commits for file in commit.feed)
    last = commits[-1]
    return Step(last.version, last.timestamp, weighed(counted, vectors), feed)


def files_that_came(commits: Sequence[CommitChange]) -> list[CommitChange]:
    """Return the commits with only those files that are new in the range.

    Files that existed before it, or are gone after it, are left out.
    """
    sums: Counter[str] = Counter()
    for each in (each for commit in commits for each in commit.files):
        sums[each.file.path] += each.count
    return [replace(c, files=tuple(each for each in c.files if sums[each.file.path] > 0)) for c in commits]


def weighed(counted: Iterable[Counted], vectors: Vectors) -> tuple[Weighed, ...]:
    """Return each file once with the multiplicity of its rows, without files that sum to zero."""
    sums: dict[tuple[str, Hashable | None], Counted] = {}
    for each in counted:
        key = (each.file.path, each.vector)
        before = sums.get(key)
        if before is not None:  # A remove may lack fields.
            is_full = before.file.partition_values or before.first_row_id is not None
            each = replace(before if is_full else each, count=before.count + each.count)
        sums[key] = each
    left: dict[str, list[Counted]] = {}
    for (path, _), each in sums.items():
        if each.count:
            left.setdefault(path, []).append(each)
    deleted = vectors({each.vector for parts in left.values() for each in parts if each.vector is not None})
    files = (_weighed(parts, deleted) for parts in left.values())
    return tuple(file for file in files if file.base or len(file.rows))


def _weighed(parts: Sequence[Counted], deleted: Mapping[Hashable, Any]) -> Weighed:
    base = sum(part.count for part in parts)
    with_vectors = [part for part in parts if part.vector is not None]
    rows = np.concatenate([deleted[part.vector] for part in with_vectors]) if with_vectors else np.empty(0, np.uint64)
    weights = [np.full(len(deleted[part.vector]), -part.count, np.int64) for part in with_vectors]
    numbers, places = np.unique(rows, return_inverse=True)
    sums = np.zeros(len(numbers), np.int64)
    np.add.at(sums, places, np.concatenate(weights) if weights else np.empty(0, np.int64))
    changed = sums != 0
    fullest = next((part for part in parts if part.file.partition_values or part.first_row_id is not None), parts[0])
    return Weighed(fullest.file, base, numbers[changed], sums[changed], fullest.first_row_id, fullest.row_commit)
