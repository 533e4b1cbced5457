"""The lock of who writes a DuckLake: of the operating system beside a file, of the server for any other catalog. Whoever dies lets go of it."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
from filelock import FileLock, Timeout

from duckrun.errors import ReadOnlyLake, StorageError
from duckrun.sql.names import quote_literal

if TYPE_CHECKING:
    from duckrun.formats.ducklake.catalog import Catalog

log = logging.getLogger(__name__)

_POLL = 0.01
"""Seconds between two tries for the lock of a file."""
_PATIENCE = 5
"""Seconds that a server is asked to wait in one go: Ctrl-C is seen in between."""
_SAID = 30
"""Seconds of waiting after which it is logged."""


@contextmanager
def locked(catalog: Catalog, what: str = "") -> Iterator[None]:
    """Hold the lock of all writers of a lake, or of ``what`` of it."""
    with _of_file(catalog, what) if catalog.address.is_file else _of_server(catalog, what):
        yield


@contextmanager
def _of_file(catalog: Catalog, what: str) -> Iterator[None]:
    root, path = catalog.storage.root, Path(f"{catalog.address.place}{what}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"Lake {root} cannot be written: {error}") from error
    lock = FileLock(str(path), thread_local=False)
    waited = 0
    while True:
        try:
            lock.acquire(timeout=_SAID, poll_interval=_POLL)
            break
        except Timeout:
            waited += _SAID
            log.info("waiting for another writer of lake %s, %s s so far", root, waited)
        except PermissionError as error:
            raise ReadOnlyLake(f"Lake {root} cannot be written: no permission for {path}.") from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _of_server(catalog: Catalog, what: str) -> Iterator[None]:
    """PostgreSQL's advisory lock, in a transaction of its own. Those who wait get it in the order in which they came."""
    cursor, database = catalog.beside()
    key = zlib.crc32(f"duckrun {catalog.data_path}{what}".encode())
    # A server that ends idle transactions would let go of the lock in the middle of a long write.
    settings = f"set_config('lock_timeout', '{_PATIENCE}s', true), set_config('idle_in_transaction_session_timeout', '0', true)"
    asked = quote_literal(f"SELECT 1 AS held FROM (SELECT {settings}, pg_advisory_xact_lock({key})) AS l")
    waited = 0
    try:
        while True:
            cursor.execute("BEGIN TRANSACTION")
            try:
                # One message to the server, with the BEGIN; postgres_query() would send three.
                cursor.execute(f"CALL postgres_execute({quote_literal(database)}, {asked})")
                break
            except duckdb.Error as error:
                cursor.execute("ROLLBACK")
                if "lock timeout" not in str(error):
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
