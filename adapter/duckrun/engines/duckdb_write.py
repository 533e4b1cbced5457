"""One write on DuckDB: fit the rows to the table, choose the writer, say why, commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import duckdb

from duckrun.engines import duckdb_merge, duckdb_rewrite
from duckrun.engines.duckdb_fit import Filled, check_features, contained, differs, empty, fitted, types_of
from duckrun.engines.duckdb_source import Rows, arrow_schema, spool, unspool
from duckrun.engines.duckdb_target import definition_of, target_of, written_anew
from duckrun.engines.duckdb_types import fit_all, store_all
from duckrun.engines.writers import delta_rs, staged
from duckrun.errors import (
    CommitConflict,
    InvalidConfig,
    SchemaMismatch,
    TableNotFound,
    UnsupportedFeature,
)
from duckrun.formats.definition import CLUSTERING, Definition, constrained_anew, fields_of, overwritten
from duckrun.specs import (
    Commit,
    DeleteInsertSpec,
    DeleteSpec,
    MemoryShares,
    MergeSpec,
    SchemaMode,
    Spec,
    StagedFile,
    UpdateSpec,
    WriteSpec,
)
from duckrun.sql import transpile
from duckrun.table import Snapshot, schema_from_text
from duckrun.transaction import Transaction

if TYPE_CHECKING:
    from duckrun.engines.duckdb import DuckDBEngine


class Job:
    """One spec on one table."""

    def __init__(self, engine: DuckDBEngine, spec: Spec, transaction: Transaction) -> None:
        self.engine = engine
        self.spec = spec
        self.transaction = transaction
        self.shares: MemoryShares = engine.arbiter.write(engine.duckdb_limit)
        self._staged: dict[tuple[str, ...], tuple[StagedFile, ...]] = {}
        self._spooled: dict[str, Rows] = {}

    def run(self, rows: Rows | None, cursor: duckdb.DuckDBPyConnection) -> Commit:
        spec, transaction = self.spec, self.transaction

        def attempt(snapshot: Snapshot | None) -> Commit:
            if snapshot is not None:
                check_features(snapshot)
            transaction.check_fence(snapshot, getattr(spec, "read_version", None))
            if getattr(spec, "cluster_by", None):
                raise UnsupportedFeature(f"{spec.mode} on table {transaction.ref}: {CLUSTERING}. Nothing was written.")
            if isinstance(spec, WriteSpec):
                assert rows is not None, "a write has a source"
                return self._write(spec, rows, snapshot)
            if isinstance(spec, MergeSpec | DeleteInsertSpec):
                assert rows is not None, "a merge has a source"
                return self._merge(spec, rows, snapshot)
            if snapshot is None:
                raise TableNotFound(f"There is no table {transaction.ref} to {spec.mode} rows of.")
            return self._change(spec, snapshot, rows, cursor)

        if rows is not None and not isinstance(spec, DeleteSpec | UpdateSpec) and spec.within is not None:
            rows = contained(rows, transpile(spec.within, spec.dialect, "duckdb"), spec.within)
        if rows is not None and rows.one_shot and not isinstance(spec, WriteSpec):
            rows = spool(rows)
        commit = transaction.run(attempt, mode=spec.mode, engine="duckdb")
        return commit if commit.replayed else commit.with_(memory=self.shares)

    # -- whole rows

    def _write(self, spec: WriteSpec, rows: Rows, snapshot: Snapshot | None) -> Commit:
        transaction, mode = self.transaction, spec.mode
        if snapshot is not None and mode == "ignore":
            return self.nothing(snapshot, "the table exists already")
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
        definition = self._definition(spec, rows, filled, partition_by, snapshot) if whole else None
        final = fitted(
            self.transaction.ref, rows, filled, partition_by, spec=spec, snapshot=snapshot, definition=definition
        )
        if definition is not None:
            return self._defined(spec, final, snapshot, definition)
        if mode == "replace" and snapshot is not None:
            return self._replace(spec, final, snapshot)
        if snapshot is not None and not whole and written_anew(snapshot):
            return duckdb_rewrite.append(self, snapshot, final)
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
        if rows.one_shot and repartitioned:
            rows = self.kept(rows)
        definition = None if whole or snapshot is None else definition_of(snapshot)
        if rows.one_shot or definition is not None:
            reason = "a stream can be read once, staged files can be committed again"
            if definition is not None:
                reason = "columns are added, where delta_rs would let the others be NULL"
            files = self.staged(rows, partition_by, spec.target_file_size)
            version = staged.commit(
                self.transaction,
                snapshot,
                files,
                schema=arrow_schema(rows) if snapshot is None or whole else snapshot.schema,
                partition_by=partition_by,
                properties=spec.table_properties,
                description=spec.description,
                overwrite=whole and snapshot is not None,
                definition=definition,
                writer="staged",
                reason=reason,
                blind=not whole and spec.mode == "append",
            )
            return self.done(version, "staged", reason)
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
        return self.done(version, "delta_rs", reason)

    def _definition(
        self, spec: WriteSpec, rows: Rows, filled: Filled, partition_by: Sequence[str], snapshot: Snapshot | None
    ) -> Definition | None:
        """The definition of a table whose rows are all written anew, where delta_rs does not write it: another one,
        properties of our own, constraints. None where it does.
        """
        own = any(not name.startswith("delta.") for name in spec.table_properties)
        if snapshot is not None and constrained_anew(snapshot.properties, snapshot.schema, spec):
            own = True
        if not (own or spec.redefine or spec.constraints):
            return None
        before = None if snapshot is None else self.transaction.lake.format.definition(snapshot)
        return overwritten(spec, fields_of(empty(filled, rows.cursor)), tuple(partition_by), before)

    def _defined(self, spec: WriteSpec, rows: Rows, snapshot: Snapshot | None, definition: Definition) -> Commit:
        """All rows of a table and its definition."""
        reason = "rows and definition of the table in one commit"
        version = staged.commit(
            self.transaction,
            snapshot,
            self.staged(rows, definition.partition_columns, spec.target_file_size),
            () if snapshot is None else snapshot.files(),
            schema=arrow_schema(rows),
            definition=definition,
            operation="CREATE TABLE AS SELECT" if snapshot is None else "CREATE OR REPLACE TABLE AS SELECT",
            writer="staged",
            reason=reason,
        )
        return self.done(version, "staged", reason)

    def _replace(self, spec: WriteSpec, rows: Rows, snapshot: Snapshot) -> Commit:
        reason = "the files of the replaced rows and the new ones change places in one commit"
        predicate = None if spec.predicate is None else transpile(spec.predicate, spec.dialect, "duckdb")
        return duckdb_rewrite.replace(self, snapshot, rows, predicate, reason)

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
            rows, _ = self.finished(rows, snapshot)
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
            overwrite = spec.mode == "overwrite" and snapshot is not None
            definition: Definition | None = None
            if snapshot is not None and overwrite and constrained_anew(snapshot.properties, snapshot.schema, spec):
                before = self.transaction.lake.format.definition(snapshot)
                definition = overwritten(spec, fields_of(schema), partition_by, before)
            version = staged.commit(
                self.transaction,
                snapshot,
                files,
                snapshot.files() if snapshot is not None and definition is not None else (),
                schema=schema if snapshot is None or overwrite else snapshot.schema,
                partition_by=partition_by,
                properties=spec.table_properties,
                description=spec.description,
                overwrite=overwrite,
                definition=definition,
                writer="staged",
                reason=reason,
                blind=spec.mode == "append",
            )
            return self.done(version, "staged", reason)

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
        spooled = spool(rows)
        try:
            if isinstance(spec, MergeSpec):
                duckdb_merge.refuse_duplicate_keys(self.transaction.ref, spooled, spec.keys)
            if snapshot is None:
                return self._create_by_merge(spec, spooled)
            with self.engine.arbiter.merge(self.engine.duckdb_limit) as self.shares:
                if isinstance(spec, DeleteInsertSpec):
                    return duckdb_rewrite.delete_insert(self, spec, snapshot, spooled)
                return duckdb_merge.merge(self, spec, snapshot, spooled)
        finally:
            unspool(spooled)

    def _create_by_merge(self, spec: MergeSpec | DeleteInsertSpec, rows: Rows) -> Commit:
        """A merge into no table creates it of the rows that its insert clauses would insert."""
        sql = rows.sql
        if isinstance(spec, MergeSpec):
            sql = duckdb_merge.inserted_alone(spec, rows)
        created = WriteSpec(
            "error",
            partition_by=spec.partition_by,
            sort_by=spec.sort_by,
            table_properties=spec.table_properties,
            app=spec.app,
        )
        relation = rows.cursor.sql(sql)
        return self._write(
            created, Rows(rows.cursor, sql, dict(zip(relation.columns, relation.types, strict=True))), None
        )

    def _change(
        self, spec: DeleteSpec | UpdateSpec, snapshot: Snapshot, rows: Rows | None, cursor: duckdb.DuckDBPyConnection
    ) -> Commit:
        predicate = None if spec.predicate is None else transpile(spec.predicate, spec.dialect, "duckdb")
        if isinstance(spec, DeleteSpec):
            if rows is not None:
                return duckdb_rewrite.delete_matched(self, snapshot, rows, predicate)
            return duckdb_rewrite.delete(self, snapshot, cursor, predicate)
        assigned = {column: transpile(value, spec.dialect, "duckdb") for column, value in spec.set.items()}
        unknown = [c for c in assigned if c not in snapshot.schema.names]
        if unknown:
            raise InvalidConfig(f"Table {self.transaction.ref} has no column {', '.join(unknown)} to update.")
        if rows is not None:
            return duckdb_rewrite.update_matched(self, snapshot, rows, predicate, assigned)
        return duckdb_rewrite.update(self, snapshot, cursor, predicate, assigned)

    # -- fitting

    def target(self, snapshot: Snapshot, rows: Rows, mode: SchemaMode) -> Snapshot:
        """The table as it will be: with the columns of the rows, as far as the schema mode takes them."""
        return target_of(snapshot, rows, mode, self.transaction.lake.format)

    def finished(self, rows: Rows, snapshot: Snapshot, *, schema_mode: Any = "fail") -> tuple[Rows, list[str]]:
        """Rows fitted to an existing table, with its constraints checked as they stream."""
        filled, new = fit_all(rows.types, types_of(snapshot, rows.cursor), schema_mode)
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

    # -- results

    def nothing(self, snapshot: Snapshot, reason: str) -> Commit:
        """No row was concerned: no commit was made."""
        ref = self.transaction.ref
        return Commit(
            str(ref), ref.location, snapshot.version, self.spec.mode, "duckdb", "none", reason,
            rows_inserted=0, rows_updated=0, rows_deleted=0, files_added=0, files_removed=0, bytes_added=0,
        )  # fmt: skip

    def done(self, version: int, writer: str, reason: str) -> Commit:
        """What the commit of that version did."""
        return self.transaction.lake.format.commit_at(
            self.transaction.ref, version, mode=self.spec.mode, engine="duckdb", writer=writer, reason=reason
        )
