"""The embedded engine: DuckDB reads and computes; a writer (delta_rs, staged, ducklake) commits."""

from __future__ import annotations

import logging
import tempfile
import threading
import uuid
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import duckdb
from sqlglot import exp

from duckrun.display.notebook import is_interactive
from duckrun.engines.duckdb.changes import alter, optimize, staging, write
from duckrun.engines.duckdb.frame import DuckDBFrame
from duckrun.engines.duckdb.instance.advice import advise
from duckrun.engines.duckdb.instance.arrow import register, register_view, with_nested_structs_whole
from duckrun.engines.duckdb.instance.connection import has_ended, load_extensions, open_connection
from duckrun.engines.duckdb.instance.footers import columns_in
from duckrun.engines.duckdb.instance.sql import (
    attach_again,
    attached,
    errors_about,
    files_sql,
    lacked_memory,
    scans_in,
    select_sql,
)
from duckrun.engines.duckdb.rows.fitted import stored_types, types_of
from duckrun.engines.duckdb.rows.places import one_moment
from duckrun.engines.duckdb.rows.source import Rows, rows_of, schema_of_types
from duckrun.engines.duckdb.rows.weights import weighed_sql
from duckrun.engines.duckdb.writers import staged_rows
from duckrun.engines.engine import Engine
from duckrun.engines.frame import LazyRows
from duckrun.engines.tables import carry_out
from duckrun.engines.tabular.values import arrow_table
from duckrun.errors import InvalidConfig, StorageError, UnsupportedFeature, about_tables, outcome_of
from duckrun.formats.definitions import Alteration
from duckrun.formats.format import logs_of
from duckrun.lake.lake import Lake
from duckrun.libraries import pa
from duckrun.run.memory import Arbiter
from duckrun.run.pins import NOTHING, Reads, together
from duckrun.run.reruns import rerun_of
from duckrun.run.transaction import Transaction
from duckrun.sql.dialects import text_in
from duckrun.sql.names import dotted_names
from duckrun.sql.quoting import quote_identifier
from duckrun.sql.scalar import holds_statements
from duckrun.sql.written import put_names, with_names_as_written
from duckrun.storage.extensions import keep_forever
from duckrun.storage.storage import Storage
from duckrun.values.any_case import AnyCase
from duckrun.values.changes import WeighedRead
from duckrun.values.choices import BY_DELTA_RS, EngineName
from duckrun.values.columns import refuse_twins
from duckrun.values.rows import Commit, ReadSpec, RowSpec, StagedFile, WriteSpec
from duckrun.values.snapshot import Scan, Snapshot
from duckrun.values.tables import MaintenanceResult, OptimizeSpec, PurgeSpec, TableSpec

log = logging.getLogger(__name__)


