"""Writer delta_rs: DuckDB computes rows, delta_rs writes the stream.

It does full writes, appends, and merges by key. The rules for it are in ``by_delta_rs.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from duckrun.engines.data_files import file_properties
from duckrun.engines.duckdb.rows.clauses import assigned_by
from duckrun.engines.duckdb.rows.fitted import types_of
from duckrun.engines.duckdb.rows.places import computed
from duckrun.engines.duckdb.rows.source import Rows, arrow_reader
from duckrun.engines.duckdb.rows.target import Target
from duckrun.engines.duckdb.writers.by_delta_rs import Changes, on_changes
from duckrun.errors import InvalidConfig, LostRows
from duckrun.formats.commits import NewCommit, RowCounts, WentAhead
from duckrun.formats.logs import DeltaRsCommit, LacksMemory, LogTables
from duckrun.libraries import pa
from duckrun.run.memory import Arbiter, limit_for_merge
from duckrun.run.transaction import Transaction
from duckrun.sql.quoting import fresh_name, quote_identifier
from duckrun.values.choices import BY_DELTA_RS
from duckrun.values.layout import CODECS, codec_of
from duckrun.values.rows import Commit, MemoryShares, MergeClause, RowSpec, WriteSpec, counted_rows
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.tables import AddColumn, AlterSpec, ColumnSpec

_REASON = "asked for"
_MARGIN = 1.1
"""Factor of the limit that an error names, as rows that were not read may be longer."""
_OF_ITS_SOURCE = 2.5
"""Memory of a merge before it spills, as a multiple of its source in Arrow.

