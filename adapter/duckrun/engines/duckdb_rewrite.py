"""Changes of rows that are there: delete+insert, update, delete, replace.

DuckDB finds the rows (by file and row number of the pinned version) and computes the new values, so expressions mean
what they mean in DuckDB. The files that hold them are written anew, and change places with the old ones in one commit.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import duckdb

from duckrun.engines.duckdb_alter import order_by
from duckrun.engines.duckdb_fit import types_of
from duckrun.engines.duckdb_source import Rows
from duckrun.engines.duckdb_sql import delta_scan
from duckrun.engines.duckdb_target import definition_of, rows_of, written_anew
from duckrun.engines.table_job import REWRITTEN
from duckrun.engines.writers import staged
from duckrun.errors import DuplicateSourceKeys, InvalidConfig, repeated_keys
from duckrun.formats.definition import sort_order
from duckrun.specs import Commit, DeleteInsertSpec, ScanFile, counted_rows
from duckrun.sql import columns_of, quote_identifier, quote_literal, transpile
from duckrun.table import Snapshot

if TYPE_CHECKING:
    from duckrun.engines.duckdb_write import Job

FILE, ROW = "__duckrun_file", "__duckrun_row"


def delete_insert(job: Job, spec: DeleteInsertSpec, snapshot: Snapshot, rows: Rows) -> Commit:
    """Delete the rows whose key the source has, then insert the source: one commit. Keys may repeat."""
    snapshot = job.target(snapshot, rows, spec.schema_mode)
    fitted, _ = job.finished(rows, snapshot, schema_mode=spec.schema_mode)
    on = " AND ".join(f"target.{quote_identifier(k)} = source.{quote_identifier(k)}" for k in spec.keys)
    where = "" if spec.predicate is None else f" WHERE ({transpile(spec.predicate, spec.dialect, 'duckdb')}) IS TRUE"
    keys = ", ".join(quote_identifier(k) for k in spec.keys)
    hits = (
        f"SELECT target.{FILE}, target.{ROW} FROM (SELECT * FROM ({numbered(snapshot, rows.cursor)}){where}) AS target "
        f"SEMI JOIN (SELECT {keys} FROM ({fitted.sql})) AS source ON {on}"
    )
    reason = "rows are deleted and inserted in one commit"
    inserted = rows.cursor.execute(f"SELECT count(*) FROM ({rows.sql})").fetchone()
    return rewrite(job, snapshot, rows.cursor, hits, fitted.sql, reason, (inserted[0] if inserted else 0, 0, None))


def delete_matched(job: Job, snapshot: Snapshot, rows: Rows, predicate: str | None) -> Commit:
    """Delete the rows for which a predicate over target and source is true with any row of the source."""
    hits = (
        f"SELECT DISTINCT target.{FILE}, target.{ROW} FROM ({numbered(snapshot, rows.cursor)}) AS target "
        f"JOIN ({rows.sql}) AS source ON ({predicate or 'true'}) IS TRUE"
    )
    reason = "files with rows to delete are written anew without them"
    return rewrite(job, snapshot, rows.cursor, hits, None, reason, (0, 0, None))


def update_matched(
    job: Job, snapshot: Snapshot, rows: Rows, predicate: str | None, assigned: Mapping[str, str]
) -> Commit:
    """Set columns to expressions over target and source where a predicate over both is true: with one row of the source
    at most.
    """
    cursor, name = rows.cursor, quote_identifier(f"__duckrun_updates_{uuid.uuid4().hex}")
    kinds = types_of(snapshot, cursor)
    outputs = ", ".join(
        f"CAST({assigned.get(c, f'target.{quote_identifier(c)}')} AS {kinds[c]}) AS {quote_identifier(c)}"
        for c in kinds
    )
    cursor.execute(
        f"CREATE TEMP TABLE {name} AS SELECT target.{FILE}, target.{ROW}, {outputs} FROM ({numbered(snapshot, cursor)}) AS target "
        f"JOIN ({rows.sql}) AS source ON ({predicate or 'true'}) IS TRUE"
    )
    try:
        _refuse_several(job, cursor, name, list(kinds))
        count = cursor.execute(f"SELECT count(*) FROM {name}").fetchone()
        columns = ", ".join(quote_identifier(c) for c in kinds)
        fitted, _ = job.finished(Rows(cursor, f"SELECT {columns} FROM {name}", kinds), snapshot)
        reason = "files with rows to update are written anew with the new values"
        hits = f"SELECT {FILE}, {ROW} FROM {name}"
        return rewrite(job, snapshot, cursor, hits, fitted.sql, reason, (0, count[0] if count else 0, 0))
    finally:
        cursor.execute(f"DROP TABLE {name}")


def _refuse_several(job: Job, cursor: duckdb.DuckDBPyConnection, name: str, columns: Sequence[str]) -> None:
    """Raise DuplicateSourceKeys if a row of the table met several rows of the source, with the count and three of them."""
    shown = ", ".join(f"first({quote_identifier(c)}) AS {quote_identifier(c)}" for c in columns[:6])
    several = f"SELECT {shown}, count(*) AS n FROM {name} GROUP BY {FILE}, {ROW} HAVING count(*) > 1"
    found = cursor.execute(f"SELECT *, count(*) OVER () FROM ({several}) ORDER BY ALL LIMIT 3").fetchall()
    if found:
        raise DuplicateSourceKeys(
            f"The update of table {job.transaction.ref} meets several rows of its source for {found[0][-1]} rows, so that the "
            f"outcome would be arbitrary: {repeated_keys(columns[:6], found)}. Nothing was written; keep one row of the source for each."
        )


def delete(job: Job, snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection, predicate: str | None) -> Commit:
    """Delete the rows for which a predicate is true."""
    reason = "files with rows to delete are written anew without them"
    whole = whole_files(snapshot, cursor, predicate)
    if whole is not None:
        return _swap(job, snapshot, (), whole, "whole files go", (0, 0, counted_rows(whole)))
    hits = f"SELECT {FILE}, {ROW} FROM ({numbered(snapshot, cursor)}) AS target WHERE ({predicate}) IS TRUE"
    return rewrite(job, snapshot, cursor, hits, None, reason, (0, 0, None))


def update(
    job: Job, snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection, predicate: str | None, assigned: Mapping[str, str]
) -> Commit:
    """Set columns to expressions where a predicate is true."""
    where = f"({predicate}) IS TRUE" if predicate else "true"
    relation = cursor.from_arrow(snapshot.schema.empty_table())
    kinds = dict(zip(relation.columns, relation.types, strict=True))
    outputs = ", ".join(
        f"CAST({assigned[c]} AS {kinds[c]}) AS {quote_identifier(c)}" if c in assigned else quote_identifier(c)
        for c in kinds
    )
    source = numbered(snapshot, cursor)
    hits = f"SELECT {FILE}, {ROW} FROM ({source}) AS target WHERE {where}"
    changed = f"SELECT {outputs} FROM ({source}) AS target WHERE {where}"
    fitted, _ = job.finished(Rows(cursor, changed, kinds), snapshot)
    count = cursor.execute(f"SELECT count(*) FROM ({hits})").fetchone()
    reason = "files with rows to update are written anew with the new values"
    return rewrite(job, snapshot, cursor, hits, fitted.sql, reason, (0, count[0] if count else 0, 0))


def replace(job: Job, snapshot: Snapshot, rows: Rows, predicate: str | None, reason: str) -> Commit:
    """Put rows in the place of those for which a predicate is true; with None, of the partitions that they lie in."""
    if predicate is None:
        if not snapshot.partition_columns:
            raise InvalidConfig(
                f"Table {job.transaction.ref} has no partitions to replace; give a predicate, or use mode overwrite."
            )
        if written_anew(snapshot):
            rows = job.kept(rows)
            return rewrite(job, snapshot, rows.cursor, _same_partitions(snapshot, rows), rows, reason, (None, 0, None))
        files = job.staged(rows, snapshot.partition_columns)
        present = staged.partitions_of(files)
        gone = [f for f in snapshot.files() if tuple(sorted(f.partition_values.items())) in present]
        return _swap(job, snapshot, files, gone, reason, (sum(f.rows for f in files), 0, None))
    whole = None if written_anew(snapshot) else whole_files(snapshot, rows.cursor, predicate)
    if whole is not None:
        files = job.staged(rows, snapshot.partition_columns)
        return _swap(job, snapshot, files, whole, reason, (sum(f.rows for f in files), 0, counted_rows(whole)))
    hits = f"SELECT {FILE}, {ROW} FROM ({numbered(snapshot, rows.cursor)}) WHERE ({predicate}) IS TRUE"
    return rewrite(job, snapshot, rows.cursor, hits, job.kept(rows), reason, (None, 0, None))


def append(job: Job, snapshot: Snapshot, rows: Rows) -> Commit:
    """Add rows to a table whose columns go or change their type with them: all of it is written anew."""
    none = f"SELECT {FILE}, {ROW} FROM ({numbered(snapshot, rows.cursor)}) WHERE false"
    rows = job.kept(rows)
    return rewrite(job, snapshot, rows.cursor, none, rows, REWRITTEN, (None, 0, 0))


def _same_partitions(snapshot: Snapshot, rows: Rows) -> str:
    names = ", ".join(quote_identifier(c) for c in snapshot.partition_columns)
    on = " AND ".join(
        f"target.{quote_identifier(c)} IS NOT DISTINCT FROM source.{quote_identifier(c)}"
        for c in snapshot.partition_columns
    )
    return (
        f"SELECT target.{FILE}, target.{ROW} FROM ({numbered(snapshot, rows.cursor)}) AS target "
        f"SEMI JOIN (SELECT DISTINCT {names} FROM ({rows.sql})) AS source ON {on}"
    )


def numbered(snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection) -> str:
    """SELECT of a table's rows, each with its file and its number in it."""
    rows = rows_of(snapshot, cursor, filename=True, file_row_number=True)
    return f"SELECT * RENAME (filename AS {FILE}, file_row_number AS {ROW}) FROM ({rows})"


