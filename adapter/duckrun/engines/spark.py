"""The Spark engine: PySpark with Delta, by SQL and the DataFrame API only, so classic sessions and Connect are one code.

Tables are addressed by location. A Spark DataFrame is written by Spark's workers and never collected.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from duckrun.engines.spark_session import is_spark_frame, spark_session
from duckrun.engines.spark_sql import (
    MARK,
    delete_insert_statement,
    key_equality,
    merge_dry_run,
    merge_statement,
    pinned_query,
    quote,
    rows_inserted_by,
    table_at,
    to_spark,
)
from duckrun.engines.spark_types import check_new_table, fit_all, storable_table
from duckrun.errors import (
    CommitConflict,
    DuckrunError,
    DuplicateSourceKeys,
    InvalidConfig,
    RowsOutsidePartition,
    SchemaMismatch,
    UnsupportedFeature,
)
from duckrun.frame import Frame
from duckrun.specs import Commit, DeleteInsertSpec, DeleteSpec, MergeSpec, ReadSpec, Spec, UpdateSpec, WriteSpec
from duckrun.transaction import Conflict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from duckrun.lake import Lake
    from duckrun.table import Scan, Snapshot
    from duckrun.transaction import Transaction

log = logging.getLogger(__name__)

_APP_ID = "spark.databricks.delta.write.txnAppId"
_APP_VERSION = "spark.databricks.delta.write.txnVersion"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_FILE_SIZE = "spark.databricks.delta.optimizeWrite.binSize"
_FILES_AS_LIST = 1000  # a longer list of paths is joined instead


@dataclass(frozen=True)
class Capabilities:
    """What an engine can do on a Delta table; what is False raises UnsupportedFeature and names the other engine."""

    modes: frozenset[str]
    schema_modes: frozenset[str]
    deletion_vectors: bool = True
    # Spark cannot commit at a given version: it is fenced by the per-table OS lock, which object stores do not have.
    fenced_commit_local: bool = True
    fenced_commit_object_store: bool = False


CAPABILITIES = Capabilities(
    modes=frozenset(
        (
            "error",
            "overwrite",
            "append",
            "ignore",
            "replace",
            "safeappend",
            "merge",
            "delete+insert",
            "delete",
            "update",
        )
    ),
    schema_modes=frozenset(("fail", "append_new_columns", "sync_all_columns")),
)


class SparkFrame:
    """What a Frame asks of a Spark DataFrame."""

    def __init__(self, native: DataFrame) -> None:
        self.native = native

    def schema(self) -> pa.Schema:
        return arrow_schema(self.native)

    def reader(self) -> pa.RecordBatchReader:
        return self.native.toArrow().to_reader()

    def polars_lazy(self) -> Any:
        import polars

        return polars.from_arrow(self.native.toArrow()).lazy()

    def count(self) -> int:
        return self.native.count()

    def limit(self, rows: int) -> SparkFrame:
        return SparkFrame(self.native.limit(rows))

    def create_view(self, name: str) -> None:
        self.native.createOrReplaceTempView(name)


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """The Arrow schema of a Spark DataFrame."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema)


# Application ids of SQL statements live in the session's settings: one statement that sets them at a time.
_locks: weakref.WeakKeyDictionary[Any, threading.RLock] = weakref.WeakKeyDictionary()
_locks_guard = threading.Lock()


