"""What delta_rs is asked for: when it may write rows of a table, or merge them by key, and why not.

A merge of whole rows by key alone takes the source as it comes. For any other DuckDB computes which rows change and how, and delta_rs
updates, deletes and inserts those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from duckrun.engines.duckdb.clauses import assigned_by
from duckrun.engines.duckdb.places import computed
from duckrun.engines.duckdb.rows_to_write import types_of
from duckrun.engines.duckdb.source import Rows
from duckrun.engines.duckdb.target import Target, definition_of, written_anew
from duckrun.engines.duckdb.writers import delta_rs
from duckrun.errors import LostRows
from duckrun.formats.commits import NewCommit, RowCounts, WentAhead
from duckrun.formats.format import Format
from duckrun.run.transaction import Transaction
from duckrun.sql.alike import is_same_in_all
from duckrun.sql.char_types import is_padded
from duckrun.sql.dialects import tree_in
from duckrun.sql.names import SIDES, columns_of, fresh_name, quote_identifier, quote_literal
from duckrun.values.columns import has_required_parts, holds
from duckrun.values.names import writable_by_delta_rs
from duckrun.values.rows import Commit, DeleteInsertSpec, DeleteSpec, MergeClause, MergeSpec, RowSpec, UpdateSpec
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.tables import AddColumn, AlterSpec, ColumnSpec, order_of

if TYPE_CHECKING:
    from duckrun.engines.duckdb.write import Job

_LITERALS = ("VARCHAR", "BIGINT", "INTEGER", "SMALLINT", "TINYINT")
_MOST_VALUES = 100
"""Values of a partition column that the condition of a merge names."""


def why_not_write(form: Format, ref: TableRef, rows: Rows, snapshot: Snapshot | None, whole: bool) -> str | None:
    """Why delta_rs cannot write all rows of a table, or more of them; None where it can."""
    if snapshot is not None and (reason := form.only_own(snapshot)) is not None:
        return reason
    if any("VARIANT" in str(kind) for kind in rows.types.values()):
        return "it writes no VARIANT"
    if snapshot is not None and has_required_parts(snapshot.schema):
        return "parts of columns are NOT NULL, which it does not check"
    if snapshot is not None and (reason := _why_not_checked(snapshot)) is not None:
        return reason
    if snapshot is not None and delta_rs.misspells(snapshot.schema, snapshot.partition_columns):
        return delta_rs.MISSPELT
    if snapshot is not None and whole and (reason := delta_rs.why_not_these(snapshot.files())) is not None:
        return reason
    if not writable_by_delta_rs(ref.location):
        return "it writes no rows below a folder with one of [ ] ^ |"
    return None


def why_not_mode(spec: RowSpec) -> str | None:
    """Why delta_rs does no write of this kind to a table that is there; None for those that it may do."""
    if isinstance(spec, DeleteSpec | UpdateSpec | DeleteInsertSpec) or spec.mode == "replace":
        return f"it does not {spec.mode} rows" if spec.mode != "delete+insert" else "it does no delete+insert"
    return None


def why_not_merge(form: Format, spec: MergeSpec, snapshot: Snapshot, rows: Rows) -> str | None:
    """Why delta_rs cannot merge rows, or the changes that DuckDB computes of them; None where it can."""
    if (reason := form.only_own(snapshot)) is not None:
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
        # Spark writes instants as INT96, which delta_rs reads as nanoseconds in 64 bits: years before 1678 and after 2261 become
        # others, and a merge writes those down.
        return "delta_rs would change instants of far years in files of Spark"
    if delta_rs.misspells(snapshot.schema, snapshot.partition_columns):
        return delta_rs.MISSPELT
    files = snapshot.files()
    if spec.merge_mode == "deletion_vectors" or any(f.deletion_vector for f in files):
        return "it writes no deletion vectors"
    return delta_rs.why_not_these(files)


def _why_not_checked(snapshot: Snapshot) -> str | None:
    """Why delta_rs, which checks the rows that it writes itself, may refuse rows that fulfil the table's constraints."""
    for name, condition in snapshot.checks.items():
        if not is_same_in_all(tree_in(condition, "spark")):
            return f"it may take the constraint {name} ({condition}) for another than Spark does"
    return None


def matched_by(spec: MergeSpec, snapshot: Snapshot) -> list[str]:
    """The columns that say which rows of the table a merge changes: rows with equal values in them meet the same row of the source."""
    conditions = [text for text in (spec.on, spec.within, *spec.compared.values()) if text is not None]
    named = {n.lower() for text in conditions for side, n in columns_of(text, spec.dialect, SIDES) if side != "source"}
    keys = [key for key in spec.keys if key not in spec.compared]
    return [*keys, *(name for name in snapshot.schema.names if name.lower() in named and name not in keys)]


def all_compared(columns: Sequence[str], snapshot: Snapshot, rows: Rows) -> list[str]:
    """Some columns, and all others that delta_rs compares as DuckDB does: they tell rows apart that have one key."""
    others = (name for name in snapshot.schema.names if name not in columns)
    return [*columns, *(name for name in others if _why_not_compared([name], snapshot, rows) is None)]


