"""The catalog of a DuckLake: how DuckDB attaches it, how it is asked, and the lock of who writes.

Source: the DuckLake specification 1.0, Tables; and what was measured of duckdb 1.5.5's extension (docs/ducklake.md).
"""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
from filelock import FileLock, Timeout

from duckrun.errors import InvalidConfig, ReadOnlyLake, StorageError
from duckrun.sql.names import quote_identifier, quote_literal
from duckrun.storage.extensions import UNSIGNED, extension_path
from duckrun.storage.storage import Storage
from duckrun.values.lake_format import CatalogAddress, LakeFormat

log = logging.getLogger(__name__)

_SCANNERS = {"sqlite": "sqlite_scanner", "postgres": "postgres_scanner", "mysql": "mysql_scanner"}
_AGAIN = 0.01
"""Seconds between two tries for the lock of a catalog."""
VERSIONS = ("1.0",)
"""The versions of the catalog that this code knows."""
APPLIED = "_duckrun.applied"
"""The lake's table that says which application transactions were committed."""

_embedded: dict[str, Catalog] = {}
"""The catalogs in DuckDB files that this process has open: one instance of DuckDB may have such a file."""


class Catalog:
    """The catalog of one lake, in any number of DuckDB instances of this process. Safe across threads."""

    def __init__(self, storage: Storage, form: LakeFormat, *, read_only: bool = False) -> None:
        self.storage = storage
        self.address = form.catalog or self._default(storage)
        self.encrypted, self.inline_rows, self.read_only = form.encrypted, form.inline_rows, read_only
        self.data_path = f"{storage.root}/data/"
        self._lock = threading.RLock()
        self._own: duckdb.DuckDBPyConnection | None = None
        self._lent: list[duckdb.DuckDBPyConnection] = []
        self._checked = False

    @staticmethod
    def _default(storage: Storage) -> CatalogAddress:
        if storage.is_local:
            return CatalogAddress.parse(f"sqlite:{storage.root}/catalog.sqlite")
        raise InvalidConfig(
            f"Lake {storage.root} is of format ducklake in an object store, where no SQLite file can be: name its catalog, "
            "such as catalog: postgres:<dsn>, or sqlite:<a local file>."
        )

    # -- names

    def alias(self, epoch: int | str = 0) -> str:
        """The name, not quoted, under which DuckDB instances have the lake. Once the type of a column was widened, filters fail in an attachment
        that has seen both types: tables of each ``epoch`` (the snapshot of the widening) are read through one of their own.
        """
        return f"ducklake {epoch} {self.storage.root}"

    def meta(self, table: str, epoch: int | str = 0) -> str:
        """A table of the catalog itself, in SQL."""
        return f"{quote_identifier(f'__ducklake_metadata_{self.alias(epoch)}')}.{quote_identifier(table)}"

    # -- instances

    @property
    def extensions(self) -> tuple[str, ...]:
        """What DuckDB loads to attach the catalog."""
        scanner = _SCANNERS.get(self.address.kind)
        secure = ("httpfs",) if self.encrypted else ()
        return ("ducklake", *((scanner,) if scanner else ()), *secure)

    def is_there(self) -> bool:
        """True if the catalog exists. A file is looked for; a server is asked."""
        if self.address.is_file:
            return Path(self.address.place).is_file()
        try:
            self.cursor()
        except StorageError as error:
            if isinstance(error, _NoCatalog):
                return False
            raise
        return True

    def lend(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Let an instance read the lake's tables. A catalog in a DuckDB file is that instance's alone from now on."""
        with self._lock:
            if self.address.kind == "duckdb":
                self._take_file()
            self.close()
            self._lent.append(connection)
            if not self.address.is_file or self.is_there():
                with suppress(_NoCatalog):
                    self._attach(connection, 0)

    def _take_file(self) -> None:
        other = _embedded.get(self.address.place)
        if other is not None and other is not self and other.in_use():
            raise StorageError(
                f"The catalog {self.address} is open in this process by another session of lake {other.storage.root}: a DuckDB file is for one. "
                f"Close that session; {_for_several()}."
            )
        _embedded[self.address.place] = self

    def in_use(self) -> bool:
        """True while some instance has the catalog open."""
        with self._lock:
            self._lent = [connection for connection in self._lent if _is_open(connection)]
            return bool(self._lent) or self._own is not None

    def ensure(self, epoch: int = 0, *, create: bool = False) -> None:
        """Attach the catalog, made if it is to ``create`` it, wherever the lake is read."""
        with self._lock:
            self.cursor(create=create)
            for connection in [each for each in self._lent if _is_open(each)]:
                self._attach(connection, 0, create=create)
                self._attach(connection, epoch)

    def cursor(self, *, create: bool = False) -> duckdb.DuckDBPyConnection:
        """A cursor on which the catalog is attached, of an instance that reads the lake where there is one. Raises StorageError where
        there is no catalog.
        """
        with self._lock:
            self._lent = [each for each in self._lent if _is_open(each)]
            if self._lent:
                connection = self._lent[0]
            else:
                if self.address.kind == "duckdb" and self._own is None:
                    self._take_file()
                connection = self._own = self._own or self._opened()
            self._attach(connection, 0, create=create)
            return connection.cursor()

    def _opened(self) -> duckdb.DuckDBPyConnection:
        """An instance for questions to the catalog alone."""
        settings: dict[str, Any] = {
            "threads": "2",
            "memory_limit": "512MB",
            "autoinstall_known_extensions": "false",
            UNSIGNED: "true",
        }
        connection = duckdb.connect(":memory:", config=settings)
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
        needed = [*self.extensions]
        needed += {"s3": ["httpfs"], "gcs": ["httpfs"], "azure": ["azure"]}.get(self.storage.kind, [])
        for name in dict.fromkeys(needed):
            connection.execute(f"LOAD {quote_literal(extension_path(name).as_posix())}")
        connection.execute(f"SET GLOBAL {UNSIGNED} = false")
        for statement in self.storage.duckdb_secrets(narrow=True):
            connection.execute(statement)
        return connection

    def attach_for(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        """Attach the catalog once more, for one transaction, which sees each type as it is now."""
        self._attach(connection, name, create=True)

    def detach(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        """Take such an attachment away."""
        with suppress(duckdb.Error):
            connection.cursor().execute(f"DETACH {quote_identifier(self.alias(name))}")

    def _attach(self, connection: duckdb.DuckDBPyConnection, epoch: int | str, *, create: bool = False) -> None:
        cursor, name = connection.cursor(), self.alias(epoch)
        if cursor.execute("SELECT 1 FROM duckdb_databases() WHERE database_name = ?", [name]).fetchone():
            return
        if create:
            self._refuse_strangers()
        # A commit that meets another writer's is never repeated by DuckLake itself: what it was computed from would not be looked at again.
        cursor.execute("SET GLOBAL ducklake_max_retry_count = 0")
        options = [f"DATA_PATH {quote_literal(self.data_path)}", f"DATA_INLINING_ROW_LIMIT {self.inline_rows}"]
        options.append(f"CREATE_IF_NOT_EXISTS {str(create and not self.read_only).lower()}")
        options.append("AUTOMATIC_MIGRATION false")
        if self.address.kind == "sqlite":
            # In SQLite's default mode one commit that fails locks the instance for good.
            options += ["META_JOURNAL_MODE 'WAL'", "META_BUSY_TIMEOUT 30000"]
        options += ["READ_ONLY"] if self.read_only else []
        options += ["ENCRYPTED"] if self.encrypted and create else []
        place = self.address.place if self.address.kind == "duckdb" else f"{self.address.kind}:{self.address.place}"
        statement = f"ATTACH {quote_literal(f'ducklake:{place}')} AS {quote_identifier(name)} ({', '.join(options)})"
        with self.errors("attach"):
            cursor.execute(statement)
        if not self._checked:
            self._check(cursor)

    def _refuse_strangers(self) -> None:
        """Raise StorageError where a new lake's data folder holds files: they would be taken for this lake's, and removed as orphans."""
        if not self.address.is_file or Path(self.address.place).is_file():
            return
        found = next(iter(self.storage.keys(f"{self.storage.root}/data")), None)
        if found is not None:
            raise StorageError(
                f"Lake {self.storage.root} cannot be made: {self.data_path} holds files, such as {found['path']}, and a DuckLake takes each Parquet "
                "file there for its own. Move them, or choose another root."
            )
        if any(self.storage.keys(self.storage.root, "_delta_log")):
            raise StorageError(f"{self.storage.root} is a Delta table, not the root of a lake.")
        Path(self.address.place).parent.mkdir(parents=True, exist_ok=True)

    def _check(self, cursor: duckdb.DuckDBPyConnection) -> None:
        found = dict(
            cursor.execute(f"SELECT key, value FROM {self.meta('ducklake_metadata')} WHERE scope IS NULL").fetchall()
        )
        if found.get("version") not in VERSIONS:
            raise StorageError(
                f"The catalog {self.address} is of DuckLake version {found.get('version')}, and this knows {', '.join(VERSIONS)}: "
                "open it with a newer duckrun."
            )
        if found.get("encrypted", "false").lower() == "true":
            self.encrypted = True
            cursor.execute(f"LOAD {quote_literal(extension_path('httpfs').as_posix())}")
        self._checked = True

    # -- questions and errors

    def redacted(self, text: object) -> str:
        """A message without the password of the catalog, or the credentials of the data."""
        return self.storage.redacted(self.address.redacted(text))

    def ask(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query over the catalog; none where there is no catalog yet."""
        if self.address.is_file and not self.is_there():
            return []
        with self.errors("query"):
            try:
                return self.cursor().execute(sql, list(values)).fetchall()
            except _NoCatalog:
                return []

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """DuckDB's errors as this library's, without a password."""
        try:
            yield
        except duckdb.Error as error:
            text = self.address.redacted(error)
            if "explicitly disabled" in text or "does not exist - and creating" in text:
                raise _NoCatalog(
                    f"There is no catalog {self.address} of lake {self.storage.root}: it is gone, or was not made yet."
                ) from None
            if "does not match existing data path" in text:
                raise StorageError(
                    f"The catalog {self.address} is of another lake: {text.splitlines()[0]} Open that lake by its root, or "
                    "name another catalog."
                ) from None
            if "ncryption" in text and "ncrypted" in text:
                raise InvalidConfig(f"Lake {self.storage.root}: {text.splitlines()[0]}") from None
            if self.address.kind == "duckdb" and ("lock" in text.lower() or "already attached" in text.lower()):
                raise StorageError(
                    f"The catalog {self.address} is held by another process: a DuckDB file is for one process. {_for_several()}. ({text.splitlines()[0]})"
                ) from None
            raise StorageError(f"Catalog {self.address} of lake {self.storage.root}, {what}: {text}") from None

    # -- the lock

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of all writers of this lake: of the operating system beside a file, of the server for any other. Whoever dies lets go of it."""
        if self.read_only:
            raise ReadOnlyLake(f"Lake {self.storage.root} is open read-only.")
        if self.address.is_file:
            with self._file_lock():
                yield
            return
        self.ensure(create=True)
        holder = self.cursor(create=True)
        holder.execute("BEGIN TRANSACTION")
        try:
            with self.errors("lock"):
                holder.execute(self._server_lock())
            yield
        finally:
            with suppress(duckdb.Error):
                holder.execute(self._server_unlock())
            with suppress(duckdb.Error):
                holder.execute("ROLLBACK")
            holder.close()

    def _server_lock(self) -> str:
        database = quote_literal(f"__ducklake_metadata_{self.alias()}")
        if self.address.kind == "postgres":
            key = zlib.crc32(f"duckrun {self.data_path}".encode())
            return (
                f"FROM postgres_query({database}, 'SELECT 1 AS held FROM (SELECT pg_advisory_xact_lock({key})) AS l')"
            )
        name = f"duckrun_{zlib.crc32(self.data_path.encode())}"
        return f"FROM mysql_query({database}, 'SELECT GET_LOCK(''{name}'', 86400) AS held')"

    def _server_unlock(self) -> str:
        if self.address.kind == "postgres":
            return "SELECT 1"
        key = f"duckrun_{zlib.crc32(self.data_path.encode())}"
        database = quote_literal(f"__ducklake_metadata_{self.alias()}")
        return f"FROM mysql_query({database}, 'SELECT RELEASE_LOCK(''{key}'') AS freed')"

    @contextmanager
    def _file_lock(self) -> Iterator[None]:
        path = Path(f"{self.address.place}.lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"Lake {self.storage.root} cannot be written: {error}") from error
        lock = FileLock(str(path), thread_local=False)
        waited = 0
        while True:
            try:
                lock.acquire(timeout=30, poll_interval=_AGAIN)
                break
            except Timeout:
                waited += 30
                log.info("waiting for another writer of lake %s, %s s so far", self.storage.root, waited)
            except PermissionError as error:
                raise ReadOnlyLake(f"Lake {self.storage.root} cannot be written: no permission for {path}.") from error
        try:
            yield
        finally:
            lock.release()

    def close(self) -> None:
        """Close the instance that was opened for the catalog alone."""
        with self._lock:
            if self._own is not None:
                self._own.close()
                self._own = None


class _NoCatalog(StorageError):
    """There is no catalog where one was looked for."""


def _for_several() -> str:
    return "For several processes or sessions name a catalog in SQLite (sqlite:<file>) or PostgreSQL (postgres:<dsn>)"


def _is_open(connection: duckdb.DuckDBPyConnection) -> bool:
    try:
        connection.cursor().execute("SELECT 1")
    except (duckdb.ConnectionException, duckdb.FatalException):
        return False
    return True