class SparkEngine:
    """Scans and writes the tables of one lake on one Spark session.

    ``spark`` is a session, classic or Connect, which stays open; None is the shared one of this process, started at
    first use. Example: ``SparkEngine(lake, spark).scan(lake.snapshot(ref), ReadSpec()).native.show()``.
    """

    name = "spark"
    capabilities = CAPABILITIES

    def __init__(self, lake: Lake, spark: SparkSession | None = None) -> None:
        self.lake = lake
        self._spark = spark

    @property
    def spark(self) -> SparkSession:
        """The Spark session, with this lake's credentials."""
        if self._spark is None:
            self._spark = spark_session(storage=self.lake.storage)
        return self._spark

    def close(self) -> None:
        """Nothing to give back: the session is shared or the caller's."""

    # -- reading

    def scan(self, snapshot: Snapshot, spec: ReadSpec) -> Frame:
        """The rows of one snapshot: Spark prunes files by the predicate and reads the columns asked for."""
        return self._frame(self._select(self._read(snapshot.ref.location, snapshot.version), spec, str(snapshot.ref)))

    def open(self, scan: Scan) -> Frame:
        """The rows of the files of a scan; deleted rows of a file stay deleted."""
        from pyspark.sql import functions as F

        frame = self._read(scan.location if hasattr(scan, "location") else scan.ref.location, scan.version)
        path = F.col("_metadata.file_path")
        names = [file.path for file in scan.files]
        # Spark gives a file's full URI, encoded; the part after the table's folder is compared, decoded.
        inside = F.expr(f"url_decode(replace({quote('_metadata')}.file_path, '+', '%2B'))")
        root = self._root_uri_length(frame) if names else 0
        relative = F.substring(inside, root + 1, 1 << 30) if names else path
        if len(names) <= _FILES_AS_LIST:
            frame = frame.where(relative.isin(names))
        else:
            listed = self.spark.createDataFrame([(name,) for name in names], "__duckrun_path string")
            frame = frame.withColumn("__duckrun_path", relative).join(
                F.broadcast(listed), "__duckrun_path", "left_semi"
            )
            frame = frame.drop("__duckrun_path")
        return self._frame(self._select(frame, scan.spec, str(scan.ref)))

    def query(self, sql: str, tables: dict[str, Snapshot], dialect: str) -> Frame:
        """A SELECT over pinned snapshots. Names that are no tables of the lake are Spark's own (temp views)."""
        places = {name: (self._location(s.ref.location), s.version) for name, s in tables.items()}
        text = sql if not places and dialect == "spark" else pinned_query(sql, dialect, places)
        with self._errors("query", ", ".join(tables) or "(none)", analysis=InvalidConfig):
            frame = self.spark.sql(text)
            frame.schema  # noqa: B018  Connect analyses when it is asked for the schema
        return self._frame(frame)

    def accepts(self, value: Any) -> bool:
        """True for PySpark DataFrames, classic and Connect, and for frames of this engine."""
        return is_spark_frame(value) or (isinstance(value, Frame) and value.engine == self.name)

    def schema_of(self, source: Any) -> pa.Schema:
        """The schema a source would be written with; nothing is computed for a Spark DataFrame."""
        if self.accepts(source):
            return arrow_schema(self._native(source))
        schema = getattr(source, "schema", None)
        return schema if isinstance(schema, pa.Schema) else arrow_schema(self._native(source))

    # -- writing

    def execute(self, spec: Spec, source: Any | None, transaction: Transaction) -> Commit:
        """Carry out one spec as one commit of Spark's.

        Raises SchemaMismatch, RowsOutsidePartition, DuplicateSourceKeys, UnsupportedFeature, CommitConflict,
        TableNotFound; the table is then as it was.
        """
        if spec.mode not in self.capabilities.modes:
            raise UnsupportedFeature(f"The spark engine has no mode {spec.mode!r}; run this with engine: duckdb.")
        fenced = isinstance(spec, WriteSpec) and spec.read_version is not None
        if fenced and not self.lake.storage.is_local:
            raise UnsupportedFeature(
                f"{spec.mode} on table {transaction.ref}: a write fenced to the version that was read needs a commit at "
                f"a given version, which Spark does not have on {self.lake.storage.kind}. Run this with engine: duckdb."
            )
        frame = None if source is None else self._native(source)
        if frame is None and not isinstance(spec, DeleteSpec | UpdateSpec):
            raise InvalidConfig(f"{spec.mode} on table {transaction.ref} was given no rows.")
        return transaction.run(
            lambda snapshot: _Attempt(self, spec, frame, transaction, snapshot).run(), mode=spec.mode, engine=self.name
        )

    # -- helpers

    def _location(self, location: str) -> str:
        return self.lake.storage.spark_location(location)

    def _read(self, location: str, version: int) -> DataFrame:
        return self.spark.read.format("delta").option("versionAsOf", version).load(self._location(location))

    def _root_uri_length(self, frame: DataFrame) -> int:
        """The length of the decoded URI of a table's folder, with its slash."""
        raise NotImplementedError

    def _select(self, frame: DataFrame, spec: ReadSpec, table: str) -> DataFrame:
        with self._errors("read", table, analysis=InvalidConfig):
            if spec.predicate is not None:
                frame = frame.where(to_spark(spec.predicate, spec.dialect))
            if spec.columns is not None:
                frame = frame.select(*[quote(column) for column in spec.columns])
            frame.schema  # noqa: B018
        return frame

    def _frame(self, native: DataFrame) -> Frame:
        return Frame(SparkFrame(native), self.name)

    def _native(self, value: Any) -> DataFrame:
        """Any tabular value as a Spark DataFrame. Local values travel through the driver as Arrow; staging large ones
        as Parquet files that the executors read is later work."""
        if is_spark_frame(value):
            return value  # type: ignore[no-any-return]
        if isinstance(value, Frame):
            return value.native if value.engine == self.name else self._from_arrow(value.toArrow())
        return self._from_arrow(_arrow_table(value))

    def _from_arrow(self, table: pa.Table) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        table = storable_table(table)
        # Without a schema Spark would read a timestamp that has no zone as one in the session's zone.
        schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
        return self.spark.createDataFrame(table, schema)

    def ansi(self) -> bool:
        """True if a cast that does not fit raises."""
        return str(self.spark.conf.get("spark.sql.ansi.enabled", "true")).lower() == "true"

    @contextmanager
    def view(self, frame: DataFrame) -> Iterator[str]:
        """A name for a frame while a statement runs."""
        name = f"__duckrun_{uuid.uuid4().hex}"
        frame.createOrReplaceTempView(name)
        try:
            yield quote(name)
        finally:
            self.spark.catalog.dropTempView(name)

    @contextmanager
    def settings(self, values: Mapping[str, str]) -> Iterator[None]:
        """Session settings that hold while one statement runs, under the session's one lock."""
        with _locks_guard:
            lock = _locks.setdefault(self.spark, threading.RLock())
        with lock:
            before = {key: self.spark.conf.get(key, None) for key in values}
            try:
                for key, value in values.items():
                    self.spark.conf.set(key, value)
                yield
            finally:
                for key, old in before.items():
                    self.spark.conf.unset(key) if old is None else self.spark.conf.set(key, old)

    @contextmanager
    def _errors(self, mode: str, table: str, *, analysis: type[DuckrunError]) -> Iterator[None]:
        try:
            yield
        except DuckrunError:
            raise
        except Exception as error:
            raise _translated(error, mode, table, analysis) from error


