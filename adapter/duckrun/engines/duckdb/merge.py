"""Merge on DuckDB: plain key equality goes to delta_rs as finished columns, everything else is decided here and staged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from duckrun.engines.duckdb.change import counted, rewritten, swap
from duckrun.engines.duckdb.places import Numbered, computed, names_of, numbered
from duckrun.engines.duckdb.rows_to_write import refuse_outside, types_of
from duckrun.engines.duckdb.source import Rows, select
from duckrun.engines.duckdb.steady import is_steady
from duckrun.engines.duckdb.target import definition_of, target_of
from duckrun.engines.duckdb.writers import delta_rs
from duckrun.engines.duckdb.writers.reads import EVERYTHING, equal, has_subquery, joined
from duckrun.engines.fit import castable_columns
from duckrun.errors import DuplicateSourceKeys, InvalidConfig, repeated_keys
from duckrun.sql.names import columns_of, fresh_name, quote_identifier, transpile
from duckrun.values.columns import has_required_parts, holds
from duckrun.values.rows import Commit, MergeClause, MergeSpec, SchemaMode
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.tables import sort_order

if TYPE_CHECKING:
    from duckrun.engines.duckdb.write import Job

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


class _NotByKeys(Exception):
    """Decisions that delta_rs cannot carry out by key."""


def merge(job: Job, spec: MergeSpec, snapshot: Snapshot, rows: Rows) -> Commit:
    """Merge by the writer that can: delta_rs for key equality, staged for the rest."""
    clauses = [_translated(clause, spec.dialect) for clause in spec.clauses]
    _refuse_unsteady(spec, clauses, job.transaction.ref, rows.cursor)
    snapshot = target_of(snapshot, rows, spec.schema_mode, job.form, spec.takes)
    compared = {key: job.sql(text) for key, text in spec.compared.items()}
    clauses = [_of_source(clause, rows, snapshot) for clause in clauses]
    mode = _merge_schema_mode(spec)
    # What a table asks of its rows is not asked of these: they are not what is written.
    cast = castable_columns(spec, rows.types)
    aside = _types_compared(compared, snapshot, rows.cursor)
    source = job.finished(rows, snapshot, mode, checked=False, cast=cast, aside=aside)
    refuse_duplicate_keys(job.transaction.ref, source, spec.keys)
    if spec.within is not None:
        refuse_outside(job.transaction.ref, source, job.sql(spec.within), spec.within)
    reason = _why_staged(spec, snapshot, source)
    fitted = source if reason else job.finished(rows, snapshot, mode, cast=cast)
    if reason is None and _arrow_bytes(rows) > job.shares.spill * _SOURCE_OF_SPILL:
        reason = "the source is large for delta_rs's share of the memory; DuckDB's join spills to disk"
    if reason is None:
        try:
            if _plain(clauses):
                keys = [(key, key) for key in spec.keys]
                return _by_delta_rs(job, snapshot, fitted, keys, clauses, "key equality and finished columns")
            return _merge_actions(job, spec, clauses, snapshot, fitted)
        except delta_rs.OutOfShare:
            reason = "delta_rs did not get by with its share of the memory; DuckDB's join spills to disk"
        except _NotByKeys as why:
            reason = str(why)
    return _merge_staged(job, spec, clauses, snapshot, source, reason)


def _types_compared(
    compared: Mapping[str, str], snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection
) -> dict[str, Any]:
    """The types of what keys are compared with that are no columns of the table."""
    if not compared:
        return {}
    columns = ", ".join(
        f"CAST(NULL AS {kind}) AS {quote_identifier(n)}" for n, kind in types_of(snapshot, cursor).items()
    )
    relation = cursor.sql(f"SELECT {', '.join(compared.values())} FROM (SELECT {columns}) AS target")
    return dict(zip(compared, relation.types, strict=True))


def _arrow_bytes(rows: Rows) -> int:
    """About how many bytes the rows take as Arrow, by a sample of them."""
    sample = rows.cursor.sql(f"SELECT * FROM ({rows.sql}) LIMIT 2048").to_arrow_table()
    count = counted(rows.cursor, f"({rows.sql})")
    return 0 if not sample.num_rows else sample.nbytes * count // sample.num_rows


def _translated(clause: MergeClause, dialect: str) -> MergeClause:
    condition = None if clause.condition is None else transpile(clause.condition, dialect, "duckdb")
    assigned = None if clause.set is None else {c: transpile(v, dialect, "duckdb") for c, v in clause.set.items()}
    return MergeClause(clause.kind, condition, clause.columns, assigned)


def _of_source(clause: MergeClause, rows: Rows, snapshot: Snapshot) -> MergeClause:
    """An update of every column sets those that the source has: the others stay as they are."""
    if clause.kind != "matched_update" or clause.columns is not None or clause.set is not None:
        return clause
    given = {name.lower() for name in rows.types}
    present = tuple(name for name in snapshot.schema.names if name.lower() in given)
    return clause if len(present) == len(snapshot.schema.names) else replace(clause, columns=present)


def _refuse_unsteady(
    spec: MergeSpec, clauses: Sequence[MergeClause], ref: TableRef, cursor: duckdb.DuckDBPyConnection
) -> None:
    """Raise InvalidConfig for a condition that a row may meet once and not again: a merge asks it for each of its clauses."""
    joins = [transpile(on, spec.dialect, "duckdb") for on in (spec.on, *spec.compared.values()) if on is not None]
    for condition in (*joins, *(clause.condition for clause in clauses)):
        if condition is not None and not is_steady(condition, cursor):
            raise InvalidConfig(
                f"The merge into table {ref} has a condition whose answer changes each time it is asked: {condition}. Nothing "
                "was written; let the source have it as a column, which is computed once."
            )


def _why_staged(spec: MergeSpec, snapshot: Snapshot, rows: Rows) -> str | None:
    if definition_of(snapshot) is not None:
        return "columns are added, go or change their type, and delta_rs would not keep the rest of the definition"
    if spec.on is not None or spec.compared:
        return "the condition is more than key equality"
    if not _within_by_keys(spec):
        return "only the rows of a part of the table may match, and the keys do not say which"
    if has_required_parts(snapshot.schema):
        return "parts of columns are NOT NULL, which is checked on the rows as they will be"
    if _is_constrained(snapshot) and not _takes_whole_rows(spec.clauses, snapshot, rows):
        return "the table's constraints are checked on the rows as they will be"
    if sort_order(snapshot.properties):
        return "the table has a sort order, in which delta_rs does not write"
    if any(clause.kind.startswith("not_matched_by_source") for clause in spec.clauses):
        return "a clause concerns rows that the source has not"
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
    if any(f.deletion_vector for f in files):
        return "files have deletion vectors"
    return delta_rs.why_not_these(files)


def _is_instant(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _within_by_keys(spec: MergeSpec) -> bool:
    """True where a row that has the keys of a source row lies within what is written too, and stays there."""
    if spec.within is None:
        return True
    used = {name.lower() for _, name in columns_of(spec.within, spec.dialect)}
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


def _merge_schema_mode(spec: MergeSpec) -> SchemaMode:
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


def _values(clause: MergeClause, columns: Sequence[str]) -> dict[str, str]:
    """Target column -> SQL over the aliases source and target; nothing for a delete."""
    if clause.set is not None or clause.kind.endswith("delete"):
        return dict(clause.set or {})
    return {c: f"source.{quote_identifier(c)}" for c in (clause.columns or columns)}


def _assigned(clause: MergeClause, columns: Sequence[str], ref: TableRef) -> dict[str, str]:
    """The values of a clause for a table with these columns. Raises InvalidConfig for any other."""
    chosen = _values(clause, columns)
    unknown = [c for c in chosen if c not in columns]
    if unknown:
        raise InvalidConfig(
            f"Table {ref} has no column {', '.join(unknown)}, which the merge sets; it has {', '.join(columns)}."
        )
    return chosen


def _by_delta_rs(
    job: Job,
    snapshot: Snapshot,
    rows: Rows,
    keys: Sequence[tuple[str, str]],
    clauses: Sequence[MergeClause],
    reason: str,
) -> Commit:
    """Merge finished rows by keys, given as (target column, source column); the clauses take columns as they come."""
    columns = [name for name in snapshot.schema.names if name in rows.types]
    finished = [
        clause
        if clause.kind.endswith("delete")
        else replace(clause, columns=tuple(_assigned(clause, columns, snapshot.ref)), set=None)
        for clause in clauses
    ]
    version = delta_rs.merge(
        job.transaction,
        snapshot,
        rows,
        keys=keys,
        clauses=finished,
        shares=job.shares,
        writer="delta_rs",
        reason=reason,
    )
    if version == snapshot.version:
        return job.transaction.nothing(snapshot, "no row matched and none was to be inserted")
    return job.transaction.committed(version, writer="delta_rs", reason=reason)


def _merge_actions(job: Job, spec: MergeSpec, clauses: Sequence[MergeClause], snapshot: Snapshot, rows: Rows) -> Commit:
    """DuckDB joins source and pinned target and decides; delta_rs carries the decisions out by key."""
    cursor = rows.cursor
    action, *keys = _extra_names(snapshot, rows, len(spec.keys))
    with computed(cursor, _decided(spec, clauses, snapshot, rows, quote_identifier(action), keys)) as table:
        if _matched_twice(cursor, table, keys):
            raise _NotByKeys(
                "a key that is merged is in the table more than once, and each of its rows is decided on its own"
            )
        decided = select(cursor, f"SELECT * FROM {table} WHERE {quote_identifier(action)} IS NOT NULL")
        if not counted(cursor, f"({decided.sql})"):
            return job.transaction.nothing(snapshot, "no clause applied to any row")
        conditions = [f"source.{quote_identifier(action)} = {index}" for index in range(len(clauses))]
        carried = [replace(clause, condition=test) for clause, test in zip(clauses, conditions, strict=True)]
        reason = "conditions and expressions computed by DuckDB, rows merged by key"
        return _by_delta_rs(job, snapshot, decided, list(zip(spec.keys, keys, strict=True)), carried, reason)


def _extra_names(snapshot: Snapshot, rows: Rows, keys: int) -> list[str]:
    """Names that neither side has, of the column that says which clause applies, and of each key."""
    taken = names_of(snapshot) | set(rows.types)
    return [fresh_name(f"__duckrun_{name}", taken) for name in ("action", *(f"key_{i}" for i in range(keys)))]


def _matched_twice(cursor: duckdb.DuckDBPyConnection, table: str, keys: Sequence[str]) -> bool:
    """True if one source row met several rows of the target: its keys are unique, so only those can repeat it."""
    names = [quote_identifier(key) for key in keys]
    present = " AND ".join(f"{name} IS NOT NULL" for name in names)
    sql = f"SELECT 1 FROM {table} WHERE {present} GROUP BY {', '.join(names)} HAVING count(*) > 1 LIMIT 1"
    return cursor.execute(sql).fetchone() is not None


def _choice(
    action: str, clauses: Sequence[tuple[int, str, Mapping[str, str]]], kinds: Mapping[str, Any]
) -> tuple[str, str]:
    """SQL of the number of the clause that applies to a row, as ``action`` (NULL: none does), and of the row's new values.

    ``clauses`` are (number, the condition on which it applies, column -> value); ``kinds`` the types of all columns, None of one
    that has the type of its values. A column that a clause gives no value is NULL.
    """
    chosen = f"CASE {' '.join(f'WHEN {test} THEN {index}' for index, test, _ in clauses)} END"
    # DuckDB refuses the alias of another column where that or this one has a subquery.
    asks = has_subquery(*(test for _, test, _ in clauses if "(" in test))
    outputs = []
    for column, kind in kinds.items():
        branches = " ".join(f"WHEN {index} THEN {values[column]}" for index, _, values in clauses if column in values)
        bracketed = [values[column] for _, _, values in clauses if "(" in values.get(column, "")]
        said = f"({chosen})" if asks or has_subquery(*bracketed) else action
        value = f"CASE {said} {branches} END" if branches else "NULL"
        outputs.append(f"{value if kind is None else f'CAST({value} AS {kind})'} AS {quote_identifier(column)}")
    return f"{chosen} AS {action}", ", ".join(outputs)


def _decided(
    spec: MergeSpec, clauses: Sequence[MergeClause], snapshot: Snapshot, rows: Rows, action: str, keys: Sequence[str]
) -> str:
    """Each source row with the number of the clause that applies (NULL: none), its key, and its new values."""
    columns = snapshot.schema.names
    there = quote_identifier(fresh_name("__duckrun_here", names_of(snapshot)))
    chosen = []
    for index, clause in enumerate(clauses):
        test = f"target.{there} IS {'NOT ' if clause.kind.startswith('matched') else ''}NULL"
        test += "" if clause.condition is None else f" AND ({clause.condition})"
        chosen.append((index, test, _assigned(clause, columns, snapshot.ref)))
    number, outputs = _choice(action, chosen, types_of(snapshot, rows.cursor))
    named = ", ".join(
        f"source.{quote_identifier(k)} AS {quote_identifier(name)}" for k, name in zip(spec.keys, keys, strict=True)
    )
    target = f"(SELECT *, true AS {there} FROM {snapshot.scan_sql()}) AS target"
    return f"SELECT {number}, {named}, {outputs} FROM ({rows.sql}) AS source LEFT JOIN {target} ON {equal(spec.keys)}"


def inserted_alone(spec: MergeSpec, rows: Rows) -> str:
    """What a merge into an empty table inserts, as SQL."""
    clauses = [_translated(c, spec.dialect) for c in spec.clauses if c.kind == "not_matched_insert"]
    if not clauses:
        return f"SELECT * FROM ({rows.sql}) LIMIT 0"
    given = [name for name in rows.types if name not in spec.compared]
    chosen = [(i, c.condition or "true", _values(c, given)) for i, c in enumerate(clauses)]
    names = dict.fromkeys([*given, *(column for _, _, values in chosen for column in values)])
    action = quote_identifier(fresh_name("__duckrun_action", rows.types))
    number, outputs = _choice(action, chosen, {name: rows.types.get(name) for name in names})
    inner = f"SELECT *, {number} FROM ({rows.sql}) AS source"
    return f"SELECT {outputs} FROM ({inner}) AS source WHERE {action} IS NOT NULL"


def _merge_staged(
    job: Job, spec: MergeSpec, clauses: Sequence[MergeClause], snapshot: Snapshot, source: Rows, reason: str
) -> Commit:
    """DuckDB joins and decides, and writes anew the files with rows that change."""
    ref, cursor, kinds = job.transaction.ref, source.cursor, types_of(snapshot, source.cursor)
    compared = {key: job.sql(text) for key, text in spec.compared.items()}
    on = equal(spec.keys, compared) + ("" if spec.on is None else f" AND ({job.sql(spec.on)})")
    within = None if spec.within is None else job.sql(spec.within)
    action = quote_identifier(_extra_names(snapshot, source, 0)[0])
    deleting = ", ".join(str(i) for i, c in enumerate(clauses) if c.kind.endswith("delete")) or "-1"

    def decided(table: Numbered, kind: str, joined: str) -> str | None:
        old = kind != "not_matched"
        kept = {column: f"target.{quote_identifier(column)}" for column in kinds} if old else {}
        chosen = [
            (i, c.condition or "true", {} if c.kind.endswith("delete") else kept | _assigned(c, list(kinds), ref))
            for i, c in enumerate(clauses)
            if c.kind.rsplit("_", 1)[0] == kind
        ]
        if not chosen:
            return None
        number, outputs = _choice(action, chosen, kinds)
        place = ", ".join(f"target.{name}" if old else f"NULL AS {name}" for name in (table.file, table.row))
        return f"SELECT * FROM (SELECT {place}, {number}, {outputs} FROM {joined}) WHERE {action} IS NOT NULL"

    with numbered(snapshot, cursor) as table:
        bounded = "" if within is None else f" WHERE ({within}) IS TRUE"
        here, given = f"(SELECT * FROM ({table.sql}){bounded}) AS target", f"({source.sql}) AS source"
        parts = [
            decided(table, "matched", f"{here} JOIN {given} ON {on}"),
            decided(table, "not_matched_by_source", f"{here} ANTI JOIN {given} ON {on}"),
            decided(table, "not_matched", f"{given} ANTI JOIN {here} ON {on}"),
        ]
        with computed(cursor, " UNION ALL ".join(part for part in parts if part)) as changes:
            names = ", ".join(quote_identifier(c) for c in kinds)
            written = Rows(cursor, f"SELECT {names} FROM {changes} WHERE {action} NOT IN ({deleting})", kinds)
            if within is not None and spec.within is not None:
                refuse_outside(ref, written, within, spec.within)
            counts = (
                counted(cursor, changes, f"{table.row} IS NULL"),
                counted(cursor, changes, f"{table.row} IS NOT NULL AND {action} NOT IN ({deleting})"),
                counted(cursor, changes, f"{action} IN ({deleting})"),
            )
            alone = any(c.kind.startswith("not_matched_by_source") for c in clauses)
            expressions = [c.condition or "true" for c in clauses] + [
                v for c in clauses for v in (c.set or {}).values()
            ]
            read = EVERYTHING if alone or has_subquery(*expressions) else joined(cursor, source.sql, on, within)
            new = rewritten(job, table, changes, job.finished(written, snapshot), reason, counts)
    return swap(job, snapshot, new, read)
