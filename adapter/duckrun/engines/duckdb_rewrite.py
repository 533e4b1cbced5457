"""Changes of rows that are there: merge, delete+insert, update, delete, replace.

DuckDB finds the rows (by file and row number of the pinned version) and computes the new values, so expressions mean
what they mean in DuckDB. Merges by plain key equality go to delta_rs as finished columns; everything else is staged.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import duckdb

from duckrun.engines.duckdb_source import Rows
from duckrun.engines.duckdb_sql import delta_scan
from duckrun.engines.writers import delta_rs, staged
from duckrun.errors import DuplicateSourceKeys, InvalidConfig, UnsupportedFeature
from duckrun.specs import Commit, DeleteInsertSpec, MergeClause, MergeSpec, ScanFile
from duckrun.sql import columns_of, quote_identifier, quote_literal, transpile
from duckrun.table import Snapshot, TableRef

if TYPE_CHECKING:
    from duckrun.engines.duckdb_write import Job

_FILE, _ROW, _ACTION = "__duckrun_file", "__duckrun_row", "__duckrun_action"
_KEY = "__duckrun_key_"
# delta_rs holds the source of a merge several times over, and not all of it counts towards its spill limit: measured
# with a source of 190 MB, 0.4 GB above a limit of 0.8 GB.
_SOURCE_OF_SPILL = 0.1


def refuse_duplicate_keys(ref: TableRef, rows: Rows, keys: Sequence[str]) -> None:
    """Raise DuplicateSourceKeys, with the count and three of them. NULL keys never match, so they may repeat."""
    names = ", ".join(quote_identifier(k) for k in keys)
    present = " AND ".join(f"{quote_identifier(k)} IS NOT NULL" for k in keys)
    doubled = f"SELECT {names}, count(*) AS n FROM ({rows.sql}) WHERE {present} GROUP BY {names} HAVING count(*) > 1"
    found = rows.cursor.execute(f"SELECT *, count(*) OVER () FROM ({doubled}) ORDER BY ALL LIMIT 3").fetchall()
    if found:
        shown = "; ".join(
            ", ".join(f"{k} = {v!r}" for k, v in zip(keys, row, strict=False)) + f" ({row[len(keys)]} times)"
            for row in found
        )
        raise DuplicateSourceKeys(
            f"The source of the merge into table {ref} holds {found[0][-1]} keys more than once: {shown}. "
            "Remove the duplicates, or choose keys that are unique; nothing was written."
        )


# -- merge


def merge(job: Job, spec: MergeSpec, snapshot: Snapshot, rows: Rows) -> Commit:
    """Merge by the writer that can: delta_rs for key equality, staged for the rest."""
    clauses = [_translated(clause, spec.dialect) for clause in spec.clauses]
    why_staged = _why_staged(spec, snapshot, rows)
    if why_staged is not None:
        return _merge_staged(job, spec, clauses, snapshot, rows, why_staged)
    fitted, new_columns = job.finished(rows, snapshot, schema_mode=_merge_schema_mode(spec, rows, snapshot))
    adds_columns = bool(new_columns) and spec.schema_mode != "fail"
    if not adds_columns and _arrow_bytes(rows) > job.shares.spill * _SOURCE_OF_SPILL:
        why = "the source is large for delta_rs's share of the memory; DuckDB's join spills to disk"
        return _merge_staged(job, spec, clauses, snapshot, rows, why)
    try:
        if _plain(clauses):
            return _merge_plain(job, spec, clauses, snapshot, fitted, new_columns)
        return _merge_actions(job, spec, clauses, snapshot, fitted, new_columns)
    except delta_rs.OutOfShare:
        if adds_columns:
            raise
        why = "delta_rs did not get by with its share of the memory; DuckDB's join spills to disk"
        return _merge_staged(job, spec, clauses, snapshot, rows, why)


def _arrow_bytes(rows: Rows) -> int:
    """About how many bytes the rows take as Arrow, by a sample of them."""
    row = rows.cursor.execute(f"SELECT count(*) FROM ({rows.sql})").fetchone()
    count = int(row[0]) if row else 0
    sample = rows.cursor.sql(f"SELECT * FROM ({rows.sql}) LIMIT 2048").to_arrow_table()
    return 0 if not sample.num_rows else sample.nbytes * count // sample.num_rows


def _translated(clause: MergeClause, dialect: str) -> MergeClause:
    condition = None if clause.condition is None else transpile(clause.condition, dialect, "duckdb")
    assigned = None if clause.set is None else {c: transpile(v, dialect, "duckdb") for c, v in clause.set.items()}
    return MergeClause(clause.kind, condition, clause.columns, assigned)


def _why_staged(spec: MergeSpec, snapshot: Snapshot, rows: Rows) -> str | None:
    if spec.on is not None:
        return "the condition is more than key equality"
    if any(clause.kind.startswith("not_matched_by_source") for clause in spec.clauses):
        return "a clause concerns rows that the source has not"
    if any(rows.types[key].id in ("float", "double") for key in spec.keys):
        return "a key is a floating number, and delta_rs compares NaN and -0.0 in its own way"
    if any(rows.types[key].id in ("list", "struct", "map", "blob") for key in spec.keys):
        return "a key is nested or binary"
    if "deletionVectors" in snapshot.reader_features and any(f.deletion_vector for f in snapshot.files()):
        return "files have deletion vectors"
    return None


def _merge_schema_mode(spec: MergeSpec, rows: Rows, snapshot: Snapshot) -> str:
    """A merge that names its columns needs only those of the source."""
    if spec.schema_mode != "fail":
        return spec.schema_mode
    named = all(c.columns is not None or c.set is not None or c.kind.endswith("delete") for c in spec.clauses)
    return "append_new_columns" if named else "fail"


def _plain(clauses: Sequence[MergeClause]) -> bool:
    """True for one update and one insert at most, of columns as they come, with no condition on either."""
    kinds = [c.kind for c in clauses]
    return (
        len(set(kinds)) == len(kinds)
        and all(c.condition is None and c.set is None for c in clauses)
        and not ("matched_update" in kinds and "matched_delete" in kinds)
    )


def _assigned(clause: MergeClause, columns: Sequence[str], ref: TableRef) -> dict[str, str]:
    """Target column -> SQL over the aliases source and target."""
    if clause.set is not None:
        chosen = dict(clause.set)
    else:
        chosen = {c: f"source.{quote_identifier(c)}" for c in (clause.columns or columns)}
    unknown = [c for c in chosen if c not in columns]
    if unknown:
        raise InvalidConfig(
            f"Table {ref} has no column {', '.join(unknown)}, which the merge sets; it has {', '.join(columns)}."
        )
    return chosen


def _merge_plain(
    job: Job, spec: MergeSpec, clauses: Sequence[MergeClause], snapshot: Snapshot, rows: Rows, new: Sequence[str]
) -> Commit:
    reason = "key equality and finished columns"
    columns = list(rows.types)

    def named(kind: str) -> list[tuple[str | None, Mapping[str, str]]]:
        found = [c for c in clauses if c.kind == kind]
        return [
            (None, {c: c for c in _checked(clause.columns or columns, columns, job.transaction.ref)})
            for clause in found
        ]

    version = delta_rs.merge(
        job.transaction,
        snapshot,
        rows,
        keys=[(k, k) for k in spec.keys],
        updates=named("matched_update"),
        deletes=[None for c in clauses if c.kind == "matched_delete"],
        inserts=named("not_matched_insert"),
        shares=job.shares,
        new_schema=bool(new),
        writer="delta_rs",
        reason=reason,
    )
    return _merged(job, snapshot, version, reason)


def _checked(chosen: Sequence[str], columns: Sequence[str], ref: TableRef) -> Sequence[str]:
    unknown = [c for c in chosen if c not in columns]
    if unknown:
        raise InvalidConfig(f"Table {ref} has no column {', '.join(unknown)}, which the merge names.")
    return chosen


def _merged(job: Job, snapshot: Snapshot, version: int, reason: str) -> Commit:
    if version == snapshot.version:
        return job.nothing(snapshot, "no row matched and none was to be inserted")
    return job.done(version, "delta_rs", reason)


def _merge_actions(
    job: Job, spec: MergeSpec, clauses: Sequence[MergeClause], snapshot: Snapshot, rows: Rows, new: Sequence[str]
) -> Commit:
    """DuckDB joins source and pinned target and decides; delta_rs carries the decisions out by key."""
    if new and spec.schema_mode == "fail":
        new = []
    reason = "conditions and expressions computed by DuckDB, rows merged by key"
    columns = list(snapshot.schema.names) + [c for c in new if c not in snapshot.schema.names]
    table = f"__duckrun_actions_{uuid.uuid4().hex}"
    cursor = rows.cursor
    sql = _decided(spec, clauses, snapshot, rows, columns, job.transaction.ref)
    cursor.execute(f"CREATE TEMP TABLE {quote_identifier(table)} AS {sql}")
    try:
        if _matched_twice(cursor, table, len(spec.keys)):
            reason = "a key that is merged is in the table more than once, and each of its rows is decided on its own"
            return _merge_staged(job, spec, clauses, snapshot, rows, reason)
        select = f"SELECT * FROM {quote_identifier(table)} WHERE {_ACTION} IS NOT NULL"
        relation = cursor.sql(select)
        decided = Rows(cursor, select, dict(zip(relation.columns, relation.types, strict=True)))
        count = relation.count("*").fetchone()
        if not count or not count[0]:
            return job.nothing(snapshot, "no clause applied to any row")
        updates: list[tuple[str | None, Mapping[str, str]]] = []
        deletes: list[str | None] = []
        inserts: list[tuple[str | None, Mapping[str, str]]] = []
        for index, clause in enumerate(clauses):
            condition = f"source.{quote_identifier(_ACTION)} = {index}"
            if clause.kind == "matched_delete":
                deletes.append(condition)
            else:
                chosen = {c: c for c in _assigned(clause, columns, job.transaction.ref)}
                (updates if clause.kind == "matched_update" else inserts).append((condition, chosen))
        version = delta_rs.merge(
            job.transaction,
            snapshot,
            decided,
            keys=[(key, f"{_KEY}{i}") for i, key in enumerate(spec.keys)],
            updates=updates,
            deletes=deletes,
            inserts=inserts,
            shares=job.shares,
            new_schema=bool(new),
            writer="delta_rs",
            reason=reason,
        )
    finally:
        cursor.execute(f"DROP TABLE {quote_identifier(table)}")
    return _merged(job, snapshot, version, reason)


def _matched_twice(cursor: duckdb.DuckDBPyConnection, table: str, keys: int) -> bool:
    """True if one source row met several rows of the target: its keys are unique, so only those can repeat it."""
    names = [quote_identifier(f"{_KEY}{i}") for i in range(keys)]
    present = " AND ".join(f"{name} IS NOT NULL" for name in names)
    sql = f"SELECT 1 FROM {quote_identifier(table)} WHERE {present} GROUP BY {', '.join(names)} HAVING count(*) > 1 LIMIT 1"
    return cursor.execute(sql).fetchone() is not None


def _decided(
    spec: MergeSpec,
    clauses: Sequence[MergeClause],
    snapshot: Snapshot,
    rows: Rows,
    columns: Sequence[str],
    ref: TableRef,
) -> str:
    """Each source row with the number of the clause that applies (NULL: none), its key, and its new values."""
    on = " AND ".join(f"target.{quote_identifier(k)} = source.{quote_identifier(k)}" for k in spec.keys)
    target = f"(SELECT *, true AS __duckrun_here FROM {delta_scan(snapshot.ref.location, snapshot.version)})"
    whens: list[str] = []
    values: dict[str, list[str]] = {c: [] for c in columns}
    for index, clause in enumerate(clauses):
        matched = clause.kind.startswith("matched")
        here = "target.__duckrun_here IS NOT NULL" if matched else "target.__duckrun_here IS NULL"
        test = here if clause.condition is None else f"{here} AND ({clause.condition})"
        whens.append(f"WHEN {test} THEN {index}")
        if not clause.kind.endswith("delete"):
            for column, expression in _assigned(clause, columns, ref).items():
                values[column].append(f"WHEN {index} THEN {expression}")
    action = f"CASE {' '.join(whens)} END"
    kinds = {c: _stored(rows, snapshot, c) for c in columns}
    outputs = [
        f"CAST({f'CASE {_ACTION} {chr(32).join(values[c])} END' if values[c] else 'NULL'} AS {kinds[c]}) AS {quote_identifier(c)}"
        for c in columns
    ]
    keys = [f"source.{quote_identifier(k)} AS {quote_identifier(f'{_KEY}{i}')}" for i, k in enumerate(spec.keys)]
    joined = f"({rows.sql}) AS source LEFT JOIN {target} AS target ON {on}"
    return f"SELECT {action} AS {_ACTION}, {', '.join(keys)}, {', '.join(outputs)} FROM {joined}"


def _stored(rows: Rows, snapshot: Snapshot, column: str) -> str:
    if column in snapshot.schema.names:
        relation = rows.cursor.from_arrow(snapshot.schema.empty_table().select([column]))
        return str(relation.types[0])
    return str(rows.types[column])


def inserted_alone(spec: MergeSpec, rows: Rows) -> str:
    """What a merge into an empty table inserts, as SQL."""
    clauses = [_translated(c, spec.dialect) for c in spec.clauses if c.kind == "not_matched_insert"]
    columns = list(rows.types)
    whens, chosen = [], []
    for index, clause in enumerate(clauses):
        whens.append(f"WHEN {clause.condition or 'true'} THEN {index}")
        chosen.append(
            dict(clause.set)
            if clause.set is not None
            else {c: f"source.{quote_identifier(c)}" for c in (clause.columns or columns)}
        )
    if not clauses:
        return f"SELECT * FROM ({rows.sql}) LIMIT 0"
    names = list(dict.fromkeys([*columns, *(c for clause in chosen for c in clause)]))
    outputs = []
    for name in names:
        branches = " ".join(f"WHEN {i} THEN {clause[name]}" for i, clause in enumerate(chosen) if name in clause)
        value = f"CASE {_ACTION} {branches} END" if branches else "NULL"
        outputs.append(
            f"{f'CAST({value} AS {rows.types[name]})' if name in rows.types else value} AS {quote_identifier(name)}"
        )
    inner = f"SELECT *, CASE {' '.join(whens)} END AS {_ACTION} FROM ({rows.sql}) AS source"
    return f"SELECT {', '.join(outputs)} FROM ({inner}) AS source WHERE {_ACTION} IS NOT NULL"


def _merge_staged(
    job: Job, spec: MergeSpec, clauses: Sequence[MergeClause], snapshot: Snapshot, rows: Rows, reason: str
) -> Commit:
    fitted, new = job.finished(rows, snapshot, schema_mode=_merge_schema_mode(spec, rows, snapshot))
    if new and spec.schema_mode != "fail":
        raise UnsupportedFeature(
            f"Table {job.transaction.ref}: this merge cannot add the columns {', '.join(new)} on the duckdb engine, since "
            f"{reason}. Run it with engine: spark, or append with schema_mode append_new_columns first."
        )
    columns, ref = list(snapshot.schema.names), job.transaction.ref
    on = " AND ".join(f"target.{quote_identifier(k)} = source.{quote_identifier(k)}" for k in spec.keys)
    if spec.on is not None:
        on += f" AND ({transpile(spec.on, spec.dialect, 'duckdb')})"
    target, source = f"({_numbered(snapshot)}) AS target", f"({fitted.sql}) AS source"
    kinds = {c: _stored(rows, snapshot, c) for c in columns}
    cursor, name = rows.cursor, quote_identifier(f"__duckrun_changes_{uuid.uuid4().hex}")

    def decided(kind: str, joined: str, where: str = "true") -> str | None:
        chosen = [(i, c) for i, c in enumerate(clauses) if c.kind.rsplit("_", 1)[0] == kind]
        if not chosen:
            return None
        whens = " ".join(f"WHEN {c.condition or 'true'} THEN {i}" for i, c in chosen)
        old = kind != "not_matched"
        outputs = []
        for column in columns:
            branches = " ".join(
                f"WHEN {i} THEN {_assigned(c, columns, ref).get(column, f'target.{quote_identifier(column)}' if old else 'NULL')}"
                for i, c in chosen
                if not c.kind.endswith("delete")
            )
            value = f"CASE {_ACTION} {branches} END" if branches else "NULL"
            outputs.append(f"CAST({value} AS {kinds[column]}) AS {quote_identifier(column)}")
        place = f"target.{_FILE}, target.{_ROW}" if old else f"NULL AS {_FILE}, NULL AS {_ROW}"
        case = f"CASE {whens} END AS {_ACTION}"
        return f"SELECT * FROM (SELECT {place}, {case}, {', '.join(outputs)} FROM {joined} WHERE {where}) WHERE {_ACTION} IS NOT NULL"

    parts = [
        decided("matched", f"{target} JOIN {source} ON {on}"),
        decided("not_matched_by_source", f"{target} ANTI JOIN {source} ON {on}"),
        decided("not_matched", f"{source} ANTI JOIN {target} ON {on}"),
    ]
    cursor.execute(f"CREATE TEMP TABLE {name} AS {' UNION ALL '.join(p for p in parts if p)}")
    try:
        deleting = ", ".join(str(i) for i, c in enumerate(clauses) if c.kind.endswith("delete")) or "-1"
        names = ", ".join(quote_identifier(c) for c in columns)
        added = f"SELECT {names} FROM {name} WHERE {_ACTION} NOT IN ({deleting})"
        counts = cursor.execute(
            f"SELECT count(*) FILTER ({_ROW} IS NULL), count(*) FILTER ({_ROW} IS NOT NULL AND {_ACTION} NOT IN ({deleting})), "
            f"count(*) FILTER ({_ACTION} IN ({deleting})) FROM {name}"
        ).fetchone()
        hits = f"SELECT {_FILE}, {_ROW} FROM {name} WHERE {_ROW} IS NOT NULL"
        return _rewrite(job, snapshot, cursor, hits, added, reason, counts or (0, 0, 0))
    finally:
        cursor.execute(f"DROP TABLE {name}")


# -- the other changes


def delete_insert(job: Job, spec: DeleteInsertSpec, snapshot: Snapshot, rows: Rows) -> Commit:
    """Delete the rows whose key the source has, then insert the source: one commit. Keys may repeat."""
    fitted, new = job.finished(rows, snapshot, schema_mode=spec.schema_mode)
    if new:
        raise UnsupportedFeature(
            f"Table {job.transaction.ref}: delete+insert cannot add the columns {', '.join(new)} on the duckdb engine; append with "
            "schema_mode append_new_columns first, or run this with engine: spark."
        )
    on = " AND ".join(f"target.{quote_identifier(k)} = source.{quote_identifier(k)}" for k in spec.keys)
    where = "" if spec.predicate is None else f" WHERE ({transpile(spec.predicate, spec.dialect, 'duckdb')}) IS TRUE"
    keys = ", ".join(quote_identifier(k) for k in spec.keys)
    hits = (
        f"SELECT target.{_FILE}, target.{_ROW} FROM (SELECT * FROM ({_numbered(snapshot)}){where}) AS target "
        f"SEMI JOIN (SELECT {keys} FROM ({fitted.sql})) AS source ON {on}"
    )
    reason = "rows are deleted and inserted in one commit"
    inserted = rows.cursor.execute(f"SELECT count(*) FROM ({rows.sql})").fetchone()
    return _rewrite(job, snapshot, rows.cursor, hits, fitted.sql, reason, (inserted[0] if inserted else 0, 0, None))


def delete(job: Job, snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection, predicate: str | None) -> Commit:
    """Delete the rows for which a predicate is true."""
    reason = "files with rows to delete are written anew without them"
    whole = _whole_files(snapshot, cursor, predicate)
    if whole is not None:
        return _swap(job, snapshot, (), whole, "whole files go by their partition", (0, 0, None))
    hits = f"SELECT {_FILE}, {_ROW} FROM ({_numbered(snapshot)}) WHERE ({predicate}) IS TRUE"
    return _rewrite(job, snapshot, cursor, hits, None, reason, (0, 0, None))


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
    numbered = _numbered(snapshot)
    hits = f"SELECT {_FILE}, {_ROW} FROM ({numbered}) WHERE {where}"
    changed = f"SELECT {outputs} FROM ({numbered}) WHERE {where}"
    fitted, _ = job.finished(Rows(cursor, changed, kinds), snapshot)
    count = cursor.execute(f"SELECT count(*) FROM ({hits})").fetchone()
    reason = "files with rows to update are written anew with the new values"
    return _rewrite(job, snapshot, cursor, hits, fitted.sql, reason, (0, count[0] if count else 0, 0))


def replace(job: Job, snapshot: Snapshot, rows: Rows, predicate: str | None, reason: str) -> Commit:
    """Put rows in the place of those for which a predicate is true; with None, of the partitions that they lie in."""
    if predicate is None:
        if not snapshot.partition_columns:
            raise InvalidConfig(
                f"Table {job.transaction.ref} has no partitions to replace; give a predicate, or use mode overwrite."
            )
        files = job.staged(rows, snapshot.partition_columns)
        present = staged.partitions_of(files)
        gone = [f for f in snapshot.files() if tuple(sorted(f.partition_values.items())) in present]
        return _swap(job, snapshot, files, gone, reason, (sum(f.rows for f in files), 0, None))
    whole = _whole_files(snapshot, rows.cursor, predicate)
    if whole is not None:
        files = job.staged(rows, snapshot.partition_columns)
        return _swap(job, snapshot, files, whole, reason, (sum(f.rows for f in files), 0, None))
    hits = f"SELECT {_FILE}, {_ROW} FROM ({_numbered(snapshot)}) WHERE ({predicate}) IS TRUE"
    return _rewrite(job, snapshot, rows.cursor, hits, job.kept(rows), reason, (None, 0, None))


def _numbered(snapshot: Snapshot) -> str:
    """SELECT of a table's rows, each with its file and its number in it."""
    scan = delta_scan(snapshot.ref.location, snapshot.version, filename=True, file_row_number=True)
    names = ", ".join(quote_identifier(c) for c in snapshot.schema.names)
    return f"SELECT {names}, filename AS {_FILE}, file_row_number AS {_ROW} FROM {scan}"


