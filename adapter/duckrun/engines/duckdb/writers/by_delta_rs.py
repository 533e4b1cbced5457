"""Rules for writer delta_rs: when it may append or merge, and the reason if it may not.

An upsert of whole rows by key takes the source unchanged. For any other merge, DuckDB computes the
changed rows, and delta_rs updates, deletes and inserts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import duckdb

from duckrun.engines.duckdb.rows.clauses import assigned_by
from duckrun.engines.duckdb.rows.fitted import types_of
from duckrun.engines.duckdb.rows.places import computed
from duckrun.engines.duckdb.rows.source import Rows
from duckrun.engines.duckdb.rows.target import Target, definition_of, written_anew
from duckrun.engines.duckdb.writers import delta_rs
from duckrun.errors import InvalidConfig, LostRows
from duckrun.formats.commits import NewCommit, RowCounts, WentAhead
from duckrun.formats.logs import LogTables
from duckrun.libraries import pa
from duckrun.run.memory import Arbiter
from duckrun.run.transaction import Transaction
from duckrun.sql.alike import is_same_in_all
from duckrun.sql.char_types import is_padded
from duckrun.sql.dialects import tree_in
from duckrun.sql.names import SIDES, columns_of
from duckrun.sql.quoting import fresh_name, quote_identifier, quote_literal
from duckrun.values.choices import BY_DELTA_RS
from duckrun.values.columns import has_required_parts, holds
from duckrun.values.data_files import respelled
from duckrun.values.names import writable_by_delta_rs
from duckrun.values.rows import Commit, DeleteInsertSpec, DeleteSpec, MergeClause, MergeSpec, RowSpec, UpdateSpec
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.tables import AddColumn, AlterSpec, ColumnSpec, order_of

_LITERALS = ("VARCHAR", "BIGINT", "INTEGER", "SMALLINT", "TINYINT")
_MOST_VALUES = 100
"""Most values of a partition column that a merge condition lists."""


def why_not_write(logs: LogTables, ref: TableRef, rows: Rows, snapshot: Snapshot | None, whole: bool) -> str | None:
    """Reason why delta_rs cannot write or append rows of a table; None if it can.

    ``whole``: the write replaces all rows.
    """
    if snapshot is not None and (reason := logs.only_own(snapshot)) is not None:
        return reason
    if any("VARIANT" in str(kind) for kind in rows.types.values()):
        return "it writes no VARIANT"
    if snapshot is not None and has_required_parts(snapshot.schema):
        return "parts of columns are NOT NULL, which it does not check"
    if snapshot is not None and (reason := _why_not_checked(snapshot)) is not None:
        return reason
    if snapshot is not None and delta_rs.misspells(snapshot.schema, snapshot.partition_columns):
        return delta_rs.MISSPELT
    if snapshot is not None and whole and respelled(snapshot.files()):
        return delta_rs.RESPELLED
    if not writable_by_delta_rs(ref.location):
        return "it writes no rows below a folder with one of [ ] ^ |"
    return None


def why_not_mode(spec: RowSpec) -> str | None:
    """Reason why delta_rs does not support this mode on an existing table; None if it does."""
    if isinstance(spec, DeleteSpec | UpdateSpec | DeleteInsertSpec) or spec.mode == "replace":
        return f"it does not {spec.mode} rows" if spec.mode != "delete+insert" else "it does no delete+insert"
    return None


def why_not_merge(logs: LogTables, spec: MergeSpec, snapshot: Snapshot, rows: Rows) -> str | None:
    """Reason why delta_rs cannot merge the rows, or DuckDB's changes of them; None if it can."""
    if (reason := logs.only_own(snapshot)) is not None:
        return reason
    if written_anew(snapshot):
        return "columns of the table go or change their type, so all of its rows are written"
    if snapshot.variants or snapshot.variants_inside:
        return "it writes no VARIANT"
    if has_required_parts(snapshot.schema):
        return "parts of columns are NOT NULL, which it does not keep"
    if (reason := _why_not_checked(snapshot)) is not None:
        return reason
    if order_of(snapshot):
        return "the table has a sort order, in which delta_rs does not write"
    if (reason := _why_not_compared(matched_by(spec, snapshot), snapshot, rows)) is not None:
        return reason
    if any(holds(field.type, _is_instant) for field in snapshot.schema):
        # Spark writes instants as INT96. delta_rs reads them as 64-bit nanoseconds, which changes
        # years before 1678 and after 2261, and a merge would store the changed values.
        return "delta_rs would change instants of far years in files of Spark"
    if delta_rs.misspells(snapshot.schema, snapshot.partition_columns):
        return delta_rs.MISSPELT
    files = snapshot.files()
    if spec.merge_mode == "deletion_vectors" or any(f.deletion_vector for f in files):
        return "it writes no deletion vectors"
    return delta_rs.RESPELLED if respelled(files) else None


