"""Writes of a DuckLake table on Spark: the workers write Parquet files, and DuckDB on the driver commits.

Whole rows become the table's in the files of the workers. What changes rows that are there is DuckDB's work, from a source that the workers wrote.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb
from sqlglot import exp

from duckrun.engines.data_files import file_properties, file_size
from duckrun.engines.spark.ducklake.files import Written, written
from duckrun.engines.spark.ducklake.plan import NO_FOLDER, Plan, plan, spark_schema
from duckrun.engines.spark.errors import errors_about
from duckrun.engines.spark.foreign_servers import other_implementation
from duckrun.engines.spark.outside import refuse_outside
from duckrun.engines.spark.scratch import arranged
from duckrun.engines.spark.sql import quote
from duckrun.engines.spark.types import check_new_table, holds_untyped, taking_types
from duckrun.errors import (
    CommitConflict,
    DuckrunError,
    InvalidConfig,
    SchemaMismatch,
    UnsupportedFeature,
)
from duckrun.formats.commits import NewCommit
from duckrun.formats.ducklake.folders import folder_for, knows_files_of
from duckrun.formats.ducklake.scratch import scratch
from duckrun.run.reruns import ToTakeBack, rerun_of
from duckrun.run.transaction import Transaction
from duckrun.sql.names import fresh_name, quote_identifier, quote_literal, transpile
from duckrun.values.columns import refuse_twins
from duckrun.values.layout import Layout
from duckrun.values.rows import Commit, RowSpec, WriteSpec
from duckrun.values.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from duckrun.engines.engine import Engine
    from duckrun.engines.spark.engine import SparkEngine
    from duckrun.formats.ducklake.ducklake import DuckLakeFormat
    from duckrun.formats.ducklake.work import Work

_PLANS = 5
"""How often a write is planned anew because others changed the table's columns meanwhile."""
ADDED = "Spark's workers wrote the files, and DuckDB added them by one transaction of the lake's catalog"
APPLIED = "DuckDB applied what Spark's workers wrote"

Driver = Callable[[], "Engine"]


def execute(
    engine: SparkEngine, spec: RowSpec, frame: DataFrame | None, transaction: Transaction, driver: Driver | None
) -> Commit:
    """Carry out one spec as one commit. ``driver`` gives the engine of this process, which applies what the workers wrote.

    Raises what the same write raises on DuckDB, and UnsupportedFeature for an encrypted lake and on a Connect server that is not Apache Spark; the table is
    then as it was, and no file is left.
    """
    form: Any = transaction.lake.format
    _refuse(engine, spec, transaction)
    if form.catalog.is_there():
        form.catalog.ensure()
    if form.catalog.encrypted:
        raise UnsupportedFeature(
            f"{spec.mode} on table {transaction.ref}: its lake is encrypted, and Spark writes files as they are. Nothing was written; use engine: duckdb."
        )
    started = time.perf_counter()
    if isinstance(spec, WriteSpec):
        assert frame is not None, "a write has rows"
        done = _Write(engine, spec, frame, transaction, driver).run()
    else:
        done = _applied(engine, spec, frame, transaction, driver)
    return done.with_(seconds=round(time.perf_counter() - started, 3))


def _refuse(engine: SparkEngine, spec: RowSpec, transaction: Transaction) -> None:
    what = f"{spec.mode} on table {transaction.ref}"
    other = other_implementation(engine.spark)
    if other is not None:
        raise UnsupportedFeature(
            f"{what}: it is a DuckLake table, and the Spark Connect server is not Apache Spark (its version is {other}). Nothing was written; use engine: "
            "duckdb, or Apache Spark."
        )
    if transaction.lake.format.together is not None:  # type: ignore[attr-defined]
        raise UnsupportedFeature(
            f"{what}: a transaction over several tables is DuckDB's, on one connection, and Spark's rows come from elsewhere. Nothing was written; collect "
            "them first (toArrow()), or write them outside of it."
        )


