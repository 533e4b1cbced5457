"""Lock of a DuckLake's writers: a file lock, or an advisory lock of the catalog's server.

Both are released if their holder dies.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

import duckdb

from duckrun.formats.ducklake.catalog.refusals import DuckLakeRefusal
from duckrun.formats.ducklake.catalog.trouble import NamedCatalog
from duckrun.sql.quoting import quote_literal
from duckrun.storage.locks import file_lock
from duckrun.storage.trouble import lost_connection

log = logging.getLogger(__name__)

_PATIENCE = 5
"""Seconds per wait for the server's lock. Ctrl-C is handled between two waits."""
_POOLED = 4
"""Number of connections that DuckDB pools. The server may have ended each of them."""
_SAID = 30
"""Seconds of waiting between two log messages."""


class ServedCatalog(NamedCatalog, Protocol):
    """Catalog whose server can hold a lock."""

    data_path: str

    def beside(self) -> tuple[duckdb.DuckDBPyConnection, str]:
        """Return a cursor, and the name of the attached server."""

    def errors(self, what: str) -> AbstractContextManager[None]:
        """Translate the errors of a block."""


def locked(catalog: ServedCatalog, what: str = "") -> AbstractContextManager[None]:
    """Hold the lock of all writers of a lake, or of its part ``what``."""
    if catalog.address.is_file:
        return file_lock(Path(f"{catalog.address.place}{what}.lock"), f"lake {catalog.storage.root}")
    return _of_server(catalog, what)


@contextmanager
def _of_server(catalog: ServedCatalog, what: str) -> Iterator[None]:
    """Hold PostgreSQL's advisory lock in its own transaction. Waiters are served in order."""
    cursor, database = catalog.beside()
    # PostgreSQL's advisory locks are numbers.
    key = zlib.crc32(f"duckrun {catalog.data_path}{what}".encode())
    # A server that ends idle transactions would let go of the lock in the middle of a long write.
    settings = (
        f"set_config('lock_timeout', '{_PATIENCE}s', true), set_config('idle_in_transaction_session_timeout', "
        "'0', true)"
    )
    statement = quote_literal(f"SELECT 1 AS held FROM (SELECT {settings}, pg_advisory_xact_lock({key})) AS l")
    waited = ended = 0
    try:
        while True:
            cursor.execute("BEGIN TRANSACTION")
            try:
                # This sends one message to the server, with the BEGIN. postgres_query() would send
                # three.
                cursor.execute(f"CALL postgres_execute({quote_literal(database)}, {statement})")
                break
            except duckdb.Error as error:
                with suppress(duckdb.Error):  # The server may have ended the connection.
                    cursor.execute("ROLLBACK")
                if not DuckLakeRefusal.LOCK_TIMEOUT.is_of(error):
                    if lost_connection(str(error)) is not None and ended < _POOLED:
                        ended += 1  # The next BEGIN takes another connection of the pool.
                        continue
                    with catalog.errors("lock"):
                        raise
                waited += _PATIENCE
                if waited % _SAID == 0:
                    log.info("waiting for another writer of lake %s, %s s so far", catalog.storage.root, waited)
        yield
    finally:
        with suppress(duckdb.Error):  # If the server is gone, so is the lock.
            cursor.execute("ROLLBACK")
        cursor.close()
