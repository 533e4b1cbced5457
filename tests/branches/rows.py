"""Rows of a query, for comparison."""

from __future__ import annotations

from duckrun import Session


def values(session: Session, query: str) -> list[tuple[object, ...]]:
    """Return the rows in order of their values."""
    return sorted(tuple(row.values()) for row in session.sql(query).collect())