def whole_files(snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection, predicate: str | None) -> list[ScanFile] | None:
    """The files all of whose rows satisfy a predicate over partition columns alone; None where it is not such a one."""
    files = snapshot.files()
    if predicate is None or predicate.lower() == "true":
        return list(files)
    used = {column for _, column in columns_of(predicate)}
    if not used or not used <= set(snapshot.partition_columns):
        return None
    if not files:
        return []
    schema = cursor.from_arrow(snapshot.schema.empty_table().select(list(snapshot.partition_columns)))
    kinds = dict(zip(schema.columns, schema.types, strict=True))
    rows = ", ".join(
        "(" + ", ".join([str(i), *(_typed(f.partition_values.get(c), kinds[c]) for c in kinds)]) + ")"
        for i, f in enumerate(files)
    )
    names = ", ".join(quote_identifier(c) for c in ("__duckrun_index", *kinds))
    found = cursor.execute(
        f"SELECT __duckrun_index FROM (VALUES {rows}) AS target({names}) WHERE ({predicate}) IS TRUE"
    ).fetchall()
    return [files[i] for (i,) in found]


def _typed(value: str | None, kind: object) -> str:
    if value is None:
        return f"CAST(NULL AS {kind})"
    if str(kind) == "TIMESTAMP WITH TIME ZONE" and "+" not in value and not value.endswith("Z"):
        value += "+00"
    return f"CAST({quote_literal(value)} AS {kind})"


