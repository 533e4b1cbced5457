"""Catalog of a DuckLake: attachments in DuckDB instances, queries and the writers' lock.

Source: the DuckLake specification 1.0, Tables, and measurements of duckdb 1.5.5's extension
(docs/ducklake.md).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb

from duckrun.errors import InvalidConfig, ReadOnlyLake, StorageError
from duckrun.formats.ducklake.catalog import locks
from duckrun.formats.ducklake.catalog.refusals import DuckLakeRefusal
from duckrun.formats.ducklake.catalog.trouble import (
    FOR_SEVERAL,
    NoCatalog,
    gone,
    other_encryption,
    translated,
)
from duckrun.sql.quoting import quote_identifier, quote_literal, with_values
from duckrun.storage.extensions import UNSIGNED, extension_path, load
from duckrun.storage.storage import Storage
from duckrun.values.lake_format import DUCKLAKE_MARK, CatalogAddress, LakeFormat

log = logging.getLogger(__name__)

_SCANNERS = {"sqlite": "sqlite_scanner", "postgres": "postgres_scanner"}
APPLIED = "_duckrun.applied"
"""Table of the lake with the committed application transactions."""
INLINE_LIMIT = "data_inlining_row_limit"
"""DuckLake's option for the largest insert, in rows, that it inlines."""

_embedded: dict[str, Catalog] = {}
"""Open catalogs in DuckDB files. Only one DuckDB instance can open such a file."""


