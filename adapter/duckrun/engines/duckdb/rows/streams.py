"""Streams as the source of a write: a stream is read once, and an attempt may have to run again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from duckrun.engines.duckdb.rows.places import computed
from duckrun.engines.duckdb.rows.source import Rows, spool
from duckrun.errors import CommitConflict


class Streams:
    """Rows of one write that can be read again, over all of its attempts.

    Args:
        cause: Start of the error message: why a stream would have to be read a second time.
    """

    def __init__(self, cause: str) -> None:
        self._cause = cause
        self._is_read = False
        self._spooled: dict[str, Rows] = {}

    def take(self, rows: Rows) -> None:
        """Record that this attempt reads a stream.

        Raises:
            CommitConflict: An earlier attempt has read it.
        """
        if not rows.one_shot:
            return
        if self._is_read:
            raise CommitConflict(
                f"{self._cause}, and the source is a stream that has been read", remedy="read again and repeat"
            )
        self._is_read = True

    def kept(self, rows: Rows) -> Rows:
        """Return rows that can be read again; the first attempt spools a stream to disk."""
        if not rows.one_shot:
            return rows
        if rows.sql not in self._spooled:
            self.take(rows)
            self._spooled[rows.sql] = spool(rows)
        return self._spooled[rows.sql]

    @contextmanager
    def read_once(self, rows: Rows) -> Iterator[Rows]:
        """Yield rows that can be read again with the same values, also for a volatile query."""
        if rows.one_shot:
            yield self.kept(rows)
            return
        with computed(rows.cursor, rows.sql) as name:
            yield replace(rows, sql=f"SELECT * FROM {name}", order=(), carried=())
