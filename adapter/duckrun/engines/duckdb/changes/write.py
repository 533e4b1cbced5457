"""A write on DuckDB: fit the rows to the table, and let the table's writer commit them."""

from __future__ import annotations

from dataclasses import replace

import duckdb

from duckrun.engines import decisions
from duckrun.engines.duckdb.changes import change, merge
from duckrun.engines.duckdb.rows.clauses import expression
from duckrun.engines.duckdb.rows.computed import Computed, gives_numbers
from duckrun.engines.duckdb.rows.fitted import finished, refuse_outside, stored_types, taking_types, types_of
from duckrun.engines.duckdb.rows.source import Rows
from duckrun.engines.duckdb.rows.target import target_of
from duckrun.engines.duckdb.rows.types import refuse_variants_inside
from duckrun.engines.duckdb.writers.file_tables import FileTableWriter
from duckrun.engines.duckdb.writers.statement_tables import StatementTableWriter
from duckrun.engines.duckdb.writers.table_writer import TableWriter, WholeRows
from duckrun.errors import InvalidConfig, TableNotFound
from duckrun.run.memory import Arbiter
from duckrun.run.transaction import Transaction
from duckrun.sql.quoting import quote_identifier
from duckrun.values.choices import BY_DELTA_RS
from duckrun.values.layout import Layout
from duckrun.values.rows import (
    Commit,
    DeleteInsertSpec,
    DeleteSpec,
    MemoryShares,
    MergeSpec,
    RowSpec,
    UpdateSpec,
    WriteSpec,
)
from duckrun.values.snapshot import Snapshot


