"""One write on DuckDB: fit the rows to the table, choose the writer, say why, commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from duckrun.engines.data_files import file_properties
from duckrun.engines.duckdb import by_delta_rs, change, merge
from duckrun.engines.duckdb.computed import Computed, gives_numbers, numbers_of
from duckrun.engines.duckdb.places import computed as computed_table
from duckrun.engines.duckdb.returning import give_back
from duckrun.engines.duckdb.rows_to_write import (
    Filled,
    differs,
    fitted,
    refuse_outside,
    stored_types,
    taking_types,
    types_of,
)
from duckrun.engines.duckdb.source import Rows, schema_of_types, select, spool
from duckrun.engines.duckdb.target import definition_of, target_of, written_anew
from duckrun.engines.duckdb.types import fit_all, refuse_variants_inside
from duckrun.engines.duckdb.writers import delta_rs, ducklake, staged
from duckrun.engines.duckdb.writers.reads import EVERYTHING, NOTHING
from duckrun.errors import (
    CommitConflict,
    InvalidConfig,
    SchemaMismatch,
    TableNotFound,
    UnsupportedFeature,
)
from duckrun.formats.commits import CommitRecord, NewCommit
from duckrun.formats.definitions import TableDefinition
from duckrun.run.transaction import Transaction
from duckrun.sql.names import quote_identifier, transpile
from duckrun.values.computed import NumberedBy
from duckrun.values.layout import Layout
from duckrun.values.rows import (
    BY_DELTA_RS,
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
from duckrun.values.snapshot import Snapshot, TableRef

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
        self._lacks_memory: str | None = None
        """Why delta_rs, where it is preferred, had too little memory for an attempt."""
        self.work: Any = None
        self.gone = 0
        """Rows that the attempt's transaction has taken back, of a format that ``transacts``."""
        self.numbering: Mapping[str, NumberedBy] = {}
        self.numbers: Mapping[str, int] = {}
        """How far identity columns have given numbers to the rows of this attempt."""

    def attempt(self, rows: Rows | None, cursor: duckdb.DuckDBPyConnection, snapshot: Snapshot | None) -> Commit:
        """One try, from the snapshot that the transaction read."""
        if not self.form.transacts:
            try:
                return self._attempt(rows, cursor, snapshot)
            except delta_rs.LacksMemory as error:
                if self.spec.writer == "delta_rs":
                    raise
                self._lacks_memory = str(error)
                return self._attempt(rows, cursor, snapshot)
        refuse_words(self.spec, self.transaction.ref)
        taken = self.transaction.taken_back
        if rows is not None and self._reads_again():
            rows = self.kept(rows)  # out of the transaction: what is on disk of a stream does not go with it
        # A query is computed before the take-back. Behind it DuckLake reads the table at an older version with the rows that were put back a
        # second time.
        before = nullcontext(rows) if rows is None or taken is None else self.read_once(rows)
        with before as rows, self.form.transaction(cursor, snapshot if taken is None else taken.newest) as self.work:
            if taken is not None:
                snapshot, self.gone = self.form.taken_back(self.work, taken)
            return self._attempt(rows, cursor, snapshot)

    def by_delta_rs(self, why_not: Callable[[], str | None]) -> bool:
        """True if delta_rs makes the data files. ``why_not`` says why it cannot, and None where it can.

        Raises InvalidConfig if the spec asks for delta_rs and it cannot. Where delta_rs is preferred, the commit says why not; so it does
        where it takes back an earlier attempt's, which a commit of delta_rs cannot.
        """
        if self.spec.writer not in BY_DELTA_RS:
            return False
        if (taken := self.transaction.taken_back) is not None and not taken.anew:
            self.transaction.remark = "not by delta_rs: the commit takes back what an earlier attempt wrote"
            return False
        why = self._lacks_memory or why_not()
        if self.spec.writer == "delta_rs":
            delta_rs.refuse(self.spec, self.transaction.ref, why)
        elif why is not None:
            self.transaction.remark = f"not by delta_rs: {why}"
        return why is None

    def _reads_again(self) -> bool:
        """True for a spec whose rows are read more than once, or by more than one attempt."""
        if not isinstance(self.spec, WriteSpec):
            return True
        return (
            self.spec.mode == "replace"
            or self.spec.schema_mode == "sync_all_columns"
            or self.transaction.returning is not None
        )

    def _attempt(self, rows: Rows | None, cursor: duckdb.DuckDBPyConnection, snapshot: Snapshot | None) -> Commit:
        spec, transaction = self.spec, self.transaction
        self.numbering, self.numbers, transaction.remark = {}, {}, ""
        if snapshot is not None and not self.is_anew:
            self.by_delta_rs(lambda: by_delta_rs.why_not_mode(spec))
        if snapshot is not None:
            self.form.refuse_unknown_features(snapshot)
            if rows is not None and getattr(spec, "schema_mode", "fail") != "sync_all_columns":
                refuse_variants_inside(snapshot.ref, snapshot.variants_inside)
        transaction.check_fence(snapshot, spec)
        if isinstance(spec, Layout):
            self.refuse_clustering(spec, snapshot)
        if isinstance(spec, DeleteSpec | UpdateSpec):
            if snapshot is None:
                raise TableNotFound(f"There is no table {transaction.ref} to {spec.mode} rows of.")
            return self._change(spec, snapshot, rows, cursor)
        assert rows is not None, "a write has a source"
        if snapshot is not None and not (isinstance(spec, WriteSpec) and spec.redefine):
            rows = taking_types(rows, types_of(snapshot, rows.cursor))
        if rows.one_shot and snapshot is not None and gives_numbers(snapshot):
            rows = self.kept(rows)  # each attempt numbers them anew
        if isinstance(spec, WriteSpec) and transaction.returning is not None:
            with self.read_once(rows) as kept:  # what is given back is what is written
                return self._write(spec, kept, snapshot)
        if isinstance(spec, WriteSpec):
            return self._write(spec, rows, snapshot)
        return self._merge(spec, rows, snapshot)

    def refuse_clustering(self, spec: Layout, snapshot: Snapshot | None) -> None:
        """Raise InvalidConfig for a write that only adds to a table, and asks for another clustering than it has."""
        if spec.cluster_by is None:
            return
        ref = self.transaction.ref
        if self.form.transacts and spec.cluster_by:
            raise UnsupportedFeature(
                f"Table {ref}: DuckLake has no clustering (cluster_by); sort_by keeps rows that are near in the same files. Nothing was written."
            )
        present = () if snapshot is None else tuple(".".join(path) for path in snapshot.cluster_by)
        asked = spec.cluster_by or ()
        adds = snapshot is not None and not (isinstance(spec, WriteSpec) and spec.mode == "overwrite")
        if adds and [name.lower() for name in present] != [name.lower() for name in asked]:
            raise InvalidConfig(
                f"Table {ref} is clustered by {', '.join(present) or 'nothing'}, not by {', '.join(asked) or 'nothing'}; mode overwrite changes "
                "that, or ALTER TABLE … CLUSTER BY."
            )

    def marks(self, snapshot: Snapshot) -> bool:
        """True if rows that leave the table are marked in its files, rather than the files written anew."""
        mode = self.spec.merge_mode
        return mode == "deletion_vectors" or (mode == "auto" and self.form.marks_rows(snapshot))

    def sql(self, text: str) -> str:
        """An expression of the spec in DuckDB's dialect, behind which more can stand."""
        return transpile(text, self.spec.dialect, "duckdb") + "\n" * ("--" in text)

    # -- whole rows

    def _write(self, spec: WriteSpec, rows: Rows, snapshot: Snapshot | None) -> Commit:
        transaction, mode = self.transaction, spec.mode
        if self.is_anew:
            return self._overwrite(replace(spec, mode="overwrite", predicate=None), rows, snapshot)
        if snapshot is not None and mode == "ignore":
            return transaction.nothing(snapshot, "the table exists already")
        if snapshot is not None and mode == "error":
            raise CommitConflict(
                f"Table {transaction.ref} exists already, at version {snapshot.version}; mode 'error' writes new tables only."
            )
        if snapshot is None or mode == "overwrite":
            return self._overwrite(spec, rows, snapshot)
        self.partitions(spec.partition_by, snapshot, whole=False)
        if spec.writer in BY_DELTA_RS and spec.schema_mode != "fail":
            rows = self.kept(rows)  # new columns come in a commit before, after which the attempt begins again
        snapshot = target_of(snapshot, rows, spec.schema_mode, self.form)
        rows = self.finished(rows, snapshot, spec.schema_mode, spec=spec)
        if mode == "replace":
            return change.replace(self, snapshot, rows, None if spec.predicate is None else self.sql(spec.predicate))
        if (earlier := transaction.compared_with) is not None:
            return self.compared(earlier, self.kept(rows), snapshot)
        give_back(transaction, rows.cursor, rows.sql)
        if self.form.transacts:
            self._refuse_second(rows)
            return ducklake.append(self, snapshot, rows, definition_of(snapshot), "rows are added")
        by_rows = transaction.taken_back is not None and transaction.taken_back.by_rows
        if written_anew(snapshot):
            self.by_delta_rs(lambda: "columns of the table go or change their type, so all of its rows are written")
            if by_rows:
                raise CommitConflict(
                    f"append to table {transaction.ref}: rows that an earlier attempt of the same work appended would have to go in the same commit, "
                    "which is not possible, as the table's columns go or change their type with it. Nothing was written; restore the table, then start a "
                    "new run."
                )
            return change.append(self, snapshot, rows)
        if self.by_delta_rs(lambda: by_delta_rs.why_not_write(self.form, transaction.ref, rows, snapshot, whole=False)):
            by_delta_rs.go_ahead(self, snapshot, rows)
            return delta_rs.write(transaction, snapshot, self.kept(rows), spec)
        files = self.staged(rows, snapshot.partition_columns, snapshot)
        return self.added(files, snapshot, "rows are added")

    def _overwrite(self, spec: WriteSpec, rows: Rows, snapshot: Snapshot | None) -> Commit:
        """All rows of a table, in place of those before."""
        ref = self.transaction.ref
        clusters = bool(spec.cluster_by) and spec.partition_by is None  # in place of partitions
        partition_by = () if clusters else self.partitions(spec.partition_by, snapshot, whole=True)
        stored = stored_types(self.form, rows.types)
        keys = partition_by
        partition_by = () if self.form.transacts else partition_by
        missing = [c for c in partition_by if c not in stored]
        if missing:
            raise SchemaMismatch(
                f"Table {ref} is partitioned by {', '.join(missing)}, which the data has not; it has {', '.join(rows.types)}."
            )
        computed = self._computed_too(spec, stored, snapshot, rows.cursor)
        schema = schema_of_types(stored, rows.cursor)
        if self.form.transacts:
            return self._overwrite_in_place(spec, rows, snapshot, stored, keys, computed)
        anew = snapshot is not None and (
            differs(stored, snapshot, rows.cursor) or partition_by != snapshot.partition_columns
        )
        own = self._why_own_definition(spec, schema, partition_by, snapshot, anew=anew)
        definition = self.definition(spec, schema, partition_by, snapshot, stored) if own else None
        filled: Filled = {name: (name if name in rows.types else None, kind) for name, kind in stored.items()}
        if computed is not None:
            self.number(computed, filled)
        rows = fitted(
            ref, rows, filled, partition_by, spec=spec, snapshot=snapshot, definition=definition, computed=computed
        )
        if self.by_delta_rs(lambda: own or by_delta_rs.why_not_write(self.form, ref, rows, snapshot, whole=True)):
            return delta_rs.write(
                self.transaction, snapshot, self.kept(rows), spec, partition_by=partition_by, anew=anew
            )
        if definition is None and (snapshot is None or anew or spec.table_properties or spec.description is not None):
            definition = self.definition(spec, schema, partition_by, snapshot, stored)
        files = self.staged(rows, partition_by, definition or snapshot)
        self.numbered(counted_rows(files))
        if self.numbers and snapshot is not None:
            definition = self.form.with_numbers(snapshot, definition, self.numbers)
        return self.all_rows(spec, files, snapshot, definition, "whole rows")

    def _computed_too(
        self, spec: WriteSpec, stored: dict[str, str], snapshot: Snapshot | None, cursor: duckdb.DuckDBPyConnection
    ) -> Computed | None:
        """How a table whose rows are all written anew computes values; ``stored`` gets the columns that the rows may lack for it."""
        if snapshot is None or spec.redefine:
            return None
        kinds = types_of(snapshot, cursor)
        own = Computed.of(self.form, self.transaction.ref, snapshot, kinds)
        there = {name.lower() for name in stored}
        stored |= {name: str(kinds[name]) for name in own.optional if name.lower() not in there}
        return own

    def _overwrite_in_place(
        self,
        spec: WriteSpec,
        rows: Rows,
        snapshot: Snapshot | None,
        stored: Mapping[str, str],
        keys: Sequence[str],
        computed: Computed | None,
    ) -> Commit:
        """The same by statements: what the table is changes where it has to, and all its rows."""
        fields = self.form.fields_of(schema_of_types(stored, rows.cursor), stored)
        asked = spec if spec.partition_by is not None else replace(spec, partition_by=None)
        definition = self.form.overwritten(asked, fields, keys, snapshot)
        filled: Filled = {name: (name if name in rows.types else None, kind) for name, kind in stored.items()}
        fit = fitted(
            self.transaction.ref, rows, filled, (), spec=spec, snapshot=None, definition=definition, computed=computed
        )
        self._refuse_second(rows)
        return ducklake.overwrite(self, spec, fit, snapshot, definition)

    def _refuse_second(self, rows: Rows) -> None:
        """A stream is read by the first attempt alone."""
        if rows.one_shot:
            self._refuse_second_reading(rows)
            self._spooled[rows.sql] = rows

    def _why_own_definition(
        self, spec: WriteSpec, schema: pa.Schema, partition_by: Sequence[str], snapshot: Snapshot | None, *, anew: bool
    ) -> str | None:
        """What delta_rs does not write of the definition of a table whose rows are all written anew; None where it writes all of it.
        ``anew``: a table that is there gets other columns or partitions.
        """
        if spec.merge_mode == "deletion_vectors":
            return "it writes no deletion vectors (merge_mode)"
        if spec.redefine:
            return "it gives a table that is there no other definition"
        if spec.constraints:
            return "it writes no constraints"
        if spec.sort_by:
            return "it stores no sort order (sort_by)"
        if spec.cluster_by or (spec.cluster_by is not None and snapshot is not None):
            return "it writes no clustering (cluster_by)"
        if own := sorted(name for name in spec.table_properties if not name.startswith("delta.")):
            return f"it writes none of the properties {', '.join(own)}"
        if snapshot is not None and (reason := self._why_not_in_place(spec, schema, snapshot, anew)) is not None:
            return reason
        if features := self.form.asked_features(spec.table_properties):
            return f"it does not turn on {', '.join(features)}"
        if _comments_anew(spec, schema.names, snapshot):
            return "it writes no comments of columns (column_comments)"
        if delta_rs.misspells(schema, partition_by):
            return delta_rs.MISSPELT
        return None

    def _why_not_in_place(self, spec: WriteSpec, schema: pa.Schema, snapshot: Snapshot, anew: bool) -> str | None:
        """What delta_rs would not keep of the definition of a table that is there."""
        if spec.table_properties:
            return "it drops the other properties of a table that is there, where it is given some"
        if spec.description not in (None, snapshot.description):
            return "it drops the description of a table that is there, where it is given another one"
        if not {path[0].lower() for path in snapshot.cluster_by} <= {name.lower() for name in schema.names}:
            return "the columns that the table is clustered by go"
        commented = {field.name.lower() for field in snapshot.schema if (field.metadata or {}).get(b"comment")}
        if anew and not commented.isdisjoint(name.lower() for name in schema.names):
            return "it drops the comments of columns where a table gets other columns or partitions"
        if self.form.constrained_anew(snapshot, spec):
            return "it keeps no defaults, constraints and computed columns"
        return None

    def definition(
        self,
        spec: WriteSpec,
        schema: pa.Schema,
        partition_by: Sequence[str],
        snapshot: Snapshot | None,
        stored: Mapping[str, str] | None = None,
    ) -> TableDefinition:
        return self.form.overwritten(spec, self.form.fields_of(schema, stored), partition_by, snapshot)

    def all_rows(
        self,
        spec: WriteSpec,
        files: Sequence[StagedFile],
        snapshot: Snapshot | None,
        definition: TableDefinition | None,
        reason: str,
    ) -> Commit:
        gone = () if snapshot is None else snapshot.files()
        rows = (counted_rows(files), 0, counted_rows(gone))
        anew = definition is not None and spec.redefine
        new = NewCommit(spec, definition, files, gone, rows, "staged", reason, anew=anew)
        return staged.commit(self.transaction, snapshot, new, EVERYTHING)

    def added(self, files: Sequence[StagedFile], snapshot: Snapshot, reason: str) -> Commit:
        """Rows beside those that the table has, in the place of those that an older attempt appended."""
        taken = self.transaction.taken_back
        gone = () if taken is None else taken.files
        rows = (counted_rows(files), 0, counted_rows(gone))
        self.numbered(rows[0])
        reason = f"{reason}; those of an earlier attempt go" if gone else reason
        new = NewCommit(
            self.spec, self.definition_of(snapshot), files, gone, rows, "staged", reason, blind=taken is None
        )
        return staged.commit(self.transaction, snapshot, new, NOTHING, fence=self.spec.read_version)

    def compared(self, earlier: CommitRecord, rows: Rows, snapshot: Snapshot) -> Commit:
        """The commit of an older attempt, if the rows are those that it added. Raises CommitConflict."""
        if not change.is_appended(self, snapshot, earlier, rows):
            self.transaction.refuse_other_rows(earlier, snapshot)
        return earlier.as_commit(self.transaction.ref).with_(replayed=True)

    @property
    def is_anew(self) -> bool:
        """True if an older attempt of the same work made the table: all of it is written anew."""
        taken = self.transaction.taken_back
        return taken is not None and taken.anew

    # -- a stream is read once, and an attempt may have to run again

    def staged(
        self, rows: Rows, partition_by: Sequence[str], table: TableDefinition | Snapshot | None
    ) -> tuple[StagedFile, ...]:
        """Files with these rows, made as the spec and the table say; of a stream, the same files for every attempt."""
        key = (rows.sql, *partition_by)
        if key not in self._staged:
            self._refuse_second_reading(rows)
            properties = file_properties(self.spec, {} if table is None else table.properties)
            self._staged[key] = staged.stage(
                rows,
                self.transaction.ref,
                partition_by,
                properties=properties,
                partitions=self.partitions_of(table),
                stored=() if table is None else self.form.stored_columns(table.schema),
            )
        return self._staged[key] if rows.one_shot else self._staged.pop(key)

    def partitions_of(self, table: TableDefinition | Snapshot | None) -> int:
        """How many partitions a table has, at most."""
        return len(table.files()) if isinstance(table, Snapshot) and table.partition_columns else 0

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
        with computed_table(rows.cursor, rows.sql) as name:
            yield Rows(rows.cursor, f"SELECT * FROM {name}", rows.types)

    def _refuse_second_reading(self, rows: Rows) -> None:
        if rows.one_shot and (self._staged or self._spooled):
            what = (
                "Another program committed to the lake of table {} while this {} ran"
                if self.form.transacts
                else "Table {} was changed by another writer while this {} ran: it has other columns, partitions or constraints now"
            )
            raise CommitConflict(
                f"{what.format(self.transaction.ref, self.spec.mode)}, and the source is a stream that has been read. Nothing was "
                "written; read again and repeat."
            )

    # -- merges and changes

    def _merge(self, spec: MergeSpec | DeleteInsertSpec, rows: Rows, snapshot: Snapshot | None) -> Commit:
        spec, rows = _keys_as_spelled(spec, rows, snapshot)
        absent = [key for key in spec.keys if key not in rows.types]
        if absent:
            raise InvalidConfig(
                f"Table {self.transaction.ref}: the key {', '.join(absent)} is not a column of the data, which has "
                f"{', '.join(rows.types)}."
            )
        if without_equals := [key for key in spec.keys if rows.types[key].id == "variant"]:
            raise InvalidConfig(
                f"Table {self.transaction.ref}: the key {', '.join(without_equals)} is VARIANT, and two of its values need not be comparable; "
                "name another key. Nothing was written."
            )
        if snapshot is not None:
            compared = spec.compared if isinstance(spec, MergeSpec) else ()
            unknown = [key for key in spec.keys if key not in snapshot.schema.names and key not in compared]
            if unknown:
                raise InvalidConfig(
                    f"Table {self.transaction.ref} has no key column {', '.join(unknown)}; it has "
                    f"{', '.join(snapshot.schema.names)}."
                )
        if snapshot is not None and not self.is_anew and isinstance(spec, MergeSpec):
            return merge.merge(self, spec, snapshot, self.kept(rows))
        with self.read_once(rows) as kept:
            if isinstance(spec, MergeSpec):
                merge.refuse_duplicate_keys(self.transaction.ref, kept, spec.keys)
            if snapshot is None or self.is_anew:
                return self._create_by_merge(spec, kept, snapshot)
            assert isinstance(spec, DeleteInsertSpec)
            return change.delete_insert(self, spec, snapshot, kept)

    def _create_by_merge(self, spec: MergeSpec | DeleteInsertSpec, rows: Rows, snapshot: Snapshot | None) -> Commit:
        """A merge into no table creates it of the rows that its insert clauses would insert."""
        sql = rows.sql
        if isinstance(spec, MergeSpec):
            if spec.within is not None:
                refuse_outside(self.transaction.ref, rows, self.sql(spec.within), spec.within)
            sql = merge.inserted_alone(spec, rows)
        created = WriteSpec(
            "error", within=spec.within, app=spec.app, dialect=spec.dialect, writer=spec.writer, **spec.layout
        )
        return self._write(created, select(rows.cursor, sql), snapshot)

    def _change(
        self, spec: DeleteSpec | UpdateSpec, snapshot: Snapshot, rows: Rows | None, cursor: duckdb.DuckDBPyConnection
    ) -> Commit:
        predicate = None if spec.predicate is None else self.sql(spec.predicate)
        rows = None if rows is None else self.kept(rows)
        if isinstance(spec, DeleteSpec):
            return change.delete(self, snapshot, cursor, predicate, rows)
        assigned = {column: self.sql(value) for column, value in spec.set.items()}
        unknown = [c for c in assigned if c not in snapshot.schema.names]
        if unknown:
            raise InvalidConfig(f"Table {self.transaction.ref} has no column {', '.join(unknown)} to update.")
        return change.update(self, snapshot, cursor, predicate, assigned, rows)

    # -- fitting

    def finished(
        self,
        rows: Rows,
        snapshot: Snapshot,
        schema_mode: SchemaMode = "fail",
        *,
        checked: bool = True,
        spec: WriteSpec | None = None,
        cast: Collection[str] = (),
        assigned: Collection[str] = (),
        aside: Mapping[str, Any] = MappingProxyType({}),
        computed: bool = False,
    ) -> Rows:
        """Rows fitted to an existing table, with its constraints checked as they stream; those of a source that is not what
        is written are not ``checked``. The columns in ``cast`` need only be castable to the table's, those ``assigned`` are cast as an INSERT
        casts them; those ``aside`` have these types and are not the table's. Columns that the table computes are, where the rows have not got them; ``computed``: what there was to compute is.
        """
        target = {**types_of(snapshot, rows.cursor), **aside}
        own = Computed.of(self.form, self.transaction.ref, snapshot, target)
        filled = fit_all(
            rows.types,
            target,
            schema_mode,
            cast=cast,
            assigned=assigned,
            native=self.form.native_types,
            optional=own.optional,
        )
        partition_by = () if self.form.transacts else snapshot.partition_columns
        if not checked:
            given = {name: by for name, by in filled.items() if by[0] is not None or name not in own.optional}
            return fitted(self.transaction.ref, rows, given, (), assigned=assigned)
        if not computed:
            self.number(own, filled)
        return fitted(self.transaction.ref, rows, filled, partition_by, spec=spec, snapshot=snapshot, computed=own)

    def number(self, own: Computed, filled: Filled) -> None:
        """Have the identity columns number the rows that come without them. Raises InvalidConfig where they may not bring their own."""
        for name in own.numbered:
            if name in filled and filled[name][0] is not None:
                own.refuse_given(name)
        self.numbering = {name: by for name, by in own.numbered.items() if name in filled and filled[name][0] is None}

    def numbered(self, rows: int | None) -> None:
        """So many rows have got numbers."""
        self.numbers = numbers_of(self.numbering, rows)

    def definition_of(self, snapshot: Snapshot) -> TableDefinition | None:
        """The definition to commit with rows that are written; None where it stays."""
        changed = definition_of(snapshot)
        return self.form.with_numbers(snapshot, changed, self.numbers) if self.numbers else changed

    def partitions(self, asked: Sequence[str] | None, snapshot: Snapshot | None, whole: bool) -> tuple[str, ...]:
        if snapshot is None:
            return tuple(asked or ())
        if asked is None or tuple(asked) == snapshot.partition_columns:
            return snapshot.partition_columns
        if self.form.transacts and not whole and snapshot.has_partitions(asked):
            return snapshot.partition_columns
        if whole:
            return tuple(asked)
        raise InvalidConfig(
            f"Table {self.transaction.ref} is partitioned by {', '.join(snapshot.partition_keys) or 'nothing'}, not by "
            f"{', '.join(asked) or 'nothing'}; only mode overwrite changes that."
        )


