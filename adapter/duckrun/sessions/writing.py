"""What a session writes: one spec on one table, changes by key, files that are staged and committed later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from duckrun.engines.duckdb.source import SQL
from duckrun.engines.duckdb.writers.reads import matching, meets_commit
from duckrun.engines.engine import Engine
from duckrun.engines.frame import LazyRows
from duckrun.engines.tabular.values import is_of_spark
from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.formats.commits import CommitRecord
from duckrun.frame import Frame
from duckrun.lake.lake import TableRef
from duckrun.run.attempts import attempts
from duckrun.run.moved_cursor import move_cursor
from duckrun.run.pins import NOTHING, Reads, together, unnoted
from duckrun.run.transaction import Transaction
from duckrun.run.transactions import whole_on
from duckrun.sessions.apply import apply_changes
from duckrun.sessions.together import Together
from duckrun.values.applying import ApplySpec, ScdType
from duckrun.values.cursors import CursorTransaction
from duckrun.values.options import given, names_in
from duckrun.values.rows import (
    AppTransaction,
    Commit,
    EngineName,
    ReadSpec,
    Returning,
    RowSpec,
    SchemaMode,
    Spec,
    StagedFile,
    WriteSpec,
)
from duckrun.values.snapshot import Snapshot
from duckrun.values.tables import CommitSpec, MaintenanceResult, MaintenanceSpec, TableSpec


class Writing(Together):
    """The part of a Session that commits to tables."""

    if TYPE_CHECKING:  # what a Session reads by

        def sql(self, text: str, *, dialect: str = "duckdb") -> Any: ...
        def scan(self, name: str | TableRef, spec: ReadSpec | None = None) -> Frame: ...
        def snapshot(self, name: str | TableRef, spec: ReadSpec | None = None) -> Snapshot: ...

    @overload
    def execute(
        self,
        name: str | TableRef,
        spec: RowSpec | ApplySpec | CommitSpec,
        source: Any | None = None,
        *,
        engine: EngineName | None = None,
        reads: Reads = NOTHING,
        returning: Returning | None = None,
    ) -> Commit: ...

    @overload
    def execute(
        self, name: str | TableRef, spec: MaintenanceSpec, *, engine: EngineName | None = None
    ) -> MaintenanceResult: ...

    def execute(
        self,
        name: str | TableRef,
        spec: RowSpec | ApplySpec | TableSpec,
        source: Any | None = None,
        *,
        engine: EngineName | None = None,
        reads: Reads = NOTHING,
        returning: Returning | None = None,
    ) -> Commit | MaintenanceResult:
        """Carry out one spec on a table, as one commit.

        ``source`` is a pyarrow Table or RecordBatchReader, a pandas or polars frame (lazy too), a DuckDB relation, a
        Frame, a Spark DataFrame, or duckrun.SQL. A Spark DataFrame is written by Spark whatever the session's engine.
        ``reads`` is what the spec was computed from, beside the source; ``returning`` gets the rows that DuckDB writes, or deletes.

        Rows that were computed from the table itself never go on top of another writer's change of its rows: duckrun.SQL
        is computed again from what is there then, for any other source SourceOutdated (a CommitConflict) is raised.
        """
        with self._inside():
            self.enter_statement(writes=True)
            return self._executed(name, spec, source, engine=engine, reads=reads, returning=returning)

    def _executed(
        self,
        name: str | TableRef,
        spec: RowSpec | ApplySpec | TableSpec,
        source: Any | None,
        *,
        engine: EngineName | None,
        reads: Reads,
        returning: Returning | None,
    ) -> Commit | MaintenanceResult:
        ref = self.ref(name, to_write=True)
        if isinstance(spec, ApplySpec):
            return apply_changes(self, ref, spec, source, engine=engine)
        transaction = self._transaction(ref, given(spec, Spec, "spec", "execute()"))
        transaction.returning = returning
        chosen = self.engine_to_write(engine or self.engine_name, source, ref)
        if self._together is not None:
            if transaction.lake is not self._together.lake:
                raise UnsupportedFeature(
                    f"{ref} is of lake {transaction.lake.root}, and the transaction that is open is of lake {self._together.lake.root}: no commit spans two lakes. "
                    "Write to it before or after. Nothing was written."
                )
            whole_on(transaction.lake, chosen.name)
        chosen.reach(transaction.lake)
        if chosen.name == "duckdb" and not transaction.lake.format.transacts and spec.writer == "auto":
            spec = replace(spec, writer=self.writer)

        for attempt in self.attempts(ref) if isinstance(source, SQL) else (nullcontext(),):
            with attempt:
                rows = self.computed(source, chosen)
                transaction.reads = None if isinstance(spec, TableSpec) else together(reads, self.reads_of(rows))
                driver = (lambda: self.embedded) if transaction.lake.format.transacts else None
                return chosen.execute(spec, rows, transaction, driver)
        raise AssertionError("the last attempt returns or raises")

    def apply_changes(
        self,
        target: str | TableRef,
        changes: Any,
        *,
        keys: str | Sequence[str],
        sequence_by: str | None = None,
        scd: ScdType = 1,
        deletes: bool | str = True,
        columns: Sequence[str] | None = None,
        schema_mode: SchemaMode = "fail",
        app: AppTransaction | None = None,
        engine: EngineName | None = None,
    ) -> Commit:
        """Apply changes of rows to a table by key, in the order of a column, as one commit; late ones find their place.

        With ``scd`` 1 the table holds the last state of each key, with 2 all of its states, with the columns ``valid_from`` and
        ``valid_to`` (half-open, NULL while a row holds) of the type of ``sequence_by``; without that, for ``scd`` 1, all changes are newer than what is there. ``changes`` are an answer of ``Table.changes()`` or
        any rows; ``deletes`` is a condition on them (SQL), or True for those whose ``_change_type`` says so. ``columns`` are those to
        store, by default all but the ones that change queries add. A table that is not there is made.

        Raises SchemaMismatch for a key or a sequence that is NULL, or several rows of a key at one point (with the count and three of them),
        InvalidConfig for columns that are not there. The table is then as it was.
        """
        given(target, (str, TableRef), "target", "apply_changes()")
        asked = ApplySpec(
            names_in([keys], "keys", "apply_changes()"),
            None if sequence_by is None else given(sequence_by, str, "sequence_by", "apply_changes()"),
            scd,
            given(deletes, (bool, str), "deletes", "apply_changes()"),
            None if columns is None else names_in([columns], "columns", "apply_changes()"),
            schema_mode=schema_mode,
            app=app,
        )
        return apply_changes(self, self.ref(target), asked, changes, engine=engine)

    def attempts(self, ref: TableRef) -> Iterator[AbstractContextManager[None]]:
        """Blocks in which the rows of a write to a table are computed and committed (see run.attempts).

        There is one only where something else of the run has read the table before: the work may follow from that.
        """
        once = self._pins is not None and self.log.read(ref.location) is not None
        return attempts(ref, self.pins, once=once)

    def _transaction(self, ref: TableRef, spec: Spec | None = None) -> Transaction:
        lake = self.lakes.of(ref)
        app, words = (None, None) if spec is None else (spec.app, spec.commit_metadata)
        return Transaction(lake, ref, app=app, pins=self._pins, log=self._log, sees=self._commit_meets, metadata=words)

    def _commit_meets(self, transaction: Transaction, other: CommitRecord, predicate: str) -> bool:
        """Whether a commit of another writer's changed rows for which a predicate (DuckDB's SQL) is true; in doubt it did."""
        return meets_commit(transaction, other, matching(self.embedded.cursor(), predicate))

    def reads_of(self, source: Any) -> Reads:
        """What a source was computed from, as far as it can be known."""
        if isinstance(source, LazyRows):
            return source.reads
        found = together(*(engine.reads_of(source) for engine in self._engines.values()))
        newest = {}
        for at, read in found.newest.items():  # the text of a relation says no id
            if (table_id := self.log.id_seen(at, read.version)) is not None:
                newest[at] = replace(read, table_id=table_id)
        return Reads(newest, found.pins)

    def move_cursor(self, name: str | TableRef, app: CursorTransaction, *, engine: EngineName | None = None) -> Commit:
        """Commit a consumer's offsets to a table with no row: it has read on, and nothing was to be written."""
        ref = self.ref(name)
        if (engine or self.engine_name) == "spark" or app.instead is not None:
            none = self.lakes.snapshot(ref).schema.empty_table()
            return self.execute(ref, WriteSpec("append", app=app, existing=True), none, engine=engine)
        return move_cursor(self._transaction(ref, WriteSpec("append", app=app)))

    def stage(
        self, name: str | TableRef, source: Any, *, partition_by: Sequence[str] | None = None
    ) -> tuple[StagedFile, ...]:
        """Write a part of a commit to come: files that no reader sees before commit_staged(). They survive pickle and
        JSON, so that N processes stage and one commits. DuckDB writes them, whatever the session's engine.
        """
        transaction = self._transaction(self.ref(name))
        return self.embedded.stage(self.computed(source, self.embedded), transaction, partition_by)

    def commit_staged(self, name: str | TableRef, files: Sequence[StagedFile], spec: WriteSpec) -> Commit:
        """Make staged files visible in one commit (append, overwrite, or error for a new table)."""
        return self.embedded.commit_staged(files, spec, self._transaction(self.ref(name), spec))

    def engine_to_write(self, name: EngineName, source: Any, ref: TableRef) -> Engine:
        """The engine of that name, or Spark for what only Spark writes. Raises InvalidConfig."""
        of_spark = is_of_spark(source)
        if of_spark and self._spark is None and "spark" not in self._engines and name != "spark":
            raise InvalidConfig(
                f"Table {ref}: a Spark DataFrame is written by Spark, and this session has none; "
                "pass spark=… to connect(), or a SparkResource to the IO manager."
            )
        return self.engine_of("spark" if of_spark else name)

    def computed(self, source: Any, engine: Engine) -> Any:
        """The rows of duckrun.SQL, by an engine, as a Frame; any other source as it is."""
        if not isinstance(source, SQL):
            return source
        own = copy(self)
        own.engine_name = engine.name  # type: ignore[assignment]
        found = own.sql(source.text, dialect=source.dialect or "duckdb")
        if not isinstance(found, Frame):
            raise InvalidConfig(f"duckrun.SQL is a query whose rows are written, not {source.text[:60]!r}.")
        return found

    def schema_of(self, source: Any, *, engine: EngineName | None = None) -> pa.Schema:
        """The Arrow schema with which a value would be stored; a stream is not consumed."""
        chosen = self.engine_of("spark" if is_of_spark(source) else engine or self.engine_name)
        if isinstance(source, SQL):
            with unnoted():
                return self.computed(source, chosen).schema
        return chosen.schema_of(source)