A merge holds all source rows in a hash table. Measured with deltalake 1.6 for 100,000 to 2 million
rows: 1.3 to 2.2 times, for any size of the table.
"""


class DeltaRs:
    """delta_rs as the writer of one write, over all of its attempts: if it may, and its merges."""

    def __init__(
        self, spec: RowSpec, transaction: Transaction, logs: LogTables, arbiter: Arbiter, duckdb_limit: int
    ) -> None:
        self._spec = spec
        self._transaction = transaction
        self._writer = logs.delta_rs
        self._arbiter = arbiter
        self._duckdb_limit = duckdb_limit
        self.shares = arbiter.write(duckdb_limit)
        """Memory that the write may use."""
        self._lacks_memory: str | None = None
        """Reason why delta_rs had too little memory in an attempt; None if it had enough."""

    def attempt(self, write: Callable[[], Commit]) -> Commit:
        """Run an attempt; if delta_rs runs out of memory, run it again without delta_rs."""
        try:
            return write()
        except LacksMemory as error:
            if self._spec.writer == "delta_rs":
                raise
            self._lacks_memory = str(error)
            return write()

    def writes(self, why_not: Callable[[], str | None]) -> bool:
        """True if delta_rs writes the data files.

        If the spec only prefers delta_rs, the commit's remark gives the reason against it. A commit
        of delta_rs cannot take back an earlier attempt.

        Args:
            why_not: Returns the reason why delta_rs cannot do this write, or None.

        Raises:
            InvalidConfig: The spec requires delta_rs, and it cannot do this write.
        """
        if self._spec.writer not in BY_DELTA_RS:
            return False
        if (taken := self._transaction.taken_back) is not None and not taken.anew:
            self._transaction.remark = "not by delta_rs: the commit takes back what an earlier attempt wrote"
            return False
        why = self._lacks_memory or why_not()
        if why is not None and self._spec.writer == "delta_rs":
            raise InvalidConfig(
                f"{self._spec.mode} on table {self._transaction.ref} cannot be done by writer delta_rs: {why}",
                remedy="leave out writer, or say staged",
            )
        if why is not None:
            self._transaction.remark = f"not by delta_rs: {why}"
        return why is None

    def write(
        self,
        snapshot: Snapshot | None,
        rows: Rows,
        spec: WriteSpec,
        partition_by: Sequence[str] | None = None,
        *,
        redefines: bool = False,
    ) -> Commit:
        """Stream rows into new files, commit them, and return the commit.

        Args:
            snapshot: The table; None for a new one.
            rows: Rows to write.
            spec: The append or overwrite.
            partition_by: Partition columns of an overwrite; None: append the rows.
            redefines: True if the overwrite changes the columns or partitions of the table.

        Raises:
            CommitTaken: Another commit took the version.
        """
        gone = None if snapshot is None or partition_by is None else counted_rows(snapshot.files())
        commit = self._commit(snapshot, arrow_reader(rows), _REASON, rows_deleted=gone)
        version = self._writer.write(commit, spec, partition_by, redefines=redefines)
        return self._transaction.committed(version, writer="delta_rs", reason=_REASON)

    def merge(self, snapshot: Snapshot, rows: Rows, keys: Sequence[str], clauses: Sequence[MergeClause]) -> Commit:
        """Merge finished rows by keys; the clauses take the columns unchanged."""
        columns = [name for name in snapshot.schema.names if name in rows.types]
        whole = [replace(clause, columns=tuple(assigned_by(clause, columns, snapshot.ref))) for clause in clauses]
        on = " AND ".join(f"target.{quote_identifier(key)} = source.{quote_identifier(key)}" for key in keys)
        return self._merged(snapshot, rows, on, whole, "asked for: key equality and finished columns")

    def merge_changes(self, snapshot: Snapshot, live: Rows, changes: Changes, counts: RowCounts) -> Commit:
        """Merge only the rows that clauses change.

        Args:
            snapshot: Table to merge into.
            live: Finished rows of ``changes`` that are not deleted, each with the columns
                ``row`` and ``before``.
            changes: Rows that the merge changes.
            counts: Inserted, updated and deleted rows.

        Raises:
            LostRows: delta_rs reports other counts.
        """
        cursor = live.cursor
        self.go_ahead(snapshot, live)
        if not any(counts):
            return self._transaction.nothing(snapshot, "no row was concerned")
        # Rows with the same identifying values become equal, so delta_rs needs one source row for
        # them.
        if cursor.execute(f"{changes.repeated} LIMIT 1").fetchone() is not None:
            place = f"row({changes.file}, {changes.row})"  # rowid may be a column of the table
            first = f"SELECT min({place}) {changes.present} GROUP BY {', '.join(changes.before.values())}"
            cursor.execute(f"DELETE FROM {changes.table} WHERE {changes.row} IS NOT NULL AND {place} NOT IN ({first})")
        names, before = [quote_identifier(name) for name in live.types], list(changes.before.values())
        kind = quote_identifier(fresh_name("__duckrun_kind", {*live.types, *(name[1:-1] for name in before)}))
        none = [f"CAST(NULL AS {each})" for each in live.types.values()]
        rows = (
            f"SELECT {', '.join([*names, *before])}, "
            f"CASE WHEN {changes.row} IS NULL THEN 'insert' ELSE 'update' END AS {kind} FROM ({live.sql}) UNION ALL "
            f"SELECT {', '.join([*none, *before])}, 'delete' FROM {changes.table} "
            f"WHERE {changes.action} IN ({changes.deleting})"
        )
        columns = tuple(live.types)
        kinds = (
            MergeClause("not_matched_insert", f"source.{kind} = 'insert'", columns),
            MergeClause("matched_update", f"source.{kind} = 'update'", columns),
            MergeClause("matched_delete", f"source.{kind} = 'delete'"),
        )
        clauses = [clause for clause, count in zip(kinds, counts, strict=True) if count]
        on, reason = on_changes(changes, kind, snapshot, cursor), "asked for: DuckDB computed the rows that change"
        commit = self._merged(snapshot, Rows(cursor, rows, {}), on, clauses, reason)
        if (commit.rows_inserted, commit.rows_updated, commit.rows_deleted) != counts:
            raise LostRows(
                f"Version {commit.version} of table {snapshot.ref}, which delta_rs has merged, inserted, updated and "
                f"deleted {commit.rows_inserted}, {commit.rows_updated} and {commit.rows_deleted} rows instead of "
                f"{', '.join(map(str, counts))}. Restore version {snapshot.version}, run this with writer: staged, and "
                "report it."
            )
        return commit

    def go_ahead(self, snapshot: Snapshot, rows: Rows) -> None:
        """Add new columns in a commit of their own, then raise WentAhead; else do nothing."""
        if not isinstance(snapshot, Target):
            return
        # deltalake's own schema merge gives the table another id, drops its name and description,
        # and makes columns nullable.
        with computed(rows.cursor, rows.sql):
            pass  # a row that breaks a constraint fails here, before the table is changed
        alteration, kinds = snapshot.alteration, types_of(snapshot)
        names = [name for name, old in alteration.columns.items() if old is None or name in alteration.grown]
        spec = AlterSpec(tuple(AddColumn(ColumnSpec(name, str(kinds[name]))) for name in names))
        ahead = Transaction(self._transaction.lake, snapshot.ref)
        ahead.mode, ahead.engine = spec.mode, "duckdb"
        reason = f"columns are added, before the {self._spec.mode} by delta_rs that brings them"
        version = ahead.commit(snapshot, NewCommit(spec, alteration.after, reason=reason)).version
        raise WentAhead("columns were added", version)

    def _merged(self, snapshot: Snapshot, rows: Rows, on: str, clauses: Sequence[MergeClause], reason: str) -> Commit:
        what = f"{self._spec.mode} on table {self._transaction.ref}"
        with self._arbiter.merge(self._duckdb_limit, what) as self.shares:
            # Bytes that delta_rs cannot hold are refused here: beyond its share a merge fails late,
            # and sometimes waits for memory that nobody frees.
            reader, read = arrow_reader(rows), _Read(int(self.shares.spill / _OF_ITS_SOURCE))
            try:
                batches = pa.RecordBatchReader.from_batches(reader.schema, read.of(reader))
                commit = self._commit(snapshot, batches, reason)
                version = self._writer.merge(commit, clauses, on=on, spill=self.shares.spill)
            except Exception as error:
                if not (read.exceeded or isinstance(error, LacksMemory)):
                    raise
                raise _too_small(self._transaction.ref, rows, read, self.shares) from error
        if version == snapshot.version:
            return self._transaction.nothing(snapshot, "no row matched and none was to be inserted")
        return self._transaction.committed(version, writer="delta_rs", reason=reason)

    def _commit(
        self, snapshot: Snapshot | None, rows: pa.RecordBatchReader, reason: str, **counts: int | None
    ) -> DeltaRsCommit:
        codec = codec_of(file_properties(self._spec, {} if snapshot is None else snapshot.properties)) or CODECS[0]
        note = self._transaction.note(writer="delta_rs", reason=reason, **counts)
        return DeltaRsCommit(self._transaction.ref, snapshot, rows, codec, note, self._transaction.app)


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
