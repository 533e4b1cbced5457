"""Rows of a DuckLake table, written by statements within one transaction: INSERT, UPDATE and DELETE by row id.

DuckLake's own MERGE takes one UPDATE or DELETE action and lets duplicate source keys through, so what happens to each row is computed
as for any other format, and applied here: a row that is updated keeps its id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import duckdb

from duckrun.engines.duckdb.feed import Images
from duckrun.engines.duckdb.places import Numbered, computed
from duckrun.engines.duckdb.source import Rows
from duckrun.engines.duckdb.writers.staged import is_scattered
from duckrun.errors import SchemaMismatch
from duckrun.formats.commits import NewCommit, RowCounts
from duckrun.formats.definitions import TableDefinition
from duckrun.sql.names import dotted_names, quote_identifier
from duckrun.sql.raising import MARK
from duckrun.values.rows import Commit, WriteSpec
from duckrun.values.snapshot import Snapshot

if TYPE_CHECKING:
    from duckrun.engines.duckdb.write import Job

REASON = "one transaction of the lake's catalog"
_IN_VARIANT = re.compile("Can't convert VARIANT|Type U?INT128 with value")
"""What DuckDB says of a value that has no place in a VARIANT of Parquet's."""


def overwrite(
    job: Job, spec: WriteSpec, rows: Rows, snapshot: Snapshot | None, definition: TableDefinition | None
) -> Commit:
    """All rows of a table, in place of those before. The table stays the same one, but with ``redefine``."""
    new = NewCommit(
        spec, definition, writer="ducklake", reason=REASON, anew=spec.redefine and snapshot is not None, work=job.work
    )
    gone = 0
    with _apart(job, rows, changes=snapshot is not None) as apart:
        if snapshot is not None and not new.anew:
            gone = _run(job, f"DELETE FROM {job.work.table(job.transaction.ref)}")
        job.form.define(job.work, job.transaction.ref, snapshot, new)
        came = _insert(job, apart, snapshot, definition)
    return _commit(job, snapshot, new, (came, 0, gone))


def append(job: Job, snapshot: Snapshot, rows: Rows, definition: TableDefinition | None, reason: str) -> Commit:
    """Rows beside those that the table has."""
    new = NewCommit(job.spec, definition, writer="ducklake", reason=reason, work=job.work)
    with _apart(job, rows, changes=definition is not None) as apart:
        job.form.define(job.work, job.transaction.ref, snapshot, new)
        came = _insert(job, apart, snapshot, definition)
    return _commit(job, snapshot, new, (came, 0, job.gone))


def rewritten(
    job: Job,
    table: Numbered,
    changes: str,
    definition: TableDefinition | None,
    reason: str,
    counts: RowCounts,
    images: Images,
) -> NewCommit:
    """A commit whose rows are written: those of ``changes`` with a row id go or get their new values, and others come.

    ``images`` says of each row of ``changes`` what happens to it, and has the rows that come.
    """
    with ExitStack() as stack:
        kinds = [
            # What is read out of the changes was computed with them.
            (kind, stack.enter_context(_apart(job, rows)) if kind == "insert" and changes not in rows.sql else rows)
            for kind, rows in images.new
        ]
        return _rewritten(job, table, changes, definition, reason, counts, replace(images, new=tuple(kinds)))


def _rewritten(
    job: Job,
    table: Numbered,
    changes: str,
    definition: TableDefinition | None,
    reason: str,
    counts: RowCounts,
    images: Images,
) -> NewCommit:
    snapshot, ref = table.snapshot, job.transaction.ref
    new = NewCommit(job.spec, definition, writer="ducklake", reason=f"{reason}: {REASON}", work=job.work)
    job.form.define(job.work, ref, snapshot, new)
    target, row = job.work.table(ref), table.row
    there = f"hit.{row} IS NOT NULL"
    updated = deleted = inserted = 0
    names = [quote_identifier(name) for name in snapshot.schema.names]
    taken = job.transaction.taken_back
    # Rows that the transaction has put back have other ids after the first statement that changes some of them.
    at_once = taken is not None and taken.base is not None
    if counts[1] != 0 and any(kind == "update_postimage" for kind, _ in images.new):
        for kind, rows in images.new:
            if kind == "update_postimage" and MARK in rows.sql:  # the UPDATE takes the values as they were computed
                rows.cursor.execute(f"SELECT count(COLUMNS(*)) FROM ({rows.sql})")
        assigned = ", ".join(f"{name} = hit.{name}" for name in names)
        hits = f"FROM {changes} AS hit WHERE {there} AND ({images.old}) = 'update_preimage'"
        if at_once:
            updated = int(rows.cursor.execute(f"SELECT count(*) {hits}").fetchall()[0][0])
        else:
            updated = _run(job, f"UPDATE {target} AS t SET {assigned} {hits} AND t.rowid = hit.{row}")
    if at_once and (updated or counts[2] != 0):
        ids = (
            f"SELECT hit.{row} FROM {changes} AS hit WHERE {there} AND ({images.old}) IN ('update_preimage', 'delete')"
        )
        deleted = _run(job, f"DELETE FROM {target} WHERE rowid IN ({ids})") - updated
        if updated:
            listed = ", ".join(names)
            _run(job, f"INSERT INTO {target} ({listed}) SELECT {', '.join(f'hit.{name}' for name in names)} {hits}")
    elif counts[2] != 0 and images.old != "'update_preimage'":
        ids = f"SELECT hit.{row} FROM {changes} AS hit WHERE {there} AND ({images.old}) = 'delete'"
        deleted = _run(job, f"DELETE FROM {target} WHERE rowid IN ({ids})")
    for kind, rows in images.new:
        if kind == "insert":
            inserted += _insert(job, rows, snapshot, definition)
    said = tuple(
        found if given is None else given for given, found in zip(counts, (inserted, updated, deleted), strict=True)
    )
    job.work.changed = job.work.changed or bool(updated or deleted or inserted)
    return NewCommit(
        job.spec, definition, rows=(said[0], said[1], said[2]), writer="ducklake", reason=new.reason, work=job.work
    )


