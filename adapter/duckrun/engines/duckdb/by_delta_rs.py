"""What delta_rs is asked for: when it may write rows of a table, or merge them by key, and why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from duckrun.engines.duckdb.clauses import assigned_by
from duckrun.engines.duckdb.source import Rows
from duckrun.engines.duckdb.target import definition_of
from duckrun.engines.duckdb.writers import delta_rs
from duckrun.formats.format import Format
from duckrun.sql.names import SIDES, columns_of
from duckrun.values.columns import has_required_parts, holds
from duckrun.values.names import writable_by_delta_rs
from duckrun.values.rows import Commit, DeleteInsertSpec, DeleteSpec, MergeClause, MergeSpec, RowSpec, UpdateSpec
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.tables import order_of

if TYPE_CHECKING:
    from duckrun.engines.duckdb.write import Job


def why_not_write(form: Format, ref: TableRef, rows: Rows, snapshot: Snapshot | None, whole: bool) -> str | None:
    """Why delta_rs cannot write all rows of a table, or more of them; None where it can."""
    if snapshot is not None and (reason := form.only_own(snapshot)) is not None:
        return reason
    if snapshot is not None and not whole and definition_of(snapshot) is not None:
        return "columns are added, where it would let the others be NULL"
    if snapshot is not None and has_required_parts(snapshot.schema):
        return "parts of columns are NOT NULL, which it does not check"
    if rows.one_shot and not whole:
        return "the source is a stream, which can be read once, and an attempt may have to run again"
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


def why_not_merge(
    form: Format, spec: MergeSpec, clauses: Sequence[MergeClause], snapshot: Snapshot, rows: Rows
) -> str | None:
    if (reason := form.only_own(snapshot)) is not None:
        return reason
    if not _plain(clauses):
        return "a clause has a condition or an expression, or concerns rows that the source has not"
    if definition_of(snapshot) is not None:
        return "columns are added, go or change their type, and delta_rs would not keep the rest of the definition"
    if spec.on is not None or spec.compared:
        return "the condition is more than key equality"
    if not _within_by_keys(spec):
        return "only the rows of a part of the table may match, and the keys do not say which"
    if has_required_parts(snapshot.schema):
        return "parts of columns are NOT NULL, which is checked on the rows as they will be"
    if _is_constrained(snapshot) and not _takes_whole_rows(spec.clauses, snapshot, rows):
        return (
            "rows that the table would refuse are looked for among those as they will be, and a part of the columns or clauses "
            "does not make them (NOT NULL, CHECK, or a partition column of text, which holds no empty text)"
        )
    if order_of(snapshot):
        return "the table has a sort order, in which delta_rs does not write"
    if any(rows.types[key].id in ("float", "double") for key in spec.keys):
        return "a key is a floating number, and delta_rs compares NaN and -0.0 in its own way"
    if any(rows.types[key].id in ("list", "struct", "map", "blob") for key in spec.keys):
        return "a key is nested or binary"
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


def _plain(clauses: Sequence[MergeClause]) -> bool:
    """True for one update and one insert at most, of columns as they come, with no condition on either."""
    kinds = [c.kind for c in clauses]
    return (
        len(set(kinds)) == len(kinds)
        and not any(kind.startswith("not_matched_by_source") for kind in kinds)
        and all(c.condition is None and c.set is None for c in clauses)
        and not ("matched_update" in kinds and "matched_delete" in kinds)
    )


def merge(job: Job, snapshot: Snapshot, rows: Rows, keys: Sequence[str], clauses: Sequence[MergeClause]) -> Commit:
    """Merge finished rows by keys; the clauses take columns as they come."""
    columns = [name for name in snapshot.schema.names if name in rows.types]
    finished = [
        clause
        if clause.kind.endswith("delete")
        else replace(clause, columns=tuple(assigned_by(clause, columns, snapshot.ref)), set=None)
        for clause in clauses
    ]
    reason = "asked for: key equality and finished columns"
    what = f"{job.spec.mode} on table {job.transaction.ref}"
    with job.engine.arbiter.merge(job.engine.duckdb_limit, what) as job.shares:
        version = delta_rs.merge(
            job.transaction,
            snapshot,
            rows,
            job.spec,
            keys=keys,
            clauses=finished,
            shares=job.shares,
            writer="delta_rs",
            reason=reason,
        )
    if version == snapshot.version:
        return job.transaction.nothing(snapshot, "no row matched and none was to be inserted")
    return job.transaction.committed(version, writer="delta_rs", reason=reason)