class _NotWritten(Exception):
    """The rows are to be written before the commit is made."""

    def __init__(self, snapshot: Snapshot | None) -> None:
        super().__init__("the rows are not written yet")
        self.snapshot = snapshot


# -- whole rows


class _Write:
    """One write of whole rows. What can be refused is, before the workers begin; they write while no lock is held."""

    def __init__(
        self, engine: SparkEngine, spec: WriteSpec, frame: DataFrame, transaction: Transaction, driver: Driver | None
    ) -> None:
        self.engine, self.spec, self.frame = engine, spec, frame
        self.transaction, self.driver, self.ref = transaction, driver, transaction.ref
        self.form: DuckLakeFormat = transaction.lake.format  # type: ignore[assignment]
        self.planned: Plan | None = None
        self.files: Written | None = None

    def run(self) -> Commit:
        for _ in range(_PLANS):
            try:
                return self._committed()
            except ToTakeBack as why:
                return _applied(
                    self.engine, self.spec, self.frame, self.transaction, self.driver, f"it takes back {why}"
                )
            except _NotWritten as needed:
                with errors_about(f"{self.spec.mode} on table {self.ref}", analysis=SchemaMismatch):
                    self.planned = self._plan(needed.snapshot)
            if self.planned.why_not is not None:
                return _applied(self.engine, self.spec, self.frame, self.transaction, self.driver, self.planned.why_not)
            try:
                with self._written(self.planned) as self.files:
                    return self._committed()
            except _NotWritten:
                self.files = None
            except ToTakeBack as why:  # it came while the workers wrote
                return _applied(
                    self.engine, self.spec, self.frame, self.transaction, self.driver, f"it takes back {why}"
                )
            except SchemaMismatch as error:
                if NO_FOLDER not in str(error):
                    raise
                return _applied(self.engine, self.spec, self.frame, self.transaction, self.driver, NO_FOLDER)
        raise CommitConflict(
            f"{self.spec.mode} on table {self.ref}: other writers changed its columns {_PLANS} times meanwhile. Nothing was written; run it again."
        )

    def _committed(self) -> Commit:
        return self.transaction.run(
            self._attempt,
            mode=self.spec.mode,
            engine=self.engine.name,
            rerun=partial(rerun_of, self.spec),
            takes_back="rows",
        )

    def _plan(self, snapshot: Snapshot | None) -> Plan:
        try:
            made = plan(self.engine, self.form, self.spec, self.frame, snapshot)
        except (SchemaMismatch, InvalidConfig, UnsupportedFeature) as error:
            if str(self.ref) in str(error):
                raise
            raise type(error)(
                f"{self.spec.mode} on table {self.ref}: {str(error).rstrip('.')}. Nothing was written."
            ) from error
        for limit in (self.spec.within, self.spec.predicate):
            if limit is not None and made.why_not is None:
                refuse_outside(self.spec, self.ref, made.frame.select(*map(quote, made.definition.names)), limit)
        return made

    def _written(self, made: Plan) -> Any:
        self.form.catalog.ensure(create=True)  # a data folder that holds files is refused as that of a new lake
        properties = file_properties(self.spec, made.definition.properties)
        sort_by = [c for c in made.definition.sort_by if c in made.frame.columns]
        rows = arranged(made.frame, made.folders, sort_by)
        if file_size(properties) is not None and not made.folders and not sort_by:
            rows = rows.hint("rebalance")  # as many tasks as there are to be files
        return written(
            self.engine,
            self.form.storage,
            rows,
            folder_for(self.form.catalog, self.ref, None if made.snapshot is None else made.snapshot.own),
            f"{self.spec.mode} on table {self.ref}",
            properties=properties,
            partition_by=made.folders,
            kept=self._is_of_the_table,
        )

    def _is_of_the_table(self, folder: str) -> bool:
        """True unless the catalog knows no file of a folder: an error may have come after the commit."""
        try:
            return knows_files_of(self.form.catalog, folder)
        except DuckrunError:
            return True

    # -- the commit

    def _attempt(self, snapshot: Snapshot | None) -> Commit:
        spec, transaction = self.spec, self.transaction
        transaction.check_fence(snapshot, spec)
        if snapshot is not None and spec.mode == "ignore":
            return transaction.nothing(snapshot, "the table exists already, and mode 'ignore' leaves it as it is")
        if snapshot is not None and spec.mode == "error":
            raise CommitConflict(
                f"Table {self.ref} exists already, at version {snapshot.version}; mode 'error' writes new tables only."
            )
        if snapshot is not None and spec.mode == "replace" and spec.predicate is None:
            snapshot.columns_to_replace()
        if self.files is None or self.planned is None or not self.planned.holds_for(snapshot):
            raise _NotWritten(snapshot)
        taken = transaction.taken_back
        with self.form.transaction(self.form.catalog.cursor(create=True), snapshot) as work:
            gone = 0 if taken is None else self.form.taken_back(work, taken)[1]
            return self._added(work, snapshot, self.planned, self.files, gone)

    def _added(self, work: Work, snapshot: Snapshot | None, made: Plan, found: Written, gone: int) -> Commit:
        spec = self.spec
        whole = snapshot is None or spec.mode == "overwrite"
        new = NewCommit(
            spec,
            made.definition if made.changed else None,
            writer="ducklake",
            reason=ADDED,
            anew=spec.redefine and snapshot is not None,
            work=work,
        )
        if snapshot is not None and not new.anew and (whole or spec.mode == "replace"):
            where = "" if whole else f" WHERE {self._replaced(found, snapshot)}"
            gone = work.execute(f"DELETE FROM {work.table(self.ref)}{where}")
        self.form.define(work, self.ref, snapshot, new)
        came = self._add(work, made, found)
        work.changed = work.changed or bool(gone or came)
        rows = (came, 0, gone)
        return self.transaction.commit(
            snapshot,
            NewCommit(spec, new.definition, rows=rows, writer="ducklake", reason=ADDED, anew=new.anew, work=work),
        )

    def _add(self, work: Work, made: Plan, found: Written) -> int:
        """Make the files the table's; how many rows they hold."""
        if not found.paths:
            return 0
        listed = ", ".join(map(quote_literal, found.paths))
        counted = work.cursor.execute(f"SELECT file_name, num_rows FROM parquet_file_metadata([{listed}])").fetchall()
        paths = ", ".join(quote_literal(name) for name, count in counted if count)
        empty = [name[len(found.folder) + 1 :] for name, count in counted if not count]
        if empty:
            self.form.storage.remove_files(found.folder, empty)
        if not paths:
            return 0
        try:
            work.execute(
                f"CALL ducklake_add_data_files({quote_literal(work.alias)}, {quote_literal(self.ref.name)}, [{paths}], "
                f"schema => {quote_literal(self.ref.schema)}, hive_partitioning => {str(bool(made.folders)).lower()})"
            )
        except duckdb.InvalidInputException as error:
            raise SchemaMismatch(
                f"{self.spec.mode} on table {self.ref}: {self.form.catalog.redacted(error).splitlines()[0]}. Nothing was written."
            ) from error
        work.began[self.ref] = None
        return sum(int(count) for _, count in counted)

    def _replaced(self, found: Written, snapshot: Snapshot) -> str:
        """The condition, in DuckDB's SQL, of the rows that the new ones replace, which are looked for as any other reader does (see TableState.column)."""
        condition = self._condition(found, snapshot)
        if not any(snapshot.own.is_hidden(name) for name in snapshot.schema.names):
            return condition
        row = fresh_name("__duckrun_row", snapshot.schema.names)
        return f"rowid IN (SELECT {row} FROM {snapshot.scan_sql(row=row)} WHERE {condition})"

    def _condition(self, found: Written, snapshot: Snapshot) -> str:
        if self.spec.predicate is not None:
            return f"({transpile(self.spec.predicate, self.spec.dialect, 'duckdb')}\n)"
        columns = snapshot.partition_columns
        types = snapshot.own.definition.sql_types
        values = ", ".join(
            "(" + ", ".join("NULL" if text is None else quote_literal(text) for text in row) + ")"
            for row in found.values(columns)
        )
        if not values:
            return "false"
        names, given = [f"c{at}" for at in range(len(columns))], fresh_name("__duckrun_given", snapshot.schema.names)
        same = " AND ".join(
            f"{quote_identifier(column)} IS NOT DISTINCT FROM CAST({given}.{name} AS {types[column]})"
            for column, name in zip(columns, names, strict=True)
        )
        return f"EXISTS (SELECT 1 FROM (VALUES {values}) AS {given}({', '.join(names)}) WHERE {same})"