def _why_not_checked(snapshot: Snapshot) -> str | None:
    """Reason why delta_rs's own constraint check may refuse valid rows; None if it does not."""
    for name, condition in snapshot.checks.items():
        if not is_same_in_all(tree_in(condition, "spark")):
            return f"it may take the constraint {name} ({condition}) for another than Spark does"
    return None


def matched_by(spec: MergeSpec, snapshot: Snapshot) -> list[str]:
    """Columns that decide which rows a merge changes.

    Rows with equal values in them match the same source row.
    """
    conditions = [text for text in (spec.on, spec.within, *spec.compared.values()) if text is not None]
    named = {n.lower() for text in conditions for side, n in columns_of(text, spec.dialect, SIDES) if side != "source"}
    keys = [key for key in spec.keys if key not in spec.compared]
    return [*keys, *(name for name in snapshot.schema.names if name.lower() in named and name not in keys)]


def all_compared(columns: Sequence[str], snapshot: Snapshot, rows: Rows) -> list[str]:
    """The columns, and all others that delta_rs compares as DuckDB does.

    They distinguish rows that have the same key.
    """
    others = (name for name in snapshot.schema.names if name not in columns)
    return [*columns, *(name for name in others if _why_not_compared([name], snapshot, rows) is None)]


def _why_not_compared(columns: Sequence[str], snapshot: Snapshot, rows: Rows) -> str | None:
    """Reason why delta_rs compares values of these columns otherwise than DuckDB; None if not."""
    kinds = types_of(snapshot, rows.cursor)
    if any(kinds[name].id in ("float", "double") for name in columns):
        return "a key is a floating number, and delta_rs compares NaN and -0.0 in its own way"
    if any(kinds[name].id in ("list", "array", "struct", "map", "blob") for name in columns):
        return "a key is nested or binary"
    if any(is_padded(snapshot.schema.field(name)) for name in columns):
        return "a key is CHAR, which delta_rs compares without its padding"
    return None


def takes_source(spec: MergeSpec, clauses: Sequence[MergeClause], snapshot: Snapshot, rows: Rows) -> bool:
    """True if delta_rs can merge the source rows unchanged: each updates a row or is inserted."""
    return (
        [c.kind for c in clauses]
        in (["matched_update", "not_matched_insert"], ["not_matched_insert", "matched_update"])
        and all(c.condition is None and c.set is None for c in clauses)
        and definition_of(snapshot) is None
        and spec.on is None
        and not spec.compared
        and _within_by_keys(spec)
        and (not _is_constrained(snapshot) or _takes_whole_rows(spec.clauses, snapshot, rows))
    )


