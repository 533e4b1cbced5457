"""The lock of who writes a DuckLake: of the operating system beside a file, of the server for any other catalog. Whoever dies lets go of it."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from duckrun.sql.names import quote_literal
from duckrun.storage.locks import file_lock
from duckrun.storage.trouble import lost_connection

if TYPE_CHECKING:
    from duckrun.formats.ducklake.catalog import Catalog

log = logging.getLogger(__name__)

_PATIENCE = 5
"""Seconds that a server is asked to wait in one go: Ctrl-C is seen in between."""
_POOLED = 4
"""How many connections to a server DuckDB keeps to use again, by itself: the server may have ended each of them."""
_SAID = 30
"""Seconds of waiting after which it is logged."""


@contextmanager
def locked(catalog: Catalog, what: str = "") -> Iterator[None]:
    """Hold the lock of all writers of a lake, or of ``what`` of it."""
    if catalog.address.is_file:
        held = file_lock(Path(f"{catalog.address.place}{what}.lock"), f"lake {catalog.storage.root}")
    else:
        held = _of_server(catalog, what)
    with held:
        yield


@contextmanager
def _of_server(catalog: Catalog, what: str) -> Iterator[None]:
    """PostgreSQL's advisory lock, in a transaction of its own. Those who wait get it in the order in which they came."""
    cursor, database = catalog.beside()
    key = zlib.crc32(f"duckrun {catalog.data_path}{what}".encode())
    # A server that ends idle transactions would let go of the lock in the middle of a long write.
    settings = f"set_config('lock_timeout', '{_PATIENCE}s', true), set_config('idle_in_transaction_session_timeout', '0', true)"
    asked = quote_literal(f"SELECT 1 AS held FROM (SELECT {settings}, pg_advisory_xact_lock({key})) AS l")
    waited = ended = 0
    try:
        while True:
            cursor.execute("BEGIN TRANSACTION")
            try:
                # One message to the server, with the BEGIN; postgres_query() would send three.
                cursor.execute(f"CALL postgres_execute({quote_literal(database)}, {asked})")
                break
            except duckdb.Error as error:
                with suppress(duckdb.Error):  # of a connection that the server has ended
                    cursor.execute("ROLLBACK")
                if "lock timeout" not in str(error):
                    if lost_connection(str(error)) is not None and ended < _POOLED:
                        ended += 1  # the next BEGIN takes another connection
                        continue
                    with catalog.errors("lock"):
                        raise
                waited += _PATIENCE
                if waited % _SAID == 0:
                    log.info("waiting for another writer of lake %s, %s s so far", catalog.storage.root, waited)
        yield
    finally:
        with suppress(duckdb.Error):  # the server is gone, and the lock with it
            cursor.execute("ROLLBACK")
        cursor.close()
