"""Date expressions of a query: a date minus a date is a number in DuckDB, an interval in Spark."""

from __future__ import annotations

from sqlglot import exp

from duckrun.libraries import pa
from duckrun.sql.kinds import kind_of

_DAYS = "days"  # of a subtraction: both sides are dates


def mark_days(root: exp.Expr) -> None:
    """Mark each subtraction of two dates in a tree."""
    for node in root.find_all(exp.Sub):
        if is_date(node.this) and is_date(node.expression):
            node.meta[_DAYS] = True


def gives_days(node: exp.Expr) -> bool:
    return bool(node.meta.get(_DAYS))


def is_date(node: exp.Expr) -> bool:
    """Return True for an expression that is certainly a date.

    Its form tells, or the tables of its query.
    """
    return bool(pa.types.is_date(kind_of(node)))
