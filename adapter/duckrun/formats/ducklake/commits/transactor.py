"""Transactions of a DuckLake: one DuckDB transaction per commit, or one for several tables."""

from __future__ import annotations

import logging
import random
import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import duckdb

from duckrun.errors import CommitConflict, InvalidConfig, StorageError, note_commit
from duckrun.formats.commits import Behind, CommitTaken
from duckrun.formats.ducklake.catalog.answers import NotCommitted
from duckrun.formats.ducklake.catalog.bounds import mend
from duckrun.formats.ducklake.catalog.catalog import APPLIED, INLINE_LIMIT, Catalog, set_option
from duckrun.formats.ducklake.catalog.schema_versions import list_schemas
from duckrun.formats.ducklake.commits.inlined import keep_out_of_older_rows
from duckrun.formats.ducklake.commits.work import Work, taken
from duckrun.formats.ducklake.state.state import States, state_of
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.storage.trouble import is_full
from duckrun.values.snapshot import Snapshot, TableRef

T = TypeVar("T")
ATTEMPTS = 12
"""Number of attempts for a change while other programs commit."""

log = logging.getLogger(__name__)

_HALF = re.compile(r'Could not write[^"\n]*"([^"]+\.parquet)"')
"""Pattern for the file in DuckDB's error about an incomplete write."""


