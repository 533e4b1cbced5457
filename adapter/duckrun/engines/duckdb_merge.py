"""Merge on DuckDB: plain key equality goes to delta_rs as finished columns, everything else is decided here and staged."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import duckdb

from duckrun.engines.duckdb_rewrite import FILE, ROW, numbered, rewrite
from duckrun.engines.duckdb_source import Rows
from duckrun.engines.duckdb_sql import delta_scan
from duckrun.engines.duckdb_target import definition_of
from duckrun.engines.writers import delta_rs
from duckrun.errors import DuplicateSourceKeys, InvalidConfig, repeated_keys
from duckrun.formats.definition import sort_order
from duckrun.specs import Commit, MergeClause, MergeSpec
from duckrun.sql import quote_identifier, transpile
from duckrun.table import Snapshot, TableRef

if TYPE_CHECKING:
    from duckrun.engines.duckdb_write import Job

_ACTION = "__duckrun_action"
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
        raise DuplicateSourceKeys(
            f"The source of the merge into table {ref} holds {found[0][-1]} keys more than once: {repeated_keys(keys, found)}. "
            "Remove the duplicates, or choose keys that are unique; nothing was written."
        )


def merge(job: Job, spec: MergeSpec, snapshot: Snapshot, rows: Rows) -> Commit:
    """Merge by the writer that can: delta_rs for key equality, staged for the rest."""
    clauses = [_translated(clause, spec.dialect) for clause in spec.clauses]
    snapshot = job.target(snapshot, rows, spec.schema_mode)
    why_staged = _why_staged(spec, snapshot, rows)
    if why_staged is not None:
        return _merge_staged(job, spec, clauses, snapshot, rows, why_staged)
    fitted, _ = job.finished(rows, snapshot, schema_mode=_merge_schema_mode(spec, rows, snapshot))
    if _arrow_bytes(rows) > job.shares.spill * _SOURCE_OF_SPILL:
        why = "the source is large for delta_rs's share of the memory; DuckDB's join spills to disk"
        return _merge_staged(job, spec, clauses, snapshot, rows, why)
    try:
        if _plain(clauses):
            return _merge_plain(job, spec, clauses, snapshot, fitted)
        return _merge_actions(job, spec, clauses, snapshot, fitted)
    except delta_rs.OutOfShare:
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
    if definition_of(snapshot) is not None:
        return "columns are added, go or change their type, and delta_rs would not keep the rest of the definition"
    if spec.on is not None:
        return "the condition is more than key equality"
    if sort_order(snapshot.properties):
        return "the table has a sort order, in which delta_rs does not write"
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


def _merge_plain(job: Job, spec: MergeSpec, clauses: Sequence[MergeClause], snapshot: Snapshot, rows: Rows) -> Commit:
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


def _merge_actions(job: Job, spec: MergeSpec, clauses: Sequence[MergeClause], snapshot: Snapshot, rows: Rows) -> Commit:
    """DuckDB joins source and pinned target and decides; delta_rs carries the decisions out by key."""
    reason = "conditions and expressions computed by DuckDB, rows merged by key"
    columns = list(snapshot.schema.names)
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
    fitted, _ = job.finished(rows, snapshot, schema_mode=_merge_schema_mode(spec, rows, snapshot))
    columns, ref = list(snapshot.schema.names), job.transaction.ref
    on = " AND ".join(f"target.{quote_identifier(k)} = source.{quote_identifier(k)}" for k in spec.keys)
    if spec.on is not None:
        on += f" AND ({transpile(spec.on, spec.dialect, 'duckdb')})"
    target, source = f"({numbered(snapshot, rows.cursor)}) AS target", f"({fitted.sql}) AS source"
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
        place = f"target.{FILE}, target.{ROW}" if old else f"NULL AS {FILE}, NULL AS {ROW}"
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
            f"SELECT count(*) FILTER ({ROW} IS NULL), count(*) FILTER ({ROW} IS NOT NULL AND {_ACTION} NOT IN ({deleting})), "
            f"count(*) FILTER ({_ACTION} IN ({deleting})) FROM {name}"
        ).fetchone()
        hits = f"SELECT {FILE}, {ROW} FROM {name} WHERE {ROW} IS NOT NULL"
        return rewrite(job, snapshot, cursor, hits, added, reason, counts or (0, 0, 0))
    finally:
        cursor.execute(f"DROP TABLE {name}")