def refuse_words(spec: RowSpec, ref: TableRef) -> None:
    """Raise UnsupportedFeature for words that say how Delta's files are written."""
    if spec.writer != "auto":
        raise UnsupportedFeature(
            f"{spec.mode} on table {ref}: writer {spec.writer} writes Delta's files, and this is a DuckLake table, which writer ducklake writes: leave it out. Nothing was written."
        )


def _comments_anew(spec: WriteSpec, columns: Sequence[str], snapshot: Snapshot | None) -> bool:
    """True where the table, with these columns, has not the comments that the spec gives them."""
    if snapshot is None or not spec.column_comments or snapshot.schema.names != columns:
        return bool(spec.column_comments)
    present = {f.name.lower(): (f.metadata or {}).get(b"comment", b"").decode() for f in snapshot.schema}
    return any(present.get(name.lower()) != comment for name, comment in spec.column_comments.items())


def _keys_as_spelled(
    spec: MergeSpec | DeleteInsertSpec, rows: Rows, snapshot: Snapshot | None
) -> tuple[MergeSpec | DeleteInsertSpec, Rows]:
    """The keys as the table spells its columns, and the rows with these names: SQL does not tell letter cases apart."""
    owners = {name.lower(): name for name in (rows.types if snapshot is None else snapshot.schema.names)}
    compared = spec.compared if isinstance(spec, MergeSpec) else ()
    keys = tuple(key if key in compared else owners.get(key.lower(), key) for key in spec.keys)
    sources = {name.lower(): name for name in rows.types}
    renamed = {sources[key.lower()]: key for key in keys if sources.get(key.lower(), key) != key}
    if renamed:
        pairs = ", ".join(f"{quote_identifier(old)} AS {quote_identifier(new)}" for old, new in renamed.items())
        types = {renamed.get(name, name): kind for name, kind in rows.types.items()}
        rows = replace(rows, sql=f"SELECT * RENAME ({pairs}) FROM ({rows.sql})", types=types)
    return (spec if keys == spec.keys else replace(spec, keys=keys)), rows
