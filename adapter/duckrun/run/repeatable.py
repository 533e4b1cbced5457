"""Writes that a newer attempt of a piece of work makes again over the commit of an older one."""

from __future__ import annotations

from sqlglot import exp

from duckrun.sql.dialects import tree_in
from duckrun.values.rows import DeleteInsertSpec, MergeSpec, WriteSpec


def is_repeatable(spec: object) -> bool:
    """True for a write that gives the same table when it is made again over its own earlier commit.

    Its source must not read the target, which the spec does not tell.
    """
    if isinstance(spec, WriteSpec):
        return spec.mode in ("overwrite", "replace")
    if isinstance(spec, MergeSpec):
        return not any(_reads_target(text, spec.dialect) for clause in spec.clauses for text in clause.expressions)
    return isinstance(spec, DeleteInsertSpec)


def _reads_target(text: str, dialect: str) -> bool:
    """True unless each column of an expression is the source's, by its name."""
    return any(column.table.lower() != "source" for column in tree_in(text, dialect).find_all(exp.Column))