class Transactor:
    """Opens the transactions of one lake, and publishes them."""

    def __init__(self, catalog: Catalog, states: States) -> None:
        self.catalog, self.states, self.storage = catalog, states, catalog.storage
        self.together: Work | None = None
        """The open multi-table transaction, if any."""

    def locked(self) -> AbstractContextManager[None]:
        """Hold the writers' lock, or that of the open multi-table transaction."""
        return self._within(self.together) if self.together is not None else self.catalog.locked()

    @contextmanager
    def _within(self, work: Work) -> Iterator[None]:
        work.will_write()  # It may take its lock only now.
        yield

    @contextmanager
    def transaction(self, cursor: duckdb.DuckDBPyConnection, snapshot: Snapshot | None) -> Iterator[Work]:
        """Open a DuckDB transaction on a cursor for a write that starts from a snapshot.

        It is rolled back if the block raises.

        Raises:
            Behind: Another program has committed since the snapshot was read.
            CommitTaken: Another program commits meanwhile.
        """
        state = None if snapshot is None else state_of(snapshot)
        epoch = 0 if state is None else self.states.epoch_now(state) if state.has_old_inlined else state.epoch
        with self._opened(cursor, epoch) as work:
            if snapshot is not None and work is not self.together and work.base != state_of(snapshot).at:
                self.states.outrun()
                raise Behind(f"snapshot {work.base} of the lake came meanwhile")
            yield work

    @contextmanager
    def _opened(self, cursor: duckdb.DuckDBPyConnection, epoch: int | str) -> Iterator[Work]:
        if self.together is not None:
            with self._failed(self.together):
                yield self.together
            return
        self.catalog.ensure(epoch, create=True)
        self._prepare()
        work = Work(self.catalog, cursor, epoch)
        try:
            with self._failed(work):
                yield work.begin()
        finally:
            work.rollback()
            work.take_back_options()

    @contextmanager
    def _failed(self, work: Work) -> Iterator[None]:
        """Translate the errors of a transaction's block, after its rollback.

        A multi-table transaction is only marked as failed.
        """
        try:
            yield
        except BaseException as error:
            if work.is_shared:
                work.failure = work.failure or error
            else:
                work.rollback()
            _remove_half_written(self.catalog, error)
            other = taken(error, self.catalog)
            # Only the caller can retry, with the whole transaction.
            if work.is_shared and isinstance(other, CommitTaken):
                raise CommitConflict(
                    f"The transaction of lake {self.storage.root} cannot go on: {other} Run all of it again."
                ) from error
            if other is error:
                raise
            raise other from error

    @contextmanager
    def together_on(
        self, cursor: duckdb.DuckDBPyConnection, database: str | None = None, *, lazily: bool = False
    ) -> Iterator[Work]:
        """Open a transaction over several tables on one cursor.

        All requests to the lake run on this cursor until the block ends.

        Args:
            database: Name of the attachment for the transaction; None chooses one.
            lazily: Take the writers' lock at the first write. A transaction that only reads then
                blocks nobody.

        Raises:
            InvalidConfig: A transaction is already open.
        """
        if self.together is not None:
            raise InvalidConfig(
                f"A transaction of lake {self.storage.root} is open already; commit it, or roll it back, first."
            )
        with ExitStack() as stack:
            if not lazily:
                stack.enter_context(self.catalog.locked())
            self.catalog.ensure(0, create=True)
            if not lazily:
                self._prepare()
            elif not self.states.has_applied():
                with self.catalog.locked():
                    self._prepare()
            name = f"t{uuid.uuid4().hex[:12]}"
            alias = self.catalog.attach_for(cursor, name, database)
            work = Work(self.catalog, cursor, name, alias)
            work.is_shared = True
            if lazily:
                work.lock = lambda: self._lock_late(work, stack)
            try:
                with self.catalog.errors("transaction"):
                    self.together = work.begin()
                yield work
                self.together, work.is_shared = None, False
                try:
                    work.made = work.commit()
                except NotCommitted as error:
                    raise StorageError(
                        f"The transaction of lake {self.storage.root} was not committed: {error}",
                        remedy="run all of it again",
                    ) from None
                if work.made is not None:
                    note_commit(f"snapshot {work.made} of lake {self.storage.root}")
                self.afterwards(work)
            finally:
                self.together = None
                work.rollback()
                work.take_back_options()
                self.catalog.detach(cursor, alias, spoiled=work.redefined)
                self.states.forget()

    def _lock_late(self, work: Work, stack: ExitStack) -> None:
        """Take the writers' lock for a transaction that started without it.

        If others have committed since, restart the transaction.

        Raises:
            CommitConflict: Others have committed, and the transaction has read already.
        """
        stack.enter_context(self.catalog.locked())
        work.lock = None
        if self.states.newest() == work.base:
            return
        if work.has_read:
            raise CommitConflict(
                f"Another program committed to lake {self.storage.root} since this transaction began, and it has "
                "read the lake as it was before",
                remedy="run all of it again",
            )
        work.rollback()
        with self.catalog.errors("transaction"):
            work.begin()

    def _prepare(self) -> None:
        """Create the table of application transactions, once."""
        cursor, alias = self.catalog.cursor(create=True), self.catalog.alias()
        schema, table = APPLIED.split(".")
        if not self.states.has_applied():
            # The few small rows of this table are inlined, which saves a file per commit. Their
            # inlined table must be created together with this table. Otherwise a read of its rows
            # makes DuckLake confuse the lake at the two creations. A user table from the later
            # snapshot is then missing at its first version (duckdb 1.5.5).
            shared = self.catalog.address.kind == "duckdb"  # A DuckDB file stays attached.
            name = alias if shared else self.catalog.alias("inlining")
            if not shared:
                self.catalog.attach_as(cursor, name, inline_rows=1000)
            with self.catalog.errors("prepare"):
                try:
                    cursor.execute("BEGIN TRANSACTION")
                    cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(name, schema)}")
                    cursor.execute(
                        f"CREATE TABLE {quote_identifier(name, schema, table)} (name VARCHAR, app_id VARCHAR, "
                        "version BIGINT, snapshot BIGINT, note VARCHAR)"
                    )
                    cursor.execute("COMMIT")
                finally:
                    if not shared:
                        self.catalog.detach(cursor, name)
                set_option(cursor, alias, INLINE_LIMIT, 1000, schema, table)
                if shared:
                    cursor.execute(f"INSERT INTO {quote_identifier(alias)}.{APPLIED} VALUES ('', '', 0, 0, '{{}}')")

    def afterwards(self, work: Work) -> None:
        """Apply what DuckLake rejects in a transaction: bounds, table options, late NOT NULL."""
        for ref in work.began:
            number = self.states.number(ref)
            if number is None:  # The same transaction dropped it again.
                continue
            try:
                lost = mend(self.catalog, number)
            except StorageError as error:
                # The commit is made, and this library reads without bounds.
                lost = True
                log.warning("lake %s: bounds of columns of table %s stay lost: %s", self.storage.root, ref, error)
            if lost:
                self.states.doubt(number)
        if work.may_begin_inlining and self.catalog.inline_rows and list_schemas(self.catalog):
            self.states.forget()  # They do not know the tables of inlined rows.
        for ref, number in work.altered.items():  # Writes of other programs need it too.
            keep_out_of_older_rows(self.catalog, work, ref, number)
        for ref, option, value in work.options:
            with self.catalog.errors(f"table {ref}"):
                set_option(self.catalog.cursor(), self.catalog.alias(), option, value, ref.schema, ref.name)
            self.states.forget()
        for _, statement in work.later:
            here = statement.replace(quote_identifier(work.alias), quote_identifier(self.catalog.alias()), 1)
            try:
                self.catalog.cursor().execute(here)
            except duckdb.Error as error:
                log.warning("lake %s: a column stays nullable: %s", self.storage.root, self.catalog.redacted(error))
            self.states.forget()

    # -- changes that are a commit of their own

    def alone(self, what: str, change: Callable[[Work], None], epoch: int | str = 0) -> None:
        """Make a change, under the lock, as a separate commit or as part of the open transaction.

        Retries if another program commits meanwhile.

        Raises:
            CommitConflict: Every attempt met another commit.
        """
        self.retried(what, lambda: self.once(change, epoch))
        self.states.forget()

    def retried(self, what: str, attempt: Callable[[], T]) -> T:
        """Return the result of an attempt, repeated while other programs commit.

        Raises:
            CommitConflict: Every attempt met another commit.
        """
        for number in range(ATTEMPTS):
            try:
                return attempt()
            except CommitTaken as error:
                taken_by = error
            # A random pause keeps competing writers from meeting again.
            time.sleep(random.uniform(0, min(0.05 * 2**number, 2.0)))
        raise CommitConflict(
            f"{what}: other programs committed to lake {self.storage.root} {ATTEMPTS} times meanwhile ({taken_by})",
            remedy="run it again",
        ) from taken_by

    def once(self, change: Callable[[Work], None], epoch: int | str = 0) -> int:
        """Make a change in a single attempt, and return its snapshot.

        Returns:
            The start snapshot if nothing changed.

        Raises:
            CommitTaken: Another program commits meanwhile.
        """
        with self._opened(self.catalog.cursor(create=True), epoch) as work:
            change(work)
            snapshot = None if work is self.together else work.commit()
            return work.base if snapshot is None else snapshot

    def run_alone(self, *statements: str) -> None:
        """Run statements over ``{lake}`` as one transaction.

        Unqualified names belong to this lake.
        """

        def change(work: Work) -> None:
            alias = quote_identifier(work.alias)
            before = work.cursor.execute("SELECT current_setting('search_path')").fetchall()[0][0]
            for statement in statements:
                try:
                    work.cursor.execute(f"USE {alias}")
                    work.execute(statement.replace("{lake}", alias))
                except duckdb.Error as error:
                    raise InvalidConfig(
                        f"Lake {self.storage.root}: {self.catalog.redacted(error).splitlines()[0]}"
                    ) from error
                finally:
                    with suppress(duckdb.Error):  # The error may have ended the transaction.
                        work.cursor.execute(f"SET search_path = {quote_literal(before)}" if before else "USE memory")

        self.alone(statements[-1].partition(" {lake}")[0], change)

    # -- names, as an open multi-table transaction sees them

    def exists(self, ref: TableRef) -> bool:
        """True if there is a table of that name."""
        if self.together is None:
            return self.states.exists(ref)
        there = "SELECT 1 FROM duckdb_tables() WHERE database_name = ? AND schema_name = ? AND table_name = ?"
        return bool(self.together.ask(there, [self.together.alias, ref.schema, ref.name]))


def _remove_half_written(catalog: Catalog, error: BaseException) -> None:
    """Remove the incomplete local file of a write that failed on a full disk.

    It would keep the disk full.
    """
    match = _HALF.search(str(error)) if is_full(error) and catalog.storage.is_local else None
    if match is not None and match[1].startswith(catalog.data_path):
        Path(match[1]).unlink(missing_ok=True)