@contextmanager
def _apart(job: Job, rows: Rows, *, changes: bool = True) -> Iterator[Rows]:
    """The rows, computed before the table ``changes`` where they are read out of it: DuckLake has the deletes of a transaction apply to
    each version that it reads.
    """
    if not changes or not _reads_table(job, rows):
        yield rows
        return
    with computed(rows.cursor, rows.sql) as name:
        yield replace(rows, sql=f"SELECT * FROM {name}")


def _reads_table(job: Job, rows: Rows) -> bool:
    """Whether rows are read out of the table that is written, by their own text or by that of a view or macro that it names."""
    ref = job.transaction.ref
    table = _plain(f"{job.transaction.lake.root}.{ref.schema}.{ref.name}")
    if rows.one_shot or table in _plain(rows.sql):
        return not rows.one_shot
    said = dict(rows.cursor.execute("SELECT lower(view_name), sql FROM duckdb_views() WHERE NOT internal").fetchall())
    macros = "SELECT lower(function_name), macro_definition FROM duckdb_functions() WHERE NOT internal AND macro_definition IS NOT NULL"
    said |= dict(rows.cursor.execute(macros).fetchall())
    if not any(table in _plain(text) for text in said.values()):
        return False
    texts, seen = [rows.sql], set[str]()
    while texts:
        names = {chain[-1].lower() for chain in dotted_names(texts.pop())} & said.keys() - seen
        if any(table in _plain(said[name]) for name in names):
            return True
        seen |= names
        texts += [said[name] for name in names]
    return False


def _plain(sql: str) -> str:
    """SQL without quotation marks, which DuckDB takes off the names in the text of a view where it can."""
    return sql.replace('"', "")


def nothing_happened(job: Job, new: NewCommit) -> bool:
    """True for a commit that changes neither rows nor the table."""
    return new.definition is None and not any(new.rows) and job.spec.app is None and not job.work.changed


def _insert(job: Job, rows: Rows, snapshot: Snapshot | None, definition: TableDefinition | None) -> int:
    """The rows that came, sorted by their partitions where these are many."""
    parted = definition or snapshot
    keys = parted.partition_columns if parted is not None else ()
    first = keys if keys and is_scattered(rows, keys, partial(job.partitions_of, snapshot)) else ()
    names = ", ".join(quote_identifier(name) for name in rows.types)
    return _run(job, f"INSERT INTO {job.work.table(job.transaction.ref)} ({names}) {rows.ordered(first)}")


def _run(job: Job, sql: str) -> int:
    try:
        count = job.work.execute(sql)
    except duckdb.ConstraintException as error:
        raise SchemaMismatch(
            f"Table {job.transaction.ref}: {str(error).splitlines()[0].removeprefix('Constraint Error: ')}. Nothing was written."
        ) from error
    except duckdb.InvalidInputException as error:
        if _IN_VARIANT.search(str(error)) is None:
            raise
        raise SchemaMismatch(
            f"Table {job.transaction.ref}: a VARIANT holds a value that DuckLake's files cannot hold, such as an interval or a number of more than 64 bits: "
            f"{str(error).splitlines()[0].removeprefix('Invalid Input Error: ')}. Nothing was written."
        ) from error
    job.work.changed = job.work.changed or count > 0
    return count


def _commit(job: Job, snapshot: Snapshot | None, new: NewCommit, rows: tuple[int, int, int]) -> Commit:
    made = NewCommit(
        new.spec, new.definition, rows=rows, writer="ducklake", reason=new.reason, anew=new.anew, work=new.work
    )
    return job.transaction.commit(snapshot, made)
