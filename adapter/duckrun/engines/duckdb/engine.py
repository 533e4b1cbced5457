"""The embedded engine: DuckDB reads and computes, a writer (delta_rs or staged) writes."""

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
import pyarrow as pa
from sqlglot import exp

from duckrun.display.notebook import is_interactive
from duckrun.engines.duckdb import alter, optimize, staging, write
from duckrun.engines.duckdb.advice import advise
from duckrun.engines.duckdb.arrow import register, register_view, with_nested_structs_whole
from duckrun.engines.duckdb.frame import DuckDBFrame
from duckrun.engines.duckdb.instance import has_ended, load_extensions, open_connection
from duckrun.engines.duckdb.places import one_moment
from duckrun.engines.duckdb.rows_to_write import stored_types, types_of
from duckrun.engines.duckdb.source import Rows, rows_of, schema_of_types
from duckrun.engines.duckdb.sql import (
    attach_again,
    attached,
    errors_about,
    files_sql,
    lacked_memory,
    scans_in,
    select_sql,
)
from duckrun.engines.duckdb.weights import weighed_sql
from duckrun.engines.engine import Engine
from duckrun.engines.frame import LazyRows
from duckrun.engines.tables import carry_out
from duckrun.engines.tabular.values import arrow_table
from duckrun.errors import InvalidConfig, StorageError, UnsupportedFeature, about_tables
from duckrun.formats.definitions import Alteration
from duckrun.lake.lake import Lake
from duckrun.run.memory import Arbiter
from duckrun.run.pins import NOTHING, Reads, together
from duckrun.run.reruns import rerun_of
from duckrun.run.transaction import Transaction
from duckrun.sql.dialects import text_in
from duckrun.sql.names import dotted_names, quote_identifier
from duckrun.sql.scalar import holds_statements
from duckrun.sql.written import put_names, with_names_as_written
from duckrun.storage.extensions import keep_forever
from duckrun.storage.storage import Storage
from duckrun.values.any_case import AnyCase
from duckrun.values.changes import WeighedRead
from duckrun.values.columns import refuse_twins
from duckrun.values.rows import BY_DELTA_RS, Commit, ReadSpec, RowSpec, StagedFile, WriteSpec
from duckrun.values.snapshot import Scan, Snapshot
from duckrun.values.tables import MaintenanceResult, OptimizeSpec, PurgeSpec, TableSpec

log = logging.getLogger(__name__)


