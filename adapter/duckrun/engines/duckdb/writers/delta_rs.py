"""Writer delta_rs: DuckDB computes rows, delta_rs writes the stream.

It does full writes, appends, and merges by key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from duckrun.engines.data_files import file_properties
from duckrun.engines.duckdb.rows.source import Rows, arrow_reader
from duckrun.formats.format import logs_of
from duckrun.formats.logs import DeltaRsCommit, LacksMemory
from duckrun.libraries import pa
from duckrun.run.memory import limit_for_merge
from duckrun.run.transaction import Transaction
from duckrun.values.layout import CODECS, codec_of
from duckrun.values.rows import Commit, MemoryShares, MergeClause, RowSpec, WriteSpec, counted_rows
from duckrun.values.snapshot import Snapshot, TableRef

MISSPELT = "delta_rs spells decimals and floating numbers among partition values so that not every reader finds them"
_REASON = "asked for"
_MARGIN = 1.1
"""Factor of the limit that an error names, as rows that were not read may be longer."""
_OF_ITS_SOURCE = 2.5
"""Memory of a merge before it spills, as a multiple of its source in Arrow.

A merge holds all source rows in a hash table. Measured with deltalake 1.6 for 100,000 to 2 million
rows: 1.3 to 2.2 times, for any size of the table.
"""
RESPELLED = "the log spells paths otherwise than delta_rs, whose removes would leave those files in the table"


def misspells(schema: pa.Schema, partition_by: Sequence[str]) -> bool:
    """True if delta_rs would write values of a partition column wrongly into the log.

    It writes -1.10 as -1.-10, and 1e300 with all of its digits.
    """
    kinds = [schema.field(column).type for column in partition_by]
    return any(pa.types.is_decimal(kind) or pa.types.is_floating(kind) for kind in kinds)


def write(
    transaction: Transaction,
    snapshot: Snapshot | None,
    rows: Rows,
    spec: WriteSpec,
    *,
    partition_by: Sequence[str] | None = None,
    redefines: bool = False,
) -> Commit:
    """Stream rows into new files, commit them, and return the commit.

    Args:
        partition_by: Partition columns of an overwrite; None: append the rows.
        redefines: True if the overwrite changes the columns or partitions of the table.

    Raises:
        CommitTaken: Another commit took the version.
    """
    gone = None if snapshot is None or partition_by is None else counted_rows(snapshot.files())
    note = transaction.note(writer="delta_rs", reason=_REASON, rows_deleted=gone)
    codec = _codec(spec, snapshot)
    commit = DeltaRsCommit(transaction.ref, snapshot, arrow_reader(rows), codec, note, transaction.app)
    writer = logs_of(transaction.lake.format).delta_rs
    version = writer.write(commit, spec, partition_by, redefines=redefines)
    return transaction.committed(version, writer="delta_rs", reason=_REASON)


def _codec(spec: RowSpec, snapshot: Snapshot | None) -> str:
    return codec_of(file_properties(spec, {} if snapshot is None else snapshot.properties)) or CODECS[0]


def merge(
    transaction: Transaction,
    snapshot: Snapshot,
    rows: Rows,
    spec: RowSpec,
    *,
    on: str,
    clauses: Sequence[MergeClause],
    shares: MemoryShares,
    reason: str,
) -> int:
    """Merge finished rows and return the version.

    Args:
        on: Condition of the join, in SQL of delta_rs.
        clauses: Actions with conditions in SQL of delta_rs. They take the source's columns
            unchanged.

    Raises:
        CommitTaken: Another commit took the version.
        LacksMemory: The share of memory is too small.
    """
    # Bytes that delta_rs cannot hold are refused here: beyond its share a merge fails late, and
    # sometimes waits for memory that nobody frees.
    reader, read = arrow_reader(rows), _Read(int(shares.spill / _OF_ITS_SOURCE))
    try:
        batches = pa.RecordBatchReader.from_batches(reader.schema, read.of(reader))
        note, codec = transaction.note(writer="delta_rs", reason=reason), _codec(spec, snapshot)
        commit = DeltaRsCommit(transaction.ref, snapshot, batches, codec, note, transaction.app)
        return logs_of(transaction.lake.format).delta_rs.merge(commit, clauses, on=on, spill=shares.spill)
    except Exception as error:
        if not (read.exceeded or isinstance(error, LacksMemory)):
            raise
        raise _too_small(transaction.ref, rows, read, shares) from error


class _Read:
    """Progress of reading a source: rows, and their bytes in Arrow.

    Args:
        most: Bytes after which reading ends with an error.
    """

    def __init__(self, most: int) -> None:
        self.rows = self.bytes = 0
        self._most = most

    @property
    def exceeded(self) -> bool:
        """True if the source has more bytes than it may have."""
        return self.bytes > self._most

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.rows += batch.num_rows
            self.bytes += batch.nbytes
            if self.exceeded:
                raise MemoryError(f"the source of the merge has more than {self._most} bytes")
            yield batch


def _too_small(ref: TableRef, rows: Rows, read: _Read, shares: MemoryShares) -> LacksMemory:
    """Error of a merge that ran out of memory, with the limit that it needs."""
    count = rows.cursor.sql(f"SELECT count(*) FROM ({rows.sql})").fetchall()[0][0]
    needed = int(_MARGIN * _OF_ITS_SOURCE * read.bytes / max(read.rows, 1) * count)
    if not read.exceeded:
        needed = max(needed, shares.spill * 5 // 4)
    least = -(-limit_for_merge(shares, needed) // 10**6)
    return LacksMemory(
        f"Table {ref}: delta_rs holds the {count} rows of the source while it merges, and cannot with "
        f"{shares.spill / 1e6:.0f} MB",
        remedy=f"Set memory_limit to {least}MB, or leave writer to auto, which spills to disk",
    )
