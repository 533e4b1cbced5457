"""Writes that a newer attempt of a piece of work makes again over the commit of an older one."""

from __future__ import annotations

from duckrun.sql.names import SIDES, columns_of
from duckrun.values.rows import DeleteInsertSpec, MergeSpec, WriteSpec


def is_repeatable(spec: object) -> bool:
    """True for a write that gives the same table when it is made again over its own earlier commit.

    Its source must not read the target, which the spec does not tell.
    """
    if isinstance(spec, WriteSpec):
        return spec.mode in ("overwrite", "replace")
    if isinstance(spec, MergeSpec):
        texts = (text for clause in spec.clauses for text in clause.expressions)
        return all(side == "source" for text in texts for side, _ in columns_of(text, spec.dialect, SIDES))
    return isinstance(spec, DeleteInsertSpec)