class DuckDBEngine(Engine):
    """DuckDB over one lake. All cursors share ``connection``; each job runs on its own cursor."""

    name: EngineName = "duckdb"
    temp_tables = True
    returns_rows = True
    shares_scans = True
    subqueries_in_changes = True
    casts_structs_by_name = True

    def __init__(
        self,
        lake: Lake,
        *,
        arbiter: Arbiter | None = None,
        connection: duckdb.DuckDBPyConnection | None = None,
        duckdb_limit: int | None = None,
        progress: bool = False,
    ) -> None:
        self.lake = lake
        self.arbiter = arbiter or Arbiter()
        self.duckdb_limit = duckdb_limit or self.arbiter.instance_limit()
        self._owned = connection is None
        self._progress = progress
        self._opened = connection
        self._opening = threading.Lock()
        self._scratch = tempfile.TemporaryDirectory(prefix="duckrun-")
        self._registered: AnyCase[pa.Table] = AnyCase()
        self._reached: dict[Hashable, Lake] = {lake.format.lent: lake}
        self.temp_names = AnyCase()
        self._kept: set[str] = set()
        self._held: duckdb.DuckDBPyConnection | None = None
        self.views: AnyCase[str] = AnyCase()
        """SQL of the temporary views, by name."""

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The DuckDB connection, opened at first use.

        It is opened again after an internal error of DuckDB has ended the instance.
        """
        with self._opening:
            if self._opened is None:
                self._opened = open_connection(self.lake, self.duckdb_limit, self._scratch.name)
            elif self._owned and has_ended(self._opened):
                self._opened = self._opened_again()
            return self._opened

    def make_room(self, what: str) -> None:
        """Take delta_rs's share of the memory off DuckDB's, for the life of the instance.

        Args:
            what: Start of the error message: the write that needs the memory.

        Raises:
            InvalidConfig: DuckDB already uses more than its reduced share.
        """
        with self._opening:
            limit = self.arbiter.instance_limit(beside_delta_rs=True)
            if self.duckdb_limit <= limit:
                return
            if self._opened is not None:
                try:
                    self._opened.execute(f"SET GLOBAL memory_limit = '{limit}B'")
                except duckdb.Error as error:
                    raise InvalidConfig(
                        f"{what} asks for writer delta_rs, which needs memory of its own, and DuckDB has more "
                        f"than {limit / 1e6:.0f} MB in use in this process",
                        remedy="leave writer to auto, or write before other work begins",
                    ) from error
            self.duckdb_limit = limit

    def _opened_again(self) -> duckdb.DuckDBPyConnection:
        """Open a new instance with the registered values, views and credentials of the ended one.

        Its temporary tables are lost.
        """
        if self._opened is not None and self._ended_with_ducklake(self._opened):
            keep_forever(self._opened)
        connection = open_connection(self.lake, self.duckdb_limit, self._scratch.name)
        for lake in list(self._reached.values())[1:]:
            load_extensions(connection, [lake], narrow=True)
            lake.format.lend(connection)
        lost = dict.fromkeys(self._kept, "its rows are gone")
        for name, sql in self.views.items():
            try:
                attach_again(connection, sql)
                connection.execute(f"CREATE OR REPLACE VIEW {quote_identifier(name)} AS {sql}")
            except duckdb.Error as error:  # the view reads a table that is gone
                lost[name] = str(error).splitlines()[0]
        for name in lost:
            self._kept.discard(name)
            self.views.pop(name, None)
            del self.temp_names[name]
        log.warning(
            "An internal error ended this session's DuckDB; a new one is open%s.",
            "".join(f", without the temporary {name} ({why})" for name, why in lost.items()),
        )
        return connection

    def _ended_with_ducklake(self, connection: duckdb.DuckDBPyConnection) -> bool:
        return any(lake.format.transactions is not None for lake in self._reached.values()) and has_ended(connection)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A cursor for one job. Long queries show a progress bar in an interactive session."""
        if self._held is not None:
            return self._held
        cursor = self.connection.cursor()
        if self._progress and is_interactive():
            cursor.execute("SET enable_progress_bar = true")
        return cursor

    @property
    def in_transaction(self) -> bool:
        """True while a transaction over several tables is open, which may be rolled back."""
        return self._held is not None

    @contextmanager
    def on_one_cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Run all statements on one cursor, and so in its transaction, while the block runs."""
        self._held = self.connection.cursor()
        try:
            yield self._held
        finally:
            self._held = None

    def read_files(self, format: str, path: str, options: Mapping[str, Any]) -> LazyRows:
        return self._frame(files_sql(format, path, options), f"read of {path}")

    def reach(self, lake: Lake) -> None:
        if lake.format.lent in self._reached:
            return
        load_extensions(self.connection, [lake], narrow=True)
        lake.format.lend(self.connection)
        self._reached[lake.format.lent] = lake

    # -- reading

    def scan(self, snapshot: Snapshot, spec: ReadSpec) -> LazyRows:
        sql = select_sql(self._scan_sql(snapshot), spec, snapshot.schema.names, str(snapshot.ref))
        return self._frame(sql, about_tables("read", [str(snapshot.ref)]))

    def open(self, planned: Scan) -> LazyRows:
        source = self.lake.format.scan_sql(planned.snapshot(), files=planned.files, named=True)
        sql = select_sql(source, planned.read, planned.schema.names, str(planned.ref))
        return self._frame(sql, about_tables("read", [str(planned.ref)]))

    def weighed(self, read: WeighedRead, query: Callable[[str], str]) -> LazyRows:
        what = f"changes of table {read.ref}"
        with errors_about(what, writes=False):
            sql = query(f"({weighed_sql(read, self.cursor(), self._scratch.name)})")
        return self._frame(sql, what)

    def inlined(self, rows: LazyRows) -> exp.Expr:
        assert isinstance(rows.source, DuckDBFrame), "rows of this engine"
        return exp.Subquery(this=exp.var(rows.source.sql))

    def pinned(self, snapshot: Snapshot) -> exp.Expr:
        return exp.Subquery(this=exp.var(self._scan_sql(snapshot)[1:-1]))

    def _scan_sql(self, snapshot: Snapshot) -> str:
        advise(snapshot, self.arbiter.limit(), self._scratch.name)
        # The connection is tested at each use, and most tables attach nothing.
        return snapshot.scan_sql(
            attach=lambda *table: attached(self.connection, *table),
            footers=lambda files: columns_in(self.connection.cursor(), files),
        )

    def select(self, query: exp.Expr, what: str = "query") -> LazyRows:
        text = text_in(query, "duckdb")
        # The text of a view is foreign, and DuckDB would run each statement in it.
        if holds_statements(text):
            raise InvalidConfig("A query, or a view in it, holds more than one statement")
        frame = self._frame(text, what, partial(with_names_as_written, query))
        # The relation is bound already. Its Arrow schema would cost another bind, and a read of
        # each log.
        columns = frame.native.columns
        # An unnamed column is called by its expression's text, which may contain our scan.
        if not all(map(str.isidentifier, columns)):
            names = self._names_as_written(columns, query)
            return frame if names == list(columns) else frame.named(names)
        return frame

    def _names_as_written(self, columns: Sequence[str], query: exp.Expr) -> list[str]:
        """Column names as DuckDB derives them from the query that the user wrote.

        An unnamed expression is called by its text, and a subquery's text would show our scan.
        """
        cursor, names = self.connection.cursor(), list(columns)

        def normal(text: str) -> str:
            """Table reference as DuckDB prints it; Spark syntax (VERSION AS OF) unchanged."""
            prefix = "SELECT * FROM "
            try:
                rows = cursor.execute("SELECT json_deserialize_sql(json_serialize_sql($1))", [prefix + text]).fetchall()
            except duckdb.ParserException:
                return text
            return str(rows[0][0]).removeprefix(prefix)

        for put, original in put_names(query, text_in):
            new, old = normal(put), normal(original)
            names = [name.replace(new, old) for name in names]
        return names

    def explain(self, query: exp.Expr, *, analyze: bool = False, what: str = "explain") -> str:
        with errors_about(what, as_written=partial(with_names_as_written, query), writes=False):
            plan = self._cursor_with_values().execute(
                f"EXPLAIN {'ANALYZE ' if analyze else ''}{text_in(query, 'duckdb')}"
            )
            return "\n".join(str(row[1]) for row in plan.fetchall())

    def local(self, rows: pa.Table) -> LazyRows:
        cursor, name = self.cursor(), f"__duckrun_local_{uuid.uuid4().hex}"
        return LazyRows(DuckDBFrame(self, cursor, register(cursor, name, rows)[0], "query"), self.name)

    def cast(self, value: exp.Expr, kind: str, rows: LazyRows, column: int) -> exp.Expr:
        return exp.cast(value, kind, dialect="duckdb")

    def column_types(self, snapshot: Snapshot) -> dict[str, str]:
        return {name: str(kind) for name, kind in types_of(snapshot, self.cursor()).items()}

    def _frame(self, sql: str, what: str, as_written: Callable[[str], str] = str) -> LazyRows:
        return LazyRows(DuckDBFrame(self, self._cursor_with_values(), sql, what, as_written), self.name)

    def _cursor_with_values(self) -> duckdb.DuckDBPyConnection:
        cursor = self.cursor()
        for name, value in self._registered.items():
            register_view(cursor, name, value)
        return cursor

    def register(self, name: str, value: Any, reads: Reads = NOTHING) -> None:
        """Name a frame or an Arrow-like value, so that later queries can read it.

        Raises:
            InvalidConfig: The value is not tabular.
        """
        if isinstance(value, LazyRows):
            value.createOrReplaceTempView(name)
            return
        table = with_nested_structs_whole(arrow_table(value))
        refuse_twins(table.schema.names)
        self._registered[name] = table
        self.temp_names[name] = reads

    def keep(self, name: str, rows: LazyRows) -> None:
        """Compute rows into a temporary table of this instance, which every cursor sees."""
        assert isinstance(rows.source, DuckDBFrame), "rows of this engine"
        self._refuse_within(f"CREATE TEMP TABLE {name}")
        self.forget(name)
        with errors_about(f"temporary table {name}"):
            rows.source.cursor.execute(f"CREATE TABLE {quote_identifier(name)} AS {rows.source.sql}")
        self._kept.add(name.lower())
        self.temp_names[name] = rows.reads.computed()

    def _refuse_within(self, what: str) -> None:
        """Raise UnsupportedFeature within a transaction over several tables."""
        # DuckDB writes to a single database in one transaction, and that is the lake.
        if self._held is not None:
            raise UnsupportedFeature(
                f"{what}: within a transaction of a lake nothing but the lake is written. Do it before BEGIN, or "
                "CREATE TEMP VIEW."
            )

    def is_kept(self, name: str) -> bool:
        return name.lower() in self._kept

    def change_kept(self, name: str, statement: str, reads: Reads) -> pa.Table:
        self._refuse_within(f"A change of the temporary table {name}")
        with errors_about(f"temporary table {name}"):
            rows = self._cursor_with_values().execute(statement).to_arrow_table()
        self.temp_names[name] = together(self.temp_names[name], reads.computed())
        return rows

    def forget(self, name: str) -> None:
        if name not in self.temp_names:
            return
        if self.is_kept(name):
            self.connection.execute(f"DROP TABLE {quote_identifier(name)}")
        elif self._registered.pop(name, None) is None:
            self.connection.execute(f"DROP VIEW IF EXISTS {quote_identifier(name)}")
        self.views.pop(name, None)
        self._kept.discard(name.lower())
        del self.temp_names[name]

    def reads_of(self, value: Any) -> Reads:
        """Tables that a value was computed from, as far as known.

        A Frame records them; the query of a DuckDB relation names them.
        """
        if isinstance(value, LazyRows):
            return value.reads
        if not isinstance(value, duckdb.DuckDBPyRelation):
            return NOTHING
        query = value.sql_query()
        names = {name[0] for name in dotted_names(query) if len(name) == 1 and name[0] in self.temp_names}
        return together(scans_in(query), *(self.temp_names[name] for name in names))

    # -- writing

    def can_fence(self, storage: Storage) -> bool:
        return True  # a commit file is created at its version, or the commit fails

    def schema_of(self, source: Any) -> pa.Schema:
        """Arrow schema that a value would be stored as; null for a column of untyped NULLs.

        A stream is not consumed.
        """
        if isinstance(source, pa.RecordBatchReader):
            source = source.schema.empty_table()
        with rows_of(source, self.cursor(), self._scratch.name) as rows:
            types = {name: duckdb.sqltypes.BOOLEAN if '"NULL"' in str(k) else k for name, k in rows.types.items()}
            schema = schema_of_types(stored_types(self.lake.format, types), rows.cursor)
            return pa.schema([f if types[f.name] is rows.types[f.name] else f.with_type(pa.null()) for f in schema])

    def execute(
        self,
        spec: RowSpec | TableSpec,
        source: Any | None,
        transaction: Transaction,
        driver: Callable[[], Engine] | None = None,
    ) -> Commit | MaintenanceResult:
        with outcome_of(spec.mode, transaction.ref):
            return self._execute(spec, source, transaction)

    def _execute(
        self, spec: RowSpec | TableSpec, source: Any | None, transaction: Transaction
    ) -> Commit | MaintenanceResult:
        spec = transaction.lake.format.with_properties(spec, transaction.ref)
        if isinstance(spec, TableSpec):
            return carry_out(self, spec, transaction)
        if spec.writer in BY_DELTA_RS:
            self.make_room(f"{spec.mode} on table {transaction.ref}")
        cursor = self._cursor_with_values()
        job = self._write(spec, transaction)
        if self._held is not None and isinstance(source, LazyRows) and not _is_on(source, self._held):
            source = source.toArrow()
        source_rows = nullcontext() if source is None else rows_of(source, cursor, self._scratch.name)
        with errors_about(f"table {transaction.ref}, {spec.mode}", self.arbiter), source_rows as rows:
            commit = self._written(job, transaction, rows, cursor if rows is None else rows.cursor)
        return commit if commit.replayed else commit.with_(memory=job.shares)

    def _write(self, spec: RowSpec, transaction: Transaction) -> write.Write:
        return write.Write(spec, transaction, self.arbiter, self.duckdb_limit)

    def _written(
        self,
        job: write.Write,
        transaction: Transaction,
        rows: Rows | None,
        cursor: duckdb.DuckDBPyConnection,
        *,
        alone: bool = False,
    ) -> Commit:
        """Run the transaction of a write, and retry it alone if memory was short beside other jobs.

        A stream that was read in part cannot be read again, so it is not retried.
        """
        what = f"{job.spec.mode} on table {transaction.ref}"
        with self.arbiter.job(what, self.duckdb_limit, alone=alone) as crowded:
            try:
                with one_moment(cursor) if transaction.lake.format.transactions is None else nullcontext():
                    return transaction.run(
                        partial(job.attempt, rows, cursor),
                        mode=job.spec.mode,
                        engine=self.name,
                        rerun=partial(rerun_of, job.spec),
                        takes_back="all",
                    )
            except (duckdb.OutOfMemoryException, StorageError) as error:
                again = not alone and crowded() and (rows is None or not rows.one_shot)
                if not again or not lacked_memory(error):
                    raise
        log.info("%s: DuckDB's memory was in use by other jobs; again when they have ended", what)
        return self._written(job, transaction, rows, cursor, alone=True)

    # -- a table as a whole (see engines/tables.py)

    def count_breaking(self, snapshot: Snapshot, alteration: Alteration, condition: str) -> int:
        with errors_about(f"table {snapshot.ref}, alter"):
            return alter.count_breaking(snapshot, alteration, condition, self.cursor())

    @contextmanager
    def rewritten(
        self, snapshot: Snapshot, alteration: Alteration, transaction: Transaction
    ) -> Iterator[Sequence[StagedFile]]:
        with errors_about(f"table {snapshot.ref}, alter"):
            yield alter.rewritten(logs_of(transaction.lake.format), snapshot, alteration, self.cursor())

    def optimize(self, spec: OptimizeSpec | PurgeSpec, snapshot: Snapshot, transaction: Transaction) -> Commit:
        with errors_about(f"table {snapshot.ref}, {spec.mode}", self.arbiter):
            return optimize.optimize(spec, snapshot, transaction, self.cursor())

    # -- rows that N processes stage: DuckDB's alone, whatever engine a session has

    def stage(
        self, source: Any, transaction: Transaction, partition_by: Sequence[str] | None = None
    ) -> tuple[StagedFile, ...]:
        """Write a part of a future commit: data files that are invisible until commit_staged()."""
        lake = transaction.lake
        snapshot = lake.snapshot(transaction.ref) if lake.exists(transaction.ref) else None
        with (
            errors_about(f"table {transaction.ref}, staging", self.arbiter),
            rows_of(source, self.cursor(), self._scratch.name) as rows,
        ):
            return staging.stage(lake.format, transaction.ref, rows, snapshot, partition_by)

    def commit_staged(self, files: Sequence[StagedFile], spec: WriteSpec, transaction: Transaction) -> Commit:
        """Commit the staged files of any number of processes at once."""
        with errors_about(f"table {transaction.ref}, {spec.mode}", self.arbiter):
            spec = transaction.lake.format.with_properties(spec, transaction.ref)
            if transaction.lake.format.transactions is None:
                writer = write.file_writer(spec, transaction, self.arbiter, self.duckdb_limit)
                return staging.commit_staged(writer, spec, files, self.cursor())
            commit = staging.commit_staged_rows(
                transaction, spec, files, self.cursor(), lambda spec: self._write(spec, transaction).attempt
            )
            if not self.in_transaction:
                staged_rows.remove(transaction.lake.storage, files)
            return commit

    def close(self) -> None:
        """Close the connection if this engine opened it, and remove scratch files."""
        with self._opening:
            if self._opened is not None and self._owned:
                if self._ended_with_ducklake(self._opened):
                    keep_forever(self._opened)
                else:
                    self._opened.close()
                self._opened = None
        self._scratch.cleanup()


def _is_on(rows: LazyRows, cursor: duckdb.DuckDBPyConnection) -> bool:
    """True if this cursor computes the rows."""
    return isinstance(rows.source, DuckDBFrame) and rows.source.cursor is cursor
