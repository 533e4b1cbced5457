"""Writes that a newer attempt of a piece of work makes again: what becomes of the commits of an older attempt.

Such a write reads and writes its table as if the older attempt's commits had not happened. What is taken back and what is
added are one commit. Source: docs/reliability.md, Reruns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from duckrun.sql.names import SIDES, columns_of
from duckrun.values.rows import DeleteInsertSpec, MergeSpec, RowSpec, WriteSpec

Rerun = Literal["again", "append", "create", "base"]
"""How a write is made again: over its earlier commit (it gives the same table), in the place of the rows that were added, as that of a
new table, or from the table as it was before."""


def rerun_of(spec: RowSpec) -> Rerun:
    """How a write is made again whose source does not read the target, which the spec does not tell."""
    if isinstance(spec, WriteSpec):
        kinds: Mapping[str, Rerun] = {"append": "append", "error": "create", "ignore": "create", "safeappend": "base"}
        return kinds.get(spec.mode, "again")
    if isinstance(spec, MergeSpec):
        texts = (text for clause in spec.clauses for text in clause.expressions)
        reads = any(side != "source" for text in texts for side, _ in columns_of(text, spec.dialect, SIDES))
        return "base" if reads else "again"
    return "again" if isinstance(spec, DeleteInsertSpec) else "base"


class ToTakeBack(Exception):
    """A commit of an older attempt is to be taken back, which whoever carries out the write cannot do in its own commit."""
