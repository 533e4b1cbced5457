"""The embedded engine: DuckDB reads and computes; a writer (delta_rs, staged, ducklake) commits."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import duckdb

from duckrun.engines.duckdb.changes import rewrites, staging, write
from duckrun.engines.duckdb.instance.advice import advise
from duckrun.engines.duckdb.instance.arrow import readable, register
from duckrun.engines.duckdb.instance.footers import columns_in
from duckrun.engines.duckdb.instance.instance import Instance, name_values
from duckrun.engines.duckdb.instance.sql import (
    attached,
    errors_about,
    lacked_memory,
    scans_in,
    select_sql,
)
from duckrun.engines.duckdb.instance.steady import are_constant
from duckrun.engines.duckdb.rows.clauses import expression
from duckrun.engines.duckdb.rows.fitted import stored_types, typed_columns, types_of
from duckrun.engines.duckdb.rows.frame import DuckDBFrame
from duckrun.engines.duckdb.rows.loose_files import files_sql
from duckrun.engines.duckdb.rows.places import one_moment
from duckrun.engines.duckdb.rows.ranges import ranges_of
from duckrun.engines.duckdb.rows.source import Rows, rows_of, schema_of_types
from duckrun.engines.duckdb.rows.weights import weighed_sql
from duckrun.engines.duckdb.writers.feed import net_feed
from duckrun.engines.duckdb.writers.file_tables import FileTableWriter
from duckrun.engines.frame import LazyRows
from duckrun.engines.tables import SpecEngine
from duckrun.engines.tabular.values import arrow_table
from duckrun.errors import InvalidConfig, StorageError, UnsupportedFeature, about_tables
from duckrun.formats.definitions import Alteration
from duckrun.formats.format import Format, logs_of
from duckrun.lake.lake import Lake
from duckrun.libraries import exp, pa, sqlglot
from duckrun.run.memory import Arbiter
from duckrun.run.pins import NOTHING, Reads, together
from duckrun.run.transaction import Transaction
from duckrun.sql.char_types import padded_columns
from duckrun.sql.on_demand import dialects, kinds, scalar, written
from duckrun.sql.plain_names import dotted_names
from duckrun.storage.storage import Storage
from duckrun.values.changes import WeighedRead
from duckrun.values.choices import BY_DELTA_RS, EngineName
from duckrun.values.rows import (
    Commit,
    DeleteInsertSpec,
    MergeSpec,
    Ranges,
    ReadSpec,
    RowSpec,
    StagedFile,
    WriteSpec,
)
from duckrun.values.snapshot import ReadAs, Scan, Snapshot
from duckrun.values.tables import OptimizeSpec, PurgeSpec

log = logging.getLogger(__name__)


_TYPED = "typed"
"""Key of typed_columns() in the metadata of pinned()."""
_MOST_FILES = 1000
"""Maximum number of files whose footers are read before polars reads them."""


class DuckDBEngine(SpecEngine):
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
        self.instance = Instance(lake, self.arbiter, connection, duckdb_limit, progress=progress)
        self.temp_names = self.instance.reads

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The DuckDB connection, opened at first use.

        It is opened again after an internal error of DuckDB has ended the instance.
        """
        return self.instance.connection

    @property
    def duckdb_limit(self) -> int:
        """Memory that DuckDB may use, in bytes."""
        return self.instance.limit

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A cursor for one job, or that of the open transaction."""
        return self.instance.cursor()

    def on_one_cursor(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """Run all statements on one cursor, and so in its transaction, while the block runs."""
        return self.instance.on_one_cursor()

    def read_files(self, format: str, path: str, options: Mapping[str, Any]) -> LazyRows:
        what = f"read of {path}"
        with errors_about(self.about(what), writes=False):
            sql = files_sql(self.cursor(), format, path, options)
        return self._frame(sql, what)

    def reach(self, lake: Lake) -> None:
        self.instance.reach(lake)

    # -- reading

    def scan(self, snapshot: Snapshot, spec: ReadSpec) -> LazyRows:
        name = str(snapshot.ref)
        scan = self._scan_sql(snapshot, spec.predicate if spec.dialect == "duckdb" else None)
        columns, typed = snapshot.schema.names, typed_columns(snapshot)
        typed = None if typed is None else select_sql(typed, spec, columns, name)
        frame = self._frame(select_sql(scan, spec, columns, name), about_tables("read", [name]), typed=typed)
        source = frame.source
        if spec.predicate is None and isinstance(source, DuckDBFrame):
            source.files = partial(self._plain_files, snapshot)
        return frame

    def _plain_files(self, snapshot: Snapshot) -> Sequence[str] | None:
        """Local files that polars may read instead of DuckDB; None if DuckDB must."""
        # DuckDB pads CHAR(n) as it reads. A store needs the lake's credentials.
        if "://" in snapshot.ref.location or padded_columns(snapshot.schema):
            return None
        return snapshot.plain_files(lambda files: columns_in(self.connection.cursor(), files), _MOST_FILES)

    def open(self, planned: Scan) -> LazyRows:
        source = self.lake.format.scan_sql(planned.snapshot(), ReadAs(planned.files, named=True))
        sql = select_sql(source, planned.read, planned.schema.names, str(planned.ref))
        return self._frame(sql, about_tables("read", [str(planned.ref)]))

    def weighed(self, read: WeighedRead, query: Callable[[str], str]) -> LazyRows:
        what = f"changes of table {read.ref}"
        with errors_about(self.about(what), writes=False):
            sql = query(f"({weighed_sql(read, self.cursor(), self.instance.scratch)})")
        return self._frame(sql, what)

    def inlined(self, rows: LazyRows) -> exp.Expr:
        assert isinstance(rows.source, DuckDBFrame), "rows of this engine"
        return exp.Subquery(this=exp.var(rows.source.sql))

    def pinned(self, snapshot: Snapshot, where: exp.Expr | None = None) -> exp.Expr:
        scan = exp.Subquery(this=exp.var(self._scan_sql(snapshot, where)[1:-1]))
        scan.meta[_TYPED] = typed_columns(snapshot)
        return kinds.with_columns(scan, kinds.Columns(lambda: snapshot.schema))

    def _scan_sql(self, snapshot: Snapshot, where: str | exp.Expr | None = None) -> str:
        advise(snapshot, self.arbiter.limit(), self.instance.scratch)
        # The connection is tested at each use, and most tables attach nothing.
        return snapshot.scan_sql(
            attach=lambda *table: attached(self.connection, *table),
            footers=lambda files: columns_in(self.connection.cursor(), files),
            ranges=_ranges_of(where),
        )

    def select(self, query: exp.Expr, what: str = "query", tables: Sequence[exp.Expr] = ()) -> LazyRows:
        text = dialects.text_in(query, "duckdb")
        # The text of a view is foreign, and DuckDB would run each statement in it.
        if scalar.holds_statements(text):
            raise InvalidConfig("A query, or a view in it, holds more than one statement")
        # A bind opens the log of each table. So the query is checked on the tables' types alone,
        # and bound once, when its rows are read.
        typed = text
        for table in tables:
            typed = typed.replace(f"({table.this.name})", table.meta[_TYPED] or f"({table.this.name})")
        as_written = partial(written.with_names_as_written, query)
        frame = self._frame(text, what, as_written, None if typed == text else typed)
        columns = frame.columns
        # An unnamed column is called by its expression's text, which may contain our scan.
        if not all(map(str.isidentifier, columns)):
            if typed != text and any("SELECT" in column for column in columns):
                frame = self._frame(text, what, as_written)
                columns = frame.columns
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

        for put, original in written.put_names(query, dialects.text_in):
            new, old = normal(put), normal(original)
            names = [name.replace(new, old) for name in names]
        return names

    def explain(self, query: exp.Expr, *, analyze: bool = False, what: str = "explain") -> str:
        with errors_about(self.about(what), as_written=partial(written.with_names_as_written, query), writes=False):
            plan = self.instance.cursor_with_values().execute(
                f"EXPLAIN {'ANALYZE ' if analyze else ''}{dialects.text_in(query, 'duckdb')}"
            )
            return "\n".join(str(row[1]) for row in plan.fetchall())

    def local(self, rows: pa.Table) -> LazyRows:
        cursor = self.cursor()
        naming = partial(register, name=f"__duckrun_local_{uuid.uuid4().hex}", rows=readable(rows))
        return LazyRows(DuckDBFrame(self.instance, cursor, naming(cursor)[0], "query", name_values=naming), self.name)

    def cast(self, value: exp.Expr, kind: str, rows: LazyRows, column: int) -> exp.Expr:
        return exp.cast(value, kind, dialect="duckdb")

    def column_types(self, snapshot: Snapshot) -> dict[str, str]:
        return {name: str(kind) for name, kind in types_of(snapshot).items()}

    def _frame(self, sql: str, what: str, as_written: Callable[[str], str] = str, typed: str | None = None) -> LazyRows:
        cursor, values = self.instance.cursor_with_values(), dict(self.instance.registered.items())
        naming = partial(name_values, values=values)
        frame = DuckDBFrame(self.instance, cursor, sql, self.about(what), as_written, name_values=naming, typed=typed)
        return LazyRows(frame, self.name)

    def register(self, name: str, value: Any, reads: Reads = NOTHING) -> None:
        """Name a frame or an Arrow-like value, so that later queries can read it.

        Raises:
            InvalidConfig: The value is not tabular.
        """
        if isinstance(value, LazyRows):
            value.createOrReplaceTempView(name)
            return
        self.instance.register(name, arrow_table(value), reads)

    def keep(self, name: str, rows: LazyRows) -> None:
        """Compute rows into a temporary table of this instance, which every cursor sees."""
        assert isinstance(rows.source, DuckDBFrame), "rows of this engine"
        self._refuse_within(f"CREATE TEMP TABLE {name}")
        self.forget(name)
        with errors_about(f"temporary table {name}"):
            self.instance.create_table(name, rows.source.sql, rows.source.cursor, rows.reads.computed())

    def _refuse_within(self, what: str) -> None:
        """Raise UnsupportedFeature within a transaction over several tables."""
        # DuckDB writes to a single database in one transaction, and that is the lake.
        if self.instance.held is not None:
            raise UnsupportedFeature(
                f"{what}: within a transaction of a lake nothing but the lake is written. Do it before BEGIN, or "
                "CREATE TEMP VIEW."
            )

    def is_kept(self, name: str) -> bool:
        return name.lower() in self.instance.kept

    def change_kept(self, name: str, statement: str, reads: Reads) -> pa.Table:
        self._refuse_within(f"A change of the temporary table {name}")
        with errors_about(f"temporary table {name}"):
            rows = self.instance.cursor_with_values().execute(statement).to_arrow_table()
        self.temp_names[name] = together(self.temp_names[name], reads.computed())
        return rows

    def forget(self, name: str) -> None:
        self.instance.forget(name)

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
        with rows_of(source, self.instance.lazy_cursor(), self.instance.scratch) as rows:
            types = {name: duckdb.sqltypes.BOOLEAN if '"NULL"' in str(k) else k for name, k in rows.types.items()}
            schema = schema_of_types(stored_types(self.lake.format, types), rows.cursor)
            return pa.schema([f if types[f.name] is rows.types[f.name] else f.with_type(pa.null()) for f in schema])

    def write_rows(self, spec: RowSpec, source: Any | None, transaction: Transaction) -> Commit:
        if spec.writer in BY_DELTA_RS:
            self.instance.make_room(f"{spec.mode} on table {transaction.ref}")
        cursor = self.instance.lazy_cursor()
        job = self._write(spec, transaction)
        if self.instance.held is not None and isinstance(source, LazyRows):
            # Only the held cursor sees what its transaction has written.
            is_on_it = isinstance(source.source, DuckDBFrame) and source.source.cursor is self.instance.held
            source = source if is_on_it else source.toArrow()
        source_rows = nullcontext() if source is None else rows_of(source, cursor, self.instance.scratch)
        with errors_about(self.about(f"table {transaction.ref}, {spec.mode}"), self.arbiter), source_rows as rows:
            commit = self._written(job, transaction, rows, cursor if rows is None else rows.cursor)
        return commit if commit.replayed else commit.with_(memory=job.shares)

    def _write(self, spec: RowSpec, transaction: Transaction) -> write.Write:
        return write.Write(spec, transaction, self.arbiter, self.duckdb_limit)

    def _written(
        self, job: write.Write, transaction: Transaction, rows: Rows | None, cursor: duckdb.DuckDBPyConnection
    ) -> Commit:
        """Run the transaction of a write, and retry it alone if memory was short beside other jobs.

        A stream that was read in part cannot be read again, so it is not retried.
        """
        what = f"{job.spec.mode} on table {transaction.ref}"

        def run() -> Commit:
            with one_moment(cursor) if self._needs_moment(job.spec, transaction, rows, cursor) else nullcontext():
                return transaction.run_spec(partial(job.attempt, rows, cursor), job.spec, self.name)

        with self.arbiter.job(what, self.duckdb_limit) as crowded:
            try:
                return run()
            except (duckdb.OutOfMemoryException, StorageError) as error:
                again = crowded() and (rows is None or not rows.one_shot)
                if not again or not lacked_memory(error):
                    raise
        log.info("%s: DuckDB's memory was in use by other jobs; again when they have ended", what)
        with self.arbiter.job(what, self.duckdb_limit, alone=True):
            return run()

    def _needs_moment(
        self, spec: RowSpec, transaction: Transaction, rows: Rows | None, cursor: duckdb.DuckDBPyConnection
    ) -> bool:
        """True if the queries of a write must be one DuckDB transaction.

        In a transaction now() has one value, but DuckDB scans tables that the transaction made on
        one core. So a write whose expressions are constant does without, if it reads its source
        once.
        """
        if transaction.lake.format.transactions is not None:
            return False  # the lake has a transaction of its own
        reads_once = rows is None or isinstance(spec, MergeSpec | DeleteInsertSpec)
        if isinstance(spec, WriteSpec) or not reads_once:
            return True
        return not are_constant([expression(text, spec.dialect) for text in spec.expressions], cursor)

    # -- a table as a whole (see engines/tables.py)

    def count_breaking(self, snapshot: Snapshot, alteration: Alteration, condition: str) -> int:
        with errors_about(self.about(f"table {snapshot.ref}, alter")):
            return rewrites.count_breaking(snapshot, alteration, condition, self.cursor())

    @contextmanager
    def rewritten(
        self, snapshot: Snapshot, alteration: Alteration, transaction: Transaction
    ) -> Iterator[Sequence[StagedFile]]:
        with errors_about(self.about(f"table {snapshot.ref}, alter")):
            yield rewrites.rewritten(logs_of(transaction.lake.format), snapshot, alteration, self.cursor())

    def optimize(self, spec: OptimizeSpec | PurgeSpec, snapshot: Snapshot, transaction: Transaction) -> Commit:
        with errors_about(self.about(f"table {snapshot.ref}, {spec.mode}"), self.arbiter):
            return rewrites.optimize(spec, snapshot, transaction, self.cursor())

    # -- rows that N processes stage: DuckDB's alone, whatever engine a session has

    def stage(
        self, source: Any, transaction: Transaction, partition_by: Sequence[str] | None = None
    ) -> tuple[StagedFile, ...]:
        """Write a part of a future commit: data files that are invisible until commit_staged()."""
        lake = transaction.lake
        snapshot = lake.snapshot(transaction.ref) if lake.exists(transaction.ref) else None
        with (
            errors_about(self.about(f"table {transaction.ref}, staging"), self.arbiter),
            rows_of(source, self.instance.lazy_cursor(), self.instance.scratch) as rows,
        ):
            return staging.stage(lake.format, transaction.ref, rows, snapshot, partition_by)

    def net_feed(self, form: Format, snapshot: Snapshot, changes: LazyRows) -> tuple[StagedFile, ...]:
        """Write the net changes of a branch's table as files of main's change feed."""
        with (
            errors_about(self.about(f"table {snapshot.ref}, change feed"), self.arbiter),
            rows_of(changes, self.cursor(), self.instance.scratch) as rows,
        ):
            return net_feed(logs_of(form), snapshot, rows)

    def commit_staged(self, files: Sequence[StagedFile], spec: WriteSpec, transaction: Transaction) -> Commit:
        """Commit the staged files of any number of processes at once."""
        with errors_about(self.about(f"table {transaction.ref}, {spec.mode}"), self.arbiter):
            spec = transaction.lake.format.with_properties(spec, transaction.ref)
            if transaction.lake.format.transactions is None:
                writer = FileTableWriter(spec, transaction, self.arbiter, self.duckdb_limit)
                return staging.commit_staged(writer, spec, files, self.instance.lazy_cursor())
            commit = staging.commit_staged_rows(
                transaction, spec, files, self.cursor(), lambda spec: self._write(spec, transaction).attempt
            )
            if self.instance.held is None:
                staging.remove_staged(transaction.lake.storage, files)
            return commit

    def close(self) -> None:
        """Close the connection if this engine opened it, and remove scratch files."""
        self.instance.close()


def _ranges_of(where: str | exp.Expr | None) -> Ranges:
    try:
        return {} if where is None else ranges_of(where)
    except (sqlglot.errors.SqlglotError, RecursionError):  # sqlglot cannot parse everything that DuckDB can
        return {}
