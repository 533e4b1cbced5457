"""Commits by delta_rs, which writes the data files itself: full writes, appends, merges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from deltalake import ColumnProperties, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from duckrun.formats.commits import CommitTaken
from duckrun.formats.delta.definition.statistics import EXACT_DIGITS
from duckrun.formats.delta.log.entries import append_only, commit_properties, new_txn_id
from duckrun.formats.delta.log.refusals import DeltalakeRefusal
from duckrun.formats.delta.versions.tables import TableAccess
from duckrun.formats.logs import DeltaRsCommit, LacksMemory
from duckrun.libraries import pa
from duckrun.sql.quoting import quote_identifier
from duckrun.sql.raising import panicked
from duckrun.values.columns import holds
from duckrun.values.layout import ROW_GROUP
from duckrun.values.rows import MergeClause, WriteSpec
from duckrun.values.snapshot import Snapshot


class DeltaRs:
    """Writer of such commits; see DeltaRsWriter."""

    def __init__(self, tables: TableAccess) -> None:
        self._tables = tables

    def write(
        self, commit: DeltaRsCommit, spec: WriteSpec, partition_by: Sequence[str] | None = None, *, redefines: bool
    ) -> int:
        """See DeltaRsWriter."""
        ref, snapshot, rows, txn_id = commit.ref, commit.snapshot, commit.rows, new_txn_id()
        common: dict[str, Any] = {
            "target_file_size": spec.target_file_size,
            "writer_properties": _files(rows.schema, snapshot, commit.codec),
            "commit_properties": commit_properties(commit.app, commit.note, txn_id),
        }
        defined: dict[str, Any] = {
            "configuration": dict(spec.table_properties) or None,
            "description": spec.description,
            "partition_by": list(partition_by or ()) or None,
        }
        with self._landed(commit, txn_id):
            if snapshot is None:
                options = self._tables.storage.delta_options()
                write_deltalake(ref.url, rows, mode="error", storage_options=options, **defined, **common)
            elif partition_by is None:
                write_deltalake(self._tables.take_handle(snapshot), rows, mode="append", **common)
            else:
                if redefines:
                    defined |= {"partition_by": list(partition_by), "schema_mode": "overwrite"}
                write_deltalake(self._tables.take_handle(snapshot), rows, mode="overwrite", **defined, **common)
        return commit.version

    def merge(self, commit: DeltaRsCommit, clauses: Sequence[MergeClause], *, on: str, spill: int) -> int:
        """See DeltaRsWriter."""
        snapshot, txn_id = commit.snapshot, new_txn_id()
        assert snapshot is not None, "only a table that is there has rows to merge with"
        # Without max_spill_size, a merge takes eight times the memory for the same time.
        builder = self._tables.take_handle(snapshot).merge(
            commit.rows,
            predicate=on,
            source_alias="source",
            target_alias="target",
            max_spill_size=spill,
            streamed_exec=True,
            writer_properties=_files(snapshot.schema, snapshot, commit.codec),
            commit_properties=commit_properties(commit.app, commit.note, txn_id),
        )
        for clause in clauses:
            columns = {quote_identifier(c): f"source.{quote_identifier(c)}" for c in clause.columns or ()}
            if clause.kind == "matched_delete":
                builder = builder.when_matched_delete(clause.condition)
            elif clause.kind == "matched_update":
                builder = builder.when_matched_update(columns, clause.condition)
            else:
                builder = builder.when_not_matched_insert(columns, clause.condition)
        try:
            with self._landed(commit, txn_id):
                builder.execute()
        except DeltaError as error:
            if DeltalakeRefusal.LACKS_MEMORY.is_of(error):
                raise LacksMemory(str(error)) from error
            raise
        return commit.version

    @contextmanager
    def _landed(self, commit: DeltaRsCommit, txn_id: str) -> Iterator[None]:
        """Translate the errors of a commit in the block, and refuse one to a dropped table."""
        try:
            yield
        except BaseException as error:  # a panic of delta_rs is no Exception, and may follow the commit
            if not (isinstance(error, DeltaError | OSError) or panicked(error)):
                raise
            if not self._tables.has_landed(commit.ref, commit.version, txn_id, error):
                if isinstance(error, CommitFailedError):
                    refused = DeltalakeRefusal.APPEND_ONLY.is_of(error)
                    raise append_only(commit.ref) if refused else CommitTaken(str(error)) from error
                if commit.snapshot is None and isinstance(error, DeltaError) and self._tables.exists(commit.ref):
                    raise CommitTaken(str(error)) from error
                self._tables.check_landed(commit.snapshot, None, txn_id)
                raise
        self._tables.check_landed(commit.snapshot, commit.version, txn_id)


def _files(schema: pa.Schema, snapshot: Snapshot | None, codec: str) -> WriterProperties:
    """Return the layout of the Parquet files."""
    # Floating columns get no statistics. Parquet's leave NaN out. DuckDB orders NaN above every
    # value, takes them for bounds of all rows, and loses the rows with NaN (``x > 5``, joins on x).
    # https://github.com/duckdb/duckdb/issues/25521
    columns = {field.name: field.type for field in [*(snapshot.schema if snapshot is not None else ()), *schema]}
    # Decimals with more digits than a double get none either. delta_rs converts them to doubles for
    # the log, and readers that skip files by those bounds lose the rows beyond them.
    bare = {name for name, kind in columns.items() if not pa.types.is_nested(kind)}
    unbound = {name for name in bare if _has_no_bounds(columns[name])}
    none, usual = ColumnProperties(statistics_enabled="NONE"), ColumnProperties(statistics_enabled="PAGE")
    # deltalake cannot name a column inside another. If one such column gets no bounds, none of them
    # gets any.
    inside = any(holds(kind, _has_no_bounds) for name, kind in columns.items() if name not in bare)
    named = dict.fromkeys(sorted(bare - unbound), usual) if inside else dict.fromkeys(sorted(unbound), none)
    # Row groups have DuckDB's own size. With the default of 1,048,576 rows, a merge holds whole
    # files before it writes them. Four threads merging a million rows of 190 bytes each peaked 7 %
    # higher. A write of 4 million rows peaked at 487 MB instead of 336 MB.
    return WriterProperties(
        # A codec's name in upper case is one of the literals that deltalake accepts.
        compression=codec.upper(),  # type: ignore[arg-type]
        max_row_group_size=ROW_GROUP,
        default_column_properties=none if inside else None,
        column_properties=named or None,
    )


def _has_no_bounds(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or (pa.types.is_decimal(kind) and kind.precision > EXACT_DIGITS))