# -- what DuckDB applies


def _applied(
    engine: SparkEngine,
    spec: RowSpec,
    frame: DataFrame | None,
    transaction: Transaction,
    driver: Driver | None,
    why: str | None = None,
) -> Commit:
    """The commit of a spec that DuckDB carries out, from a source that the workers wrote."""
    if driver is None:
        raise UnsupportedFeature(
            f"{spec.mode} on table {transaction.ref}: DuckDB applies it on the driver, which a session does: write by session.execute(). Nothing was written."
        )
    transaction.written_for = (engine.name, APPLIED if why is None else f"{APPLIED}, since {why}")
    chosen = driver()
    chosen.reach(transaction.lake)
    if frame is None:
        transaction.written_for = (engine.name, "DuckDB finds the rows")
        return chosen.execute(spec, None, transaction)  # type: ignore[return-value]
    earlier = _refused_early(engine, spec, transaction)
    if earlier is not None:
        return earlier
    frame, cast = _typed(spec, frame, transaction)
    lake = transaction.lake
    properties = file_properties(spec if isinstance(spec, Layout) else None, {})
    what = f"{spec.mode} on table {transaction.ref}"
    with (
        scratch(lake.storage) as folder,
        written(engine, lake.storage, frame, folder, what, properties=properties) as source,
    ):
        rows = chosen.read_files("parquet", f"{source.folder}/*.parquet", {})
        if cast:
            listed = [
                f"CAST({quote_identifier(c)} AS {cast[c]}) AS {quote_identifier(c)}"
                if c in cast
                else quote_identifier(c)
                for c in frame.columns
            ]
            rows = chosen.select(exp.select(*map(exp.var, listed)).from_(chosen.inlined(rows)))
        return chosen.execute(spec, rows, transaction)  # type: ignore[return-value]


