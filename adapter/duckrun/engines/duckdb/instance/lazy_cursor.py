"""A cursor that opens DuckDB at its first use, for a write that may need none.

The start of DuckDB takes twice as long as all else of a write of ten rows in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import duckdb

Action = Callable[[duckdb.DuckDBPyConnection], object]


class _LazyCursor:
    """Stand-in for a cursor; every attribute is the cursor's."""

    def __init__(self, open_cursor: Callable[[], duckdb.DuckDBPyConnection]) -> None:
        self._open_cursor = open_cursor
        self._cursor: duckdb.DuckDBPyConnection | None = None
        self._waiting: list[Action] = []
        """Actions to run on the cursor once it is open."""

    def __getattr__(self, name: str) -> Any:
        if self._cursor is None:
            cursor = self._open_cursor()
            for action in self._waiting:
                action(cursor)
            self._cursor = cursor
        return getattr(self._cursor, name)


def lazy_cursor(open_cursor: Callable[[], duckdb.DuckDBPyConnection]) -> duckdb.DuckDBPyConnection:
    """Return a cursor that a function opens at the first use of one of its attributes."""
    return cast(duckdb.DuckDBPyConnection, _LazyCursor(open_cursor))


def before_use(cursor: duckdb.DuckDBPyConnection, action: Action) -> None:
    """Run an action on a cursor; if it is lazy and not open, once it is opened."""
    if isinstance(cursor, _LazyCursor) and cursor._cursor is None:
        cursor._waiting.append(action)
    else:
        action(cursor)


def dropped(cursor: duckdb.DuckDBPyConnection, action: Action) -> bool:
    """Forget an action of before_use() that waits; False if it has run."""
    if isinstance(cursor, _LazyCursor) and cursor._cursor is None:
        cursor._waiting.remove(action)
        return True
    return False
