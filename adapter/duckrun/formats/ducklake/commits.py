"""How a DuckLake is changed: one transaction of DuckDB's for each commit, or for several tables at once."""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import duckdb

from duckrun.errors import CommitConflict, InvalidConfig, StorageError, UnsupportedFeature
from duckrun.formats.commits import Behind, CommitTaken, NewCommit
from duckrun.formats.ducklake import ahead
from duckrun.formats.ducklake.alteration import altered
from duckrun.formats.ducklake.answers import NotCommitted
from duckrun.formats.ducklake.bounds import mend
from duckrun.formats.ducklake.catalog import APPLIED, Catalog
from duckrun.formats.ducklake.ddl import changed_sql, created_sql, one_part, requires_added
from duckrun.formats.ducklake.definition import DuckLakeDefinition, options_of
from duckrun.formats.ducklake.folders import remove_half_written
from duckrun.formats.ducklake.state import States
from duckrun.formats.ducklake.work import Work, taken
from duckrun.sql.names import quote_identifier, quote_literal, with_values
from duckrun.storage.storage import Storage
from duckrun.values.rows import AppTransaction, WriteSpec
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.tables import AlterSpec, CreateSpec

ATTEMPTS = 12
"""How often a change begins again where other programs commit meanwhile."""

log = logging.getLogger(__name__)


