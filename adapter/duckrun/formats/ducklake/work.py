"""One transaction of DuckLake: the statements of a write, and the commit that shows them or nothing."""

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
from duckrun.formats.ducklake.answers import NotCommitted, delete_files_of, outcome
from duckrun.formats.ducklake.catalog import APPLIED, Catalog
from duckrun.formats.ducklake.state import TableState
from duckrun.formats.ducklake.trouble import translated, unsure, unwritable
from duckrun.sql.names import quote_identifier, quote_literal, with_values
from duckrun.storage.extensions import keep_forever
from duckrun.storage.trouble import lost_connection
from duckrun.values.rows import AppTransaction
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.tables import AlterSpec, CreateSpec

log = logging.getLogger(__name__)

_TAKEN = ("failed to commit", "database is locked", "conflict", "could not serialize", "deadlock")


class Work:
    """A transaction on one cursor, which nothing else uses meanwhile. ``epoch`` is that of the attachment that it writes through, ``alias``
    what that is called, where it has another name.
    """

    def __init__(
        self, catalog: Catalog, cursor: duckdb.DuckDBPyConnection, epoch: int | str = 0, alias: str | None = None
    ) -> None:
        self.catalog, self.cursor, self.epoch = catalog, cursor, epoch
        self.alias = alias or catalog.alias(epoch)
        self.changed = self.redefined = False
        """Whether rows, and whether anything apart from rows, was changed."""
        self.options: list[tuple[TableRef, str, str]] = []
        """Options of tables that are set once the commit is made: DuckLake keeps them outside of its transactions."""
        self.later: list[tuple[TableRef, str]] = []
        """Statements that DuckLake takes only of a table without changes: they follow the commit, as one of their own."""
        self.touched: dict[tuple[str, str], Any] = {}
        self.written: dict[TableRef, None] = {}
        self._defined: set[tuple[str, str]] = set()
        self.altered: dict[TableRef, int] = {}
        """The tables, by id, whose columns were changed while rows of them may lie in the catalog."""
        self.began: dict[TableRef, None] = {}
        """The tables of which columns may have lost their bounds: that have their first rows, or files of other writers (bounds.py)."""
        self.widened: set[tuple[str, str]] = set()
        """The tables of which columns got a wider type."""
        self.new: set[tuple[str, str]] = set()
        """The tables that were made, or took another's place, by the commit that is under way."""
        self.redefined_tables: set[tuple[str, str]] = set()
        """Committed tables whose definition was changed: DuckLake loses one that is renamed afterwards."""
        self.renamed_columns: set[tuple[str, str]] = set()
        """The tables of which columns were renamed."""
        self.filled: set[tuple[str, str]] = set()
        """Tables without a committed row that may have rows of this transaction."""
        self.grown: set[tuple[str, str]] = set()
        """Those of them that got a column after rows."""
        self.notes: list[dict[str, Any]] = []
        self._open = False
        self.failure: BaseException | None = None
        """The first statement that failed: what the transaction holds is not all that was asked for."""
        self.instead: Callable[[], None] | None = None
        """What is done in the place of a COMMIT, once all of it was carried out: it raises."""
        self.lock: Callable[[], None] | None = None
        """What takes the lock of writers, before the first write of a transaction that has begun without it."""
        self.has_read = False
        """Whether something was read of the lake as it was at the beginning."""
        self.base = -1
        self.made: int | None = None
        """The snapshot that was committed."""

    def begin(self) -> Work:
        """Begin: what is read of the lake from now on is of one snapshot."""
        self.cursor.execute("BEGIN TRANSACTION")
        self._open = True
        row = self.cursor.execute(f"FROM ducklake_current_snapshot({quote_literal(self.alias)})").fetchone()
        assert row is not None, "a lake has a snapshot"
        self.base = int(row[0])
        return self

    def will_write(self) -> None:
        """Hold the lock of writers from now on. Raises CommitConflict if others have committed since something was read."""
        if self.lock is not None:
            self.lock()

    def table(self, ref: TableRef) -> str:
        """A table's name in SQL, as it is within this transaction."""
        return quote_identifier(self.alias, ref.schema, ref.name)

    def execute(self, sql: str, values: Iterable[Any] | None = None) -> int:
        """Run a statement; the rows that it changed, 0 where it changes none."""
        try:
            found = self.cursor.execute(sql if values is None else with_values(sql, values)).fetchall()
        except duckdb.TransactionException as error:
            self.failure = self.failure or error
            raise CommitTaken(self.catalog.redacted(error)) from error
        except duckdb.Error as error:
            self.failure = self.failure or error
            raise
        return int(found[0][0]) if found and isinstance(found[0][0], int) else 0

    def ask(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a question to the lake as this transaction sees it. Raises StorageError where the catalog does not answer."""
        self.has_read = True
        with self.catalog.errors("transaction"):
            return self.cursor.execute(with_values(sql, values)).fetchall()

    def is_defined(self, ref: TableRef) -> bool:
        """Whether the definition of the commit that is under way was carried out."""
        return (ref.schema, ref.name) in self._defined

    def now_defined(self, ref: TableRef) -> None:
        self._defined.add((ref.schema, ref.name))

    def remember(self, ref: TableRef, snapshot: Snapshot | None, new: NewCommit) -> None:
        """What a table is from now on, within a transaction over several."""
        self._defined.discard((ref.schema, ref.name))
        self.written[ref] = None
        before: TableState | None = None if snapshot is None else snapshot.own
        definition: Any = new.definition if new.definition is not None or before is None else before.definition
        if (ref.schema, ref.name) in self.new:
            self.new.discard((ref.schema, ref.name))
            before = None
        if (before is None or before.fresh) and not isinstance(new.spec, AlterSpec | CreateSpec):
            self.filled.add((ref.schema, ref.name))
        first = TableState(
            -1, f"new {ref}", ref.schema, ref.name, self.base + 1, self.base + 1, -1, 0, definition, {}, fresh=True
        )
        self.touched[ref.schema.lower(), ref.name.lower()] = (
            first if before is None else replace(before, definition=definition, version=self.base + 1)
        )

    def renamed(self, ref: TableRef, new: TableRef, state: TableState) -> None:
        """A table has another name from now on, within a transaction over several."""
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
        """Nothing of a table that was there is left: it was dropped, or another one took its place."""
        self.touched.pop((ref.schema.lower(), ref.name.lower()), None)
        for names in self._names():
            names.discard((ref.schema, ref.name))
        self.options = [each for each in self.options if each[0] != ref]
        self.later = [each for each in self.later if each[0] != ref]
        self.altered.pop(ref, None)

    def _names(self) -> tuple[set[tuple[str, str]], ...]:
        return self.widened, self.redefined_tables, self.renamed_columns, self.filled, self.grown

    def refuse_rename(self, ref: TableRef) -> None:
        """Raise UnsupportedFeature for a committed table that this transaction has altered. DuckLake would keep both names, and read neither, or forget
        the alteration (https://github.com/duckdb/ducklake/issues/1332).
        """
        if (ref.schema, ref.name) in self.redefined_tables or any(where == ref for where, _ in self.later):
            raise UnsupportedFeature(
                f"Table {ref} cannot be renamed in the transaction that has altered it: DuckLake would lose the table. Rename it first and alter it then, or "
                "alter it in a transaction of its own. Nothing was written."
            )

    def applied(self, ref: TableRef, app: AppTransaction, note: Mapping[str, Any]) -> None:
        """Take down that an application transaction is committed with this one."""
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
        """What the snapshot is to say of a table's commit."""
        self.notes.append({"table": f"{ref.schema}.{ref.name}", **note})

    def commit(self) -> int | None:
        """The snapshot that was made; None where nothing was changed. Raises CommitTaken where another writer came first, WentAhead where another
        commit is needed before, CommitConflict after a statement that failed: DuckDB's COMMIT would then succeed, with nothing or with a part.
        """
        if self.failure is not None:
            self.rollback()
            raise CommitConflict(
                f"A statement of this transaction of lake {self.catalog.storage.root} failed ({self.catalog.redacted(self.failure).splitlines()[0]}): nothing of it was "
                "written. Run all of it again."
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
            if lost is not None:
                raise translated(self.catalog, error, "commit") from None
            if unwritable(self.catalog, text) is not None:
                raise translated(self.catalog, error, "commit") from None
            if any(word in text.lower() for word in _TAKEN):
                raise CommitTaken(text) from None
            raise StorageError(f"The commit to lake {self.catalog.storage.root} failed: {text}") from None
        self._open = False
        row = self.cursor.execute(f"FROM ducklake_last_committed_snapshot({quote_literal(self.alias)})").fetchone()
        made = None if row is None or row[0] is None else int(row[0])
        if made is None or made <= self.base:
            if self.changed:
                raise CommitConflict(
                    f"The commit to lake {self.catalog.storage.root} made no snapshot, though it changed rows: nothing was written. Run it again."
                )
            return None
        return made

    def _sign(self, txn_id: str) -> None:
        """Say in the snapshot what is committed, and by which id, so that a commit whose answer is lost is known again."""
        if not self.notes and self.catalog.address.is_file:  # no answer of a file is lost
            self.cursor.execute("SELECT 1")  # of a transaction that has ended, an error
            return
        said = ", ".join(f"{note.get('mode', 'write')} {note['table']}" for note in self.notes)
        who = f"'duckrun', {quote_literal(said)}" if self.notes else "NULL, NULL"
        notes = self.notes if self.catalog.address.is_file else [*self.notes, {"txnId": txn_id}]
        self.cursor.execute(
            f"CALL {quote_identifier(self.alias)}.set_commit_message({who}, extra_info => {quote_literal(json.dumps(notes))})"
        )

    def _delete_files(self) -> list[tuple[Any, ...]]:
        """The delete files of the tables of which rows go, as far as a commit that is taken back needs them."""
        tables = [
            note["table"] for note in self.notes if note.get("rows_updated") != 0 or note.get("rows_deleted") != 0
        ]
        if self.catalog.address.is_file or not tables:
            return []
        return self.cursor.execute(delete_files_of(self.catalog, tables, self.epoch)).fetchall()

    def _outcome(self, txn_id: str, delete_files: Sequence[tuple[Any, ...]], lost: str) -> int | None:
        """The snapshot of a COMMIT that got no answer. Raises NotCommitted, CommitUnknown."""
        try:
            made = outcome(self.catalog, self.base, txn_id, delete_files)
        except duckdb.Error as error:
            log.info("lake %s: %s", self.catalog.storage.root, self.catalog.redacted(error))
            raise unsure(self.catalog, lost) from None
        if made is None:
            raise NotCommitted(
                f"the connection to its catalog was lost ({lost}), and nothing of the commit is there"
            ) from None
        return made

    def rollback(self) -> None:
        """End the transaction; nothing of it is there."""
        if self._open:
            self._open = False
            try:
                self.cursor.execute("ROLLBACK")
            except duckdb.FatalException:
                keep_forever(self.cursor)
            except duckdb.Error as error:  # there is none: DuckDB itself has ended it
                log.debug("lake %s: %s", self.catalog.storage.root, self.catalog.redacted(error))


def taken(error: BaseException, catalog: Catalog) -> BaseException:
    """The error of a statement within a transaction: CommitTaken where another program's commit is behind it, StorageError where the
    server of the catalog is gone.
    """
    if isinstance(error, duckdb.Error) and not isinstance(error, DuckrunError):
        text = catalog.redacted(error)
        if lost_connection(text) is not None:
            return translated(catalog, error, "transaction")
        if (
            isinstance(error, duckdb.TransactionException)
            or "database is locked" in text.lower()
            or "could not serialize" in text
        ):
            return CommitTaken(text)
    return error