class Catalog:
    """Catalog of one lake, in any number of DuckDB instances of this process.

    Safe across threads.
    """

    def __init__(self, storage: Storage, form: LakeFormat, *, read_only: bool = False) -> None:
        self.storage = storage
        self.address = form.catalog or self._default(storage)
        self.inline_rows, self.read_only = form.inline_rows, read_only
        self._file = Path(self.address.place) if self.address.is_file else None
        self._asked_encrypted = form.encrypted
        self.encrypted = bool(form.encrypted)
        self.data_path = f"{storage.root}/data/"
        self._lock = threading.RLock()
        self._own: duckdb.DuckDBPyConnection | None = None
        self._lent: list[duckdb.DuckDBPyConnection] = []
        self._epochs: dict[int | str, None] = {0: None}
        self._attached: dict[int, tuple[duckdb.DuckDBPyConnection, set[str]]] = {}
        self._halves: list[tuple[duckdb.DuckDBPyConnection, str]] = []
        """Attachments that could not be detached because the server was unreachable."""
        self._spoiled = 0
        self.seen = False
        """True once this object has found the catalog."""

    @staticmethod
    def _default(storage: Storage) -> CatalogAddress:
        if storage.is_local:
            return CatalogAddress.parse(f"sqlite:{storage.root}/catalog.sqlite")
        raise InvalidConfig(
            f"Lake {storage.root} is of format ducklake in an object store, where no SQLite file can be: "
            "name its catalog, "
            "such as catalog: postgres:<dsn>, or sqlite:<a local file>."
        )

    # -- names

    def alias(self, epoch: int | str = 0) -> str:
        """Return the unquoted name under which DuckDB instances attach the lake.

        Filters fail in an attachment that has seen two types of a column. Each ``epoch``, which is
        the snapshot of a widening, therefore has its own attachment
        (https://github.com/duckdb/ducklake/pull/1397).
        """
        return f"ducklake {epoch} {self.storage.root}"

    def meta(self, table: str, epoch: int | str = 0) -> str:
        """Return a table of the catalog itself, in SQL."""
        return quote_identifier(self._metadata(epoch), table)

    def rows(self, epoch: int | str, schema: str, name: str, version: int) -> str:
        """Return a table at a snapshot in SQL, read through the attachment of an epoch."""
        return f"{quote_identifier(self.alias(epoch), schema, name)} AT (VERSION => {version})"

    def folder_sql(self, table_id: int, epoch: int | str = 0) -> str:
        """Return the query for the folder of a table, which yields one row."""
        return (
            "SELECT CASE WHEN NOT t.path_is_relative THEN t.path WHEN NOT s.path_is_relative THEN s.path || t.path "
            f"ELSE {quote_literal(self.data_path)} || s.path || t.path END FROM {self.meta('ducklake_table', epoch)} "
            f"AS t JOIN {self.meta('ducklake_schema', epoch)} AS s USING (schema_id) WHERE t.table_id = {table_id} "
            "ORDER BY t.begin_snapshot DESC LIMIT 1"
        )

    def table_folder(self, table_id: int) -> str:
        """Return the folder of a table, with a slash at the end. A rename does not change it."""
        return str(self.ask(self.folder_sql(table_id))[0][0])

    def _metadata(self, epoch: int | str = 0) -> str:
        """Return the name of the catalog's database.

        All attachments share that of a DuckDB file.
        """
        return f"__ducklake_metadata_{self.alias(0 if self.address.kind == 'duckdb' else epoch)}"

    # -- instances

    @property
    def extensions(self) -> tuple[str, ...]:
        """Extensions that DuckDB loads to attach the catalog."""
        scanner = _SCANNERS.get(self.address.kind)
        secure = ("httpfs",) if self.encrypted else ()
        return ("ducklake", *((scanner,) if scanner else ()), *secure)

    def is_there(self) -> bool:
        """True if the catalog exists. Checks a file's path, and connects to a server."""
        if self._file is not None:
            return self._file.is_file()
        try:
            self.cursor()
        except NoCatalog:
            return False
        return True

    def refuse_gone(self) -> None:
        """Raise StorageError if the file of a catalog that was found earlier is gone."""
        if self.seen and self._is_missing():
            raise gone(self)

    def _is_missing(self) -> bool:
        return self._file is not None and not self._file.is_file()

    def lend(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Set up an instance to read the lake's tables.

        A catalog in a DuckDB file then belongs to this instance alone.
        """
        with self._lock:
            if self.address.kind == "duckdb":
                self._take_file()
            self.close()
            self._forget_ended()
            self._lent.append(connection)
            if not self._is_missing():
                with suppress(NoCatalog):
                    # SQL texts that name these attachments may exist already.
                    for epoch in self._epochs:
                        self._attach(connection, epoch)

    def _forget_ended(self) -> None:
        """Drop instances that were closed, or that ended with an internal error."""
        self._lent = [connection for connection in self._lent if _is_open(connection, probe=True)]
        self._attached = {key: pair for key, pair in self._attached.items() if _is_open(pair[0], probe=True)}

    def _take_file(self) -> None:
        other = _embedded.get(self.address.place)
        if other is not None and other is not self:
            other.close()  # An instance for queries alone reopens the file on demand.
        if other is not None and other is not self and other.in_use():
            raise StorageError(
                f"The catalog {self.address} is open in this process by another session of lake "
                f"{other.storage.root}: a DuckDB file is for one. "
                f"Close that session first. {FOR_SEVERAL}."
            )
        _embedded[self.address.place] = self

    def in_use(self) -> bool:
        """True while an instance has the catalog open."""
        with self._lock:
            self._forget_ended()
            return bool(self._lent) or self._own is not None

    def ensure(self, epoch: int | str = 0, *, create: bool = False) -> None:
        """Attach the catalog in all instances that read the lake.

        Args:
            create: Create the catalog if it does not exist.
        """
        with self._lock:
            self.cursor(create=create)
            self._epochs[epoch] = None
            for connection in [*self._lent, *([] if self._own is None else [self._own])]:
                self._attach(connection, 0, create=create)
                self._attach(connection, epoch)

    def cursor(self, *, create: bool = False) -> duckdb.DuckDBPyConnection:
        """Return a cursor with the catalog attached, preferably of an instance that reads the lake.

        Raises:
            StorageError: There is no catalog.
        """
        with self._lock:
            self._halves = [half for half in self._halves if not self._taken_away(*half)]
            self.refuse_gone()
            connection = self._instance()
            self._attach(connection, 0, create=create)
            return connection.cursor()

    def _instance(self) -> duckdb.DuckDBPyConnection:
        """Return an instance that reads the lake, or else one for catalog queries alone."""
        self._lent = [each for each in self._lent if _is_open(each)]
        if self._lent:
            return self._lent[0]
        if self._own is None:
            if self.address.kind == "duckdb":
                self._take_file()
            self._own = self._opened()
        return self._own

    def _opened(self) -> duckdb.DuckDBPyConnection:
        """Open an instance for catalog queries alone."""
        settings: dict[str, Any] = {
            "threads": "2",
            "memory_limit": "512MB",
            # Extensions come from installed packages, never from the network.
            "autoinstall_known_extensions": "false",
            UNSIGNED: "true",
        }
        connection = duckdb.connect(":memory:", config=settings)
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
        load(connection, self.extensions, [self.storage], narrow=True)
        connection.execute(f"SET GLOBAL {UNSIGNED} = false")
        return connection

    def beside(self) -> tuple[duckdb.DuckDBPyConnection, str]:
        """Return a cursor and the name under which it attaches the catalog's server itself.

        It serves requests that are not queries of the lake.
        """
        with self._lock:
            connection = self._instance()
            name = f"beside {self.storage.root}"
            names = self._names_on(connection)
            if name not in names:
                self._keep_secret(connection)
                with self.errors("attach"):
                    cursor = connection.cursor()
                    # The statements themselves show if the server answers (locks.py). A health
                    # check would add two messages around each transaction.
                    cursor.execute("SET SESSION pg_pool_health_check_query = ''")
                    cursor.execute(
                        f"ATTACH {quote_literal(self.address.dsn)} AS {quote_identifier(name)} (TYPE "
                        f"{self.address.kind}{self._by_secret('SECRET')})"
                    )
                names.add(name)
            return connection.cursor(), name

    def attach_for(self, connection: duckdb.DuckDBPyConnection, name: str, database: str | None = None) -> str:
        """Attach the catalog for one transaction, which then sees the current column types.

        Returns:
            The name of the attachment: ``database``, or the alias of ``name``.
        """
        alias = database or self.alias(name)
        if self.address.kind != "duckdb":
            self.attach_as(connection.cursor(), alias)
            return alias
        alias = database or self.alias(f"t{self._spoiled}")
        names = self._names_on(self._lent[0] if self._lent else self._own or connection)
        if alias not in names:
            self.attach_as(connection.cursor(), alias)
            names.add(alias)
        return alias

    def detach(self, connection: duckdb.DuckDBPyConnection, alias: str, *, spoiled: bool = True) -> None:
        """Detach an attachment of one transaction.

        That of a DuckDB file stays, since detaching would close the file. The next transaction
        reuses it, unless changed types have ``spoiled`` it.
        """
        if self.address.kind == "duckdb":
            self._spoiled += spoiled
            return
        if not any(self._taken_away(connection, alias) for _ in range(3)):
            self._halves.append((connection, alias))

    def _taken_away(self, connection: duckdb.DuckDBPyConnection, alias: str) -> bool:
        """Detach a name; True once it is gone.

        A server that is lost meanwhile leaves half an attachment, on which every listing fails.
        """
        try:
            connection.cursor().execute(f"DETACH DATABASE IF EXISTS {quote_identifier(alias)}")
        except duckdb.Error as error:
            log.warning("lake %s: %s stays attached: %s", self.storage.root, alias, self.redacted(error))
            # The instance itself is gone.
            return isinstance(error, duckdb.ConnectionException | duckdb.FatalException)
        return True

    def _names_on(self, connection: duckdb.DuckDBPyConnection) -> set[str]:
        """Names that this object has attached in an instance."""
        return self._attached.setdefault(id(connection), (connection, set()))[1]

    def _attach(self, connection: duckdb.DuckDBPyConnection, epoch: int | str, *, create: bool = False) -> None:
        """Attach the catalog in an instance, unless it is attached.

        Raises:
            NoCatalog: There is no catalog, and ``create`` is False.
        """
        name, names = self.alias(epoch), self._names_on(connection)
        if name in names:
            return
        cursor = connection.cursor()
        try:
            self.attach_as(cursor, name)
        except NoCatalog:
            if not create or self.read_only:
                raise
            # Only one process may create the catalog.
            with locks.locked(self, ".new"):
                try:
                    self.attach_as(cursor, name)  # Another process may have created it meanwhile.
                except NoCatalog:
                    self._refuse_strangers()
                    self.attach_as(cursor, name, create=True)
                    # The mark tells later sessions that the root is a DuckLake.
                    self.storage.put(DUCKLAKE_MARK, f"{self.address}\n".encode())
        self._check(cursor, name)
        names.add(name)

    def attach_as(
        self, cursor: duckdb.DuckDBPyConnection, name: str, *, create: bool = False, inline_rows: int | None = None
    ) -> None:
        """Attach the catalog on a cursor under a name.

        Args:
            inline_rows: Inlining limit of tables that are created through it.

        Raises:
            NoCatalog: There is no catalog, and ``create`` is false.
        """
        if not create and self._is_missing():
            self.refuse_gone()
            raise NoCatalog(f"There is no catalog {self.address} of lake {self.storage.root}: it was not made yet.")
        self._keep_secret(cursor)
        # DuckLake must not retry a conflicting commit itself: it would not check again what the
        # commit was computed from.
        cursor.execute("SET GLOBAL ducklake_max_retry_count = 0")
        rows = self.inline_rows if inline_rows is None else inline_rows
        options = [f"DATA_PATH {quote_literal(self.data_path)}", f"DATA_INLINING_ROW_LIMIT {rows}"]
        # A catalog of another DuckLake version is reported (see translated()), never migrated.
        options += [f"CREATE_IF_NOT_EXISTS {str(create).lower()}", "AUTOMATIC_MIGRATION false"]
        if self.address.kind == "sqlite":
            # In SQLite's default mode, one failed commit locks the instance for good.
            options += ["META_JOURNAL_MODE 'WAL'", "META_BUSY_TIMEOUT 30000"]
        if self.address.kind == "duckdb" and name != self.alias():
            # All attachments of an instance share the one open DuckDB file.
            options.append(f"METADATA_CATALOG {quote_literal(self._metadata())}")
        options += ["READ_ONLY"] if self.read_only else []
        options += ["ENCRYPTED"] if create and self.encrypted else []
        place = self.address.place if self.address.kind == "duckdb" else f"{self.address.kind}:{self.address.dsn}"
        statement = (
            f"ATTACH {quote_literal(f'ducklake:{place}')} AS {quote_identifier(name)} "
            f"({', '.join(options)}{self._by_secret('META_SECRET')})"
        )
        with self.errors("attach"):
            try:
                cursor.execute(statement)
            except duckdb.Error as error:
                # A server that is lost meanwhile leaves half an attachment.
                if not DuckLakeRefusal.ATTACHED_ALREADY.is_of(error):
                    self._taken_away(cursor, name)
                raise

    @property
    def _secret(self) -> str:
        return f"duckrun catalog of {self.storage.root}"

    def _by_secret(self, option: str) -> str:
        return "" if self.address.password is None else f", {option} {quote_literal(self._secret)}"

    def _keep_secret(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Give an instance the password as a DuckDB secret.

        The path of an attachment is readable.
        """
        if self.address.password is not None:
            with self.errors("secret"):
                cursor.execute(
                    f"CREATE OR REPLACE TEMPORARY SECRET {quote_identifier(self._secret)} (TYPE {self.address.kind}, "
                    f"PASSWORD {quote_literal(self.address.password)})"
                )

    def _refuse_strangers(self) -> None:
        """Raise StorageError if a new lake's root has foreign files or Delta tables.

        DuckLake would take files in its data folder for its own, and remove them as orphans.
        """
        root = self.storage.root
        refuse_delta(self.storage)
        file = next(iter(self.storage.keys(f"{root}/data")), None)
        if file is not None:
            raise StorageError(
                f"Lake {root} cannot be made: {self.data_path} holds files, such as {file['path']}, and a DuckLake "
                "takes each Parquet "
                "file there for its own. Move them, or choose another root."
            )
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)

    def _check(self, cursor: duckdb.DuckDBPyConnection, name: str) -> None:
        """Check the settings of a catalog that was just attached.

        Raises:
            InvalidConfig: The encryption differs from the requested one.
        """
        if self.seen:
            return
        settings = dict(
            cursor.execute(f"SELECT key, value FROM {self.meta('ducklake_metadata')} WHERE scope IS NULL").fetchall()
        )
        encrypted = settings.get("encrypted", "false").lower() == "true"
        if self._asked_encrypted is not None and encrypted != self._asked_encrypted:
            cursor.execute(f"DETACH {quote_identifier(name)}")
            raise other_encryption(self, encrypted=encrypted)
        if encrypted:
            self.encrypted = True
            cursor.execute(f"LOAD {quote_literal(extension_path('httpfs').as_posix())}")
        self.seen = True

    # -- questions and errors

    def redacted(self, text: object) -> str:
        """Return a message without the catalog's password and the storage's credentials."""
        return self.storage.redacted(self.address.redacted(text))

    def ask(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a catalog query; none if there is no catalog yet."""
        self.refuse_gone()
        if self._is_missing():
            return []
        try:
            return self._asked(sql, values)
        except NoCatalog:
            return []

    def _asked(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        # An internal error ends an instance: drop it, and retry once on another one.
        for last in (False, True):
            with self.errors("query"):
                try:
                    return self.cursor().execute(with_values(sql, values)).fetchall()
                except duckdb.FatalException:
                    if last:
                        raise
                    with self._lock:
                        self._forget_ended()
        raise AssertionError("the last attempt returns or raises")

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Translate DuckDB's errors in the block into this library's, without passwords."""
        try:
            yield
        except duckdb.Error as error:
            raise translated(self, error, what) from None

    # -- the lock

    def locked(self) -> AbstractContextManager[None]:
        """Hold the lock of all writers of this lake.

        Raises:
            ReadOnlyLake: The lake is open read-only.
        """
        if self.read_only:
            raise ReadOnlyLake(f"Lake {self.storage.root} is open read-only.")
        self.refuse_gone()
        return locks.locked(self)

    def close(self) -> None:
        """Give up the instance for catalog queries; it ends with its last cursor."""
        with self._lock:
            connection, self._own = self._own, None
            if connection is None:
                return
            self._attached.pop(id(connection), None)
            # A cursor may hold the writers' lock, or run a query of another thread. close() would
            # close the cursors too, but only that frees a DuckDB file.
            if self.address.kind == "duckdb":
                connection.close()


def refuse_delta(storage: Storage) -> None:
    """Raise StorageError if a root holds Delta tables."""
    below = (f"{schema}/{table}/" for schema in storage.list_names("")[0] for table in storage.list_names(schema)[0])
    for folder in chain([""], below):
        if storage.list_names(f"{folder}_delta_log") != ([], []):
            what = f"lake of Delta tables, such as {folder.rstrip('/')}" if folder else "Delta table"
            raise StorageError(
                f"{storage.root} is a {what}, and was opened as a DuckLake: open it with format: delta, or choose "
                "another root"
            )


def set_option(
    cursor: duckdb.DuckDBPyConnection, alias: str, option: str, value: str | int, schema: str | None, table: str | None
) -> None:
    """Set an option of a table, a schema or (None) the lake. This makes no snapshot.

    An attachment reads the options once, when it is attached, and learns of its own changes.
    """
    scope = "" if schema is None else f", schema => {quote_literal(schema)}"
    scope += "" if table is None else f", table_name => {quote_literal(table)}"
    literal = quote_literal(value) if isinstance(value, str) else value
    cursor.execute(f"CALL {quote_identifier(alias)}.set_option({quote_literal(option)}, {literal}{scope})")


def there(entry: str, snapshot: int | None) -> str:
    """Return the condition for entries that are valid at a snapshot, or now.

    Args:
        entry: Alias of the catalog table.
    """
    if snapshot is None:
        return f"{entry}.end_snapshot IS NULL"
    return (
        f"{entry}.begin_snapshot <= {snapshot} AND (({entry}.end_snapshot IS NULL) OR {entry}.end_snapshot > "
        f"{snapshot})"
    )


def _is_open(connection: duckdb.DuckDBPyConnection, *, probe: bool = False) -> bool:
    """True for an instance that was not closed, nor (``probe``) ended by an internal error."""
    try:
        cursor = connection.cursor()
        if probe:
            cursor.execute("SELECT 1")
        cursor.close()
    except (duckdb.ConnectionException, duckdb.FatalException):
        return False
    return True
