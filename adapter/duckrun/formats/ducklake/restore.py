"""A table as it was at a snapshot of its lake: the rows that differ are deleted, updated and inserted in one transaction.

Rows that are there under their id keep it. DuckLake gives no row an id that was taken from it, so that those that come back have new ones.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from duckrun.errors import VersionNotReadable
from duckrun.formats.ducklake.records import RESTORED
from duckrun.formats.ducklake.work import Work
from duckrun.formats.format import NewCommit
from duckrun.sql.names import quote_identifier
from duckrun.values.rows import AppTransaction
from duckrun.values.snapshot import Snapshot

if TYPE_CHECKING:
    from duckrun.formats.ducklake.ducklake import DuckLakeFormat


def restore(
    form: DuckLakeFormat, snapshot: Snapshot, version: int, note: Mapping[str, Any], app: AppTransaction | None
) -> int:
    """The snapshot made, in which the table is what it was at another one. Raises CommitTaken, VersionNotReadable."""
    then = form.snapshot(snapshot.ref, version)
    if then.table_id != snapshot.table_id:
        raise VersionNotReadable(
            f"Table {snapshot.ref}: another table had its name at version {version}; read that by CREATE TABLE … AS SELECT … "
            "of that version."
        )
    with form.transaction(form.catalog.cursor(create=True), snapshot) as work:
        form.define(work, snapshot.ref, snapshot, NewCommit(None, then.own.definition))
        counts = _put_back(work, snapshot, then)
        said = {**note, **dict(zip(("rows_inserted", "rows_updated", "rows_deleted"), counts, strict=True))}
        work.applied(snapshot.ref, AppTransaction(RESTORED, then.own.at), said)
        return form.commit(snapshot.ref, snapshot, NewCommit(None, work=work), said, app)


def _put_back(work: Work, snapshot: Snapshot, then: Snapshot) -> tuple[int, int, int]:
    """Make the rows those of another snapshot; how many were inserted, updated and deleted."""
    table = work.table(snapshot.ref)
    names = [quote_identifier(name) for name in then.schema.names]
    listed = ", ".join(names)
    row, old = "__duckrun_row", quote_identifier(f"__duckrun_{uuid.uuid4().hex}")
    source = then.scan_sql(row=row)
    work.cursor.execute(f"CREATE TEMP TABLE {old} AS SELECT * FROM {source}")
    deleted = work.execute(f"DELETE FROM {table} WHERE rowid NOT IN (SELECT {row} FROM {old})")
    differs = " OR ".join(f"t.{name} IS DISTINCT FROM o.{name}" for name in names)
    assigned = ", ".join(f"{name} = o.{name}" for name in names)
    updated = work.execute(
        f"UPDATE {table} AS t SET {assigned} FROM {old} AS o WHERE t.rowid = o.{row} AND ({differs})"
    )
    missing = f"SELECT {listed} FROM {old} AS o WHERE NOT EXISTS (SELECT 1 FROM {table} AS t WHERE t.rowid = o.{row})"
    kept = quote_identifier(f"__duckrun_{uuid.uuid4().hex}")
    work.cursor.execute(f"CREATE TEMP TABLE {kept} AS {missing}")
    inserted = work.execute(f"INSERT INTO {table} ({listed}) SELECT * FROM {kept}")
    work.cursor.execute(f"DROP TABLE {old}")
    work.cursor.execute(f"DROP TABLE {kept}")
    work.changed = True
    return inserted, updated, deleted