def _refused_early(engine: SparkEngine, spec: RowSpec, transaction: Transaction) -> Commit | None:
    """The commit of a write that was made before; None where it is to be made. Raises what it would raise once its source is written."""

    def attempt(snapshot: Snapshot | None) -> Commit:
        transaction.check_fence(snapshot, spec)
        raise _NotWritten(snapshot)

    with suppress(_NotWritten):
        return transaction.run(
            attempt, mode=spec.mode, engine=engine.name, rerun=partial(rerun_of, spec), takes_back="all"
        )
    return None


def _typed(spec: RowSpec, frame: DataFrame, transaction: Transaction) -> tuple[DataFrame, dict[str, str]]:
    """The rows with a type for each column, that of the table's where it holds nothing but NULL; and the columns that are to be cast to a type of the
    table that Spark has not, from the one as which it reads that.
    """
    refuse_twins(frame.columns)
    form = transaction.lake.format
    untyped = holds_untyped(frame.schema)
    if not form.exists(transaction.ref) or (isinstance(spec, WriteSpec) and spec.mode == "overwrite"):
        if untyped:
            check_new_table(frame.schema)
        return frame, {}
    definition = form.snapshot(transaction.ref).own.definition
    schema = spark_schema(definition)
    if untyped:
        frame = taking_types(frame, schema)
        check_new_table(frame.schema)
    given = {field.name.lower(): field for field in frame.schema.fields}
    cast = {}
    for field in definition.fields:
        found = given.get(field["name"].lower())
        if found is not None and field["type"] in _CAST and found.dataType == schema[field["name"]].dataType:
            cast[found.name] = field["type"]
    return frame, cast


_CAST = ("UUID", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
