"""Changes of rows that are there: delete+insert, update, delete, replace.

DuckDB finds the rows (by file and row number of the pinned version) and computes the new values, so expressions mean
what they mean in DuckDB. It does both in one query, whose answer is kept: a predicate such as random() < 0.5 would find
other rows a second time. The files that hold them are written anew, and change places with the old ones in one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as replace_fields
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb

from duckrun.engines.data_files import file_properties
from duckrun.engines.duckdb import row_ids
from duckrun.engines.duckdb.computed import Computed
from duckrun.engines.duckdb.feed import Images, feed_files
from duckrun.engines.duckdb.places import Numbered, computed, numbered
from duckrun.engines.duckdb.pruning import files_met, key_ranges
from duckrun.engines.duckdb.returning import give_back
from duckrun.engines.duckdb.rows_to_write import refuse_outside, types_of
from duckrun.engines.duckdb.source import Rows
from duckrun.engines.duckdb.steady import is_steady
from duckrun.engines.duckdb.target import definition_of, target_of, written_anew
from duckrun.engines.duckdb.writers import ducklake, staged
from duckrun.engines.duckdb.writers.reads import EVERYTHING, Read, equal, joined, matching, partitions
from duckrun.engines.tables import REWRITTEN
from duckrun.errors import DuplicateSourceKeys, InvalidConfig, LostRows, repeated_keys
from duckrun.formats.commits import CommitRecord, Marked, NewCommit, RowCounts
from duckrun.sql.char_types import is_padded, padded
from duckrun.sql.names import SIDES, columns_of, fresh_name, quote_identifier
from duckrun.sql.typed import partition_literal
from duckrun.values.partition_values import partition_key
from duckrun.values.rows import Commit, DeleteInsertSpec, ScanFile, StagedFile, counted_rows
from duckrun.values.snapshot import Snapshot
from duckrun.values.tables import order_of

if TYPE_CHECKING:
    from duckrun.engines.duckdb.write import Job

_SHARE = 0.25
"""Of a file's rows: where more go, merge_mode auto writes the file anew. Measured on a file of 6 million rows, six columns: to mark a
quarter takes a third of the work of writing it anew (1.4 and 4.5 CPU seconds), and each full read takes 1.4 times as much from then on
(1.1 at a tenth, 1.7 at three fifths), so that some seventeen reads eat up what it saved.
"""


def delete_insert(job: Job, spec: DeleteInsertSpec, snapshot: Snapshot, rows: Rows) -> Commit:
    """Delete the rows whose key the source has, then insert the source: one commit. Keys may repeat."""
    cursor, snapshot = rows.cursor, target_of(snapshot, rows, spec.schema_mode, job.form)
    fitted = job.finished(rows, snapshot, spec.schema_mode, cast=rows.types)
    on, source = equal(spec.keys), _as_read(fitted, snapshot, spec.keys)
    limits = [job.sql(limit) for limit in (spec.predicate, spec.within) if limit is not None]
    within = " AND ".join(f"({limit})" for limit in limits) or None
    if spec.within is not None:
        refuse_outside(job.transaction.ref, fitted, job.sql(spec.within), spec.within)
    met = " AND ".join([*([within] if within else []), *key_ranges(source, spec.keys)])
    where = f" WHERE {met}" if met else ""
    with numbered(snapshot, cursor) as table:
        inside = table.of_files(files_met(job.form, snapshot, source, spec.keys))
        hits = (
            f"SELECT target.{table.file}, target.{table.row} FROM (SELECT * FROM ({inside}){where}) AS target "
            f"SEMI JOIN ({source.sql}) AS source ON {on}"
        )
        with table.found(hits) as changes:
            counts = (counted(cursor, f"({rows.sql})"), 0, None)
            images = Images(new=[("insert", fitted)])
            new = rewritten(job, table, changes, fitted, "rows are deleted and inserted in one commit", counts, images)
    return swap(job, snapshot, new, lambda: joined(cursor, source.sql, on, within))


def _as_read(rows: Rows, snapshot: Snapshot, keys: Sequence[str]) -> Rows:
    """The keys of rows as readers have them: CHAR(n) is padded."""
    fields = {name: snapshot.schema.field(name) for name in keys}
    values = (
        f"{padded(quote_identifier(name), field) or quote_identifier(name)} AS {quote_identifier(name)}"
        for name, field in fields.items()
    )
    sql = f"SELECT {', '.join(values)} FROM ({rows.sql})"
    return replace_fields(rows, sql=sql, types={name: rows.types[name] for name in keys})


def delete(
    job: Job, snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection, predicate: str | None, rows: Rows | None = None
) -> Commit:
    """Delete the rows for which a predicate is true; with a source, those for which it is with any row of it."""
    if rows is None:
        read = partial(matching, cursor, predicate)
        whole = None if job.form.transacts else whole_files(snapshot, cursor, predicate)
        if whole is not None and job.transaction.returning is None:
            new = _new(job, snapshot, (), whole, "whole files go", (0, 0, counted_rows(whole)), pruned=True)
            return swap(job, snapshot, new, read)
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
            names = ", ".join(f"target.{quote_identifier(c)}" for c in snapshot.schema.names)
            same = f"target.{table.file} = hit.{table.file} AND target.{table.row} = hit.{table.row}"
            give_back(
                job.transaction,
                cursor,
                f"SELECT {names} FROM ({table.sql}) AS target SEMI JOIN {changes} AS hit ON {same}",
            )
            reason = "rows are deleted"
            new = rewritten(job, table, changes, None, reason, (0, 0, None))
    return swap(job, snapshot, new, read)


def update(
    job: Job,
    snapshot: Snapshot,
    cursor: duckdb.DuckDBPyConnection,
    predicate: str | None,
    assigned: Mapping[str, str],
    rows: Rows | None = None,
) -> Commit:
    """Set columns to expressions where a predicate is true; with a source, over both, and with one row of it at most."""
    kinds = types_of(snapshot, cursor)
    own = Computed.of(job.form, job.transaction.ref, snapshot, kinds)
    if numbered_ones := sorted(set(assigned) & set(own.numbered)):
        raise InvalidConfig(
            f"Table {job.transaction.ref}: {', '.join(numbered_ones)} is an identity column, whose numbers stay. Nothing was updated."
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
                _refuse_several(job, table, changes, list(kinds))
                read = partial(joined, cursor, rows.sql, predicate or "true", computes=tuple(assigned.values()))
            names = ", ".join(quote_identifier(c) for c in kinds)
            carried = row_ids.carried(job, table)
            chosen = ", ".join([*own.anew(kinds, dict.fromkeys(assigned, "true")), *carried])
            rows_now = Rows(cursor, f"SELECT {chosen} FROM {changes}", kinds, carried=carried)
            fitted = job.finished(rows_now, snapshot, computed=True)
            give_back(job.transaction, cursor, f"SELECT {names} FROM ({fitted.sql})")
            reason = "rows are updated"
            images = Images("'update_preimage'", [("update_postimage", fitted)])
            new = rewritten(job, table, changes, fitted, reason, (0, counted(cursor, changes), 0), images)
    return swap(job, snapshot, new, read)


def _refuse_several(job: Job, table: Numbered, changes: str, columns: Sequence[str]) -> None:
    """Raise DuplicateSourceKeys if a row of the table met several rows of the source, with the count and three of them."""
    shown = ", ".join(f"first({quote_identifier(c)}) AS {quote_identifier(c)}" for c in columns[:6])
    several = f"SELECT {shown}, count(*) AS n FROM {changes} GROUP BY {table.file}, {table.row} HAVING count(*) > 1"
    found = table.cursor.execute(f"SELECT *, count(*) OVER () FROM ({several}) ORDER BY ALL LIMIT 3").fetchall()
    if found:
        raise DuplicateSourceKeys(
            f"The update of table {job.transaction.ref} meets several rows of its source for {found[0][-1]} rows, so that the "
            f"outcome would be arbitrary: {repeated_keys(columns[:6], found)}. Nothing was written; keep one row of the source for each."
        )


def replace(job: Job, snapshot: Snapshot, rows: Rows, predicate: str | None) -> Commit:
    """Put rows in the place of those for which a predicate is true; with None, of the partitions that they lie in."""
    cursor = rows.cursor
    columns = snapshot.columns_to_replace() if predicate is None else snapshot.partition_columns
    anew = job.form.transacts or written_anew(snapshot)
    anew = anew or any(is_padded(snapshot.schema.field(name)) for name in columns)  # the log has them without padding
    reason = "rows are replaced in one commit"
    if predicate is None:
        if anew:
            with (
                job.read_once(rows) as kept,
                numbered(snapshot, cursor) as table,
                table.found(_same_partitions(snapshot, table, kept)) as changes,
            ):
                new = rewritten(job, table, changes, kept, reason, (None, 0, None), Images(new=[("insert", kept)]))
            return swap(job, snapshot, new, lambda: EVERYTHING)
        files = job.staged(rows, columns, snapshot)
        job.numbered(counted_rows(files))
        present = {partition_key(f.partition_values, snapshot.schema, columns) for f in files}
        gone = [f for f in snapshot.files() if partition_key(f.partition_values, snapshot.schema, columns) in present]
        new = _new(job, snapshot, files, gone, reason, (counted_rows(files), 0, counted_rows(gone)), pruned=True)
        return swap(job, snapshot, new, lambda: partitions(snapshot, files))
    if not is_steady(predicate, cursor):
        raise InvalidConfig(
            f"replace on table {job.transaction.ref}: which rows {predicate} is true for changes each time it is asked, and the "
            "rows that are written must be among them. Nothing was written; delete and append instead."
        )
    whole = None if anew else whole_files(snapshot, cursor, predicate)
    read = partial(matching, cursor, predicate)
    if whole is not None:
        files = job.staged(rows, columns, snapshot)
        job.numbered(counted_rows(files))
        new = _new(job, snapshot, files, whole, reason, (counted_rows(files), 0, counted_rows(whole)), pruned=True)
        return swap(job, snapshot, new, read)
    with numbered(snapshot, cursor) as table:
        hits = f"SELECT {table.file}, {table.row} FROM ({table.sql}) WHERE ({predicate})"
        with table.found(hits) as changes:
            kept = job.kept(rows)
            new = rewritten(job, table, changes, kept, reason, (None, 0, None), Images(new=[("insert", kept)]))
    return swap(job, snapshot, new, read)


def append(job: Job, snapshot: Snapshot, rows: Rows) -> Commit:
    """Add rows to a table whose columns go or change their type with them: all of it is written anew."""
    with numbered(snapshot, rows.cursor) as table:
        none = f"SELECT {table.file}, {table.row} FROM ({table.sql}) WHERE false"
        with computed(rows.cursor, none) as changes:
            kept = job.kept(rows)
            new = rewritten(job, table, changes, kept, REWRITTEN, (None, 0, 0), Images(new=[("insert", kept)]))
    return swap(job, snapshot, new, lambda: EVERYTHING)


def is_appended(job: Job, snapshot: Snapshot, commit: CommitRecord, rows: Rows) -> bool:
    """True if rows are, as a multiset, those that a commit added."""
    added = job.form.added_rows(snapshot, commit)
    if added is None:
        return False
    columns = ", ".join(map(quote_identifier, snapshot.schema.names))
    old, new = f"SELECT {columns} FROM {added}", f"SELECT {columns} FROM ({rows.sql})"
    different = f"(({old}) EXCEPT ALL ({new})) UNION ALL (({new}) EXCEPT ALL ({old}))"
    try:
        return rows.cursor.execute(f"SELECT count(*) FROM ({different})").fetchall() == [(0,)]
    except duckdb.IOException:  # a vacuum has removed the files
        return False


def _same_partitions(snapshot: Snapshot, table: Numbered, rows: Rows) -> str:
    columns = [quote_identifier(c) for c in snapshot.partition_columns]
    fields = (snapshot.schema.field(c) for c in snapshot.partition_columns)
    values = [
        f"{padded(quote_identifier(f.name), f) or quote_identifier(f.name)} AS {quote_identifier(f.name)}"
        for f in fields
    ]
    on = " AND ".join(f"target.{c} IS NOT DISTINCT FROM source.{c}" for c in columns)
    return (
        f"SELECT target.{table.file}, target.{table.row} FROM ({table.sql}) AS target "
        f"SEMI JOIN (SELECT DISTINCT {', '.join(values)} FROM ({rows.sql})) AS source ON {on}"
    )


def whole_files(snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection, predicate: str | None) -> list[ScanFile] | None:
    """The files all of whose rows satisfy a predicate over partition columns alone; None where it is not such a one."""
    if predicate is None or predicate.lower() == "true":
        return list(snapshot.files())
    if not snapshot.partition_columns:
        return None
    used = {column for _, column in columns_of(predicate, sides=SIDES)}
    if not used or not used <= set(snapshot.partition_columns) or not is_steady(predicate, cursor):
        return None
    if any(is_padded(snapshot.schema.field(name)) for name in used):
        return None  # the log has the values without padding
    files = list(snapshot.files())
    if not files:
        return []
    kinds = {name: str(kind) for name, kind in types_of(snapshot, cursor).items() if name in snapshot.partition_columns}
    rows = ", ".join(
        "(" + ", ".join([str(i), *(partition_literal(f.partition_values.get(c), kinds[c]) for c in kinds)]) + ")"
        for i, f in enumerate(files)
    )
    index = quote_identifier(fresh_name("__duckrun_index", kinds))
    names = ", ".join([index, *(quote_identifier(c) for c in kinds)])
    found = cursor.execute(f"SELECT {index} FROM (VALUES {rows}) AS target({names}) WHERE ({predicate})").fetchall()
    return [files[i] for (i,) in found]


def rewritten(
    job: Job,
    table: Numbered,
    changes: str,
    added: Rows | None,
    reason: str,
    counts: RowCounts,
    images: Images = Images(),
) -> NewCommit:
    """A commit, to be made by swap(), that takes some rows away and adds others. A file with rows to take away goes where all of its
    rows do; else they are marked in a deletion vector, or the file is written anew without them.

    ``changes`` is a computed table with the file and the number of each row; those without are no row of the table.
    ``images`` are for the table's change feed, where it keeps one.
    """
    snapshot, cursor = table.snapshot, table.cursor
    if job.form.transacts:
        return ducklake.rewritten(job, table, changes, definition_of(snapshot), reason, counts, images)
    taken = _taken(table, changes)
    anew, marks, gone = _parted(job, table, taken)
    inside = table.of_files(anew)
    ids = row_ids.RowIds.of(job, table, anew, [file for file, _ in taken], added)
    selects = []
    if anew:
        selects.append(ids.kept(changes))
    if added is not None:
        selects.append(ids.added(added))
    files: tuple[StagedFile, ...] = ()
    if selects:
        one_shot = added is not None and added.one_shot
        order = order_of(snapshot)
        rows = Rows(cursor, " UNION ALL ".join(selects), {**types_of(snapshot, cursor), **ids.types}, one_shot, order)
        properties = file_properties(job.spec, snapshot.properties)
        stored = (*job.form.stored_columns(snapshot.schema), *ids.stored)
        files = staged.stage(rows, snapshot.ref, snapshot.partition_columns, properties=properties, stored=stored)
    inserted, updated, deleted = counts
    if job.numbering and added is not None:
        job.numbered(counted(cursor, f"({added.sql})"))
    if inserted is None:
        left = counted(cursor, f"({inside})") - sum(len(rows) for f, rows in taken if f in anew) if anew else 0
        written = counted_rows(files)
        inserted = None if written is None else written - left
    if written_anew(snapshot) and reason != REWRITTEN:
        reason = f"{reason}; {REWRITTEN}"
    elif taken:
        reason = f"{reason}: {_how(anew, marks, gone)}"
    deleted = sum(len(rows) for _, rows in taken) if deleted is None else deleted
    new = _new(job, snapshot, files, [*anew, *gone], reason, (inserted, updated, deleted), marks)
    if job.form.has_feed(snapshot) and (anew or updated):
        new = replace_fields(new, feed=feed_files(job, table, changes, [file for file, _ in taken], images))
    return new if table.opened is None else replace_fields(new, pruned=max(len(snapshot.files()) - table.opened, 0))


def _taken(table: Numbered, changes: str) -> list[tuple[ScanFile, Any]]:
    """The files with rows to take away, each with the numbers of those rows."""
    found = table.cursor.execute(
        f"SELECT {table.file}, list(DISTINCT CAST({table.row} AS UBIGINT)) FROM {changes} WHERE {table.row} IS NOT NULL "
        f"GROUP BY {table.file}"
    ).to_arrow_table()
    paths = found.column(0).to_pylist()
    by_place = table.snapshot.files().at(paths)
    if strangers := set(paths) - set(by_place):
        raise LostRows(
            f"Table {table.snapshot.ref}: rows were read from {min(strangers)}, which is no file of its log, so that they could not be "
            "taken out. Nothing was written. Run this with engine: spark, and report it."
        )
    rows = [value.values.to_numpy() for value in found.column(1)]
    return [(by_place[path], numbers) for path, numbers in zip(paths, rows, strict=True)]


def _parted(
    job: Job, table: Numbered, taken: Sequence[tuple[ScanFile, Any]]
) -> tuple[list[ScanFile], list[Marked], list[ScanFile]]:
    """The files to write anew, the rows to mark in others, and the files of which no row is left."""
    if written_anew(table.snapshot):
        return list(table.snapshot.files()), [], []
    anew, marks, gone = [], [], []
    marking, by_share = table.in_file and job.marks(table.snapshot), job.spec.merge_mode == "auto"
    for file, rows in taken:
        if table.in_file and len(rows) == file.live_rows:
            gone.append(file)
        elif not marking or file.rows is None or (by_share and len(rows) > _SHARE * file.rows):
            anew.append(file)
        else:
            marks.append(Marked(file, rows))
    return anew, marks, gone


def _how(anew: Sequence[ScanFile], marks: Sequence[Marked], gone: Sequence[ScanFile]) -> str:
    said = {"marked in deletion vectors": marks, "written anew": anew, "removed": gone}
    return ", ".join(f"{len(files)} file{'s' * (len(files) > 1)} {what}" for what, files in said.items() if files)


def counted(cursor: duckdb.DuckDBPyConnection, rows: str, where: str = "true") -> int:
    """How many rows of a table or a query in brackets satisfy a condition."""
    row = cursor.execute(f"SELECT count(*) FROM {rows} WHERE {where}").fetchone()
    return row[0] if row else 0


def _new(
    job: Job,
    snapshot: Snapshot,
    files: Sequence[StagedFile],
    gone: Sequence[ScanFile],
    reason: str,
    counts: RowCounts,
    marks: Sequence[Marked] = (),
    *,
    pruned: bool = False,
) -> NewCommit:
    """``pruned``: the log alone said which files are concerned, none was opened."""
    definition = job.definition_of(snapshot)
    if marks:
        definition = job.form.marking(snapshot, definition)
    left = len(snapshot.files()) if pruned else None
    return NewCommit(job.spec, definition, files, gone, counts, "staged", reason, marks=marks, pruned=left)


def swap(job: Job, snapshot: Snapshot, new: NewCommit, read: Callable[[], Read]) -> Commit:
    """Make a commit whose files are staged, or that a transaction holds. ``read`` says which rows of other writers would have made it another
    one; it is asked where those may come between.
    """
    if new.work is not None:
        if ducklake.nothing_happened(job, new):
            return job.transaction.nothing(snapshot, "no row was concerned")
        return job.transaction.commit(snapshot, new)
    empty = not new.adds and not new.removes and not new.marks and new.definition is None
    if empty and job.transaction.taken_back is None:
        return job.transaction.nothing(snapshot, "no row was concerned")
    return staged.commit(job.transaction, snapshot, new, read(), fence=job.spec.read_version)