class DuckDBEngine(Engine):
    """DuckDB over one lake. ``connection`` is shared by its cursors; each job runs on a cursor of its own."""

    name = "duckdb"
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
        """The queries of temporary views."""

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The DuckDB connection; opened at first use, and again where an error of DuckDB's own ended the instance."""
        with self._opening:
            if self._opened is None:
                self._opened = open_connection(self.lake, self.duckdb_limit, self._scratch.name)
            elif self._owned and has_ended(self._opened):
                self._opened = self._opened_again()
            return self._opened

    def make_room(self, what: str) -> None:
        """Take the memory of delta_rs off DuckDB's, for as long as the instance lives. Raises InvalidConfig where it holds that already;
        ``what`` asks for it.
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
                        f"{what} asks for writer delta_rs, which needs memory of its own, and DuckDB has more than {limit / 1e6:.0f} MB in "
                        "use in this process. Nothing was written; leave writer to auto, or write before other work begins."
                    ) from error
            self.duckdb_limit = limit

    def _opened_again(self) -> duckdb.DuckDBPyConnection:
        """A new instance with what is known of the one that ended: registered values, views and credentials. Its temporary
        tables are gone.
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
            except duckdb.Error as error:  # it reads a table that is gone
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
        return any(lake.format.transacts for lake in self._reached.values()) and has_ended(connection)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A cursor of its own for one job; long queries on it show DuckDB's progress bar where somebody watches."""
        if self._held is not None:
            return self._held
        cursor = self.connection.cursor()
        if self._progress and is_interactive():
            cursor.execute("SET enable_progress_bar = true")
        return cursor

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction over several tables is open, which may be rolled back."""
        return self._held is not None

    @contextmanager
    def on_one_cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Meanwhile all statements run on one cursor, in its transaction."""
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
        return snapshot.scan_sql(attach=partial(attached, self.connection))

    def select(self, query: exp.Expr, what: str = "query") -> LazyRows:
        text = text_in(query, "duckdb")
        if holds_statements(text):  # a view is another's text, and DuckDB would run each of its statements
            raise InvalidConfig("A query, or a view in it, holds more than one statement. Nothing was run.")
        frame = self._frame(text, what, partial(with_names_as_written, query))
        # The relation has bound them: a schema would be one bind, and one look at each log, more.
        columns = frame.native.columns
        if not all(map(str.isidentifier, columns)):  # else none is the text of an expression, which may hold our scan
            names = self._names_as_written(columns, query)
            return frame if names == list(columns) else frame.named(names)
        return frame

    def _names_as_written(self, columns: Sequence[str], query: exp.Expr) -> list[str]:
        """Names of columns as DuckDB makes them of the query that was written: an expression without a name has its own text
        for one, so that of a subquery would hold our scan.
        """
        cursor, names = self.connection.cursor(), list(columns)

        def normal(text: str) -> str:
            """A table as DuckDB writes it down; as it is where that is Spark's, such as a version behind its name."""
            prefix = "SELECT * FROM "
            try:
                found = cursor.execute(
                    "SELECT json_deserialize_sql(json_serialize_sql($1))", [prefix + text]
                ).fetchall()
            except duckdb.ParserException:
                return text
            return str(found[0][0]).removeprefix(prefix)

        for put, original in put_names(query, text_in):
            new, old = normal(put), normal(original)
            names = [name.replace(new, old) for name in names]
        return names

    def explain(self, query: exp.Expr, *, analyze: bool = False, what: str = "explain") -> str:
        with errors_about(what, as_written=partial(with_names_as_written, query), writes=False):
            found = self._cursor_with_values().execute(
                f"EXPLAIN {'ANALYZE ' if analyze else ''}{text_in(query, 'duckdb')}"
            )
            return "\n".join(str(row[1]) for row in found.fetchall())

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
        """Give a frame or any Arrow-like value a name that later queries can read. Raises InvalidConfig."""
        if isinstance(value, LazyRows):
            value.createOrReplaceTempView(name)
            return
        table = with_nested_structs_whole(arrow_table(value))
        refuse_twins(table.schema.names)
        self._registered[name] = table
        self.temp_names[name] = reads

    def keep(self, name: str, rows: LazyRows) -> None:
        """Compute rows and keep them under a name, in a table of this instance, which every cursor sees."""
        assert isinstance(rows.source, DuckDBFrame), "rows of this engine"
        self._refuse_within(f"CREATE TEMP TABLE {name}")
        self.forget(name)
        with errors_about(f"temporary table {name}"):
            rows.source.cursor.execute(f"CREATE TABLE {quote_identifier(name)} AS {rows.source.sql}")
        self._kept.add(name.lower())
        self.temp_names[name] = rows.reads.computed()

    def _refuse_within(self, what: str) -> None:
        """Raise UnsupportedFeature in a transaction over several tables: DuckDB writes to one database in it, which is the lake."""
        if self._held is not None:
            raise UnsupportedFeature(
                f"{what}: within a transaction of a lake nothing but the lake is written. Do it before BEGIN, or CREATE TEMP VIEW."
            )

    def is_kept(self, name: str) -> bool:
        return name.lower() in self._kept

    def change_kept(self, name: str, statement: str, reads: Reads) -> pa.Table:
        self._refuse_within(f"A change of the temporary table {name}")
        with errors_about(f"temporary table {name}"):
            found = self._cursor_with_values().execute(statement).to_arrow_table()
        self.temp_names[name] = together(self.temp_names[name], reads.computed())
        return found

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
        """What a value was computed from, as far as that can be known: a Frame says it, a relation's query names it."""
        if isinstance(value, LazyRows):
            return value.reads
        if not isinstance(value, duckdb.DuckDBPyRelation):
            return NOTHING
        query = value.sql_query()
        names = {name[0] for name in dotted_names(query) if len(name) == 1 and name[0] in self.temp_names}
        return together(scans_in(query), *(self.temp_names[name] for name in names))

    # -- writing

    def can_fence(self, storage: Storage) -> bool:
        return True  # a commit is put at its version, or not at all

    def schema_of(self, source: Any) -> pa.Schema:
        """The Arrow schema with which a value would be stored, null for a column that has no type of its own.
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
        spec = transaction.lake.format.with_properties(spec, transaction.ref)
        if isinstance(spec, TableSpec):
            return carry_out(self, spec, transaction)
        if spec.writer in BY_DELTA_RS:
            self.make_room(f"{spec.mode} on table {transaction.ref}")
        cursor = self._cursor_with_values()
        job = write.Job(self, spec, transaction)
        if self._held is not None and isinstance(source, LazyRows) and not _is_on(source, self._held):
            source = source.toArrow()
        given = nullcontext() if source is None else rows_of(source, cursor, self._scratch.name)
        with errors_about(f"table {transaction.ref}, {spec.mode}", self.arbiter), given as rows:
            commit = self._written(job, rows, cursor if rows is None else rows.cursor)
        return commit if commit.replayed else commit.with_(memory=job.shares)

    def _written(
        self, job: write.Job, rows: Rows | None, cursor: duckdb.DuckDBPyConnection, *, alone: bool = False
    ) -> Commit:
        """The commit of a write; made alone, where it has lacked memory beside others. What is left of a stream cannot be read again."""
        transaction, what = job.transaction, f"{job.spec.mode} on table {job.transaction.ref}"
        with self.arbiter.job(what, alone=alone) as crowded:
            try:
                with nullcontext() if transaction.lake.format.transacts else one_moment(cursor):
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
        return self._written(job, rows, cursor, alone=True)

    # -- a table as a whole (see engines/tables.py)

    def count_breaking(self, snapshot: Snapshot, alteration: Alteration, condition: str) -> int:
        with errors_about(f"table {snapshot.ref}, alter"):
            return alter.count_breaking(snapshot, alteration, condition, self.cursor())

    @contextmanager
    def rewritten(
        self, snapshot: Snapshot, alteration: Alteration, transaction: Transaction
    ) -> Iterator[Sequence[StagedFile]]:
        with errors_about(f"table {snapshot.ref}, alter"):
            yield alter.rewritten(transaction.lake.format, snapshot, alteration, self.cursor())

    def optimize(self, spec: OptimizeSpec | PurgeSpec, snapshot: Snapshot, transaction: Transaction) -> Commit:
        with errors_about(f"table {snapshot.ref}, {spec.mode}", self.arbiter):
            return optimize.optimize(spec, snapshot, transaction, self.cursor())

    # -- rows that N processes stage: DuckDB's alone, whatever engine a session has

    def stage(
        self, source: Any, transaction: Transaction, partition_by: Sequence[str] | None = None
    ) -> tuple[StagedFile, ...]:
        """Write a part of a commit to come: data files that no reader sees before commit_staged()."""
        job = write.Job(self, WriteSpec("append"), transaction)
        lake = transaction.lake
        snapshot = lake.snapshot(transaction.ref) if lake.exists(transaction.ref) else None
        with (
            errors_about(f"table {transaction.ref}, staging", self.arbiter),
            rows_of(source, self.cursor(), self._scratch.name) as rows,
        ):
            return staging.stage(job, rows, snapshot, partition_by)

    def commit_staged(self, files: Sequence[StagedFile], spec: WriteSpec, transaction: Transaction) -> Commit:
        """Commit staged files of any number of processes at once."""
        with errors_about(f"table {transaction.ref}, {spec.mode}", self.arbiter):
            return staging.commit_staged(write.Job(self, spec, transaction), files)

    def close(self) -> None:
        """Close the connection, if this engine opened it, and remove scratch files."""
        with self._opening:
            if self._opened is not None and self._owned:
                if self._ended_with_ducklake(self._opened):
                    keep_forever(self._opened)
                else:
                    self._opened.close()
                self._opened = None
        self._scratch.cleanup()


def _is_on(rows: LazyRows, cursor: duckdb.DuckDBPyConnection) -> bool:
    """True for rows that are computed on a cursor."""
    return isinstance(rows.source, DuckDBFrame) and rows.source.cursor is cursor