def _why_not_compared(columns: Sequence[str], snapshot: Snapshot, rows: Rows) -> str | None:
    """Why delta_rs may take other rows of a table than DuckDB for those with some values; None where it takes the same."""
    kinds = types_of(snapshot, rows.cursor)
    if any(kinds[name].id in ("float", "double") for name in columns):
        return "a key is a floating number, and delta_rs compares NaN and -0.0 in its own way"
    if any(kinds[name].id in ("list", "array", "struct", "map", "blob") for name in columns):
        return "a key is nested or binary"
    if any(is_padded(snapshot.schema.field(name)) for name in columns):
        return "a key is CHAR, which delta_rs compares without its padding"
    return None


def takes_source(spec: MergeSpec, clauses: Sequence[MergeClause], snapshot: Snapshot, rows: Rows) -> bool:
    """True for a merge that delta_rs does with the rows of the source as they come: each updates a row or is inserted, and so none
    is sent in vain.
    """
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
    """True where a row that has the keys of a source row lies within what is written too, and stays there."""
    if spec.within is None:
        return True
    used = {name.lower() for _, name in columns_of(spec.within, spec.dialect, SIDES)}
    return used <= {key.lower() for key in spec.keys} and all(
        c.kind.endswith("delete") or (c.set is None and used <= {n.lower() for n in c.columns or used})
        for c in spec.clauses
    )


def _is_constrained(snapshot: Snapshot) -> bool:
    """True for a table that does not take every row of its types; a partition of text is none of ''."""
    texts = (snapshot.schema.field(c).type for c in snapshot.partition_columns)
    return (
        any(not field.nullable for field in snapshot.schema)
        or bool(snapshot.checks)
        or any(pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in texts)
    )


def _takes_whole_rows(clauses: Sequence[MergeClause], snapshot: Snapshot, rows: Rows) -> bool:
    """True for a merge that writes each row of its source as it comes, whether it is in the table or not."""
    whole = set(snapshot.schema.names)
    return {c.kind for c in clauses} == {"matched_update", "not_matched_insert"} and all(
        c.condition is None and c.set is None and set(c.columns or rows.types) >= whole for c in clauses
    )


def merge(job: Job, snapshot: Snapshot, rows: Rows, keys: Sequence[str], clauses: Sequence[MergeClause]) -> Commit:
    """Merge finished rows by keys; the clauses take columns as they come."""
    columns = [name for name in snapshot.schema.names if name in rows.types]
    whole = [replace(clause, columns=tuple(assigned_by(clause, columns, snapshot.ref))) for clause in clauses]
    on = " AND ".join(f"target.{quote_identifier(key)} = source.{quote_identifier(key)}" for key in keys)
    return _merged(job, snapshot, rows, on, whole, "asked for: key equality and finished columns")


@dataclass(frozen=True)
class Changes:
    """The rows that a merge changes, as DuckDB has computed them: of each row of the table that the source meets, and of each that it
    adds, which clause applies, and the values that it gives.
    """

    table: str
    """Quoted name of the temporary table that has them."""
    file: str
    """Quoted name of the column with the file that a row of the table is in."""
    row: str
    """Quoted name of the column that is NULL for a row that is added."""
    action: str
    """Quoted name of the column with the number of the clause, NULL where none applies."""
    deleting: str
    """Numbers of the clauses that delete, as a list in SQL."""
    before: Mapping[str, str]
    """Column of the table that the merge matches by -> quoted name of the column with its value before; NULL for a row that is added."""

    @property
    def present(self) -> str:
        return f"FROM {self.table} WHERE {self.row} IS NOT NULL"

    @property
    def repeated(self) -> str:
        """SELECT of the values that several rows of the table have in the columns that the merge matches by."""
        names = ", ".join(self.before.values())
        return f"SELECT {names} {self.present} GROUP BY {names} HAVING count(*) > 1 AND count({self.action}) > 0"


def why_not_changes(changes: Changes, columns: Sequence[str], cursor: duckdb.DuckDBPyConnection) -> str | None:
    """Why delta_rs cannot tell the rows that change from others; None where it can. ``changes`` have those too that no clause touches."""
    if cursor.execute(f"{changes.repeated} LIMIT 1").fetchone() is None:
        return None
    after = ", ".join([changes.action, *map(quote_identifier, columns)])
    several = f"{changes.repeated} AND count(DISTINCT row({after})) > 1 LIMIT 1"
    if cursor.execute(several).fetchone() is None:
        return None
    return f"rows of the table that have the same {', '.join(changes.before)} become different ones, and it tells rows by these alone"