class Write:
    """One spec applied to one table, over all attempts of its transaction.

    The role of the table's format decides the writer, once.
    """

    def __init__(self, spec: RowSpec, transaction: Transaction, arbiter: Arbiter, duckdb_limit: int) -> None:
        self.spec = spec
        self._transaction = transaction
        self._form = transaction.lake.format
        writer: type[FileTableWriter | StatementTableWriter] = (
            FileTableWriter if self._form.transactions is None else StatementTableWriter
        )
        self._writer: TableWriter = writer(spec, transaction, arbiter, duckdb_limit)
        self._streams = self._writer.streams

    @property
    def shares(self) -> MemoryShares:
        """Memory that the write may use."""
        return self._writer.shares

    def attempt(self, rows: Rows | None, cursor: duckdb.DuckDBPyConnection, snapshot: Snapshot | None) -> Commit:
        """Make one attempt, from the snapshot that the transaction read."""
        return self._writer.attempt(rows, cursor, snapshot, lambda rows, now: self._attempt(rows, cursor, now))

    def _attempt(self, rows: Rows | None, cursor: duckdb.DuckDBPyConnection, snapshot: Snapshot | None) -> Commit:
        spec, transaction = self.spec, self._transaction
        transaction.remark = ""
        if snapshot is not None:
            self._writer.check(snapshot)
            if rows is not None and getattr(spec, "schema_mode", "fail") != "sync_all_columns":
                refuse_variants_inside(snapshot.ref, snapshot.variants_inside)
        transaction.check_fence(snapshot, spec)
        refuse_clustering(spec, snapshot)
        if isinstance(spec, DeleteSpec | UpdateSpec):
            if snapshot is None:
                raise TableNotFound(f"There is no table {transaction.ref} to {spec.mode} rows of.")
            rows = None if rows is None else self._streams.kept(rows)
            if isinstance(spec, DeleteSpec):
                return change.delete(self._writer, spec, snapshot, cursor, rows)
            return change.update(self._writer, spec, snapshot, cursor, rows)
        assert rows is not None, "a write has a source"
        if snapshot is not None and not (isinstance(spec, WriteSpec) and spec.redefine):
            rows = taking_types(rows, types_of(snapshot))
        if rows.one_shot and snapshot is not None and gives_numbers(snapshot):
            rows = self._streams.kept(rows)  # each attempt assigns new numbers
        if isinstance(spec, WriteSpec) and transaction.returning is not None:
            # RETURNING must show the rows that are written, also of a volatile query.
            with self._streams.read_once(rows) as stable_rows:
                return self._write(spec, stable_rows, snapshot)
        if isinstance(spec, WriteSpec):
            return self._write(spec, rows, snapshot)
        return self._merge(spec, rows, snapshot)

    # -- whole rows

    def _write(self, spec: WriteSpec, rows: Rows, snapshot: Snapshot | None) -> Commit:
        transaction, mode = self._transaction, spec.mode
        if transaction.is_anew:
            return self._overwrite(replace(spec, mode="overwrite", predicate=None), rows, snapshot)
        if snapshot is not None and decisions.leaves_table(mode, snapshot):
            return transaction.nothing(snapshot, decisions.LEFT_AS_IT_IS)
        if snapshot is None or mode == "overwrite":
            return self._overwrite(spec, rows, snapshot)
        decisions.refuse_other_partitions(snapshot, spec.partition_by)
        if spec.writer in BY_DELTA_RS and spec.schema_mode != "fail":
            # delta_rs gets new columns from a commit of their own, after which the attempt
            # restarts.
            rows = self._streams.kept(rows)
        snapshot = target_of(snapshot, rows, spec.schema_mode, self._form)
        rows = finished(self._form, rows, snapshot, spec.schema_mode, spec=spec)
        if mode == "replace":
            predicate = None if spec.predicate is None else expression(spec.predicate, spec.dialect)
            return change.replace(self._writer, snapshot, rows, predicate)
        if (earlier := transaction.compared_with) is not None:
            return change.compared(transaction, earlier, self._streams.kept(rows), snapshot)
        change.give_back(transaction, rows.cursor, rows.sql)
        return self._writer.append(rows, snapshot)

    def _overwrite(self, spec: WriteSpec, rows: Rows, snapshot: Snapshot | None) -> Commit:
        """Create a table, or replace all rows of one."""
        partition_by = spec.partition_by or ()
        # A table is either partitioned or clustered.
        if snapshot is not None and spec.partition_by is None and not spec.cluster_by:
            partition_by = snapshot.partition_columns
        stored = stored_types(self._form, rows.types)
        computed = None
        if snapshot is not None and not spec.redefine:
            kinds, present = types_of(snapshot), {name.lower() for name in stored}
            computed = Computed.of(self._form, self._transaction.ref, snapshot, kinds)
            # The rows may lack these columns.
            stored |= {name: str(kinds[name]) for name in computed.optional if name.lower() not in present}
        whole = WholeRows(spec, rows, stored, partition_by, computed)
        return self._writer.write_all(whole, snapshot)

    def _merge(self, spec: MergeSpec | DeleteInsertSpec, rows: Rows, snapshot: Snapshot | None) -> Commit:
        spec, rows = _keys_as_spelled(spec, rows, snapshot)
        compared = spec.compared if isinstance(spec, MergeSpec) else ()
        table = None if snapshot is None else snapshot.schema.names
        decisions.refuse_missing_keys(self._transaction.ref, spec.keys, rows.types, table, compared)
        if without_equals := [key for key in spec.keys if rows.types[key].id == "variant"]:
            raise InvalidConfig(
                f"Table {self._transaction.ref}: the key {', '.join(without_equals)} is VARIANT, and two of its "
                "values need not be comparable; name another key"
            )
        if snapshot is not None and not self._transaction.is_anew and isinstance(spec, MergeSpec):
            return merge.merge(self._writer, spec, snapshot, self._streams.kept(rows))
        with self._streams.read_once(rows) as stable_rows:
            if isinstance(spec, MergeSpec):
                merge.refuse_duplicate_keys(self._transaction.ref, stable_rows, spec.keys)
            if snapshot is None or self._transaction.is_anew:
                return self._create_by_merge(spec, stable_rows, snapshot)
            assert isinstance(spec, DeleteInsertSpec)
            return change.delete_insert(self._writer, spec, snapshot, stable_rows)

    def _create_by_merge(self, spec: MergeSpec | DeleteInsertSpec, rows: Rows, snapshot: Snapshot | None) -> Commit:
        """Create the table from the rows that the merge's insert clauses would insert."""
        if isinstance(spec, MergeSpec):
            if spec.within is not None:
                refuse_outside(self._transaction.ref, rows, expression(spec.within, spec.dialect), spec.within)
            rows = merge.inserted_alone(spec, rows)
        created = WriteSpec(
            "error", within=spec.within, app=spec.app, dialect=spec.dialect, writer=spec.writer, **spec.layout
        )
        return self._write(created, rows, snapshot)


def refuse_clustering(spec: RowSpec, snapshot: Snapshot | None) -> None:
    """Raise InvalidConfig if a write other than an overwrite asks for another clustering."""
    if snapshot is None or not isinstance(spec, Layout) or (isinstance(spec, WriteSpec) and spec.mode == "overwrite"):
        return
    decisions.refuse_other_clustering(snapshot, spec.cluster_by)


def _keys_as_spelled(
    spec: MergeSpec | DeleteInsertSpec, rows: Rows, snapshot: Snapshot | None
) -> tuple[MergeSpec | DeleteInsertSpec, Rows]:
    """Return the keys as the table spells its columns, and the rows with these names."""
    # SQL ignores letter case, and the lookups after this do not.
    compared = spec.compared if isinstance(spec, MergeSpec) else ()
    spellings = decisions.spelled(spec.keys, rows.types if snapshot is None else snapshot.schema.names)
    keys = tuple(key if key in compared else name for key, name in zip(spec.keys, spellings, strict=True))
    sources = {name.lower(): name for name in rows.types}
    renamed = {sources[key.lower()]: key for key in keys if sources.get(key.lower(), key) != key}
    if renamed:
        pairs = ", ".join(f"{quote_identifier(old)} AS {quote_identifier(new)}" for old, new in renamed.items())
        types = {renamed.get(name, name): kind for name, kind in rows.types.items()}
        rows = replace(rows, sql=f"SELECT * RENAME ({pairs}) FROM ({rows.sql})", types=types)
    return (spec if keys == spec.keys else replace(spec, keys=keys)), rows
