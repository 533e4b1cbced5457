"""Changes of existing rows: delete+insert, update, delete, replace.

DuckDB finds the rows (by file and row number of the pinned version) and computes the new values. So
expressions mean what they mean in DuckDB. One query does both, and its result is materialized: a
predicate such as random() < 0.5 would find other rows a second time. One commit swaps the rewritten
files for the old ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace as replace_fields
from functools import partial

import duckdb

from duckrun.engines.duckdb.instance.steady import is_steady
from duckrun.engines.duckdb.rows import row_ids
from duckrun.engines.duckdb.rows.clauses import expression
from duckrun.engines.duckdb.rows.computed import Computed
from duckrun.engines.duckdb.rows.fitted import finished, refuse_outside, types_of
from duckrun.engines.duckdb.rows.places import Numbered, counted, numbered
from duckrun.engines.duckdb.rows.pruning import files_met, key_ranges
from duckrun.engines.duckdb.rows.reads import EVERYTHING, equal, joined, matching, partitions
from duckrun.engines.duckdb.rows.source import Rows
from duckrun.engines.duckdb.rows.target import target_of
from duckrun.engines.duckdb.writers.table_writer import REPLACED, RowChanges, TableWriter
from duckrun.errors import DuplicateSourceKeys, InvalidConfig, repeated_keys
from duckrun.formats.commits import CommitRecord
from duckrun.formats.format import Format
from duckrun.run.transaction import Transaction
from duckrun.sql.char_types import padded
from duckrun.sql.quoting import quote_identifier, quoted_list
from duckrun.values.rows import Commit, DeleteInsertSpec, DeleteSpec, UpdateSpec
from duckrun.values.snapshot import Snapshot


def delete_insert(writer: TableWriter, spec: DeleteInsertSpec, snapshot: Snapshot, rows: Rows) -> Commit:
    """Delete the rows whose key the source has, then insert the source, in one commit.

    Keys may repeat.
    """
    cursor, form = rows.cursor, writer.transaction.lake.format
    snapshot = target_of(snapshot, rows, spec.schema_mode, form)
    fitted = finished(form, rows, snapshot, spec.schema_mode, cast=rows.types)
    sql = f"SELECT {_as_read(snapshot, spec.keys)} FROM ({fitted.sql})"
    source = replace_fields(fitted, sql=sql, types={name: fitted.types[name] for name in spec.keys})
    on = equal(spec.keys)
    limits = [expression(limit, spec.dialect) for limit in (spec.predicate, spec.within) if limit is not None]
    within = " AND ".join(f"({limit})" for limit in limits) or None
    if spec.within is not None:
        refuse_outside(snapshot.ref, fitted, expression(spec.within, spec.dialect), spec.within)
    met = " AND ".join([*([within] if within else []), *key_ranges(source, spec.keys)])
    where = f" WHERE {met}" if met else ""
    with numbered(snapshot, cursor) as table:
        inside = table.of_files(files_met(form, snapshot, source, spec.keys))
        hits = (
            f"SELECT target.{table.file}, target.{table.row} FROM (SELECT * FROM ({inside}){where}) AS target "
            f"SEMI JOIN ({source.sql}) AS source ON {on}"
        )
        with table.found(hits) as changes:
            counts = (counted(cursor, f"({rows.sql})"), 0, None)
            reason = "rows are deleted and inserted in one commit"
            new = writer.rewrite(
                RowChanges(table, changes, lambda: fitted, reason, counts, new=lambda: [("insert", fitted)])
            )
    return writer.commit(
        snapshot, new, lambda: joined(cursor, source.sql, on, within, keys={key: key for key in spec.keys})
    )


def _as_read(snapshot: Snapshot, names: Sequence[str]) -> str:
    """SELECT list of columns as readers see them: CHAR(n) is padded."""
    columns = {quote_identifier(name): snapshot.schema.field(name) for name in names}
    return ", ".join(f"{padded(column, field) or column} AS {column}" for column, field in columns.items())


def delete(
    writer: TableWriter, spec: DeleteSpec, snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection, rows: Rows | None
) -> Commit:
    """Delete the rows that satisfy a predicate, with a source: together with any of its rows."""
    predicate = None if spec.predicate is None else expression(spec.predicate, spec.dialect)
    if rows is None:
        read = partial(matching, cursor, predicate)
        whole = writer.swap_files(snapshot, None, predicate, cursor)
        if whole is not None:
            return writer.commit(snapshot, whole, read)
    else:
        read = partial(joined, cursor, rows.sql, predicate or "true")
    where = f"({predicate or 'true'})"
    with numbered(snapshot, cursor) as table:
        if rows is None:
            hits = f"SELECT {table.file}, {table.row} FROM ({table.sql}) AS target WHERE {where}"
        else:
            hits = (
                f"SELECT DISTINCT target.{table.file}, target.{table.row} FROM ({table.sql}) AS target "
                f"JOIN ({rows.sql}) AS source ON {where}"
            )
        with table.found(hits) as changes:
            names = quoted_list(snapshot.schema.names, "target")
            deleted = f"({table.sql}) AS target SEMI JOIN {changes} AS hit ON {table.same('target', 'hit')}"
            give_back(writer.transaction, cursor, f"SELECT {names} FROM {deleted}")
            new = writer.rewrite(RowChanges(table, changes, lambda: None, "rows are deleted", (0, 0, None)))
    return writer.commit(snapshot, new, read)


def update(
    writer: TableWriter, spec: UpdateSpec, snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection, rows: Rows | None
) -> Commit:
    """Set columns to expressions in the rows that satisfy a predicate.

    With a source, the predicate and the expressions range over both, and each row may match one
    source row.
    """
    form, kinds = writer.transaction.lake.format, types_of(snapshot)
    predicate = None if spec.predicate is None else expression(spec.predicate, spec.dialect)
    assigned = {column: expression(value, spec.dialect) for column, value in spec.set.items()}
    if unknown := [c for c in assigned if c not in kinds]:
        raise InvalidConfig(f"Table {snapshot.ref} has no column {', '.join(unknown)} to update.")
    table_columns = Computed.of(form, snapshot.ref, snapshot, kinds)
    if numbered_ones := sorted(set(assigned) & set(table_columns.numbered)):
        raise InvalidConfig(
            f"Table {snapshot.ref}: {', '.join(numbered_ones)} is an identity column, whose numbers stay"
        )
    outputs = ", ".join(
        f"CAST({assigned.get(c, f'target.{quote_identifier(c)}')} AS {kinds[c]}) AS {quote_identifier(c)}"
        for c in kinds
    )
    where = f"({predicate or 'true'})"
    with numbered(snapshot, cursor) as table:
        met = f"WHERE {where}" if rows is None else f"JOIN ({rows.sql}) AS source ON {where}"
        changed = f"SELECT target.{table.file}, target.{table.row}, {outputs} FROM ({table.sql}) AS target {met}"
        with table.found(changed) as changes:
            if rows is None:
                read = partial(matching, cursor, predicate, *assigned.values())
            else:
                _refuse_several(table, changes, list(kinds))
                read = partial(joined, cursor, rows.sql, predicate or "true", computes=tuple(assigned.values()))
            names = quoted_list(kinds)
            carried = row_ids.carried(form.logs, table)
            chosen = ", ".join([*table_columns.anew(kinds, dict.fromkeys(assigned, "true")), *carried])
            rows_now = Rows(cursor, f"SELECT {chosen} FROM {changes}", kinds, carried=carried)
            fitted = finished(form, rows_now, snapshot, has_computed=True)
            give_back(writer.transaction, cursor, f"SELECT {names} FROM ({fitted.sql})")
            counts = (0, counted(cursor, changes), 0)
            new = writer.rewrite(
                RowChanges(
                    table,
                    changes,
                    lambda: fitted,
                    "rows are updated",
                    counts,
                    "'update_preimage'",
                    lambda: [("update_postimage", fitted)],
                )
            )
    return writer.commit(snapshot, new, read)


def _refuse_several(table: Numbered, changes: str, columns: Sequence[str]) -> None:
    """Raise DuplicateSourceKeys if a row of the table matched several rows of the source."""
    shown = ", ".join(f"first({quote_identifier(c)}) AS {quote_identifier(c)}" for c in columns[:6])
    several = f"SELECT {shown}, count(*) AS n FROM {changes} GROUP BY {table.file}, {table.row} HAVING count(*) > 1"
    examples = table.cursor.execute(f"SELECT *, count(*) OVER () FROM ({several}) ORDER BY ALL LIMIT 3").fetchall()
    if examples:
        raise DuplicateSourceKeys(
            f"The update of table {table.snapshot.ref} meets several rows of its source for {examples[0][-1]} "
            f"rows, so that the outcome would be arbitrary: {repeated_keys(columns[:6], examples)}",
            remedy="keep one row of the source for each",
        )


def replace(writer: TableWriter, snapshot: Snapshot, rows: Rows, predicate: str | None) -> Commit:
    """Replace the rows that satisfy a predicate; without one, the partitions of the new rows."""
    cursor = rows.cursor
    if predicate is None:
        snapshot.columns_to_replace()  # raises for a table without partitions
    elif not is_steady(predicate, cursor):
        raise InvalidConfig(
            f"replace on table {snapshot.ref}: which rows {predicate} is true for changes each time it is "
            "asked, and the rows that are written must be among them",
            remedy="delete and append instead",
        )
    new = writer.swap_files(snapshot, rows, predicate, cursor)
    if new is not None:
        files = new.adds
        read = partial(partitions, snapshot, files) if predicate is None else partial(matching, cursor, predicate)
        return writer.commit(snapshot, new, read)
    with ExitStack() as stack:
        if predicate is None:
            rows = stack.enter_context(writer.streams.read_once(rows))
        table = stack.enter_context(numbered(snapshot, cursor))
        hits = (
            _same_partitions(snapshot, table, rows)
            if predicate is None
            else f"SELECT {table.file}, {table.row} FROM ({table.sql}) WHERE ({predicate})"
        )
        changes = stack.enter_context(table.found(hits))
        rows = writer.streams.kept(rows)
        new = writer.rewrite(
            RowChanges(table, changes, lambda: rows, REPLACED, (None, 0, None), new=lambda: [("insert", rows)])
        )
    return writer.commit(snapshot, new, lambda: EVERYTHING if predicate is None else matching(cursor, predicate))


def give_back(transaction: Transaction, cursor: duckdb.DuckDBPyConnection, rows: str) -> None:
    """Compute the RETURNING list over some rows, if the statement has one.

    The query ``rows`` must not be volatile.
    """
    # This runs before the commit, so that an error in the list leaves the table unchanged.
    returning = transaction.returning
    if returning is not None:
        # On lines of its own: a comment may end the list.
        sql = f"SELECT {returning.columns}\nFROM ({rows}) AS {quote_identifier(returning.alias)}"
        returning.rows = cursor.execute(sql).to_arrow_table()


def compared(transaction: Transaction, earlier: CommitRecord, rows: Rows, snapshot: Snapshot) -> Commit:
    """Return the commit of an earlier attempt if it added exactly these rows.

    Raises:
        CommitConflict: The earlier attempt added other rows.
    """
    if not _is_appended(transaction.lake.format, snapshot, earlier, rows):
        transaction.refuse_other_rows(earlier, snapshot)
    return earlier.as_commit(transaction.ref).with_(replayed=True)


def _is_appended(form: Format, snapshot: Snapshot, commit: CommitRecord, rows: Rows) -> bool:
    """True if the rows equal, as a multiset, the rows that a commit added."""
    added = form.added_rows(snapshot, commit)
    if added is None:
        return False
    columns = ", ".join(map(quote_identifier, snapshot.schema.names))
    old, new = f"SELECT {columns} FROM {added}", f"SELECT {columns} FROM ({rows.sql})"
    different = f"(({old}) EXCEPT ALL ({new})) UNION ALL (({new}) EXCEPT ALL ({old}))"
    try:
        return rows.cursor.execute(f"SELECT count(*) FROM ({different})").fetchall() == [(0,)]
    except duckdb.IOException:  # a vacuum may have removed the files
        return False


def _same_partitions(snapshot: Snapshot, table: Numbered, rows: Rows) -> str:
    columns = map(quote_identifier, snapshot.partition_columns)
    on = " AND ".join(f"target.{c} IS NOT DISTINCT FROM source.{c}" for c in columns)
    values = _as_read(snapshot, snapshot.partition_columns)
    return (
        f"SELECT target.{table.file}, target.{table.row} FROM ({table.sql}) AS target "
        f"SEMI JOIN (SELECT DISTINCT {values} FROM ({rows.sql})) AS source ON {on}"
    )