def _is_instant(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _within_by_keys(spec: MergeSpec) -> bool:
    """True if a row with the keys of a source row lies within the written part, and stays there."""
    if spec.within is None:
        return True
    used = {name.lower() for _, name in columns_of(spec.within, spec.dialect, SIDES)}
    return used <= {key.lower() for key in spec.keys} and all(
        c.kind.endswith("delete") or (c.set is None and used <= {n.lower() for n in c.columns or used})
        for c in spec.clauses
    )


def _is_constrained(snapshot: Snapshot) -> bool:
    """True if the table does not accept every row of its types."""
    # A partition value '' is read as NULL.
    texts = (snapshot.schema.field(c).type for c in snapshot.partition_columns)
    return (
        any(not field.nullable for field in snapshot.schema)
        or bool(snapshot.checks)
        or any(pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in texts)
    )


def _takes_whole_rows(clauses: Sequence[MergeClause], snapshot: Snapshot, rows: Rows) -> bool:
    """True if the merge writes every source row unchanged, matched or not."""
    whole = set(snapshot.schema.names)
    return {c.kind for c in clauses} == {"matched_update", "not_matched_insert"} and all(
        c.condition is None and c.set is None and set(c.columns or rows.types) >= whole for c in clauses
    )


@dataclass(frozen=True)
class Changes:
    """The changes of a merge as DuckDB has computed them, in a temporary table.

    It has each row of the table that matches the source, and each row to insert. It gives the
    clause that applies, and the new values.
    """

    table: str
    """Quoted name of the temporary table."""
    file: str
    """Quoted name of the column with the file of a row."""
    row: str
    """Quoted name of the column that is NULL for a row to insert."""
    action: str
    """Quoted name of the column with the number of the clause; NULL if none applies."""
    deleting: str
    """Numbers of the DELETE clauses, as a list in SQL."""
    before: Mapping[str, str]
    """Column that identifies rows -> quoted name of the column with its old value.

    The old value is NULL in new rows.
    """

    @property
    def present(self) -> str:
        return f"FROM {self.table} WHERE {self.row} IS NOT NULL"

    @property
    def repeated(self) -> str:
        """SELECT of the identifying values that several rows of the table share."""
        names = ", ".join(self.before.values())
        return f"SELECT {names} {self.present} GROUP BY {names} HAVING count(*) > 1 AND count({self.action}) > 0"


def why_not_changes(changes: Changes, columns: Sequence[str], cursor: duckdb.DuckDBPyConnection) -> str | None:
    """Reason why delta_rs cannot identify the changed rows; None if it can.

    ``changes`` must still contain the matched rows that no clause changes.
    """
    if cursor.execute(f"{changes.repeated} LIMIT 1").fetchone() is None:
        return None
    after = ", ".join([changes.action, *map(quote_identifier, columns)])
    several = f"{changes.repeated} AND count(DISTINCT row({after})) > 1 LIMIT 1"
    if cursor.execute(several).fetchone() is None:
        return None
    return (
        f"rows of the table that have the same {', '.join(changes.before)} become different ones, and it tells rows "
        "by these alone"
    )


def _on(changes: Changes, kind: str, snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection) -> str:
    """Merge condition in delta_rs's SQL that selects the changed rows."""
    # NULL counts as an old value, and no row to insert may match. The condition names the
    # partitions of the changed rows, so that delta_rs reads no file of another one.
    nulls = ", ".join(f"count(*) FILTER (WHERE {name} IS NULL)" for name in changes.before.values())
    there, *missing = cursor.execute(f"SELECT count(*), {nulls} {changes.present}").fetchall()[0]
    if not there:
        return "1 = 2"  # so delta_rs reads no file
    tests = [
        f"(target.{quote_identifier(column)} {'IS NOT DISTINCT FROM' if count else '='} source.{name})"
        for (column, name), count in zip(changes.before.items(), missing, strict=True)
    ]
    if all(missing):
        tests.insert(0, f"source.{kind} <> 'insert'")
    return " AND ".join([*tests, *_within_partitions(changes, snapshot, cursor)])


def _within_partitions(changes: Changes, snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Conditions on the partition columns of the files with changed rows.

    Only types whose literals equal the log's text are used.
    """
    kinds = types_of(snapshot, cursor)
    columns = [name for name in snapshot.partition_columns if str(kinds[name]) in _LITERALS]
    if not columns:
        return
    paths = [path for (path,) in cursor.execute(f"SELECT DISTINCT {changes.file} {changes.present}").fetchall()]
    files = snapshot.files().at(paths).values()
    for name in columns:
        values = {file.partition_values[name] for file in files}
        if len(values) > _MOST_VALUES:
            continue
        column, text = f"target.{quote_identifier(name)}", str(kinds[name]) == "VARCHAR"
        known = sorted(value for value in values if value)  # the log may have '' for NULL
        tests = [f"{column} IN ({', '.join(map(quote_literal, known) if text else known)})"] if known else []
        yield f"({' OR '.join([*tests, *([f'{column} IS NULL'] if len(known) < len(values) else [])])})"


class DeltaRs:
    """delta_rs as the writer of one write, over all of its attempts: if it may, and its merges."""

    def __init__(self, spec: RowSpec, transaction: Transaction, arbiter: Arbiter, duckdb_limit: int) -> None:
        self._spec = spec
        self._transaction = transaction
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
        except delta_rs.LacksMemory as error:
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
            first = f"SELECT min(rowid) {changes.present} GROUP BY {', '.join(changes.before.values())}"
            cursor.execute(f"DELETE FROM {changes.table} WHERE {changes.row} IS NOT NULL AND rowid NOT IN ({first})")
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
        on, reason = _on(changes, kind, snapshot, cursor), "asked for: DuckDB computed the rows that change"
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
        alteration, kinds = snapshot.alteration, types_of(snapshot, rows.cursor)
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
            version = delta_rs.merge(
                self._transaction,
                snapshot,
                rows,
                self._spec,
                on=on,
                clauses=clauses,
                shares=self.shares,
                reason=reason,
            )
        if version == snapshot.version:
            return self._transaction.nothing(snapshot, "no row matched and none was to be inserted")
        return self._transaction.committed(version, writer="delta_rs", reason=reason)
