"""Commits to a DuckLake: one DuckDB transaction per commit, or one for several tables."""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import duckdb

from duckrun.errors import CommitConflict, InvalidConfig, StorageError, UnsupportedFeature, note_commit
from duckrun.formats.commits import Behind, CommitTaken, NewCommit
from duckrun.formats.ducklake import ahead, first_options
from duckrun.formats.ducklake.answers import NotCommitted
from duckrun.formats.ducklake.bounds import mend
from duckrun.formats.ducklake.catalog import APPLIED, Catalog
from duckrun.formats.ducklake.ddl import changed_sql, created_sql, one_part, requires_added
from duckrun.formats.ducklake.definition import DuckLakeDefinition, options_of
from duckrun.formats.ducklake.folders import remove_half_written
from duckrun.formats.ducklake.refusals import DuckLakeRefusal
from duckrun.formats.ducklake.rules import altered
from duckrun.formats.ducklake.state import States
from duckrun.formats.ducklake.work import Work, taken
from duckrun.sql.quoting import quote_identifier, quote_literal, with_values
from duckrun.storage.storage import Storage
from duckrun.values.rows import AppTransaction, WriteSpec
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.tables import AlterSpec, CreateSpec

ATTEMPTS = 12
"""Number of attempts for a change while other programs commit."""

log = logging.getLogger(__name__)


