"""One write on DuckDB: fit the rows to the table, choose the writer, say why, commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from duckrun.engines.duckdb import change, merge
from duckrun.engines.duckdb.places import computed
from duckrun.engines.duckdb.rows_to_write import (
    Filled,
    check_features,
    differs,
    empty,
    fitted,
    refuse_outside,
    taking_types,
    types_of,
)
from duckrun.engines.duckdb.source import Rows, arrow_schema, spool
from duckrun.engines.duckdb.target import definition_of, target_of, written_anew
from duckrun.engines.duckdb.types import fit_all, store_all
from duckrun.engines.duckdb.writers import delta_rs, staged
from duckrun.engines.duckdb.writers.reads import EVERYTHING, NOTHING
from duckrun.errors import (
    CommitConflict,
    InvalidConfig,
    SchemaMismatch,
    TableNotFound,
    UnsupportedFeature,
)
from duckrun.formats.format import NewCommit, TableDefinition
from duckrun.run.transaction import Transaction
from duckrun.sql.names import transpile
from duckrun.values.layout import Layout
from duckrun.values.names import writable_by_delta_rs
from duckrun.values.rows import (
    Commit,
    DeleteInsertSpec,
    DeleteSpec,
    MemoryShares,
    MergeSpec,
    RowSpec,
    SchemaMode,
    StagedFile,
    UpdateSpec,
    WriteSpec,
    counted_rows,
)
from duckrun.values.snapshot import Snapshot, TableRef, schema_from_text
from duckrun.values.tables import CLUSTERING

if TYPE_CHECKING:
    from duckrun.engines.duckdb.engine import DuckDBEngine


class Job:
    """One spec on one table."""

    def __init__(self, engine: DuckDBEngine, spec: RowSpec, transaction: Transaction) -> None:
        self.engine = engine
        self.spec = spec
        self.transaction = transaction
        self.form = transaction.lake.format
        self.shares: MemoryShares = engine.arbiter.write(engine.duckdb_limit)
        self._staged: dict[tuple[str, ...], tuple[StagedFile, ...]] = {}
        self._spooled: dict[str, Rows] = {}

    def attempt(self, rows: Rows | None, cursor: duckdb.DuckDBPyConnection, snapshot: Snapshot | None) -> Commit:
        """One try, from the snapshot that the transaction read."""
        spec, transaction = self.spec, self.transaction
        if snapshot is not None:
            check_features(snapshot)
        transaction.check_fence(snapshot, spec.read_version)
        if isinstance(spec, Layout) and spec.cluster_by:
            raise UnsupportedFeature(f"{spec.mode} on table {transaction.ref}: {CLUSTERING}. Nothing was written.")
        if isinstance(spec, WriteSpec):
            assert rows is not None, "a write has a source"
            return self._write(spec, self._typed(rows, None if spec.redefine else snapshot), snapshot)
        if isinstance(spec, MergeSpec | DeleteInsertSpec):
            assert rows is not None, "a merge has a source"
            return self._merge(spec, self._typed(rows, snapshot), snapshot)
        if snapshot is None:
            raise TableNotFound(f"There is no table {transaction.ref} to {spec.mode} rows of.")
        return self._change(spec, snapshot, rows, cursor)

    def _typed(self, rows: Rows, snapshot: Snapshot | None) -> Rows:
        return rows if snapshot is None else taking_types(rows, types_of(snapshot, rows.cursor))

    # -- whole rows

    def _write(self, spec: WriteSpec, rows: Rows, snapshot: Snapshot | None) -> Commit:
        transaction, mode = self.transaction, spec.mode
        if snapshot is not None and mode == "ignore":
            return transaction.nothing(snapshot, "the table exists already")
        if snapshot is not None and mode == "error":
            raise CommitConflict(
                f"Table {transaction.ref} exists already, at version {snapshot.version}; mode 'error' writes new tables only."
            )
        whole = snapshot is None or mode == "overwrite"
        partition_by = self._partitions(spec.partition_by, snapshot, whole)
        if whole:
            stored = store_all(rows.types)
            filled: dict[str, tuple[str | None, str]] = {name: (name, kind) for name, kind in stored.items()}
        else:
            assert snapshot is not None
            snapshot = self.target(snapshot, rows, spec.schema_mode)
            filled, _ = fit_all(rows.types, types_of(snapshot, rows.cursor), spec.schema_mode)
        missing = [c for c in partition_by if c not in filled]
        if missing:
            raise SchemaMismatch(
                f"Table {transaction.ref} is partitioned by {', '.join(missing)}, which the data has not; "
                f"it has {', '.join(rows.types)}."
            )
        definition = self._own_definition(spec, rows, filled, partition_by, snapshot) if whole else None
        final = fitted(
            self.transaction.ref, rows, filled, partition_by, spec=spec, snapshot=snapshot, definition=definition
        )
        if definition is not None:
            return self._defined(spec, final, snapshot, definition)
        if mode == "replace" and snapshot is not None:
            return self._replace(spec, final, snapshot)
        if snapshot is not None and not whole and written_anew(snapshot):
            return change.append(self, snapshot, final)
        new_schema = snapshot is not None and whole and differs(final, snapshot)
        return self._full(spec, final, snapshot, partition_by, new_schema, whole)

    def _full(
        self,
        spec: WriteSpec,
        rows: Rows,
        snapshot: Snapshot | None,
        partition_by: Sequence[str],
        new_schema: bool,
        whole: bool,
    ) -> Commit:
        repartitioned = snapshot is not None and tuple(partition_by) != snapshot.partition_columns
        if rows.one_shot and (repartitioned or (whole and self.form.special_properties(spec.table_properties))):
            rows = self.kept(rows)
        reason = _why_staged(self.transaction.ref, rows, snapshot, whole)
        if reason is not None:
            files = self.staged(rows, partition_by, spec.target_file_size)
            if snapshot is not None and not whole:
                return self._added(files, snapshot, reason)
            anew = (
                snapshot is None or new_schema or repartitioned or spec.table_properties or spec.description is not None
            )
            definition = self._definition(spec, arrow_schema(rows), partition_by, snapshot) if anew else None
            return self._all(spec, files, snapshot, definition, reason)
        reason = "whole rows of a source that can be read again"
        version = delta_rs.write(
            self.transaction,
            snapshot,
            rows,
            overwrite=whole,
            new_schema=new_schema,
            partition_by=partition_by,
            properties=spec.table_properties,
            description=spec.description,
            target_file_size=spec.target_file_size,
            writer="delta_rs",
            reason=reason,
        )
        return self.transaction.committed(version, writer="delta_rs", reason=reason)

    def _own_definition(
        self, spec: WriteSpec, rows: Rows, filled: Filled, partition_by: Sequence[str], snapshot: Snapshot | None
    ) -> TableDefinition | None:
        """The definition of a table whose rows are all written anew, where delta_rs does not write it: another one,
        properties of our own, those that need a table feature, constraints, comments of columns. None where it does.
        """
        own = any(not name.startswith("delta.") for name in spec.table_properties)
        if snapshot is not None and self.form.constrained_anew(snapshot, spec):
            own = True
        if snapshot is None and not self.form.special_properties(spec.table_properties):
            own = own or self.form.asks_features(spec.table_properties)
        own = own or _comments_anew(spec, list(filled), snapshot)
        schema = empty(filled, rows.cursor)
        if not (own or spec.redefine or spec.constraints or delta_rs.misspells(schema, partition_by)):
            return None
        return self._definition(spec, schema, partition_by, snapshot)

    def _definition(
        self, spec: WriteSpec, schema: pa.Schema, partition_by: Sequence[str], snapshot: Snapshot | None
    ) -> TableDefinition:
        return self.form.overwritten(spec, self.form.fields_of(schema), partition_by, snapshot)

    def _defined(self, spec: WriteSpec, rows: Rows, snapshot: Snapshot | None, definition: TableDefinition) -> Commit:
        """All rows of a table and its definition."""
        files = self.staged(rows, definition.partition_columns, spec.target_file_size)
        return self._all(spec, files, snapshot, definition, "rows and definition of the table in one commit")

    def _all(
        self,
        spec: WriteSpec,
        files: Sequence[StagedFile],
        snapshot: Snapshot | None,
        definition: TableDefinition | None,
        reason: str,
    ) -> Commit:
        """All rows of a table, in place of those before."""
        gone = () if snapshot is None else snapshot.files()
        rows = (counted_rows(files), 0, counted_rows(gone))
        new = NewCommit(
            spec, definition, files, gone, rows, "staged", reason, anew=definition is not None and spec.redefine
        )
        return staged.commit(self.transaction, snapshot, new, EVERYTHING)

    def _added(self, files: Sequence[StagedFile], snapshot: Snapshot, reason: str) -> Commit:
        """Rows beside those that the table has."""
        rows = (counted_rows(files), 0, 0)
        new = NewCommit(self.spec, definition_of(snapshot), files, (), rows, "staged", reason, blind=True)
        return staged.commit(self.transaction, snapshot, new, NOTHING, fence=self.spec.read_version)

    def _replace(self, spec: WriteSpec, rows: Rows, snapshot: Snapshot) -> Commit:
        reason = "the files of the replaced rows and the new ones change places in one commit"
        predicate = None if spec.predicate is None else transpile(spec.predicate, spec.dialect, "duckdb")
        return change.replace(self, snapshot, rows, predicate, reason)

    # -- a stream is read once, and an attempt may have to run again

    def staged(
        self, rows: Rows, partition_by: Sequence[str], target_file_size: int | None = None
    ) -> tuple[StagedFile, ...]:
        """Files with these rows; of a stream, the same files for every attempt."""
        key = (rows.sql, *partition_by)
        if key not in self._staged:
            self._refuse_second_reading(rows)
            self._staged[key] = staged.stage(
                rows, self.transaction.ref, partition_by, target_file_size=target_file_size
            )
        return self._staged[key] if rows.one_shot else self._staged.pop(key)

    def kept(self, rows: Rows) -> Rows:
        """Rows that can be read again; a stream is put on disk by the first attempt."""
        if not rows.one_shot:
            return rows
        if rows.sql not in self._spooled:
            self._refuse_second_reading(rows)
            self._spooled[rows.sql] = spool(rows)
        return self._spooled[rows.sql]

    @contextmanager
    def read_once(self, rows: Rows) -> Iterator[Rows]:
        """Rows that can be read again and stay the same, also where the source is a query that gives others each time."""
        if rows.one_shot:
            yield self.kept(rows)
            return
        with computed(rows.cursor, rows.sql) as name:
            yield Rows(rows.cursor, f"SELECT * FROM {name}", rows.types)

    def _refuse_second_reading(self, rows: Rows) -> None:
        if rows.one_shot and (self._staged or self._spooled):
            raise CommitConflict(
                f"Table {self.transaction.ref} was changed by another writer while this {self.spec.mode} ran: it has other "
                "columns, partitions or constraints now, and the source is a stream that has been read. Nothing was "
                "written; read again and repeat."
            )

    # -- files staged by N processes, committed by one

    def stage(
        self, rows: Rows, snapshot: Snapshot | None, partition_by: Sequence[str] | None
    ) -> tuple[StagedFile, ...]:
        """Write a part of the rows of a commit to come; no reader sees it before commit_staged()."""
        columns = self._partitions(partition_by, snapshot, whole=snapshot is None)
        if snapshot is not None:
            rows, _ = self.finished(self._typed(rows, snapshot), snapshot)
        else:
            filled: dict[str, tuple[str | None, str]] = {n: (n, k) for n, k in store_all(rows.types).items()}
            rows = fitted(self.transaction.ref, rows, filled, columns)
        return staged.stage(rows, self.transaction.ref, columns)

    def commit_staged(self, files: Sequence[StagedFile]) -> Commit:
        """Commit the files that stage() wrote, here or in other processes, as one append or overwrite."""
        spec = self.spec
        if not isinstance(spec, WriteSpec) or spec.mode not in ("append", "overwrite", "error"):
            raise InvalidConfig(f"Staged files are committed by append, overwrite or error, not by {spec.mode}.")
        if spec.constraints:
            raise InvalidConfig(
                f"Table {self.transaction.ref}: constraints are checked as rows are written, not of files."
            )
        schemas = {file.schema for file in files}
        if len(schemas) != 1:
            raise SchemaMismatch(
                f"Table {self.transaction.ref}: the staged files have {len(schemas)} different schemas."
            )
        schema = schema_from_text(schemas.pop())
        partition_by = tuple(files[0].partition_values)
        reason = "files staged beforehand"

        def attempt(snapshot: Snapshot | None) -> Commit:
            if snapshot is not None:
                check_features(snapshot)
                if spec.mode == "error":
                    raise CommitConflict(
                        f"Table {self.transaction.ref} exists already; mode 'error' writes new tables only."
                    )
                if set(partition_by) != set(snapshot.partition_columns):
                    raise SchemaMismatch(
                        f"Table {self.transaction.ref} is partitioned by {snapshot.partition_columns}, not {partition_by}."
                    )
                if spec.mode == "append" and set(schema.names) != set(snapshot.schema.names):
                    raise SchemaMismatch(
                        f"Table {self.transaction.ref} has the columns {snapshot.schema.names}, not {schema.names}."
                    )
            if snapshot is not None and spec.mode == "append":
                return self._added(files, snapshot, reason)
            definition = self._definition(spec, schema, partition_by, snapshot)
            return self._all(spec, files, snapshot, definition, reason)

        return self.transaction.run(attempt, mode=spec.mode, engine="duckdb")

    # -- merges and changes

    def _merge(self, spec: MergeSpec | DeleteInsertSpec, rows: Rows, snapshot: Snapshot | None) -> Commit:
        absent = [key for key in spec.keys if key not in rows.types]
        if absent:
            raise InvalidConfig(
                f"Table {self.transaction.ref}: the key {', '.join(absent)} is not a column of the data, which has "
                f"{', '.join(rows.types)}."
            )
        if snapshot is not None:
            unknown = [key for key in spec.keys if key not in snapshot.schema.names]
            if unknown:
                raise InvalidConfig(
                    f"Table {self.transaction.ref} has no key column {', '.join(unknown)}; it has "
                    f"{', '.join(snapshot.schema.names)}."
                )
        with self.read_once(rows) as kept:
            if isinstance(spec, MergeSpec):
                merge.refuse_duplicate_keys(self.transaction.ref, kept, spec.keys)
            if snapshot is None:
                return self._create_by_merge(spec, kept)
            with self.engine.arbiter.merge(self.engine.duckdb_limit) as self.shares:
                if isinstance(spec, DeleteInsertSpec):
                    return change.delete_insert(self, spec, snapshot, kept)
                return merge.merge(self, spec, snapshot, kept)

    def _create_by_merge(self, spec: MergeSpec | DeleteInsertSpec, rows: Rows) -> Commit:
        """A merge into no table creates it of the rows that its insert clauses would insert."""
        sql = rows.sql
        if isinstance(spec, MergeSpec):
            if spec.within is not None:
                within = transpile(spec.within, spec.dialect, "duckdb")
                refuse_outside(self.transaction.ref, rows, within, spec.within)
            sql = merge.inserted_alone(spec, rows)
        created = WriteSpec("error", within=spec.within, app=spec.app, dialect=spec.dialect, **spec.layout)
        relation = rows.cursor.sql(sql)
        return self._write(
            created, Rows(rows.cursor, sql, dict(zip(relation.columns, relation.types, strict=True))), None
        )

    def _change(
        self, spec: DeleteSpec | UpdateSpec, snapshot: Snapshot, rows: Rows | None, cursor: duckdb.DuckDBPyConnection
    ) -> Commit:
        predicate = None if spec.predicate is None else transpile(spec.predicate, spec.dialect, "duckdb")
        rows = None if rows is None else self.kept(rows)
        if isinstance(spec, DeleteSpec):
            return change.delete(self, snapshot, cursor, predicate, rows)
        assigned = {column: transpile(value, spec.dialect, "duckdb") for column, value in spec.set.items()}
        unknown = [c for c in assigned if c not in snapshot.schema.names]
        if unknown:
            raise InvalidConfig(f"Table {self.transaction.ref} has no column {', '.join(unknown)} to update.")
        return change.update(self, snapshot, cursor, predicate, assigned, rows)

    # -- fitting

    def target(self, snapshot: Snapshot, rows: Rows, mode: SchemaMode) -> Snapshot:
        """The table as it will be: with the columns of the rows, as far as the schema mode takes them."""
        return target_of(snapshot, rows, mode, self.form)

    def finished(
        self, rows: Rows, snapshot: Snapshot, *, schema_mode: Any = "fail", checked: bool = True
    ) -> tuple[Rows, list[str]]:
        """Rows fitted to an existing table, with its constraints checked as they stream; those of a source that is not what
        is written are not ``checked``.
        """
        filled, new = fit_all(rows.types, types_of(snapshot, rows.cursor), schema_mode)
        if not checked:
            return fitted(self.transaction.ref, rows, filled, ()), new
        return fitted(self.transaction.ref, rows, filled, snapshot.partition_columns, snapshot=snapshot), new

    def _partitions(self, asked: Sequence[str] | None, snapshot: Snapshot | None, whole: bool) -> tuple[str, ...]:
        if snapshot is None:
            return tuple(asked or ())
        if asked is None or tuple(asked) == snapshot.partition_columns:
            return snapshot.partition_columns
        if whole:
            return tuple(asked)
        raise InvalidConfig(
            f"Table {self.transaction.ref} is partitioned by {', '.join(snapshot.partition_columns) or 'nothing'}, not by "
            f"{', '.join(asked) or 'nothing'}; only mode overwrite changes that."
        )


def _comments_anew(spec: WriteSpec, columns: Sequence[str], snapshot: Snapshot | None) -> bool:
    """True where the table, with these columns, has not the comments that the spec gives them."""
    if snapshot is None or not spec.column_comments or snapshot.schema.names != columns:
        return bool(spec.column_comments)
    present = {f.name.lower(): (f.metadata or {}).get(b"comment", b"").decode() for f in snapshot.schema}
    return any(present.get(name.lower()) != comment for name, comment in spec.column_comments.items())


def _why_staged(ref: TableRef, rows: Rows, snapshot: Snapshot | None, whole: bool) -> str | None:
    """Why delta_rs does not write all rows of a table, or more of them; None where it does."""
    if snapshot is not None and not whole and definition_of(snapshot) is not None:
        return "columns are added, where delta_rs would let the others be NULL"
    if rows.one_shot:
        return "a stream can be read once, staged files can be committed again"
    if snapshot is not None and delta_rs.misspells(snapshot.schema, snapshot.partition_columns):
        return delta_rs.MISSPELT
    if snapshot is not None and whole and (reason := delta_rs.why_not_these(snapshot.files())) is not None:
        return reason
    if not writable_by_delta_rs(ref.location):
        return "delta_rs writes no rows below a folder with one of [ ] ^ |"
    return None
