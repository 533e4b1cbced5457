"""Spark engine: PySpark with Delta, through SQL and the DataFrame API only.

So one code serves classic sessions and Spark Connect. Tables are addressed by location. Spark's
workers write a Spark DataFrame; the driver never collects it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from duckrun.engines.engine import Engine
from duckrun.engines.frame import LazyRows
from duckrun.engines.spark import alter
from duckrun.engines.spark.access import SparkAccess
from duckrun.engines.spark.ducklake import reading, writing
from duckrun.engines.spark.ducklake.changes import ComputedFrame
from duckrun.engines.spark.errors import errors_about
from duckrun.engines.spark.foreign_servers import refuse_other_server, refuse_what_it_would_get_wrong
from duckrun.engines.spark.frame import SparkFrame, arrow_schema
from duckrun.engines.spark.process.checks import check_workers_see
from duckrun.engines.spark.process.databases import guard
from duckrun.engines.spark.process.own_session import interrupt, tagged
from duckrun.engines.spark.process.session import apply_storage
from duckrun.engines.spark.scratch import altered_rows, scratch
from duckrun.engines.spark.sql import quote, to_spark
from duckrun.engines.spark.structs import shaped, type_text
from duckrun.engines.spark.types import storable_table
from duckrun.engines.spark.weights import weighed_rows
from duckrun.engines.spark.write import Attempt
from duckrun.engines.tables import SpecEngine
from duckrun.engines.tabular.values import arrow_table, is_of_spark
from duckrun.errors import DuckrunError, InvalidConfig, SchemaMismatch, StorageError, UnsupportedFeature, about_tables
from duckrun.formats.definitions import Alteration
from duckrun.formats.format import logs_of
from duckrun.run.pins import NOTHING, Reads
from duckrun.sql.dialects import text_in, tree_in
from duckrun.sql.kinds import Columns, with_columns
from duckrun.sql.names import transpile
from duckrun.sql.quoting import fresh_name
from duckrun.sql.scalar import why_not_scalar_in_spark
from duckrun.values.any_case import AnyCase
from duckrun.values.choices import EngineName
from duckrun.values.lake_format import DUCKLAKE
from duckrun.values.rows import Commit, DeleteSpec, ReadSpec, RowSpec, StagedFile, UpdateSpec
from duckrun.values.tables import OptimizeSpec, PurgeSpec, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from duckrun.lake.lake import Lake
    from duckrun.run.transaction import Transaction
    from duckrun.storage.storage import Storage
    from duckrun.values.changes import WeighedRead
    from duckrun.values.snapshot import Scan, Snapshot

_FILES_AS_LIST = 1000  # a longer list of paths is joined instead


def unseen(name: str) -> str:
    """Return a column as an expression opaque to Spark, so that no filter uses its bounds."""
    return f"CASE WHEN {quote(name)} IS NULL THEN NULL ELSE {quote(name)} END AS {quote(name)}"


def unbounded(frame: DataFrame, rounded: Collection[str]) -> DataFrame:
    """Return the same rows, without file skipping by columns whose bounds the log has rounded."""
    if not rounded:
        return frame
    return frame.selectExpr(*(unseen(name) if name in rounded else quote(name) for name in frame.columns))


class SparkEngine(SpecEngine):
    """Scans and writes the tables of a lake on one Spark session.

    Args:
        spark: A classic or Connect session, which stays open. None is the shared session of this
            process, started on first use.

    Raises:
        UnsupportedFeature: The lake is in a branch, and the server is not Apache Spark, or the
            session has names of main's tables.

    Example::

        SparkEngine(lake, spark).scan(lake.snapshot(ref), ReadSpec()).native.show()
    """

    name: EngineName = "spark"
    temp_tables = False
    returns_rows = False  # its DML gives counts
    shares_scans = False
    subqueries_in_changes = False  # DELTA_UNSUPPORTED_SUBQUERY
    casts_structs_by_name = False

    def __init__(self, lake: Lake, spark: SparkSession | None = None) -> None:
        self.lake = lake
        self.access = SparkAccess(lake.storage, spark)
        if lake.branch_name is not None:
            # The logs of a branch name files by URLs, which is measured with delta-spark alone.
            refuse_other_server(self.access.spark, f"Branch {lake.branch_name}:")
            statements = guard(self.access.spark)
            statements.refuse_names(lake)
            statements.branches.add(lake)
        self._reached: list[Storage] = [lake.storage]
        self.temp_names = AnyCase()
        self._until_closed = ExitStack()
        """Files that frames of this engine read, and temporary views in queries of it."""
        self.driver: Callable[[], Engine] | None = None
        """Returns the DuckDB engine of this process.

        It commits to a DuckLake what Spark's workers wrote, and computes changes of one.
        """

    @property
    def spark(self) -> SparkSession:
        """Spark session with this lake's credentials."""
        return self.access.spark

    def read_files(self, format: str, path: str, options: Mapping[str, Any]) -> LazyRows:
        """Return the lazy rows of Parquet or CSV files: a file, a folder or a pattern."""
        reader = self.spark.read.format(format).options(**options)
        return self._lazily(f"read of {path}", lambda: reader.load(self.access.location_of(path)), StorageError)

    def reach(self, lake: Lake) -> None:
        """Add the credentials of another lake.

        Raises:
            InvalidConfig: A lake in the same bucket or account has other credentials. Spark holds
                one set for each.
        """
        storage = lake.storage
        if storage in self._reached:
            return
        settings = storage.hadoop_conf()
        for known in self._reached:
            there = known.hadoop_conf()
            if any(there.get(key, value) != value for key, value in settings.items()):
                raise InvalidConfig(
                    f"{storage.root} and {known.root} are in one bucket or account with different credentials, and "
                    "Spark holds one set for each. Attach it in a session with engine='duckdb'."
                )
        apply_storage(self.spark, storage)
        self._reached.append(storage)

    def tagged(self, tag: str) -> AbstractContextManager[None]:
        """Tag the operations of Spark that this thread starts while the block runs."""
        return tagged(self.spark, tag)

    def interrupt(self, tag: str) -> None:
        """Stop the operations of Spark with a tag of ``tagged()``; another thread calls it."""
        interrupt(self.spark, tag)

    def close(self) -> None:
        """Drop what this engine created; the session stays open."""
        if self.lake.branch_name is not None:
            guard(self.spark).branches.discard(self.lake)
        self._until_closed.close()

    # -- reading

    def scan(self, snapshot: Snapshot, spec: ReadSpec) -> LazyRows:
        """Return the lazy rows of a snapshot; Spark prunes files and columns."""
        if snapshot.ref.format == DUCKLAKE:
            named = spec.columns if spec.predicate is None else None
            return self._select(self._of_ducklake(snapshot, columns=named), spec, str(snapshot.ref))
        frame = unbounded(self.access.read(snapshot), snapshot.rounded())
        return self._select(frame, spec, str(snapshot.ref))

    def _of_ducklake(self, snapshot: Snapshot, **some: Any) -> DataFrame:
        """Return the rows of a DuckLake table, or some of them."""
        with errors_about(self.about(about_tables("read", [str(snapshot.ref)])), analysis=InvalidConfig, writes=False):
            return reading.rows_of(self.access, snapshot, **some)

    def open(self, scan: Scan) -> LazyRows:
        """Return the lazy rows of a scan's files, without their deleted rows."""
        if scan.ref.format == DUCKLAKE:
            snapshot = self.lake.format.snapshot(scan.ref, scan.version)
            frame = self._of_ducklake(snapshot, paths={file.path for file in scan.files})
            return self._select(frame, scan.read, str(scan.ref))
        from pyspark.sql import functions as F

        in_branch = self.lake.branch_name is not None
        frame = self.access.read(self.lake.snapshot(scan.ref, scan.version) if in_branch else scan.snapshot())
        names = [file.path for file in scan.files]
        # Spark returns a file's encoded URI. Compare the decoded part after the table's folder.
        uri = F.expr("url_decode(replace(_metadata.file_path, '+', '%2B'))")
        folder = scan.ref.location.rstrip("/") + "/"
        folder = folder.partition("://")[2] if "://" in folder else folder
        relative = F.substring(uri, F.locate(folder, uri) + F.lit(len(folder)), F.lit(1 << 20))
        if len(names) <= _FILES_AS_LIST:
            frame = frame.where(relative.isin(names))
        else:
            path = fresh_name("__duckrun_path", frame.columns)
            listed = self.spark.createDataFrame([(name,) for name in names], f"{path} string")
            frame = frame.withColumn(path, relative).join(F.broadcast(listed), path, "left_semi").drop(path)
        return self._select(unbounded(frame, scan.rounded), scan.read, str(scan.ref))

    def weighed(self, read: WeighedRead, query: Callable[[str], str]) -> LazyRows:
        """Return the lazy rows of a query over rows with multiplicities."""
        if read.sql is not None:  # DuckLake: DuckDB reads the rows
            if self.driver is None:
                raise UnsupportedFeature(
                    f"Table {read.ref} is a DuckLake table: DuckDB computes on the driver what changed in it, which a "
                    "session does: ask by session.table(…).changes()."
                )
            # Nothing may be written to a read-only lake, and the workers may see no other folder.
            until = None if self.lake.read_only else self._until_closed
            rows = self.driver().weighed(read, query)
            return LazyRows(ComputedFrame(self.access, self.temp_names, read, rows, until), self.name)
        name = f"__duckrun_weighed_{uuid.uuid4().hex}"
        text = (
            transpile(query(name), "duckdb", "spark").replace("{", "{{").replace("}", "}}").replace(name, "{weighed}")
        )
        return self._lazily(
            f"changes of table {read.ref}", lambda: self.access.sql(text, weighed=weighed_rows(self.access, read))
        )

    def inlined(self, rows: LazyRows) -> exp.Expr:
        """Return this engine's rows as a node of a query's syntax tree, for ``select()``."""
        return self._view_of(rows.native)

    def _view_of(self, frame: DataFrame) -> exp.Table:
        """Create a temporary view of a frame and return it as a node of a query's syntax tree."""
        # It stays until the engine is closed: Connect resolves the view when a query runs.
        return exp.to_table(self._until_closed.enter_context(self.access.view(frame)), dialect="spark")

    def pinned(self, snapshot: Snapshot, where: exp.Expr | None = None) -> exp.Expr:
        """Return a table at a version as a node of a query's syntax tree, for ``select()``."""
        types = Columns(lambda: snapshot.schema)
        if snapshot.ref.format == DUCKLAKE:
            return with_columns(self._view_of(self._of_ducklake(snapshot)), types)
        location, version = snapshot.log()
        table = exp.Table(
            this=exp.to_identifier(self.access.location_of(location), quoted=True),
            db=exp.to_identifier("delta"),
            version=exp.Version(this="VERSION", kind="AS OF", expression=exp.Literal.number(version)),
        )
        if not (rounded := snapshot.rounded()):
            return with_columns(table, types)
        columns = [unseen(name) if name in rounded else quote(name) for name in snapshot.schema.names]
        query = exp.var(f"SELECT {', '.join(columns)} FROM {table.sql(dialect='spark')}")
        return with_columns(exp.Subquery(this=query), types)

    def select(self, query: exp.Expr, what: str = "query", tables: Sequence[exp.Expr] = ()) -> LazyRows:
        """Return the lazy rows of a query whose tables are ``pinned()``.

        Other names are Spark's own (temporary views).
        """
        return self._lazily(what, lambda: self.access.sql(text_in(query, "spark")))

    def explain(self, query: exp.Expr, *, analyze: bool = False, what: str = "explain") -> str:
        """Return Spark's plan of a query.

        Raises:
            UnsupportedFeature: ``analyze`` is set, which Spark does not have.
        """
        if analyze:
            raise UnsupportedFeature(
                "Spark has no EXPLAIN ANALYZE; run it with engine: duckdb, or look at Spark's page."
            )
        with errors_about(self.about(what), analysis=InvalidConfig, writes=False):
            return str(self.access.sql(f"EXPLAIN EXTENDED {text_in(query, 'spark')}").collect()[0][0])

    def local(self, rows: pa.Table) -> LazyRows:
        """Return rows of this process as rows of the engine."""
        return self._frame(self.access.from_arrow(rows), "query")

    def cast(self, value: exp.Expr, kind: str, rows: LazyRows, column: int) -> exp.Expr:
        if "struct<" in kind.lower():
            field = rows.native.schema.fields[column]
            target = self.access.sql(f"SELECT CAST(NULL AS {kind})").schema.fields[0].dataType
            name = value.name if isinstance(value, exp.Column) else field.name
            text = shaped(name, text_in(value, "spark"), field.dataType, target)
            if text is not None:
                return tree_in(text, "spark")
        return exp.cast(value, kind, dialect="spark")

    def column_types(self, snapshot: Snapshot) -> dict[str, str]:
        """Return the columns of a table with their Spark types."""
        if snapshot.ref.format == DUCKLAKE:
            schema = self._of_ducklake(snapshot).schema
        else:
            schema = self.access.read(snapshot).schema
        return {field.name: type_text(field.dataType) for field in schema.fields}

    def register(self, name: str, value: Any, reads: Reads = NOTHING) -> None:
        """Create a temporary view of a Frame or a local table for later queries."""
        self._native(value).createOrReplaceTempView(name)
        self.temp_names[name] = value.reads if isinstance(value, LazyRows) else reads

    def forget(self, name: str) -> None:
        """Drop a temporary view of ``register()`` or of a frame, if it exists."""
        if name in self.temp_names:
            self.spark.catalog.dropTempView(name)
            del self.temp_names[name]

    def reads_of(self, value: Any) -> Reads:
        """Return the tables and versions that a value was computed from.

        Only a Frame knows them. A Spark DataFrame does not tell which version it reads.
        """
        return value.reads if isinstance(value, LazyRows) else NOTHING

    def schema_of(self, source: Any) -> pa.Schema:
        """Return the schema that a source would be stored with, without computing it."""
        if is_of_spark(source):
            return arrow_schema(self._native(source))
        if isinstance(source, pa.RecordBatchReader | LazyRows):
            source = source.schema.empty_table()  # a stream is not consumed, and a query not run
        elif hasattr(source, "collect_schema"):  # a polars LazyFrame is not computed
            import polars

            source = polars.DataFrame(schema=source.collect_schema())
        return storable_table(arrow_table(source)).schema

    # -- writing

    def can_fence(self, storage: Storage) -> bool:
        """True if writes can be fenced to a version: only on local storage."""
        # Spark cannot commit at a given version. The table's OS lock fences it instead, which
        # object stores lack.
        return storage.is_local

    def write_rows(self, spec: RowSpec, source: Any | None, transaction: Transaction) -> Commit:
        if spec.writer != "auto":
            raise InvalidConfig(
                f"{spec.mode} on table {transaction.ref}: writer {spec.writer} makes the data files of engine "
                "duckdb, and this is engine spark, which makes its own",
                remedy="leave writer out, or set engine: duckdb",
            )
        has_logs = transaction.lake.format.logs is not None
        if has_logs and spec.read_version is not None and not self.can_fence(transaction.lake.storage):
            raise UnsupportedFeature(
                f"{spec.mode} on table {transaction.ref}: a write fenced to the version that was read needs a commit "
                f"at a given version, which Spark does not have on {transaction.lake.storage.kind}. Run this with "
                "engine: duckdb."
            )
        check_workers_see(self.spark, transaction.lake.storage)
        if has_logs:
            refuse_what_it_would_get_wrong(self.spark, spec, transaction.lake, transaction.ref)
        frame = None if source is None else self._native(source)
        if frame is None and not isinstance(spec, DeleteSpec | UpdateSpec):
            raise InvalidConfig(f"{spec.mode} on table {transaction.ref} was given no rows.")
        if not has_logs:
            return writing.execute(self.access, spec, frame, transaction, self.driver)

        def attempt(snapshot: Snapshot | None) -> Commit:
            if snapshot is not None:
                _refuse_foreign_expressions(snapshot)
            return Attempt(self.access, spec, frame, transaction, snapshot).run()

        return transaction.run_spec(attempt, spec, self.name)

    # -- a table as a whole (see engines/tables.py)

    def instead(
        self, spec: TableSpec, snapshot: Snapshot | None, transaction: Transaction
    ) -> Callable[[], Commit] | None:
        return alter.instead(self.access, spec, snapshot, transaction)

    def count_breaking(self, snapshot: Snapshot, alteration: Alteration, condition: str) -> int:
        with errors_about(self.about(f"alter on table {snapshot.ref}"), analysis=InvalidConfig):
            rows = altered_rows(self.access, snapshot, alteration)
            return rows.where(f"NOT coalesce(({condition}), false)").count()

    def optimize(self, spec: OptimizeSpec | PurgeSpec, snapshot: Snapshot, transaction: Transaction) -> Commit:
        return alter.optimize(self.access, spec, snapshot, transaction)

    @contextmanager
    def rewritten(
        self, snapshot: Snapshot, alteration: Alteration, transaction: Transaction
    ) -> Iterator[Sequence[StagedFile]]:
        """Yield files with all rows in their altered form, to be committed."""
        logs_of(transaction.lake.format).refuse_copies(snapshot)
        with (
            errors_about(self.about(f"alter on table {snapshot.ref}"), analysis=SchemaMismatch),
            scratch(self.access, transaction.lake, snapshot, alteration) as copy,
        ):
            yield copy.files()

    # -- helpers

    def _select(self, frame: DataFrame, spec: ReadSpec, table: str) -> LazyRows:
        def selected() -> DataFrame:
            rows = frame if spec.predicate is None else frame.where(to_spark(spec.predicate, spec.dialect))
            return rows if spec.columns is None else rows.select(*[quote(column) for column in spec.columns])

        return self._lazily(about_tables("read", [table]), selected)

    def _lazily(
        self, what: str, rows: Callable[[], DataFrame], analysis: type[DuckrunError] = InvalidConfig
    ) -> LazyRows:
        """Return the lazy rows of a query, which Spark has analysed."""
        with errors_about(self.about(what), analysis=analysis, writes=False):
            frame = rows()
            frame.schema  # noqa: B018  Connect analyses a query only for its schema
        return self._frame(frame, what)

    def _frame(self, native: DataFrame, what: str) -> LazyRows:
        return LazyRows(SparkFrame(native, self.temp_names, self.about(what)), self.name)

    def _native(self, value: Any) -> DataFrame:
        """Return any tabular value as a Spark DataFrame.

        Local values travel through the driver as Arrow. Staging large ones as Parquet files for the
        executors is future work.
        """
        if is_of_spark(value):
            if isinstance(value, LazyRows):
                return value.native
            if self.lake.branch_name is not None:  # names may be newer than this engine
                guard(self.spark).refuse_names(self.lake)
            return value
        if isinstance(value, LazyRows):
            return self.access.from_arrow(value.toArrow())
        return self.access.from_arrow(arrow_table(value))


def _refuse_foreign_expressions(snapshot: Snapshot) -> None:
    """Raise UnsupportedFeature if an expression in the table's log is not a plain scalar."""
    # Another writer may have put it into the log, and Spark's functions can call Java's.
    computed = snapshot.computed()
    generated = {name: column.generated for name, column in computed.items() if column.generated is not None}
    defaults = {name: column.default for name, column in computed.items() if column.default is not None}
    for name, expression in [*snapshot.checks.items(), *generated.items(), *defaults.items()]:
        why = why_not_scalar_in_spark(expression, is_default=expression is defaults.get(name))
        if why is not None:
            raise UnsupportedFeature(
                f"Table {snapshot.ref}: {name} ({expression}) has {why}: only columns of the row and "
                "deterministic scalar functions are computed",
                remedy="drop the constraint or default, if the rows need it not",
            )
