"""Undo of an older attempt's commits within the transaction of a newer one.

The rows are removed by their ids, or restored to a snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from duckrun.errors import VersionNotReadable
from duckrun.formats.commits import CommitRecord, TakenBack
from duckrun.formats.ducklake.catalog.catalog import Catalog
from duckrun.formats.ducklake.commits.restore import at_version, kept, put_back
from duckrun.formats.ducklake.commits.work import Work
from duckrun.sql.quoting import fresh_name, quote_identifier
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot


def made_by(snapshot: Snapshot, version: int) -> bool:
    """See Format."""
    return bool(snapshot.format_state.begun == version)


def untouched(catalog: Catalog, snapshot: Snapshot, records: Sequence[CommitRecord]) -> Sequence[ScanFile] | None:
    """See Format. Rows have ids here, so the files are always empty."""
    columns = ", ".join(map(quote_identifier, snapshot.schema.names))
    row = fresh_name("__duckrun_row", snapshot.schema.names)
    try:
        for record in records:
            then = at_version(snapshot, record.version)
            if then.schema != snapshot.schema:
                return None
            ids = _added(snapshot, record, row)
            old, new = (
                f"SELECT {row}, {columns} FROM {each.scan_sql(row=row)} WHERE {row} IN ({ids})"
                for each in (then, snapshot)
            )
            with catalog.errors(f"table {snapshot.ref}"):
                changed = catalog.cursor().execute(f"SELECT count(*) FROM (({old}) EXCEPT ({new}))").fetchall()
            if changed != [(0,)]:
                return None
    except VersionNotReadable:
        return None
    return ()


def added_rows(snapshot: Snapshot, record: CommitRecord) -> str | None:
    """See Format."""
    row = fresh_name("__duckrun_row", snapshot.schema.names)
    try:
        then = at_version(snapshot, record.version)
        ids = _added(snapshot, record, row)
    except VersionNotReadable:
        return None
    if then.schema.names != snapshot.schema.names:
        return None
    columns = ", ".join(map(quote_identifier, snapshot.schema.names))
    return f"(SELECT {columns} FROM {then.scan_sql(row=row)} WHERE {row} IN ({ids}))"


def taken_back(work: Work, taken: TakenBack) -> tuple[Snapshot, int]:
    """See Format."""
    newest = taken.newest
    live = replace(newest, format_state=replace(newest.format_state, at=-1), shared=None)
    if taken.anew:
        return live, 0  # The write replaces all rows.
    if taken.base is not None:
        put_back(work, newest, taken.base, kept(work, taken.base))
        return live, 0
    row = fresh_name("__duckrun_row", newest.schema.names)
    ids = " UNION ALL ".join(_added(newest, record, row) for record in taken.records)
    gone = work.execute(f"DELETE FROM {work.table(newest.ref)} WHERE rowid IN ({ids})")
    work.changed = work.changed or bool(gone)
    return newest, gone


def _added(snapshot: Snapshot, record: CommitRecord, row: str) -> str:
    """Return a query for the ids of the rows that a commit added."""
    then = f"SELECT {row} FROM {at_version(snapshot, record.version).scan_sql(row=row)}"
    if made_by(snapshot, record.version):
        return then
    return f"{then} WHERE {row} NOT IN (SELECT {row} FROM {at_version(snapshot, record.version - 1).scan_sql(row=row)})"