def _whole_files(snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection, predicate: str | None) -> list[ScanFile] | None:
    """The files all of whose rows satisfy a predicate over partition columns alone; None where it is not such a one."""
    files = snapshot.files()
    if predicate is None:
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
        f"SELECT __duckrun_index FROM (VALUES {rows}) AS partitions({names}) WHERE ({predicate}) IS TRUE"
    ).fetchall()
    return [files[i] for (i,) in found]


def _typed(value: str | None, kind: object) -> str:
    if value is None:
        return f"CAST(NULL AS {kind})"
    if str(kind) == "TIMESTAMP WITH TIME ZONE" and "+" not in value and not value.endswith("Z"):
        value += "+00"
    return f"CAST({quote_literal(value)} AS {kind})"


def _rewrite(
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
        touched = {path for (path,) in cursor.execute(f"SELECT DISTINCT {_FILE} FROM {name}").fetchall()}
        by_path = {f"{snapshot.ref.location}/{f.path}": f for f in snapshot.files()}
        gone = [by_path[path] for path in touched]
        row = cursor.execute(f"SELECT count(*) FROM {name}").fetchone()
        matched = row[0] if row else 0
        names = ", ".join(quote_identifier(c) for c in snapshot.schema.names)
        selects = []
        if touched:
            inside = ", ".join(quote_literal(p) for p in touched)
            selects.append(
                f"SELECT {names} FROM ({_numbered(snapshot)} WHERE filename IN ({inside})) AS kept "
                f"ANTI JOIN {name} AS hit ON kept.{_FILE} = hit.{_FILE} AND kept.{_ROW} = hit.{_ROW}"
            )
        one_shot = isinstance(added, Rows) and added.one_shot
        if added is not None:
            selects.append(f"SELECT {names} FROM ({added.sql if isinstance(added, Rows) else added})")
        if not selects:
            return job.nothing(snapshot, "no row was concerned")
        sql = " UNION ALL ".join(selects)
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
        if not files and not gone:
            return job.nothing(snapshot, "no row was concerned")
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
    if not files and not gone:
        return job.nothing(snapshot, "no row was concerned")
    inserted, updated, deleted = counts
    version = staged.commit(
        job.transaction,
        snapshot,
        files,
        gone,
        schema=snapshot.schema,
        writer="staged",
        reason=reason,
        rows_inserted=inserted,
        rows_updated=updated,
        rows_deleted=deleted,
    )
    return job.done(version, "staged", reason)
