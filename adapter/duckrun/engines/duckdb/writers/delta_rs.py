"""The delta_rs writer: DuckDB computes, delta_rs writes the stream. Full writes, appends, merges by key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from deltalake import ColumnProperties, DeltaTable, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from duckrun.engines.data_files import file_properties
from duckrun.engines.duckdb.source import Rows, arrow_reader
from duckrun.errors import InvalidConfig
from duckrun.formats.commits import CommitTaken
from duckrun.formats.delta.data_paths import respelled
from duckrun.formats.delta.delta import DeltaFormat
from duckrun.formats.delta.log import commit_properties, has_landed, new_txn_id, refused
from duckrun.formats.delta.statistics import EXACT_DIGITS
from duckrun.run.memory import limit_for_merge
from duckrun.run.transaction import Transaction
from duckrun.sql.names import quote_identifier
from duckrun.values.columns import holds
from duckrun.values.layout import CODECS, codec_of
from duckrun.values.rows import Commit, MemoryShares, MergeClause, RowSpec, ScanFile, WriteSpec, counted_rows
from duckrun.values.snapshot import Snapshot, TableRef

MISSPELT = "delta_rs spells decimals and floating numbers among partition values so that not every reader finds them"
_OF_ITS_SOURCE = 2.5
"""How many times its source's rows in Arrow a merge may hold before it spills: it holds them all, and looks them up by a hash
table. Measured with deltalake 1.6 for 100,000 to 2 million rows: 1.3 to 2.2 times, whatever the size of the table."""
RESPELLED = "the log spells paths otherwise than delta_rs, whose removes would leave those files in the table"


class LacksMemory(InvalidConfig):
    """A merge by delta_rs needs more memory than it may hold. The table is as it was."""


def misspells(schema: pa.Schema, partition_by: Sequence[str]) -> bool:
    """True for partition columns whose values delta_rs writes wrongly into the log: -1.10 as -1.-10, 1e300 with all of its digits."""
    kinds = [schema.field(column).type for column in partition_by]
    return any(pa.types.is_decimal(kind) or pa.types.is_floating(kind) for kind in kinds)


def why_not_these(files: Iterable[ScanFile]) -> str | None:
    """Why delta_rs may not remove some files of a table; None where it may."""
    return RESPELLED if respelled(files) else None


def refuse(spec: RowSpec, ref: TableRef, why: str | None) -> None:
    """Raise InvalidConfig for a write that is asked of delta_rs, and that it does not do as it should be done."""
    if why is not None:
        raise InvalidConfig(
            f"{spec.mode} on table {ref} cannot be done by writer delta_rs: {why}. Nothing was written; leave out writer, or say staged."
        )


def write(
    transaction: Transaction,
    snapshot: Snapshot | None,
    rows: Rows,
    spec: WriteSpec,
    *,
    partition_by: Sequence[str] | None = None,
    anew: bool = False,
    why: str = "asked for",
) -> Commit:
    """Stream rows into new files and commit them. Returns the commit; raises CommitTaken if its version was taken.

    With ``partition_by`` they are all rows of the table, ``anew`` where that has other columns or partitions than before; with None they are
    added. ``why`` is the reason in the commit.
    """
    ref, form = transaction.ref, _form(transaction)
    reader = arrow_reader(rows)
    txn_id, version = new_txn_id(), 0 if snapshot is None else snapshot.version + 1
    gone = None if snapshot is None or partition_by is None else counted_rows(snapshot.files())
    common: dict[str, Any] = {
        "target_file_size": spec.target_file_size,
        "writer_properties": _files(reader.schema, snapshot, spec),
        "commit_properties": commit_properties(
            transaction.app, transaction.note(writer="delta_rs", reason=why, rows_deleted=gone), txn_id
        ),
    }
    defined: dict[str, Any] = {
        "configuration": dict(spec.table_properties) or None,
        "description": spec.description,
        "partition_by": list(partition_by or ()) or None,
    }
    try:
        if snapshot is None:
            write_deltalake(
                ref.url,
                reader,
                mode="error",
                storage_options=transaction.lake.storage.delta_options(),
                **defined,
                **common,
            )
        elif partition_by is None:
            write_deltalake(_handle(transaction, snapshot), reader, mode="append", **common)
        else:
            if anew:
                defined |= {"partition_by": list(partition_by), "schema_mode": "overwrite"}
            write_deltalake(_handle(transaction, snapshot), reader, mode="overwrite", **defined, **common)
    except (DeltaError, OSError) as error:
        if not has_landed(form, ref, version, txn_id, error):
            if isinstance(error, CommitFailedError):
                raise refused(transaction.ref, error) from error
            if snapshot is None and isinstance(error, DeltaError) and form.exists(ref):
                raise CommitTaken(str(error)) from error
            form.check_landed(snapshot, None, txn_id)
            raise
    form.check_landed(snapshot, version, txn_id)
    return transaction.committed(version, writer="delta_rs", reason=why)


def _handle(transaction: Transaction, snapshot: Snapshot) -> DeltaTable:
    return _form(transaction).take_handle(snapshot)


def _form(transaction: Transaction) -> DeltaFormat:
    form = transaction.lake.format
    assert isinstance(form, DeltaFormat), "delta_rs writes Delta tables"
    return form


def _files(schema: pa.Schema, snapshot: Snapshot | None, spec: RowSpec) -> WriterProperties:
    """How the Parquet files are laid out.

    Row groups of DuckDB's own size: with the default of 1,048,576 rows a merge holds whole files before it writes them
    (four threads merging a million rows of 190 bytes each peaked 7 % higher), and a write of 4 million rows peaked at
    487 MB instead of 336 MB.

    No statistics for floating columns: Parquet's leave NaN out, and DuckDB, for which NaN is the highest value, takes
    them for bounds of every row and loses the rows with NaN (``x > 5``, joins on x).
    https://github.com/duckdb/duckdb/issues/25521

    None either for numbers of more digits than a double has: delta_rs makes doubles of them for the log, and every reader that
    skips files by those bounds loses the rows beyond them.

    deltalake names no column inside of another. Where one of those has no bounds, none inside of any column has.
    """
    present = {} if snapshot is None else snapshot.properties
    columns = {field.name: field.type for field in [*(snapshot.schema if snapshot is not None else ()), *schema]}
    bare = {name for name, kind in columns.items() if not pa.types.is_nested(kind)}
    unbound = {name for name in bare if _has_no_bounds(columns[name])}
    none, usual = ColumnProperties(statistics_enabled="NONE"), ColumnProperties(statistics_enabled="PAGE")
    inside = any(holds(kind, _has_no_bounds) for name, kind in columns.items() if name not in bare)
    named = dict.fromkeys(sorted(bare - unbound), usual) if inside else dict.fromkeys(sorted(unbound), none)
    return WriterProperties(
        compression=(codec_of(file_properties(spec, present)) or CODECS[0]).upper(),  # type: ignore[arg-type]  # a name of theirs
        max_row_group_size=122_880,
        default_column_properties=none if inside else None,
        column_properties=named or None,
    )


def _has_no_bounds(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or (pa.types.is_decimal(kind) and kind.precision > EXACT_DIGITS)


def merge(
    transaction: Transaction,
    snapshot: Snapshot,
    rows: Rows,
    spec: RowSpec,
    *,
    on: str,
    clauses: Sequence[MergeClause],
    shares: MemoryShares,
    **counts: Any,
) -> int:
    """Merge finished rows. Returns the version; raises CommitTaken if it was taken.

    ``on`` and the conditions of the ``clauses``, which take the source's ``columns`` as they come, are in delta_rs's SQL. It always gets a ``max_spill_size``: without it a merge takes eight times the memory for the same time.
    """
    form, table, txn_id = _form(transaction), _handle(transaction, snapshot), new_txn_id()
    version = snapshot.version + 1
    reader, read = arrow_reader(rows), _Read()
    builder = table.merge(
        pa.RecordBatchReader.from_batches(reader.schema, read.of(reader)),
        predicate=on,
        source_alias="source",
        target_alias="target",
        max_spill_size=shares.spill,
        streamed_exec=True,
        writer_properties=_files(snapshot.schema, snapshot, spec),
        commit_properties=commit_properties(transaction.app, transaction.note(**counts), txn_id),
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
        builder.execute()
        version = table.version()
    except (DeltaError, OSError) as error:
        if not has_landed(form, transaction.ref, version, txn_id, error):
            if isinstance(error, CommitFailedError):
                raise refused(transaction.ref, error) from error
            if "Resources exhausted" in str(error):
                raise LacksMemory(_too_small(transaction.ref, rows, read, shares)) from error
            form.check_landed(snapshot, None, txn_id)
            raise
    form.check_landed(snapshot, version, txn_id)
    return version


class _Read:
    """How much of a source has been read: rows, and their bytes in Arrow."""

    def __init__(self) -> None:
        self.rows = self.bytes = 0

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.rows += batch.num_rows
            self.bytes += batch.nbytes
            yield batch


def _too_small(ref: TableRef, rows: Rows, read: _Read, shares: MemoryShares) -> str:
    """The error of a merge that delta_rs gave up, with the least limit for it."""
    count = rows.cursor.sql(f"SELECT count(*) FROM ({rows.sql})").fetchall()[0][0]
    held = int(_OF_ITS_SOURCE * read.bytes / max(read.rows, 1) * count)
    least = -(-limit_for_merge(shares, max(held, shares.spill * 5 // 4)) // 10**6)
    return (
        f"Table {ref}: delta_rs holds the {count} rows of the source while it merges, and cannot with {shares.spill / 1e6:.0f} MB. Set "
        f"memory_limit to {least}MB, or leave writer to auto, which spills to disk; the table is as it was."
    )