def merge_changes(job: Job, snapshot: Snapshot, live: Rows, changes: Changes, counts: RowCounts) -> Commit:
    """Merge the rows that clauses change, and no others. ``live`` are those of them that are not deleted, finished, each with the columns
    ``row`` and ``before`` of ``changes``.
    """
    cursor = live.cursor
    go_ahead(job, snapshot, live)
    if not any(counts):
        return job.transaction.nothing(snapshot, "no row was concerned")
    if cursor.execute(f"{changes.repeated} LIMIT 1").fetchone() is not None:  # they become the same row
        first = f"SELECT min(rowid) {changes.present} GROUP BY {', '.join(changes.before.values())}"
        cursor.execute(f"DELETE FROM {changes.table} WHERE {changes.row} IS NOT NULL AND rowid NOT IN ({first})")
    names, before = [quote_identifier(name) for name in live.types], list(changes.before.values())
    kind = quote_identifier(fresh_name("__duckrun_kind", {*live.types, *(name[1:-1] for name in before)}))
    none = [f"CAST(NULL AS {each})" for each in live.types.values()]
    rows = (
        f"SELECT {', '.join([*names, *before])}, CASE WHEN {changes.row} IS NULL THEN 'insert' ELSE 'update' END AS {kind} "
        f"FROM ({live.sql}) UNION ALL SELECT {', '.join([*none, *before])}, 'delete' FROM {changes.table} "
        f"WHERE {changes.action} IN ({changes.deleting})"
    )
    columns = tuple(live.types)
    kinds: dict[str, MergeClause] = {
        "insert": MergeClause("not_matched_insert", f"source.{kind} = 'insert'", columns),
        "update": MergeClause("matched_update", f"source.{kind} = 'update'", columns),
        "delete": MergeClause("matched_delete", f"source.{kind} = 'delete'"),
    }
    clauses = [clause for clause, count in zip(kinds.values(), counts, strict=True) if count]
    sent = Rows(cursor, rows, {})
    commit = _merged(
        job,
        snapshot,
        sent,
        _on(changes, kind, snapshot, cursor),
        clauses,
        "asked for: DuckDB computed the rows that change",
    )
    if (commit.rows_inserted, commit.rows_updated, commit.rows_deleted) != counts:
        raise LostRows(
            f"Version {commit.version} of table {snapshot.ref}, which delta_rs has merged, inserted, updated and deleted "
            f"{commit.rows_inserted}, {commit.rows_updated} and {commit.rows_deleted} rows instead of {', '.join(map(str, counts))}. "
            f"Restore version {snapshot.version}, run this with writer: staged, and report it."
        )
    return commit


def go_ahead(job: Job, snapshot: Snapshot, rows: Rows) -> None:
    """Add the columns that come with some rows in a commit before theirs, and raise WentAhead; nothing where none come. deltalake's own way
    gives the table another id, drops its name and description, and lets columns be NULL.
    """
    if not isinstance(snapshot, Target):
        return
    with computed(rows.cursor, rows.sql):
        pass  # a row that the table refuses is one before the table is changed
    alteration, kinds = snapshot.alteration, types_of(snapshot, rows.cursor)
    names = [name for name, old in alteration.columns.items() if old is None or name in alteration.grown]
    spec = AlterSpec(tuple(AddColumn(ColumnSpec(name, str(kinds[name]))) for name in names))
    ahead = Transaction(job.transaction.lake, snapshot.ref)
    ahead.mode, ahead.engine = spec.mode, job.engine.name
    reason = f"columns are added, before the {job.spec.mode} by delta_rs that brings them"
    version = ahead.commit(snapshot, NewCommit(spec, alteration.after, reason=reason)).version
    raise WentAhead("columns were added", version)


def _on(changes: Changes, kind: str, snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection) -> str:
    """The condition in delta_rs's SQL on which a row of the table is one that changes. NULL is a value among those before, and no row
    that is added meets any. The partitions with such rows are named: no file of another is read.
    """
    nulls = ", ".join(f"count(*) FILTER (WHERE {name} IS NULL)" for name in changes.before.values())
    there, *missing = cursor.execute(f"SELECT count(*), {nulls} {changes.present}").fetchall()[0]
    if not there:
        return "1 = 2"  # no file of the table is read
    tests = [
        f"(target.{quote_identifier(column)} {'IS NOT DISTINCT FROM' if count else '='} source.{name})"
        for (column, name), count in zip(changes.before.items(), missing, strict=True)
    ]
    if all(missing):
        tests.insert(0, f"source.{kind} <> 'insert'")
    return " AND ".join([*tests, *_within_partitions(changes, snapshot, cursor)])


def _within_partitions(changes: Changes, snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Which values the partition columns have in the files with rows that change, of types whose values are literals as the log has them."""
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


def _merged(job: Job, snapshot: Snapshot, rows: Rows, on: str, clauses: Sequence[MergeClause], reason: str) -> Commit:
    what = f"{job.spec.mode} on table {job.transaction.ref}"
    with job.engine.arbiter.merge(job.engine.duckdb_limit, what) as job.shares:
        version = delta_rs.merge(
            job.transaction,
            snapshot,
            rows,
            job.spec,
            on=on,
            clauses=clauses,
            shares=job.shares,
            writer="delta_rs",
            reason=reason,
        )
    if version == snapshot.version:
        return job.transaction.nothing(snapshot, "no row matched and none was to be inserted")
    return job.transaction.committed(version, writer="delta_rs", reason=reason)
