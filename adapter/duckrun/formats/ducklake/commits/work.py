"""DuckLake transaction: the statements of a write, and the commit that publishes all or nothing."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import duckdb

from duckrun.errors import CommitConflict, DuckrunError, StorageError, UnsupportedFeature
from duckrun.formats.commits import CommitTaken, NewCommit
from duckrun.formats.ducklake.catalog.answers import NotCommitted, delete_files_of, outcome
from duckrun.formats.ducklake.catalog.catalog import APPLIED, Catalog, set_option
from duckrun.formats.ducklake.catalog.refusals import DuckLakeRefusal
from duckrun.formats.ducklake.catalog.trouble import translated, unsure, unwritable
from duckrun.formats.ducklake.state.state import TableState, state_of
from duckrun.sql.quoting import quote_identifier, quote_literal, with_values
from duckrun.storage.extensions import keep_forever
from duckrun.storage.trouble import lost_connection
from duckrun.values.rows import AppTransaction
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.tables import AlterSpec, CreateSpec

log = logging.getLogger(__name__)
_DEFAULTS = {"parquet_compression": "snappy", "target_file_size": "512MB"}
"""DuckLake's defaults of the options that tables set."""


class Work:
    """Transaction on one cursor, which nothing else uses meanwhile.

    Args:
        epoch: Attachment for the writes.
        alias: Name of the attachment, if it differs from that of the epoch.
    """

    def __init__(
        self, catalog: Catalog, cursor: duckdb.DuckDBPyConnection, epoch: int | str = 0, alias: str | None = None
    ) -> None:
        self.catalog, self.cursor, self.epoch = catalog, cursor, epoch
        self.alias = alias or catalog.alias(epoch)
        self.changed = self.redefined = False
        """True once rows, or (``redefined``) the definition of a table, were changed."""
        self.is_shared = False
        """True for a transaction over several tables, until its commit."""
        self.options: list[tuple[TableRef, str, str]] = []
        """Table options to set after the commit: DuckLake stores them outside of transactions."""
        self.lent: dict[str, str] = {}
        """Options of a new table that its attachment has meanwhile."""
        self.before_lent: dict[tuple[str, str | None], str] = {}
        """The values before, by option and schema (None: the lake)."""
        self.later: list[tuple[TableRef, str]] = []
        """Statements for an unchanged table, which run after the commit as a separate one."""
        self.touched: dict[tuple[str, str], Any] = {}
        """Tables that the transaction wrote: lower-case (schema, name) -> current state."""
        self.written: dict[TableRef, None] = {}
        self.defined: set[tuple[str, str]] = set()
        """Tables whose definition by the running commit was carried out."""
        self.altered: dict[TableRef, int] = {}
        """Tables, by id, whose columns changed while rows may be inlined."""
        self.may_begin_inlining = False
        """True once a table was written that had no table of inlined rows (schema_versions.py)."""
        self.began: dict[TableRef, None] = {}
        """Tables whose columns may have lost bounds (bounds.py).

        They have their first rows, or adopted files.
        """
        self.widened: set[tuple[str, str]] = set()
        """Tables with widened columns."""
        self.new: set[tuple[str, str]] = set()
        """Tables that the running commit created or replaced."""
        self.redefined_tables: set[tuple[str, str]] = set()
        """Committed tables with changed definitions. DuckLake loses such a table on a rename."""
        self.renamed_columns: set[tuple[str, str]] = set()
        """Tables with renamed columns."""
        self.filled: set[tuple[str, str]] = set()
        """Tables without a committed row that may have rows of this transaction."""
        self.grown: set[tuple[str, str]] = set()
        """Tables of ``filled`` that got a column after rows."""
        self.notes: list[dict[str, Any]] = []
        self._open = False
        self.failure: BaseException | None = None
        """First failed statement. The transaction is then incomplete and cannot commit."""
        self.instead: Callable[[], None] | None = None
        """Replacement for COMMIT after all statements; it always raises."""
        self.lock: Callable[[], None] | None = None
        """Function that takes the writers' lock before the first write, if it is not held."""
        self.has_read = False
        """True once the transaction read from the lake."""
        self.base = -1
        self.made: int | None = None
        """The committed snapshot."""

    def begin(self) -> Work:
        """Start the transaction. All later reads are of one snapshot."""
        self.cursor.execute("BEGIN TRANSACTION")
        self._open = True
        row = self.cursor.execute(f"FROM ducklake_current_snapshot({quote_literal(self.alias)})").fetchone()
        assert row is not None, "a lake has a snapshot"
        self.base = int(row[0])
        return self

    def will_write(self) -> None:
        """Take the writers' lock, unless it is held.

        Raises:
            CommitConflict: Others have committed since the transaction read something.
        """
        if self.lock is not None:
            self.lock()

    def table(self, ref: TableRef) -> str:
        """Return the current name of a table in SQL."""
        return quote_identifier(self.alias, ref.schema, ref.name)

    def execute(self, sql: str, values: Iterable[Any] | None = None) -> int:
        """Run a statement, and return the number of rows that it changed."""
        try:
            rows = self.cursor.execute(sql if values is None else with_values(sql, values)).fetchall()
        except duckdb.TransactionException as error:
            self.failure = self.failure or error
            raise CommitTaken(self.catalog.redacted(error)) from error
        except duckdb.Error as error:
            self.failure = self.failure or error
            raise
        return int(rows[0][0]) if rows and isinstance(rows[0][0], int) else 0

    def ask(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query in this transaction.

        Raises:
            StorageError: The catalog does not answer.
        """
        self.has_read = True
        with self.catalog.errors("transaction"):
            return self.cursor.execute(with_values(sql, values)).fetchall()

    def remember(self, ref: TableRef, snapshot: Snapshot | None, new: NewCommit) -> None:
        """Record the new state of a table for later commits of this multi-table transaction."""
        self.defined.discard((ref.schema, ref.name))
        self.written[ref] = None
        before = None if snapshot is None else state_of(snapshot)
        definition: Any = new.definition if new.definition is not None or before is None else before.definition
        if (ref.schema, ref.name) in self.new:
            self.new.discard((ref.schema, ref.name))
            before = None
        if (before is None or before.fresh) and not isinstance(new.spec, AlterSpec | CreateSpec):
            self.filled.add((ref.schema, ref.name))
        first = TableState(
            -1, f"new {ref}", ref.schema, ref.name, self.base + 1, self.base + 1, -1, 0, definition, {}, fresh=True
        )
        if before is None:
            state = first
        else:
            state = replace(before, definition=definition, version=self.base + 1)
            if definition.partition_by != before.definition.partition_by:
                buckets = {key.column for key in definition.partition_by if key.transform == "bucket"}
                state = replace(state, narrow=state.narrow | buckets)
        self.touched[ref.schema.lower(), ref.name.lower()] = state

    def renamed(self, ref: TableRef, new: TableRef, state: TableState) -> None:
        """Record the new name of a table for later commits of this multi-table transaction."""
        self.touched.pop((ref.schema.lower(), ref.name.lower()), None)
        for names in self._names():
            if (ref.schema, ref.name) in names:
                names.remove((ref.schema, ref.name))
                names.add((new.schema, new.name))
        self.options = [(new if where == ref else where, option, value) for where, option, value in self.options]
        if ref in self.altered:
            self.altered[new] = self.altered.pop(ref)
        if ref in self.began:
            self.began[new] = self.began.pop(ref)
        self.touched[new.schema.lower(), new.name.lower()] = replace(
            state, schema=new.schema, name=new.name, version=self.base + 1
        )
        self.written[ref] = self.written[new] = None

    def forget(self, ref: TableRef) -> None:
        """Drop all records of a table that was dropped or replaced."""
        self.touched.pop((ref.schema.lower(), ref.name.lower()), None)
        for names in self._names():
            names.discard((ref.schema, ref.name))
        self.options = [each for each in self.options if each[0] != ref]
        self.later = [each for each in self.later if each[0] != ref]
        self.altered.pop(ref, None)

    def _names(self) -> tuple[set[tuple[str, str]], ...]:
        return self.widened, self.redefined_tables, self.renamed_columns, self.filled, self.grown

    def refuse_rename(self, ref: TableRef) -> None:
        """Raise UnsupportedFeature for a committed table that this transaction has altered.

        DuckLake would keep both names and read neither, or lose the alteration
        (https://github.com/duckdb/ducklake/issues/1332).
        """
        if (ref.schema, ref.name) in self.redefined_tables or any(where == ref for where, _ in self.later):
            raise UnsupportedFeature(
                f"Table {ref} cannot be renamed in the transaction that has altered it: DuckLake would lose the "
                "table. Rename it first and alter it then, or alter it in a transaction of its own"
            )

    def applied(self, ref: TableRef, app: AppTransaction, note: Mapping[str, Any]) -> None:
        """Record an application transaction in this transaction."""
        values: list[str | int] = [
            f"{ref.schema}.{ref.name}",
            app.app_id,
            app.version,
            self.base + 1,
            json.dumps(dict(note)),
        ]
        applied = quote_identifier(self.alias, *APPLIED.split("."))
        self.cursor.execute(f"INSERT INTO {applied} {with_values('VALUES (?, ?, ?, ?, ?)', values)}")
        self.changed = True

    def note(self, ref: TableRef, note: Mapping[str, Any]) -> None:
        """Add a table's note to the snapshot."""
        self.notes.append({"table": f"{ref.schema}.{ref.name}", **note})

    # -- options of a table for the files of the transaction that creates it
    #
    # DuckLake refuses options of a table that is not committed yet ("Settings cannot be set for
    # transaction-local tables", duckdb 1.5.5). Until they can be set, the lake's options have their
    # values, in the memory of the attachment alone. ``set_option()`` changes that memory at once,
    # and ROLLBACK takes back the catalog's row only. So no other program sees the values, and a
    # killed process leaves none. Writers of this process wait for the writers' lock meanwhile.

    def lend_options(self, ref: TableRef) -> None:
        """Let the next files of the transaction have the options that it gives to their table."""
        options = {option: value for table, option, value in self.options if table == ref}
        if options != self.lent:
            self.take_back_options()
        if not options or self.lent:
            return
        listed = f"SELECT option_name, value, scope_entry, scope FROM ducklake_options({quote_literal(self.alias)})"
        rows = self.cursor.cursor().execute(f"{listed} WHERE scope IN ('GLOBAL', 'SCHEMA')").fetchall()
        known = {(option, None if scope == "GLOBAL" else entry): str(value) for option, value, entry, scope in rows}
        for option, value in options.items():
            # An option of the schema goes before that of the lake, and no option can be removed.
            schema = ref.schema if (option, ref.schema) in known else None
            self.lent[option] = value
            self.before_lent[option, schema] = known.get((option, schema), _DEFAULTS[option])
            self._lend(option, value, schema)

    def take_back_options(self) -> None:
        """Let the attachment have the options of the lake again."""
        for (option, schema), value in self.before_lent.items():
            try:
                self._lend(option, value, schema)
            except duckdb.Error as error:  # an internal error has ended the instance, and its memory with it
                log.warning("lake %s: %s: %s", self.catalog.storage.root, option, self.catalog.redacted(error))
        self.lent.clear()
        self.before_lent.clear()

    def _lend(self, option: str, value: str, schema: str | None) -> None:
        cursor = self.cursor.cursor()
        cursor.execute("BEGIN TRANSACTION")
        try:
            set_option(cursor, self.alias, option, value, schema, None)
        finally:
            cursor.execute("ROLLBACK")

    # -- the commit

    def commit(self) -> int | None:
        """Commit, and return the snapshot; None if nothing changed.

        Raises:
            CommitTaken: Another writer came first.
            WentAhead: A preparatory commit was made instead.
            CommitConflict: A statement failed before. DuckDB's COMMIT would publish nothing, or a
                part.
        """
        if self.failure is not None:
            self.rollback()
            raise CommitConflict(
                f"A statement of this transaction of lake {self.catalog.storage.root} failed "
                f"({self.catalog.redacted(self.failure).splitlines()[0]})",
                remedy="Run all of it again",
            ) from self.failure
        if self.instead is not None:
            self.instead()
        committing, txn_id = False, str(uuid.uuid4())
        delete_files: list[tuple[Any, ...]] = []
        try:
            self._sign(txn_id)
            delete_files = self._delete_files()
            committing = True
            self.cursor.execute("COMMIT")
        except duckdb.Error as error:
            self._open = False
            with suppress(duckdb.Error):
                self.cursor.execute("ROLLBACK")
            text = self.catalog.redacted(error)
            lost = lost_connection(text)
            if lost is not None and committing:
                return self._outcome(txn_id, delete_files, lost)
            if lost is not None or unwritable(self.catalog, text) is not None:
                raise translated(self.catalog, error, "commit") from None
            if DuckLakeRefusal.ZERO_BYTE.is_of(text):
                raise UnsupportedFeature(
                    f"Lake {self.catalog.storage.root}: a string with chr(0) in a list cannot lie in the catalog",
                    remedy="have the rows in files, by inline_rows: 0 or set_inline_rows(0, table)",
                ) from None
            if DuckLakeRefusal.COMMIT_TAKEN.is_of(text):
                raise CommitTaken(text) from None
            raise StorageError(f"The commit to lake {self.catalog.storage.root} failed: {text}") from None
        self._open = False
        # COMMIT itself does not return the snapshot.
        row = self.cursor.execute(f"FROM ducklake_last_committed_snapshot({quote_literal(self.alias)})").fetchone()
        snapshot = None if row is None or row[0] is None else int(row[0])
        if snapshot is None or snapshot <= self.base:
            if self.changed:
                raise CommitConflict(
                    f"The commit to lake {self.catalog.storage.root} made no snapshot, though it changed rows",
                    remedy="Run it again",
                )
            return None
        return snapshot

    def _sign(self, txn_id: str) -> None:
        """Store the notes and an id in the snapshot.

        The id identifies a commit whose answer is lost.
        """
        if not self.notes and self.catalog.address.is_file:  # The answer of a file cannot be lost.
            self.cursor.execute("SELECT 1")  # Fails if the transaction has ended.
            return
        summary = ", ".join(f"{note.get('mode', 'write')} {note['table']}" for note in self.notes)
        who = f"'duckrun', {quote_literal(summary)}" if self.notes else "NULL, NULL"
        notes = self.notes if self.catalog.address.is_file else [*self.notes, {"txnId": txn_id}]
        self.cursor.execute(
            f"CALL {quote_identifier(self.alias)}.set_commit_message({who}, extra_info => "
            f"{quote_literal(json.dumps(notes))})"
        )

    def _delete_files(self) -> list[tuple[Any, ...]]:
        """Delete files of tables with deletes, for the undo of a commit whose answer is lost."""
        tables = [
            note["table"] for note in self.notes if note.get("rows_updated") != 0 or note.get("rows_deleted") != 0
        ]
        if self.catalog.address.is_file or not tables:
            return []
        return self.cursor.execute(delete_files_of(self.catalog, tables, self.epoch)).fetchall()

    def _outcome(self, txn_id: str, delete_files: Sequence[tuple[Any, ...]], lost: str) -> int | None:
        """Return the snapshot of a COMMIT without an answer.

        Raises:
            NotCommitted: The commit left no trace.
            CommitUnknown: The server does not answer.
        """
        try:
            snapshot = outcome(self.catalog, self.base, txn_id, delete_files)
        except duckdb.Error as error:
            log.info("lake %s: %s", self.catalog.storage.root, self.catalog.redacted(error))
            raise unsure(self.catalog, lost) from None
        if snapshot is None:
            raise NotCommitted(
                f"the connection to its catalog was lost ({lost}), and nothing of the commit is there"
            ) from None
        return snapshot

    def rollback(self) -> None:
        """Roll back the transaction, if it is open."""
        if self._open:
            self._open = False
            try:
                self.cursor.execute("ROLLBACK")
            except duckdb.FatalException:
                # Freeing a connection after an internal error would end the process (duckdb 1.5.5).
                keep_forever(self.cursor)
            except duckdb.Error as error:  # DuckDB itself has ended the transaction.
                log.debug("lake %s: %s", self.catalog.storage.root, self.catalog.redacted(error))


def taken(error: BaseException, catalog: Catalog) -> BaseException:
    """Translate the error of a statement in a transaction.

    Returns:
        CommitTaken if another program's commit caused it, StorageError if the server is gone.
    """
    if isinstance(error, duckdb.Error) and not isinstance(error, DuckrunError):
        text = catalog.redacted(error)
        if lost_connection(text) is not None:
            return translated(catalog, error, "transaction")
        lost_race = "database is locked" in text.lower() or "could not serialize" in text
        if lost_race or isinstance(error, duckdb.TransactionException):
            return CommitTaken(text)
    return error
