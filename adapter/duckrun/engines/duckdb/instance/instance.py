"""The DuckDB instance of an engine: its settings, extensions, secrets and temporary names."""

from __future__ import annotations

import logging
import sys
import tempfile
import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import duckdb

from duckrun.display.progress import shows_progress
from duckrun.engines.duckdb.instance.arrow import readable, register
from duckrun.engines.duckdb.instance.lazy_cursor import lazy_cursor
from duckrun.engines.duckdb.instance.sql import attach_again
from duckrun.errors import InvalidConfig
from duckrun.lake.lake import Lake
from duckrun.libraries import pa
from duckrun.run.memory import Arbiter, threads_within
from duckrun.run.pins import Reads
from duckrun.sql.quoting import quote_identifier
from duckrun.storage.extensions import UNSIGNED, keep_forever, load
from duckrun.values.any_case import AnyCase
from duckrun.values.columns import refuse_twins

log = logging.getLogger(__name__)


class Instance:
    """One DuckDB instance, which is opened at first use, and again after it has ended.

    Args:
        lake: Lake whose extensions and credentials it has from the start.
        arbiter: Shares of this process's memory.
        connection: Connection of an instance that the caller owns.
        limit: Memory limit of that instance in bytes.
        progress: Show a progress bar for long queries of an interactive session.
    """

    def __init__(
        self,
        lake: Lake,
        arbiter: Arbiter,
        connection: duckdb.DuckDBPyConnection | None = None,
        limit: int | None = None,
        *,
        progress: bool = False,
    ) -> None:
        self.limit = limit or arbiter.instance_limit()
        """Memory that DuckDB may use, in bytes."""
        self.held: duckdb.DuckDBPyConnection | None = None
        """Cursor of the open transaction over several tables."""
        self.only: duckdb.DuckDBPyConnection | None = None
        """Cursor of all jobs, for a caller with temporary objects on a cursor of its own."""
        self.reads: AnyCase[Reads] = AnyCase()
        """Tables that the temporary names were computed from."""
        self.registered: AnyCase[pa.Table] = AnyCase()
        """Arrow tables, which each cursor sees as views of its own."""
        self.views: AnyCase[str] = AnyCase()
        """SQL of the temporary views."""
        self.kept: set[str] = set()
        """Lower-case names of the temporary tables."""
        self._lake = lake
        self._arbiter = arbiter
        self._progress = progress
        self._owned = connection is None
        self._opened = connection
        self._opening = threading.Lock()
        self._folder = tempfile.TemporaryDirectory(prefix="duckrun-")
        self.scratch = self._folder.name
        """Folder of spilled and other temporary data."""
        self._reached: dict[Hashable, Lake] = {lake.format.lent: lake}

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The connection that all cursors come from.

        Jobs run on cursors alone, as a statement would end a stream that the user reads here.
        """
        with self._opening:
            if self._opened is None:
                self._opened = open_connection(self._lake, self.limit, self.scratch)
            elif self._owned and _has_ended(self._opened):
                self._opened = self._opened_again(self._opened)
            return self._opened

    def _opened_again(self, ended: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
        """Open a new instance with the registered values, views and credentials of the ended one.

        Its temporary tables are lost.
        """
        if self._ended_with_ducklake(ended):
            keep_forever(ended)
        connection = open_connection(self._lake, self.limit, self.scratch)
        for lake in list(self._reached.values())[1:]:
            _attach(connection, lake)
        lost = dict.fromkeys(self.kept, "its rows are gone")
        for name, sql in self.views.items():
            try:
                attach_again(connection, sql)
                connection.execute(f"CREATE OR REPLACE VIEW {quote_identifier(name)} AS {sql}")
            except duckdb.Error as error:  # the view reads a table that is gone
                lost[name] = str(error).splitlines()[0]
        for name in lost:
            self._remove(name)
        log.warning(
            "An internal error ended this session's DuckDB; a new one is open%s.",
            "".join(f", without the temporary {name} ({why})" for name, why in lost.items()),
        )
        return connection

    def _ended_with_ducklake(self, connection: duckdb.DuckDBPyConnection) -> bool:
        return any(lake.format.transactions is not None for lake in self._reached.values()) and _has_ended(connection)

    def make_room(self, what: str) -> None:
        """Take delta_rs's share of the memory off DuckDB's, for the life of the instance.

        Args:
            what: Start of the error message: the write that needs the memory.

        Raises:
            InvalidConfig: DuckDB already uses more than its reduced share.
        """
        with self._opening:
            limit = self._arbiter.instance_limit(beside_delta_rs=True)
            if self.limit <= limit:
                return
            if self._opened is not None:
                try:
                    self._opened.cursor().execute(f"SET GLOBAL memory_limit = '{limit}B'")
                except duckdb.Error as error:
                    raise InvalidConfig(
                        f"{what} asks for writer delta_rs, which needs memory of its own, and DuckDB has more "
                        f"than {limit / 1e6:.0f} MB in use in this process",
                        remedy="leave writer to auto, or write before other work begins",
                    ) from error
            self.limit = limit

    def reach(self, lake: Lake) -> None:
        """Attach another lake: its credentials and its catalog. A second call does nothing."""
        if lake.format.lent not in self._reached:
            _attach(self.connection, lake)
            self._reached[lake.format.lent] = lake

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A cursor for one job, or that of the open transaction."""
        return self.held or self.only or self.beside(self.connection)

    def beside(self, other: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
        """A new cursor of the instance that another cursor is of."""
        cursor = other.cursor()
        if self._progress and shows_progress(sys.stdout):  # where DuckDB draws its bar
            cursor.execute("SET enable_progress_bar = true")
        return cursor

    def cursor_with_values(self) -> duckdb.DuckDBPyConnection:
        """A cursor that sees the registered tables too."""
        cursor = self.cursor()
        name_values(cursor, self.registered)
        return cursor

    def lazy_cursor(self) -> duckdb.DuckDBPyConnection:
        """A cursor that sees the registered tables too, opened at its first use.

        In an open transaction, that is its cursor.
        """
        is_open = self.held is not None or self.only is not None
        return self.cursor_with_values() if is_open else lazy_cursor(self.cursor_with_values)

    @contextmanager
    def on_one_cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Run all statements on one cursor, and so in its transaction, while the block runs."""
        self.held = self.connection.cursor()
        try:
            yield self.held
        finally:
            self.held = None

    # -- temporary names

    def register(self, name: str, rows: pa.Table, reads: Reads) -> None:
        """Name an Arrow table."""
        refuse_twins(rows.schema.names)
        self.registered[name] = readable(rows)
        self.reads[name] = reads

    def create_view(self, name: str, sql: str, reads: Reads) -> None:
        """Create a view that every cursor sees."""
        self.connection.cursor().execute(f"CREATE OR REPLACE VIEW {quote_identifier(name)} AS {sql}")
        self.views[name] = sql
        self.reads[name] = reads

    def create_table(self, name: str, sql: str, cursor: duckdb.DuckDBPyConnection, reads: Reads) -> None:
        """Compute a query of a cursor into a table that every cursor sees."""
        cursor.execute(f"CREATE TABLE {quote_identifier(name)} AS {sql}")
        self.kept.add(name.lower())
        self.reads[name] = reads

    def forget(self, name: str) -> None:
        """Remove a temporary name; an unknown one is ignored."""
        if name not in self.reads:
            return
        if name.lower() in self.kept:
            self.connection.cursor().execute(f"DROP TABLE {quote_identifier(name)}")
        elif name not in self.registered:
            self.connection.cursor().execute(f"DROP VIEW IF EXISTS {quote_identifier(name)}")
        self._remove(name)

    def _remove(self, name: str) -> None:
        self.kept.discard(name.lower())
        for names in (self.registered, self.views, self.reads):
            names.pop(name, None)

    def close(self) -> None:
        """Close the connection if it was opened here, and remove temporary data."""
        with self._opening:
            if self._opened is not None and self._owned:
                if self._ended_with_ducklake(self._opened):
                    keep_forever(self._opened)
                else:
                    self._opened.close()
                self._opened = None
        self._folder.cleanup()


def name_values(cursor: duckdb.DuckDBPyConnection, values: Mapping[str, pa.Table]) -> None:
    """Let a cursor see registered tables."""
    for name, value in values.items():
        select, _ = register(cursor, f"__duckrun_arrow_{name}", value)
        cursor.execute(f"CREATE OR REPLACE TEMP VIEW {quote_identifier(name)} AS {select}")


def load_extensions(connection: duckdb.DuckDBPyConnection, lakes: Sequence[Lake] = (), *, narrow: bool = False) -> None:
    """Load the extensions that these lakes need, and set their secrets; see ``load()``."""
    needed = [name for lake in lakes for name in lake.format.extensions] or ["delta"]
    load(connection, needed, [lake.storage for lake in lakes], narrow=narrow)


def instance_config(limit: int, scratch: str) -> dict[str, str]:
    """Settings of our DuckDB instances.

    Args:
        limit: Memory in bytes; it also determines the number of threads.
        scratch: Folder for spilled data.
    """
    # A Delta table has no row order, and to preserve that of the input costs memory. ORDER BY still
    # holds.
    return {
        "memory_limit": f"{limit}B",
        "threads": str(threads_within(limit)),
        "temp_directory": scratch,
        "preserve_insertion_order": "false",
        "autoinstall_known_extensions": "false",
    }


def open_connection(lake: Lake, limit: int, scratch: str) -> duckdb.DuckDBPyConnection:
    """Open an in-memory DuckDB with the extensions and secrets that a lake needs."""
    connection = duckdb.connect(":memory:", config={**instance_config(limit, scratch), UNSIGNED: "true"})
    connection.execute("SET GLOBAL TimeZone = 'UTC'")  # without GLOBAL its cursors keep the machine's zone
    load_extensions(connection, [lake])
    connection.execute(f"SET GLOBAL {UNSIGNED} = false")
    lake.format.lend(connection)
    return connection


def _attach(connection: duckdb.DuckDBPyConnection, lake: Lake) -> None:
    load_extensions(connection, [lake], narrow=True)
    lake.format.lend(connection)


def _has_ended(connection: duckdb.DuckDBPyConnection) -> bool:
    """True if an internal error has invalidated the instance: it refuses every later statement."""
    try:
        connection.cursor().execute("SELECT 1")
    except duckdb.FatalException:
        return True
    return False