class Commits:
    """Transactions of one lake, and the commits that they are. A part of DuckLakeFormat."""

    storage: Storage
    catalog: Catalog
    states: States
    together: Work | None
    """The transaction over several tables that is open, if any."""
    _prepared: bool

    # -- commits

    @contextmanager
    def transaction(self, cursor: duckdb.DuckDBPyConnection, snapshot: Snapshot | None) -> Iterator[Work]:
        """A transaction of DuckDB's on a cursor, in which a write happens that begins from a snapshot; nothing of it is there if the block
        raises. Raises CommitTaken where another program has committed since that was read.
        """
        with self._transaction(cursor, 0 if snapshot is None else snapshot.own.epoch) as work:
            if snapshot is not None and work is not self.together and work.base != snapshot.own.at:
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
                if isinstance(other, CommitTaken):  # to begin again is the caller's, with all of the transaction
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

    @contextmanager
    def together_on(
        self, cursor: duckdb.DuckDBPyConnection, database: str | None = None, *, lazily: bool = False
    ) -> Iterator[Work]:
        """One transaction over several tables, on one cursor, on which all that the lake is asked meanwhile has to run. Meanwhile the lake is
        attached under a name of its own, or as the ``database`` that is given. ``lazily`` takes the lock of writers at the first write, so that a
        transaction which only reads blocks nobody. Raises InvalidConfig where one is open already.
        """
        if self.together is not None:
            raise InvalidConfig(
                f"A transaction of lake {self.storage.root} is open already; commit it, or roll it back, first."
            )
        with ExitStack() as held:
            if not lazily:
                held.enter_context(self.catalog.locked())
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
                work.lock = lambda: self._lock_late(work, held)
            try:
                with self.catalog.errors("transaction"):
                    self.together = work.begin()
                yield work
                self.together = None
                try:
                    work.made = work.commit()
                except NotCommitted as error:
                    raise StorageError(
                        f"The transaction of lake {self.storage.root} was not committed: {error}. Nothing of this was written; run all of it again."
                    ) from None
                self._afterwards(work)
            finally:
                self.together = None
                work.rollback()
                self.catalog.detach(cursor, alias, spoiled=work.redefined)
                self.states.forget()

    def _lock_late(self, work: Work, held: ExitStack) -> None:
        """Take the lock of writers for a transaction that has begun without. Raises CommitConflict if others have committed since, unless nothing was
        read yet: then it begins again.
        """
        held.enter_context(self.catalog.locked())
        work.lock = None
        if self.states.newest() == work.base:
            return
        if work.has_read:
            raise CommitConflict(
                f"Another program committed to lake {self.storage.root} since this transaction began, and it has read the lake as it was before. Nothing of it "
                "was written; run all of it again."
            )
        work.rollback()
        with self.catalog.errors("transaction"):
            work.begin()

    def _is_prepared(self) -> bool:
        """True if that table is there."""
        if not self._prepared:
            found = self.catalog.cursor().execute(
                with_values(
                    "SELECT 1 FROM duckdb_tables() WHERE database_name = ? AND schema_name = ? AND table_name = ?",
                    [self.catalog.alias(), *APPLIED.split(".")],
                )
            )
            self._prepared = found.fetchone() is not None
        return self._prepared

    def _prepare(self) -> None:
        """Make, once, the table that says which application transactions were committed."""
        cursor, alias = self.catalog.cursor(create=True), quote_identifier(self.catalog.alias())
        schema, table = APPLIED.split(".")
        if not self._is_prepared():
            # The rows of this table are few and small: they lie in the catalog, and no file is made for each commit. Where they lie has to be
            # made with this table: once rows of it were read, DuckLake takes what the lake was when this table was made for what it was when that
            # was, so that a table of the same snapshot as that is not there at its first version (duckdb 1.5.5).
            shared = self.catalog.address.kind == "duckdb"  # what was attached of such a file stays
            name = self.catalog.alias() if shared else self.catalog.attach_inlining(cursor, 1000)
            with self.catalog.errors("prepare"):
                try:
                    cursor.execute("BEGIN TRANSACTION")
                    cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(name, schema)}")
                    cursor.execute(
                        f"CREATE TABLE {quote_identifier(name, schema, table)} (name VARCHAR, app_id VARCHAR, version BIGINT, snapshot BIGINT, note VARCHAR)"
                    )
                    cursor.execute("COMMIT")
                finally:
                    if not shared:
                        self.catalog.detach(cursor, name)
                cursor.execute(
                    f"CALL {alias}.set_option('data_inlining_row_limit', 1000, schema => '{schema}', table_name => '{table}')"
                )
                if shared:
                    cursor.execute(f"INSERT INTO {alias}.{APPLIED} VALUES ('', '', 0, 0, '{{}}')")
        self._prepared = True

    def define(
        self, work: Work, ref: TableRef, snapshot: Snapshot | None, new: NewCommit, *, emptied: bool | None = None
    ) -> None:
        """Make the table, or what it is apart from its rows, as a commit says: before rows are written in the same transaction.
        ``emptied`` says whether the rows of a table that is the same one afterwards are gone by then; NOT NULL follows then.
        """
        made = new.definition
        if (ref.schema, ref.name) in work.widened and not isinstance(new.spec, AlterSpec):
            raise UnsupportedFeature(
                f"Table {ref}: the type of a column was widened in this transaction, behind which DuckLake loses sight of the column's least and greatest "
                "value where rows follow, and DuckDB then reads wrong ones: widen it in a transaction before. Nothing was written."
            )
        if (ref.schema, ref.name) in work.grown and not isinstance(new.spec, AlterSpec):
            raise UnsupportedFeature(_grown(ref))
        if new.spec is not None and new.spec.mode not in ("alter", "create", "delete"):
            columns = new.definition or (None if snapshot is None else snapshot.own.definition)
            ahead.refuse_structs_in_the_catalog(
                self, ref, None if snapshot is None else snapshot.own.id, (columns.sql_types if columns else None) or {}
            )
        if snapshot is not None and snapshot.own.inlined:
            ahead.keep_out_of_older_rows(self, work, ref, snapshot.own.id)
        if made is None or work.is_defined(ref):
            return
        assert isinstance(made, DuckLakeDefinition), "a definition of this format"
        ahead.refuse_system_columns(self, ref, None if snapshot is None else snapshot.own.id, made.names)
        before = None if snapshot is None else snapshot.own.definition
        if snapshot is not None and not isinstance(new.spec, AlterSpec) and not emptied and not _empties(new):
            ahead.widen_first(self, work, ref, snapshot, made)
        work.redefined = True
        if snapshot is not None and snapshot.own.inlined and not new.anew:
            work.altered[ref] = snapshot.own.id
        table = work.table(ref)
        statements: list[str] = []
        empty = _empties(new) if emptied is None else emptied
        # DuckLake sets NOT NULL on no column that was added, so that a table which asks it of one is made anew.
        requires = before is not None and empty and emptied is None and requires_added(before, made)
        # Rows that are inserted behind RESET PARTITIONED BY, in its transaction, end DuckDB with an error of its own (1.5.5).
        parted = before is not None and bool(before.partition_by) and not made.partition_by
        anew = new.anew or requires or (parted and empty and emptied is None)
        if before is not None and (ref.schema, ref.name) in work.filled and not {*made.names} <= {*before.names}:
            if not isinstance(new.spec, AlterSpec) and not empty:
                raise UnsupportedFeature(_grown(ref))
            work.grown.add((ref.schema, ref.name))
        if before is None or anew:
            work.forget(ref)
            work.new.add((ref.schema, ref.name))
            if before is None:  # a view of that name gives way
                statements += [f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(work.alias, ref.schema)}"]
                statements += [f"DROP VIEW IF EXISTS {table}"]
            statements += [f"DROP TABLE {table}"] if before is not None else []
            statements += list(created_sql(table, made))
            old: Mapping[str, str] = {}
        else:
            begins, steps = before, tuple[str, ...]()
            if isinstance(new.spec, AlterSpec):
                alteration = altered(before, new.spec)
                begins, steps = alteration.reached or before, alteration.steps
            statements += list(changed_sql(table, begins, made, steps, empty=empty))
            if parted and emptied is not None:  # of a restore: its rows lie in one part, until the commit is made
                statements += [f"ALTER TABLE {table} SET PARTITIONED BY ({one_part(ref, made).sql})"]
                work.later.append((ref, f"ALTER TABLE {table} RESET PARTITIONED BY"))
            old = before.properties
            if statements and snapshot is not None and snapshot.own.id >= 0:
                work.redefined_tables.add((ref.schema, ref.name))
            if any(" RENAME COLUMN " in statement for statement in statements):
                work.renamed_columns.add((ref.schema, ref.name))
        if isinstance(new.spec, AlterSpec) and any(" SET DATA TYPE " in statement for statement in statements):
            work.widened.add((ref.schema, ref.name))
            if snapshot is not None and snapshot.own.inlined:
                ahead.flush_first(self, work, ref, snapshot.own.id)
        for statement in statements:
            if emptied is not None and statement.endswith(" SET NOT NULL"):
                work.later.append((ref, statement))
                continue
            try:
                work.execute(statement)
            except duckdb.Error as error:
                if statement.endswith(" SET NOT NULL") and " stats " in str(error) and isinstance(new.spec, AlterSpec):
                    raise InvalidConfig(
                        f"table {ref}: DuckLake sets NOT NULL on columns that the table was made with, once rows of it were committed "
                        f"({self.catalog.redacted(error).splitlines()[0]}). Make the table with NOT NULL, by CREATE OR REPLACE TABLE. Nothing was written."
                    ) from error
                if statement.endswith(" SET NOT NULL") and "transaction-local changes" in str(error):
                    work.later.append((ref, statement))
                    work.failure = None if work.failure is error else work.failure
                    continue
                raise InvalidConfig(
                    f"table {ref} cannot be so: {self.catalog.redacted(error).splitlines()[0]} Nothing was written."
                ) from error
            work.changed = True
        for option, value in options_of(old, made.properties).items():
            work.options.append((ref, option, value))
        work.now_defined(ref)

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
        if snapshot is None or work.is_defined(ref) or snapshot.own.fresh:
            work.began[ref] = None
        if work is self.together:
            work.remember(ref, snapshot, new)
            return work.base + 1
        made = work.commit()
        self._afterwards(work)
        if made is not None and snapshot is not None and made == work.base + 1 and not work.redefined:
            self.states.advance(ref, work.base, made)
        if made is None:
            assert snapshot is not None, "a table that is made is a change"
            return snapshot.version
        return made

    def _afterwards(self, work: Work) -> None:
        """What DuckLake does not take within the transaction that is committed: bounds, options of tables, and NOT NULL of a table with changes."""
        for ref in work.began:
            number = self.states.number(ref)
            if number is None:  # dropped again in the same transaction
                continue
            try:
                lost = mend(self.catalog, number)
            except StorageError as error:  # the commit is made, and this library reads without bounds
                lost = True
                log.warning("lake %s: bounds of columns of table %s stay lost: %s", self.storage.root, ref, error)
            if lost:
                self.states.doubt(number)
        for ref, number in work.altered.items():  # other programs' writes need it too
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
        """One of DuckLake's options of a table; it makes no snapshot."""
        with self.catalog.errors(f"table {ref}"):
            self.catalog.cursor().execute(
                f"CALL {quote_identifier(self.catalog.alias())}.set_option({quote_literal(option)}, {quote_literal(value)}, "
                f"schema => {quote_literal(ref.schema)}, table_name => {quote_literal(ref.name)})"
            )
        self.states.forget()

    # -- changes that are a commit of their own

    def alone(self, what: str, change: Callable[[Work], None], epoch: int | str = 0) -> None:
        """Make a change, under the lock, as a commit of its own, or as a part of the open transaction over several tables; again where another
        program commits meanwhile. Raises CommitConflict.
        """
        for attempt in range(ATTEMPTS):
            try:
                self.once(change, epoch)
                break
            except CommitTaken as error:
                if attempt + 1 == ATTEMPTS:
                    raise CommitConflict(
                        f"{what}: other programs committed to lake {self.storage.root} {ATTEMPTS} times meanwhile ({error}). Nothing was written; run it again."
                    ) from error
            time.sleep(random.uniform(0, min(0.05 * 2**attempt, 2.0)))
        self.states.forget()

    def once(self, change: Callable[[Work], None], epoch: int | str = 0) -> int:
        """The snapshot that a change makes, tried once, or the one that it began from where it changes nothing. Raises CommitTaken."""
        with self._transaction(self.catalog.cursor(create=True), epoch) as work:
            change(work)
            made = None if work is self.together else work.commit()
            return work.base if made is None else made

    def run_alone(self, *statements: str) -> None:
        """Run statements over ``{lake}`` as one transaction; names without a catalog are this lake's."""

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
                    with suppress(duckdb.Error):  # of a transaction that the error has ended
                        work.cursor.execute(f"SET search_path = {quote_literal(before)}" if before else "USE memory")

        self.alone(statements[-1].partition(" {lake}")[0], change)


def _grown(ref: TableRef) -> str:
    """Message for rows behind a new column of a table that has its first rows in the same transaction. DuckLake takes the bounds of the later rows for
    those of all rows, so that the column's default in the earlier ones is not found, and read as another value (duckdb 1.5.5).
    """
    return (
        f"Table {ref} gets its first rows in this transaction, and a column behind them: DuckLake then reads wrong values where more rows follow. Make the "
        "table with the column, or write these rows in a transaction of their own. Nothing was written."
    )


def _empties(new: NewCommit) -> bool:
    """Whether all rows of the table go with a commit."""
    return isinstance(new.spec, WriteSpec | CreateSpec) and new.spec.mode in ("overwrite", "create")