def _arrow_table(value: Any) -> pa.Table:
    """A local tabular value as an Arrow table."""
    module = type(value).__module__.partition(".")[0]
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatchReader):
        return value.read_all()
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if module == "pandas":
        try:
            return pa.Table.from_pandas(value, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise SchemaMismatch(f"the pandas DataFrame has a column with no one type: {error}") from error
    if module == "polars" and hasattr(value, "collect"):
        value = value.collect()
    if hasattr(value, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(value).read_all()
    raise InvalidConfig(
        f"A {type(value).__module__}.{type(value).__qualname__} cannot be written as a table on the spark engine; give a "
        "PySpark DataFrame, a pyarrow Table or RecordBatchReader, a pandas or polars frame, or a Frame."
    )


class _Attempt:
    """One try at one spec, from the snapshot that the transaction read."""

    def __init__(
        self,
        engine: SparkEngine,
        spec: Spec,
        frame: DataFrame | None,
        transaction: Transaction,
        snapshot: Snapshot | None,
    ) -> None:
        self.engine = engine
        self.spark = engine.spark
        self.spec = spec
        self.frame = frame
        self.transaction = transaction
        self.snapshot = snapshot
        self.ref = transaction.ref
        self.location = engine._location(transaction.ref.location)
        self.target = table_at(self.location)
        self.token = uuid.uuid4().hex
        self.reason = "Spark writes its own frames and runs its own statements"

    def run(self) -> Commit:
        try:
            with self.engine._errors(self.spec.mode, str(self.ref), analysis=SchemaMismatch):
                done = self._dispatch()
        except SchemaMismatch as error:
            version = "which does not exist yet" if self.snapshot is None else f"at version {self.snapshot.version}"
            if str(self.ref) in str(error):
                raise
            raise type(error)(
                f"{self.spec.mode} on table {self.ref} ({version}): {error}. Nothing was written."
            ) from error
        return self._committed() if done is None else done

    def _dispatch(self) -> Commit | None:
        match self.spec:
            case WriteSpec():
                return self._write(self.spec)
            case MergeSpec():
                return self._merge(self.spec)
            case DeleteInsertSpec():
                return self._delete_insert(self.spec)
            case DeleteSpec():
                return self._delete(self.spec)
            case UpdateSpec():
                return self._update(self.spec)

    # -- whole rows

    def _write(self, spec: WriteSpec) -> Commit | None:
        self.transaction.check_fence(self.snapshot, spec.read_version)
        if self.snapshot is None:
            return self._create(self._frame(), spec)
        if spec.mode == "error":
            raise InvalidConfig(
                f"Table {self.ref} exists already (version {self.snapshot.version}) and mode 'error' writes new tables "
                "only. Nothing was written; choose overwrite, append, replace or ignore."
            )
        if spec.mode == "ignore":
            return self._nothing("the table exists already, and mode 'ignore' leaves it as it is")
        if spec.mode == "overwrite":
            return self._overwrite(self._frame(), spec)
        frame, new = self._fitted(self._frame(), spec.schema_mode)
        options = {"mergeSchema": "true"} if new else {}
        if spec.mode in ("append", "safeappend"):
            return self._save(frame, "append", options, self.snapshot.partition_columns, spec)
        if spec.predicate is not None:
            predicate = to_spark(spec.predicate, spec.dialect)
            options["replaceWhere"] = predicate
            try:
                return self._save(frame, "overwrite", options, self.snapshot.partition_columns, spec)
            except Exception as error:
                if "DELTA_REPLACE_WHERE_MISMATCH" in _text_of(error):
                    raise self._outside(frame, spec.predicate, predicate) from error
                raise
        if not self.snapshot.partition_columns:
            raise InvalidConfig(
                f"replace on table {self.ref}: the table has no partitions, so say which rows to replace (predicate), or "
                "use mode overwrite. Nothing was written."
            )
        options["partitionOverwriteMode"] = "dynamic"
        return self._save(frame, "overwrite", options, self.snapshot.partition_columns, spec)

    def _overwrite(self, frame: DataFrame, spec: WriteSpec) -> None:
        assert self.snapshot is not None
        keep = self.snapshot.partition_columns if spec.partition_by is None else spec.partition_by
        check_new_table(frame.schema, keep)
        return self._save(self._commented(frame, spec), "overwrite", {"overwriteSchema": "true"}, keep, spec)

    def _create(self, frame: DataFrame, spec: WriteSpec | MergeSpec | DeleteInsertSpec) -> None:
        check_new_table(frame.schema, spec.partition_by or ())
        properties = {str(k): str(v) for k, v in spec.table_properties.items()}
        if not isinstance(spec, WriteSpec):
            return self._save(frame, "error", properties, spec.partition_by or (), spec)
        if spec.predicate is not None:
            predicate = to_spark(spec.predicate, spec.dialect)
            if frame.where(f"NOT coalesce(({predicate}), false)").limit(1).count():
                raise self._outside(frame, spec.predicate, predicate)
        frame = self._commented(frame, spec)
        if spec.description is None and all(key.startswith("delta.") for key in properties):
            return self._save(frame, "error", properties, spec.partition_by or (), spec)
        # Only CREATE TABLE AS takes a description; it takes the note and application id from the session's settings.
        from pyspark.sql import functions as F

        frame = self._arranged(frame, spec.partition_by or (), spec.sort_by)
        with self.engine.settings(self._statement_settings()):
            writer = frame.writeTo(self.target).using("delta")
            for key, value in properties.items():
                writer = writer.tableProperty(key, value)
            if spec.description is not None:
                writer = writer.tableProperty("comment", spec.description)
            if spec.partition_by:
                writer = writer.partitionedBy(*[F.col(quote(column)) for column in spec.partition_by])
            writer.create()
        return None

    def _save(
        self,
        frame: DataFrame,
        mode: str,
        options: Mapping[str, str],
        partition_by: Sequence[str],
        spec: WriteSpec | MergeSpec | DeleteInsertSpec,
    ) -> None:
        app = self.transaction.app
        writer = self._arranged(frame, partition_by, spec.sort_by).write.format("delta").mode(mode)
        writer = writer.option("userMetadata", self._note())
        if partition_by and not spec.sort_by:
            writer = writer.option("optimizeWrite", "true")  # rows of a partition meet before they are written
        for key, value in options.items():
            writer = writer.option(key, value)
        if partition_by:
            writer = writer.partitionBy(*partition_by)
        size = spec.target_file_size if isinstance(spec, WriteSpec) else None
        if size is not None:
            writer = writer.option("optimizeWrite", "true")
        if app is not None:
            writer = writer.option("txnAppId", app.app_id).option("txnVersion", str(app.version))
        # Options come before settings, so a write with an application id cannot take up that of a statement which runs
        # beside it; any other one waits for it.
        if app is not None and size is None:
            writer.save(self.location)
        else:
            with self.engine.settings({} if size is None else {_FILE_SIZE: f"{size}b"}):
                writer.save(self.location)

    def _arranged(self, frame: DataFrame, partition_by: Sequence[str], sort_by: Sequence[str]) -> DataFrame:
        """Rows in the order asked for, within each file."""
        if not sort_by:
            return frame
        from pyspark.sql import functions as F

        order = [F.col(quote(column)) for column in (*partition_by, *sort_by)]
        if not partition_by:
            return frame.orderBy(*order)
        return frame.repartition(*[F.col(quote(column)) for column in partition_by]).sortWithinPartitions(*order)

    def _commented(self, frame: DataFrame, spec: WriteSpec) -> DataFrame:
        names = {name.lower(): name for name in frame.columns}
        for column, comment in spec.column_comments.items():
            if column.lower() not in names:
                raise SchemaMismatch(f"a comment is for the column {column!r}, which the data does not have")
            name = names[column.lower()]
            metadata = {**(frame.schema[name].metadata or {}), "comment": comment}
            frame = frame.withMetadata(name, metadata)
        return frame

    # -- merges

    def _merge(self, spec: MergeSpec) -> Commit | None:
        frame = self._frame()
        self._check_keys(frame, spec.keys)
        if self.snapshot is None:
            return self._merge_into_nothing(frame, spec)
        self._check_duplicates(frame, spec.keys)
        schema = self._target_schema()
        whole = [c for c in spec.clauses if not c.kind.endswith("delete") and c.columns is None and c.set is None]
        evolve = False
        columns: list[str] = []
        if whole:
            filled, new = fit_all(frame.schema, schema, spec.schema_mode, checked=self.engine.ansi())
            columns = [*[t for t, s in filled.items() if s is not None], *new]
            evolve = bool(new)
            frame = self._renamed(frame, {s: t for t, s in filled.items() if s is not None})
        else:
            listed = {c for clause in spec.clauses for c in clause.columns or ()}
            names = {n.lower() for n in frame.columns}
            missing = sorted(c for c in listed if c.lower() not in names)
            if missing:
                raise SchemaMismatch(f"missing in the data: {', '.join(missing)}")
        with self.engine.view(frame) as source:
            self._analyse(merge_dry_run(spec, self.target, source, [c for c in columns if c in frame.columns]))
            return self._statement(merge_statement(spec, self.target, source, columns, evolve=evolve))

    def _merge_into_nothing(self, frame: DataFrame, spec: MergeSpec) -> Commit | None:
        self._check_duplicates(frame, spec.keys)
        with self.engine.view(frame) as source:
            parts: list[Any] = rows_inserted_by(spec, frame.columns, self.spark.sql, source)
            rows = frame.limit(0) if not parts else parts[0]
            for part in parts[1:]:
                rows = rows.unionByName(part, allowMissingColumns=True)
            return self._create(rows, spec)

    def _check_keys(self, frame: DataFrame, keys: Sequence[str]) -> None:
        names = {n.lower() for n in frame.columns}
        missing = [key for key in keys if key.lower() not in names]
        if missing:
            raise SchemaMismatch(
                f"the key column {', '.join(missing)} is missing in the data, which has {', '.join(frame.columns)}"
            )

    def _check_duplicates(self, frame: DataFrame, keys: Sequence[str]) -> None:
        from pyspark.sql import functions as F

        columns = [F.col(quote(key)) for key in keys]
        present = (
            frame.select(*columns).dropna(how="any")
            if not _has_float(frame, keys)
            else frame.select(*columns).where(" AND ".join(f"{quote(key)} IS NOT NULL" for key in keys))
        )
        repeated = (
            present.groupBy(*columns).count().where("`count` > 1")
            if "count" not in keys
            else (present.groupBy(*columns).agg(F.count(F.lit(1)).alias("__n")).where("__n > 1"))
        )
        found = repeated.limit(4).collect()
        if not found:
            return
        total = len(found) if len(found) < 4 else repeated.count()
        examples = "; ".join(", ".join(f"{key}={row[key]!r}" for key in keys) for row in found[:3])
        raise DuplicateSourceKeys(
            f"{self.spec.mode} on table {self.ref}: {total} keys occur more than once in the source ({examples}), so the "
            f"outcome would be arbitrary. Nothing was written; keep one row for each {', '.join(keys)}."
        )

    def _delete_insert(self, spec: DeleteInsertSpec) -> Commit | None:
        from pyspark.sql import functions as F

        frame = self._frame()
        self._check_keys(frame, spec.keys)
        if self.snapshot is None:
            return self._create(frame, spec)
        fitted, new = self._fitted(frame, spec.schema_mode)
        keys = fitted.select(*[quote(key) for key in spec.keys]).distinct().withColumn(MARK, F.lit("D"))
        marked = fitted.withColumn(MARK, F.lit("I")).unionByName(keys, allowMissingColumns=True)
        predicate = None if spec.predicate is None else to_spark(spec.predicate, spec.dialect)
        with self.engine.view(marked) as source:
            statement = delete_insert_statement(
                spec.keys, fitted.columns, self.target, source, predicate, evolve=bool(new)
            )
            condition = key_equality(spec.keys) + (f" AND ({predicate})" if predicate else "")
            self._analyse(f"SELECT 1 FROM {self.target} AS target JOIN {source} AS source ON {condition}")
            return self._statement(statement)

    # -- statements

    def _delete(self, spec: DeleteSpec) -> Commit | None:
        self._must_exist()
        where = "" if spec.predicate is None else f" WHERE {to_spark(spec.predicate, spec.dialect)}"
        self._analyse(f"SELECT 1 FROM {self.target}{where}")
        return self._statement(f"DELETE FROM {self.target}{where}")

    def _update(self, spec: UpdateSpec) -> Commit | None:
        self._must_exist()
        values = {column: to_spark(value, spec.dialect) for column, value in spec.set.items()}
        where = "" if spec.predicate is None else f" WHERE {to_spark(spec.predicate, spec.dialect)}"
        names = {n.lower() for n in self._target_schema().names}
        unknown = [column for column in values if column.lower() not in names]
        if unknown:
            raise SchemaMismatch(f"not in the table: {', '.join(unknown)}")
        self._analyse(f"SELECT {', '.join(f'({v})' for v in values.values())} FROM {self.target}{where}")
        assigned = ", ".join(f"{quote(column)} = {value}" for column, value in values.items())
        return self._statement(f"UPDATE {self.target} SET {assigned}{where}")

    def _must_exist(self) -> None:
        if self.snapshot is None:
            self.engine.lake.snapshot(self.ref)  # raises TableNotFound with the nearest names

    def _analyse(self, query: str) -> None:
        """Let Spark check a query that names the expressions of a statement, before the statement runs."""
        with self.engine._errors(self.spec.mode, str(self.ref), analysis=InvalidConfig):
            self.spark.sql(query).schema  # noqa: B018

    def _statement(self, text: str) -> None:
        log.debug("%s on %s: %s", self.spec.mode, self.ref, text)
        with self.engine.settings(self._statement_settings()):
            self.spark.sql(text)

    def _statement_settings(self) -> dict[str, str]:
        settings = {_USER_METADATA: self._note()}
        if self.transaction.app is not None:
            settings |= {_APP_ID: self.transaction.app.app_id, _APP_VERSION: str(self.transaction.app.version)}
        return settings

    def _note(self) -> str:
        return json.dumps({"duckrun": self.transaction.note(writer="spark", reason=self.reason, token=self.token)})

    # -- the rows

    def _frame(self) -> DataFrame:
        assert self.frame is not None
        return self.frame

    def _target_schema(self) -> Any:
        assert self.snapshot is not None
        return self.engine._read(self.ref.location, self.snapshot.version).schema

    def _fitted(self, frame: DataFrame, schema_mode: Any) -> tuple[DataFrame, list[str]]:
        """The rows in the table's columns and types, and which columns are new."""
        from pyspark.sql import functions as F

        schema = self._target_schema()
        filled, new = fit_all(frame.schema, schema, schema_mode, checked=self.engine.ansi())
        columns = [
            (F.lit(None) if found is None else F.col(quote(found))).cast(schema[name].dataType).alias(name)
            for name, found in filled.items()
        ]
        return frame.select(*columns, *[F.col(quote(name)) for name in new]), new

    def _renamed(self, frame: DataFrame, names: Mapping[str, str]) -> DataFrame:
        """Columns that differ in case take the table's spelling."""
        changed = {old: name for old, name in names.items() if old != name}
        return frame.withColumnsRenamed(changed) if changed else frame

    def _outside(self, frame: DataFrame, written: str, predicate: str) -> RowsOutsidePartition:
        outside = frame.where(f"NOT coalesce(({predicate}), false)")
        examples = "; ".join(str(row.asDict()) for row in outside.limit(3).collect())
        return RowsOutsidePartition(
            f"replace on table {self.ref}: {outside.count()} rows do not satisfy {written} ({examples[:500]}). Nothing was "
            "written; every row must lie in what is replaced."
        )

    # -- what was committed

    def _nothing(self, reason: str) -> Commit:
        assert self.snapshot is not None
        return Commit(
            table=str(self.ref), location=self.ref.location, version=self.snapshot.version, mode=self.spec.mode,
            engine="spark", writer="none", reason=reason, rows_inserted=0, rows_updated=0, rows_deleted=0,
            files_added=0, files_removed=0, bytes_added=0,
        )  # fmt: skip

    def _committed(self) -> Commit:
        """The commit that carries our token. Spark skips a repeated application version without a word: that must not
        look like success, so it becomes a Conflict, upon which the transaction finds the earlier commit."""
        form = self.engine.lake.format
        wanted = 0 if self.snapshot is None else self.snapshot.version + 1
        version = wanted
        while (actions := form.actions(self.ref, version)) is not None:
            if actions.note.get("token") == self.token:
                if version != wanted:
                    self._passed(version)
                return form.commit_at(
                    self.ref, version, mode=self.spec.mode, engine="spark", writer="spark", reason=self.reason
                )
            version += 1
        app = self.transaction.app
        if self.snapshot is None:
            raise Conflict(f"Spark made no commit on table {self.ref}")
        if app is not None and (form.app_version(self.ref, app.app_id) or -1) >= app.version:
            raise Conflict(f"Spark skipped {app.app_id} version {app.version}, which another writer has committed")
        if isinstance(self.spec, WriteSpec):
            raise Conflict(f"Spark made no commit on table {self.ref}")
        return self._nothing("no row was touched, so Spark made no commit")

    def _passed(self, version: int) -> None:
        """Others committed first, and Spark put ours on top after its own check of conflicts. It is in the table, so
        running it again would double it; a fenced write has broken its promise and says so."""
        assert self.snapshot is not None
        log.info(
            "table %s: Spark committed on top of versions %s to %s", self.ref, self.snapshot.version + 1, version - 1
        )
        if isinstance(self.spec, WriteSpec) and self.spec.read_version is not None:
            raise CommitConflict(
                f"{self.spec.mode} on table {self.ref} was fenced to version {self.spec.read_version}, but a writer that does "
                f"not take the table's lock committed in between; the rows are in version {version}. Restore version "
                f"{version - 1} to take them out."
            )


def _has_float(frame: DataFrame, keys: Sequence[str]) -> bool:
    """dropna() also drops NaN, which is a key like any other."""
    return any(frame.schema[name].dataType.typeName() in ("float", "double") for name in frame.columns if name in keys)


def _text_of(error: BaseException) -> str:
    """The message of a Spark error. PySpark may fail to build it for conditions of Delta's."""
    try:
        return f"{getattr(error, 'getCondition', lambda: '')() or ''} {error}"
    except Exception:
        return type(error).__name__


def _translated(error: Exception, mode: str, table: str, analysis: type[DuckrunError]) -> Exception:
    """A Spark error as one of ours that names the table; the error itself, with a note, where it is the user's code."""
    text = _text_of(error)
    line = next((part.strip() for part in text.splitlines() if part.strip()), type(error).__name__)
    module = type(error).__module__
    if isinstance(error, Conflict) or not module.startswith(("pyspark", "py4j", "grpc")):
        return error
    name = type(error).__name__
    if (
        "DELTA_CONCURRENT" in text
        or "Concurrent" in text
        or "DELTA_METADATA_CHANGED" in text
        or "DELTA_PROTOCOL_CHANGED" in text
    ):
        return Conflict(line)
    if "DELTA_MULTIPLE_SOURCE_ROW_MATCHING" in text:
        return DuplicateSourceKeys(
            f"{mode} on table {table}: several source rows match one row of the table. Nothing was written."
        )
    if "DATA_SOURCE_NOT_FOUND" in text and "delta" in text.lower():
        return InvalidConfig(
            f"{mode} on table {table}: this Spark has no Delta jars. Let duckrun's session factory add them, or put "
            "delta-spark and delta-storage on the cluster."
        )
    if "DELTA_PATH_EXISTS" in text or "DELTA_TABLE_ALREADY_EXISTS" in text:
        return Conflict(line)
    if "DELTA_FAILED_TO_MERGE_FIELDS" in text or "DELTA_SCHEMA" in text:
        return SchemaMismatch(f"{mode} on table {table}: {line}. Nothing was written.")
    if name in ("AnalysisException", "ParseException") or "DELTA_MERGE_UNRESOLVED" in text:
        return analysis(f"{mode} on table {table}: Spark cannot run it: {line}")
    if hasattr(error, "add_note"):
        error.add_note(f"This was {mode} on table {table}; nothing was committed by it.")
    return error