def rewrite(
    job: Job,
    snapshot: Snapshot,
    cursor: duckdb.DuckDBPyConnection,
    hits: str,
    added: str | Rows | None,
    reason: str,
    counts: Sequence[int | None],
) -> Commit:
    """Write anew the files that hold some rows, without those rows, and add others: one commit."""
    name = quote_identifier(f"__duckrun_hits_{uuid.uuid4().hex}")
    cursor.execute(f"CREATE TEMP TABLE {name} AS {hits}")
    try:
        by_path = {f"{snapshot.ref.location}/{f.path}": f for f in snapshot.files()}
        touched = {path for (path,) in cursor.execute(f"SELECT DISTINCT {FILE} FROM {name}").fetchall()}
        if written_anew(snapshot):
            touched = set(by_path)
        gone = [by_path[path] for path in touched]
        row = cursor.execute(f"SELECT count(*) FROM {name}").fetchone()
        matched = row[0] if row else 0
        names = ", ".join(quote_identifier(c) for c in snapshot.schema.names)
        selects = []
        if touched:
            inside = ", ".join(quote_literal(p) for p in touched)
            selects.append(
                f"SELECT {names} FROM (SELECT * FROM ({numbered(snapshot, cursor)}) WHERE {FILE} IN ({inside})) AS kept "
                f"ANTI JOIN {name} AS hit ON kept.{FILE} = hit.{FILE} AND kept.{ROW} = hit.{ROW}"
            )
        one_shot = isinstance(added, Rows) and added.one_shot
        if added is not None:
            selects.append(f"SELECT {names} FROM ({added.sql if isinstance(added, Rows) else added})")
        if not selects:
            return job.nothing(snapshot, "no row was concerned")
        sql = f"SELECT * FROM ({' UNION ALL '.join(selects)}){order_by(sort_order(snapshot.properties))}"
        empty = cursor.from_arrow(snapshot.schema.empty_table())
        kinds = dict(zip(empty.columns, empty.types, strict=True))
        files = staged.stage(Rows(cursor, sql, kinds, one_shot), snapshot.ref, snapshot.partition_columns)
        inserted, updated, deleted = counts
        before = sum(f.rows for f in files)
        if inserted is None:
            kept = _rows_in(cursor, snapshot, gone) - matched
            inserted = before - kept
        if deleted is None:
            deleted = matched
        if written_anew(snapshot) and reason != REWRITTEN:
            reason = f"{reason}; {REWRITTEN}"
        return _swap(job, snapshot, files, gone, reason, (inserted, updated, deleted))
    finally:
        cursor.execute(f"DROP TABLE {name}")


def _rows_in(cursor: duckdb.DuckDBPyConnection, snapshot: Snapshot, files: Sequence[ScanFile]) -> int:
    if not files:
        return 0
    inside = ", ".join(quote_literal(f"{snapshot.ref.location}/{f.path}") for f in files)
    scan = delta_scan(snapshot.ref.location, snapshot.version, filename=True)
    row = cursor.execute(f"SELECT count(*) FROM {scan} WHERE filename IN ({inside})").fetchone()
    return row[0] if row else 0


def _swap(
    job: Job,
    snapshot: Snapshot,
    files: Sequence[staged.StagedFile],
    gone: Sequence[ScanFile],
    reason: str,
    counts: Sequence[int | None],
) -> Commit:
    definition = definition_of(snapshot)
    if not files and not gone and definition is None:
        return job.nothing(snapshot, "no row was concerned")
    inserted, updated, deleted = counts
    version = staged.commit(
        job.transaction,
        snapshot,
        files,
        gone,
        fenced=getattr(job.spec, "read_version", None) is not None,
        schema=snapshot.schema,
        definition=definition,
        writer="staged",
        reason=reason,
        rows_inserted=inserted,
        rows_updated=updated,
        rows_deleted=deleted,
    )
    return job.done(version, "staged", reason)
