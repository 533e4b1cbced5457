"""Rows of a DuckLake table, written by INSERT, UPDATE and DELETE by row id in one transaction.

DuckLake's MERGE takes one UPDATE or DELETE action, and accepts duplicate source keys. So the
outcome of each row is computed as for any other format, and applied here. An updated row keeps its
id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import duckdb

from duckrun.engines.duckdb.rows.fitted import fitted
from duckrun.engines.duckdb.rows.places import computed
from duckrun.engines.duckdb.rows.reads import Read
from duckrun.engines.duckdb.rows.source import Rows, schema_of_types
from duckrun.engines.duckdb.rows.streams import Streams
from duckrun.engines.duckdb.rows.target import definition_of
from duckrun.engines.duckdb.writers.staged import is_scattered, partitions_of
from duckrun.engines.duckdb.writers.table_writer import RowChanges, WholeRows, WriteRows
from duckrun.errors import SchemaMismatch, UnsupportedFeature
from duckrun.formats.commits import NewCommit
from duckrun.formats.definitions import TableDefinition
from duckrun.formats.format import transactions_of
from duckrun.run.memory import Arbiter
from duckrun.run.transaction import Transaction
from duckrun.sql.plain_names import dotted_names
from duckrun.sql.quoting import quoted_list, quoted_names
from duckrun.sql.raising import MARK
from duckrun.sql.refusals import DuckDBRefusal
from duckrun.values.layout import Layout
from duckrun.values.rows import Commit, RowSpec, WriteSpec
from duckrun.values.snapshot import Snapshot

REASON = "one transaction of the lake's catalog"


class StatementTableWriter:
    """Writer of tables whose rows are written by statements in a transaction of the lake."""

    delta_rs = None
    updates_from_changes = True

    def __init__(self, spec: RowSpec, transaction: Transaction, arbiter: Arbiter, duckdb_limit: int) -> None:
        self.spec = spec
        self.transaction = transaction
        self.ref = transaction.ref
        self.lake = transactions_of(transaction.lake.format)
        self.shares = arbiter.write(duckdb_limit)
        """Memory that the write may use."""
        self.streams = Streams(
            f"Another program committed to the lake of table {transaction.ref} while this {spec.mode} ran"
        )
        self._work: Any = None
        self._gone = 0
        """Rows that this attempt's transaction took back."""

    def attempt(
        self, rows: Rows | None, cursor: duckdb.DuckDBPyConnection, snapshot: Snapshot | None, write: WriteRows
    ) -> Commit:
        """Run one attempt in a transaction, which also takes back an earlier attempt."""
        self._refuse_words()
        taken = self.transaction.taken_back
        if rows is not None and self._reads_again():
            # Before the transaction begins: its rollback would also drop the spooled copy of a
            # stream.
            rows = self.streams.kept(rows)
        # Compute a query before the take-back. After it, DuckLake reads older versions of the table
        # with the restored rows twice.
        before = nullcontext(rows) if rows is None or taken is None else self.streams.read_once(rows)
        with (
            before as rows,
            self.lake.transaction(cursor, snapshot if taken is None else taken.newest) as self._work,
        ):
            self._gone = 0
            if taken is not None:
                snapshot, self._gone = self.lake.taken_back(self._work, taken)
            return write(rows, snapshot)

    def check(self, snapshot: Snapshot) -> None:
        """Accept every table: the catalog checks what its transaction can write."""

    def write_all(self, whole: WholeRows, snapshot: Snapshot | None) -> Commit:
        """Create a table, or replace all rows of one.

        It stays the same table unless ``redefine`` is set.
        """
        spec, form = whole.spec, self.transaction.lake.format
        fields = form.fields_of(schema_of_types(whole.stored, whole.rows.cursor), whole.stored)
        definition = form.overwritten(spec, fields, whole.partition_by, snapshot)
        rows = fitted(self.ref, whole.rows, whole.filled, (), spec=spec, definition=definition, computed=whole.computed)
        self.streams.take(rows)
        anew = spec.redefine and snapshot is not None
        new = NewCommit(spec, definition, writer="ducklake", reason=REASON, anew=anew, work=self._work)
        gone = 0
        with self._apart(rows, changes=snapshot is not None) as apart:
            if snapshot is not None and not anew:
                gone = self._run(f"DELETE FROM {self._work.table(self.ref)}")
            self.lake.define(self._work, self.ref, snapshot, new)
            came = self._insert(apart, snapshot, definition)
        return self.transaction.commit(snapshot, replace(new, rows=(came, 0, gone)))

    def append(self, rows: Rows, snapshot: Snapshot) -> Commit:
        """Add rows to a table."""
        self.streams.take(rows)
        definition = definition_of(snapshot)
        new = NewCommit(self.spec, definition, writer="ducklake", reason="rows are added", work=self._work)
        with self._apart(rows, changes=definition is not None) as apart:
            self.lake.define(self._work, self.ref, snapshot, new)
            came = self._insert(apart, snapshot, definition)
        return self.transaction.commit(snapshot, replace(new, rows=(came, 0, self._gone)))

    def swap_files(
        self, snapshot: Snapshot, rows: Rows | None, predicate: str | None, cursor: duckdb.DuckDBPyConnection
    ) -> NewCommit | None:
        """Return None: a statement finds the rows."""
        return None

    def rewrite(self, rows: RowChanges) -> NewCommit:
        """Write the changed rows, and build the commit.

        Rows of ``changes`` with a row id are deleted or updated, as ``old`` tells, and those of
        ``new`` are inserted.
        """
        with ExitStack() as stack:
            # Rows that come from the changes are materialized already.
            images = [
                (
                    kind,
                    stack.enter_context(self._apart(new)) if kind == "insert" and rows.changes not in new.sql else new,
                )
                for kind, new in rows.new()
            ]
            return self._rewritten(rows, images)

    def _rewritten(self, row_changes: RowChanges, images: Sequence[tuple[str, Rows]]) -> NewCommit:
        table, changes, counts, old = row_changes.table, row_changes.changes, row_changes.counts, row_changes.old
        definition = definition_of(table.snapshot)
        snapshot = table.snapshot
        new = NewCommit(
            self.spec, definition, writer="ducklake", reason=f"{row_changes.reason}: {REASON}", work=self._work
        )
        self.lake.define(self._work, self.ref, snapshot, new)
        target, row = self._work.table(self.ref), table.row
        there = f"hit.{row} IS NOT NULL"
        updated = deleted = inserted = 0
        names = list(quoted_names(snapshot.schema.names).values())
        taken = self.transaction.taken_back
        # Restored rows get other ids after the first statement that changes some of them.
        at_once = taken is not None and taken.base is not None
        if counts[1] != 0 and any(kind == "update_postimage" for kind, _ in images):
            for kind, rows in images:
                # The UPDATE uses the materialized values, so their checks must run here.
                if kind == "update_postimage" and MARK in rows.sql:
                    rows.cursor.execute(f"SELECT count(COLUMNS(*)) FROM ({rows.sql})")
            assigned = ", ".join(f"{name} = hit.{name}" for name in names)
            hits = f"FROM {changes} AS hit WHERE {there} AND ({old}) = 'update_preimage'"
            if at_once:
                updated = int(rows.cursor.execute(f"SELECT count(*) {hits}").fetchall()[0][0])
            else:
                updated = self._run(f"UPDATE {target} AS t SET {assigned} {hits} AND t.rowid = hit.{row}")
        if at_once and (updated or counts[2] != 0):
            is_old = f"({old}) IN ('update_preimage', 'delete')"
            ids = f"SELECT hit.{row} FROM {changes} AS hit WHERE {there} AND {is_old}"
            deleted = self._run(f"DELETE FROM {target} WHERE rowid IN ({ids})") - updated
            if updated:
                listed = ", ".join(names)
                self._run(f"INSERT INTO {target} ({listed}) SELECT {', '.join(f'hit.{name}' for name in names)} {hits}")
        elif counts[2] != 0 and old != "'update_preimage'":
            ids = f"SELECT hit.{row} FROM {changes} AS hit WHERE {there} AND ({old}) = 'delete'"
            deleted = self._run(f"DELETE FROM {target} WHERE rowid IN ({ids})")
        for kind, rows in images:
            if kind == "insert":
                inserted += self._insert(rows, snapshot, definition)
        done = zip(counts, (inserted, updated, deleted), strict=True)
        inserted, updated, deleted = (actual if count is None else count for count, actual in done)
        return replace(new, rows=(inserted, updated, deleted))

    def commit(self, snapshot: Snapshot, new: NewCommit, read: Callable[[], Read]) -> Commit:
        """Commit, unless neither rows nor the table change."""
        if new.definition is None and not any(new.rows) and self.spec.app is None and not self._work.changed:
            return self.transaction.nothing(snapshot, "no row was concerned")
        return self.transaction.commit(snapshot, new)

    @contextmanager
    def _apart(self, rows: Rows, *, changes: bool = True) -> Iterator[Rows]:
        """Materialize rows that are read from the table which the transaction ``changes``."""
        # DuckLake applies a transaction's deletes to every version of the table that it reads.
        if not changes or not _reads_table(rows, f"{self.transaction.lake.root}.{self.ref.schema}.{self.ref.name}"):
            yield rows
            return
        with computed(rows.cursor, rows.sql) as name:
            yield replace(rows, sql=f"SELECT * FROM {name}")

    def _insert(self, rows: Rows, snapshot: Snapshot | None, definition: TableDefinition | None) -> int:
        """Insert rows, sorted by partition if there are many partitions; return their number."""
        table = definition or snapshot
        keys = table.partition_columns if table is not None else ()
        first = keys if keys and is_scattered(rows, keys, partial(partitions_of, snapshot)) else ()
        names = quoted_list(rows.types)
        return self._run(f"INSERT INTO {self._work.table(self.ref)} ({names}) {rows.ordered(first)}")

    def _run(self, sql: str) -> int:
        try:
            count: int = self._work.execute(sql)
        except duckdb.ConstraintException as error:
            raise SchemaMismatch(
                f"Table {self.ref}: {str(error).splitlines()[0].removeprefix('Constraint Error: ')}"
            ) from error
        except duckdb.InvalidInputException as error:
            if not DuckDBRefusal.IN_VARIANT.is_of(error):
                raise
            raise SchemaMismatch(
                f"Table {self.ref}: a VARIANT holds a value that DuckLake's files cannot hold, such as an "
                "interval or a number of more than 64 bits: "
                f"{str(error).splitlines()[0].removeprefix('Invalid Input Error: ')}"
            ) from error
        self._work.changed = self._work.changed or count > 0
        return count

    def _reads_again(self) -> bool:
        """True if the rows are read several times, or by several attempts."""
        if not isinstance(self.spec, WriteSpec):
            return True
        return (
            self.spec.mode == "replace"
            or self.spec.schema_mode == "sync_all_columns"
            or self.transaction.returning is not None
        )

    def _refuse_words(self) -> None:
        """Raise UnsupportedFeature for a ``writer`` or clustering that only Delta tables have."""
        if self.spec.writer != "auto":
            raise UnsupportedFeature(
                f"{self.spec.mode} on table {self.ref}: writer {self.spec.writer} writes Delta's files, and this "
                "is a DuckLake table, which writer ducklake writes: leave it out"
            )
        if isinstance(self.spec, Layout) and self.spec.cluster_by:
            raise UnsupportedFeature(
                f"Table {self.ref}: DuckLake has no clustering (cluster_by); sort_by keeps rows that are near in "
                "the same files"
            )


def _reads_table(rows: Rows, table: str) -> bool:
    """True if rows are read from the written table, also through a view or a macro."""
    table = _plain(table)
    if rows.one_shot or table in _plain(rows.sql):
        return not rows.one_shot
    views_and_macros = (
        "SELECT lower(view_name), sql FROM duckdb_views() WHERE NOT internal UNION ALL SELECT lower(function_name), "
        "macro_definition FROM duckdb_functions() WHERE NOT internal AND macro_definition IS NOT NULL"
    )
    definitions = dict(rows.cursor.execute(views_and_macros).fetchall())
    if not any(table in _plain(text) for text in definitions.values()):
        return False
    texts, seen = [rows.sql], set[str]()
    while texts:
        names = {chain[-1].lower() for chain in dotted_names(texts.pop())} & definitions.keys() - seen
        if any(table in _plain(definitions[name]) for name in names):
            return True
        seen |= names
        texts += [definitions[name] for name in names]
    return False


def _plain(sql: str) -> str:
    """SQL without quotation marks, because DuckDB drops optional ones in a view's text."""
    return sql.replace('"', "")