class Commits:
    """Part of DuckLakeFormat that opens transactions and commits."""

    storage: Storage
    catalog: Catalog
    states: States
    together: Work | None
    """The open multi-table transaction, if any."""
    _prepared: bool

    # -- commits

    @contextmanager
    def transaction(self, cursor: duckdb.DuckDBPyConnection, snapshot: Snapshot | None) -> Iterator[Work]:
        """Open a DuckDB transaction on a cursor for a write that starts from a snapshot.

        It is rolled back if the block raises.

        Raises:
            Behind: Another program has committed since the snapshot was read.
            CommitTaken: Another program commits meanwhile.
        """
        with self._transaction(cursor, 0 if snapshot is None else snapshot.format_state.epoch) as work:
            if snapshot is not None and work is not self.together and work.base != snapshot.format_state.at:
                self.states.outrun()
                raise Behind(f"snapshot {work.base} of the lake came meanwhile")
            yield work

    @contextmanager
    def _transaction(self, cursor: duckdb.DuckDBPyConnection, epoch: int | str) -> Iterator[Work]:
        if self.together is not None:
            try:
                yield self.together
            except BaseException as error:
                self.together.failure = self.together.failure or error
                remove_half_written(self.catalog, error)
                other = taken(error, self.catalog)
                # Only the caller can retry, with the whole transaction.
                if isinstance(other, CommitTaken):
                    raise CommitConflict(
                        f"The transaction of lake {self.storage.root} cannot go on: {other} Run all of it again."
                    ) from error
                if other is error:
                    raise
                raise other from error
            return
        self.catalog.ensure(epoch, create=True)
        self._prepare()
        work = Work(self.catalog, cursor, epoch)
        try:
            yield work.begin()
        except BaseException as error:
            work.rollback()
            remove_half_written(self.catalog, error)
            other = taken(error, self.catalog)
            if other is error:
                raise
            raise other from error
        finally:
            work.rollback()
            first_options.take_back(work)

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
            elif not self._is_prepared():
                with self.catalog.locked():
                    self._prepare()
            name = f"t{uuid.uuid4().hex[:12]}"
            alias = self.catalog.attach_for(cursor, name, database)
            work = Work(self.catalog, cursor, name, alias)
            if lazily:
                work.lock = lambda: self._lock_late(work, stack)
            try:
                with self.catalog.errors("transaction"):
                    self.together = work.begin()
                yield work
                self.together = None
                try:
                    work.made = work.commit()
                except NotCommitted as error:
                    raise StorageError(
                        f"The transaction of lake {self.storage.root} was not committed: {error}",
                        remedy="run all of it again",
                    ) from None
                if work.made is not None:
                    note_commit(f"snapshot {work.made} of lake {self.storage.root}")
                self._afterwards(work)
            finally:
                self.together = None
                work.rollback()
                first_options.take_back(work)
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

    def _is_prepared(self) -> bool:
        """True if the table of application transactions exists."""
        if not self._prepared:
            result = self.catalog.cursor().execute(
                with_values(
                    "SELECT 1 FROM duckdb_tables() WHERE database_name = ? AND schema_name = ? AND table_name = ?",
                    [self.catalog.alias(), *APPLIED.split(".")],
                )
            )
            self._prepared = result.fetchone() is not None
        return self._prepared

    def _prepare(self) -> None:
        """Create the table of application transactions, once."""
        cursor, alias = self.catalog.cursor(create=True), quote_identifier(self.catalog.alias())
        schema, table = APPLIED.split(".")
        if not self._is_prepared():
            # The few small rows of this table are inlined, which saves a file per commit. Their
            # inlined table must be created together with this table. Otherwise a read of its rows
            # makes DuckLake confuse the lake at the two creations. A user table from the later
            # snapshot is then missing at its first version (duckdb 1.5.5).
            shared = self.catalog.address.kind == "duckdb"  # A DuckDB file stays attached.
            name = self.catalog.alias() if shared else self.catalog.attach_inlining(cursor, 1000)
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
                cursor.execute(
                    f"CALL {alias}.set_option('data_inlining_row_limit', 1000, schema => '{schema}', table_name => "
                    f"'{table}')"
                )
                if shared:
                    cursor.execute(f"INSERT INTO {alias}.{APPLIED} VALUES ('', '', 0, 0, '{{}}')")
        self._prepared = True

    def define(
        self, work: Work, ref: TableRef, snapshot: Snapshot | None, new: NewCommit, *, emptied: bool | None = None
    ) -> None:
        """Create or change the table as a commit describes. Rows follow in the same transaction.

        Args:
            emptied: Passed by a restore only: True if all rows are already deleted. NOT NULL is
                then set after the commit.

        Raises:
            UnsupportedFeature: DuckLake would damage rows of the transaction.
            InvalidConfig: DuckLake rejects the definition.
        """
        definition = new.definition
        if (ref.schema, ref.name) in work.widened and not isinstance(new.spec, AlterSpec):
            raise UnsupportedFeature(
                f"Table {ref}: the type of a column was widened in this transaction, behind which DuckLake loses "
                "sight of the column's least and greatest value where rows follow, and DuckDB then reads wrong "
                "ones: widen it in a transaction before"
            )
        if (ref.schema, ref.name) in work.grown and not isinstance(new.spec, AlterSpec):
            raise UnsupportedFeature(_grown(ref))
        if new.spec is not None and new.spec.mode not in ("alter", "create", "delete"):
            columns = new.definition or (None if snapshot is None else snapshot.format_state.definition)
            ahead.refuse_structs_in_the_catalog(
                self,
                ref,
                None if snapshot is None else snapshot.format_state.id,
                (columns.sql_types if columns else None) or {},
            )
        if snapshot is not None and snapshot.format_state.inlined:
            ahead.keep_out_of_older_rows(self, work, ref, snapshot.format_state.id)
        if definition is None or work.is_defined(ref):
            first_options.lend(work, ref)
            return
        assert isinstance(definition, DuckLakeDefinition), "a definition of this format"
        ahead.refuse_system_columns(self, ref, None if snapshot is None else snapshot.format_state.id, definition.names)
        before = None if snapshot is None else snapshot.format_state.definition
        if snapshot is not None and not isinstance(new.spec, AlterSpec) and not emptied and not _empties(new):
            ahead.widen_first(self, work, ref, snapshot, definition)
        work.redefined = True
        if snapshot is not None and snapshot.format_state.inlined and not new.anew:
            work.altered[ref] = snapshot.format_state.id
        table = work.table(ref)
        statements: list[str] = []
        empty = _empties(new) if emptied is None else emptied
        # DuckLake never sets NOT NULL on an added column, so such a table is recreated.
        requires = before is not None and empty and emptied is None and requires_added(before, definition)
        # An INSERT after RESET PARTITIONED BY in one transaction ends in an error of DuckDB
        # (1.5.5).
        parted = before is not None and bool(before.partition_by) and not definition.partition_by
        anew = new.anew or requires or (parted and empty and emptied is None)
        if before is not None and (ref.schema, ref.name) in work.filled and not {*definition.names} <= {*before.names}:
            if not isinstance(new.spec, AlterSpec) and not empty:
                raise UnsupportedFeature(_grown(ref))
            work.grown.add((ref.schema, ref.name))
        if before is None or anew:
            work.forget(ref)
            work.new.add((ref.schema, ref.name))
            if before is None:  # The table replaces a view of its name.
                statements += [f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(work.alias, ref.schema)}"]
                statements += [f"DROP VIEW IF EXISTS {table}"]
            statements += [f"DROP TABLE {table}"] if before is not None else []
            statements += list(created_sql(table, definition))
            old: Mapping[str, str] = {}
        else:
            begins, steps = before, tuple[str, ...]()
            if isinstance(new.spec, AlterSpec):
                alteration = altered(before, new.spec)
                begins, steps = alteration.reached or before, alteration.steps
            statements += list(changed_sql(table, begins, definition, steps, empty=empty))
            if parted and emptied is not None:  # A restore uses one partition until the commit.
                statements += [f"ALTER TABLE {table} SET PARTITIONED BY ({one_part(ref, definition).sql})"]
                work.later.append((ref, f"ALTER TABLE {table} RESET PARTITIONED BY"))
            old = before.properties
            if statements and snapshot is not None and snapshot.format_state.id >= 0:
                work.redefined_tables.add((ref.schema, ref.name))
            if any(" RENAME COLUMN " in statement for statement in statements):
                work.renamed_columns.add((ref.schema, ref.name))
        if isinstance(new.spec, AlterSpec) and any(" SET DATA TYPE " in statement for statement in statements):
            work.widened.add((ref.schema, ref.name))
            if snapshot is not None and snapshot.format_state.inlined:
                ahead.flush_first(self, work, ref, snapshot.format_state.id)
        for statement in statements:
            if emptied is not None and statement.endswith(" SET NOT NULL"):
                work.later.append((ref, statement))
                continue
            try:
                work.execute(statement)
            except duckdb.Error as error:
                sets_not_null = statement.endswith(" SET NOT NULL")
                if sets_not_null and isinstance(new.spec, AlterSpec) and DuckLakeRefusal.NOT_NULL_UNKNOWN.is_of(error):
                    raise InvalidConfig(
                        f"table {ref}: DuckLake sets NOT NULL on columns that the table was made with, once rows "
                        f"of it were committed ({self.catalog.redacted(error).splitlines()[0]}). Make the table "
                        "with NOT NULL, by CREATE OR REPLACE TABLE"
                    ) from error
                # DuckLake rejects SET NOT NULL after changes in one transaction: run it after the
                # commit.
                if sets_not_null and DuckLakeRefusal.NOT_NULL_LATER.is_of(error):
                    work.later.append((ref, statement))
                    work.failure = None if work.failure is error else work.failure
                    continue
                raise InvalidConfig(
                    f"table {ref} cannot be so: {self.catalog.redacted(error).splitlines()[0]}"
                ) from error
            work.changed = True
        for option, value in options_of(old, definition.properties).items():
            work.options.append((ref, option, value))
        work.now_defined(ref)
        first_options.lend(work, ref)

    def commit(
        self,
        ref: TableRef,
        snapshot: Snapshot | None,
        new: NewCommit,
        note: Mapping[str, Any],
        app: AppTransaction | None,
        *,
        over: Snapshot | None = None,
    ) -> int:
        if new.work is not None:
            return self._committed(new.work, ref, snapshot, new, note, app)
        with self.transaction(self.catalog.cursor(create=True), snapshot) as work:
            if snapshot is not None and new.spec is not None and new.spec.mode == "create" and not new.anew:
                work.changed = bool(work.execute(f"DELETE FROM {work.table(ref)}"))
            return self._committed(work, ref, snapshot, new, note, app)

    def _committed(
        self,
        work: Work,
        ref: TableRef,
        snapshot: Snapshot | None,
        new: NewCommit,
        note: Mapping[str, Any],
        app: AppTransaction | None,
    ) -> int:
        self.define(work, ref, snapshot, new)
        if app is not None:
            plain = getattr(app, "plain", app)
            work.applied(ref, plain, note)
        same = snapshot is not None and new.definition is None and app is None and not any(new.rows)
        if work is self.together and snapshot is not None and same:
            return snapshot.version
        work.note(ref, note)
        if snapshot is None or work.is_defined(ref) or snapshot.format_state.fresh:
            work.began[ref] = None
        if work is self.together:
            work.remember(ref, snapshot, new)
            return work.base + 1
        committed_version = work.commit()
        self._afterwards(work)
        if (
            committed_version is not None
            and snapshot is not None
            and committed_version == work.base + 1
            and not work.redefined
        ):
            self.states.advance(ref, work.base, committed_version)
        if committed_version is None:
            assert snapshot is not None, "a table that is made is a change"
            return snapshot.version
        return committed_version

    def _afterwards(self, work: Work) -> None:
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
        for ref, number in work.altered.items():  # Writes of other programs need it too.
            ahead.keep_out_of_older_rows(self, work, ref, number)
        for where, option, value in work.options:
            self.set_option(where, option, value)
        for _, statement in work.later:
            here = statement.replace(quote_identifier(work.alias), quote_identifier(self.catalog.alias()), 1)
            try:
                self.catalog.cursor().execute(here)
            except duckdb.Error as error:
                log.warning("lake %s: a column stays nullable: %s", self.storage.root, self.catalog.redacted(error))
            self.states.forget()

    def set_option(self, ref: TableRef, option: str, value: str) -> None:
        """Set one of DuckLake's options of a table. This makes no snapshot."""
        with self.catalog.errors(f"table {ref}"):
            self.catalog.cursor().execute(
                f"CALL {quote_identifier(self.catalog.alias())}.set_option({quote_literal(option)}, "
                f"{quote_literal(value)}, "
                f"schema => {quote_literal(ref.schema)}, table_name => {quote_literal(ref.name)})"
            )
        self.states.forget()

    # -- changes that are a commit of their own

    def alone(self, what: str, change: Callable[[Work], None], epoch: int | str = 0) -> None:
        """Make a change, under the lock, as a separate commit or as part of the open transaction.

        Retries if another program commits meanwhile.

        Raises:
            CommitConflict: Every attempt met another commit.
        """
        for attempt in range(ATTEMPTS):
            try:
                self.once(change, epoch)
                break
            except CommitTaken as error:
                if attempt + 1 == ATTEMPTS:
                    raise CommitConflict(
                        f"{what}: other programs committed to lake {self.storage.root} {ATTEMPTS} times meanwhile "
                        f"({error})",
                        remedy="run it again",
                    ) from error
            # A random pause keeps competing writers from meeting again.
            time.sleep(random.uniform(0, min(0.05 * 2**attempt, 2.0)))
        self.states.forget()

    def once(self, change: Callable[[Work], None], epoch: int | str = 0) -> int:
        """Make a change in a single attempt, and return its snapshot.

        Returns:
            The start snapshot if nothing changed.

        Raises:
            CommitTaken: Another program commits meanwhile.
        """
        with self._transaction(self.catalog.cursor(create=True), epoch) as work:
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


def _grown(ref: TableRef) -> str:
    """Return the message about rows after a new column, with the table's first rows before it.

    DuckLake takes the bounds of the later rows for those of all rows. The column's default in the
    earlier rows is then not found, or read as another value (duckdb 1.5.5).
    """
    return (
        f"Table {ref} gets its first rows in this transaction, and a column behind them: "
        "DuckLake then reads wrong values where more rows follow. Make the "
        "table with the column, or write these rows in a transaction of their own"
    )


def _empties(new: NewCommit) -> bool:
    """True if the commit removes all rows of the table."""
    return isinstance(new.spec, WriteSpec | CreateSpec) and new.spec.mode in ("overwrite", "create")
