"""Restore of a table or a whole lake to a snapshot, and rollback of an older attempt's commits.

One transaction deletes, updates and inserts the rows that differ. Rows that still exist keep their
id. DuckLake cannot give a removed id to a row again, so rows that return have new ids. All rows get
new ids if the columns stood in another order, or if a current type does not widen to the old one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from duckrun.errors import VersionNotReadable
from duckrun.formats.commits import ROW_COUNTS, CommitRecord, NewCommit, TakenBack
from duckrun.formats.ducklake.catalog.catalog import Catalog
from duckrun.formats.ducklake.commits.commits import Commits
from duckrun.formats.ducklake.commits.stored import Macros, Views
from duckrun.formats.ducklake.commits.work import Work
from duckrun.formats.ducklake.definition.definition import DuckLakeDefinition
from duckrun.formats.ducklake.definition.types import widens
from duckrun.formats.ducklake.state.applied import RESTORED
from duckrun.formats.ducklake.state.state import hide, state_of
from duckrun.sql.quoting import fresh_name, quote_identifier, quoted_list
from duckrun.values.lake_format import DUCKLAKE
from duckrun.values.rows import AppTransaction, ScanFile
from duckrun.values.snapshot import Snapshot, TableRef

_ROW = "__duckrun_row"


def restore(
    commits: Commits, snapshot: Snapshot, version: int, note: Mapping[str, Any], app: AppTransaction | None
) -> int:
    """Restore a table to an older version, and return the new snapshot.

    Raises:
        CommitTaken: Another program commits meanwhile.
        VersionNotReadable: Another table had the name then, or the version has expired.
    """
    then = at_version(snapshot, version)
    if then.table_id != snapshot.table_id:
        raise VersionNotReadable(
            f"Table {snapshot.ref}: another table had its name at version {version}; read that by CREATE TABLE … AS "
            "SELECT … "
            "of that version."
        )
    with commits.transactor.transaction(commits.catalog.cursor(create=True), snapshot) as work:
        anew = not _keeps_columns(state_of(snapshot).definition, state_of(then).definition)
        old = _kept(work, f"SELECT * FROM {then.scan_sql(row=_ROW)}")
        gone = work.execute(f"DELETE FROM {work.table(snapshot.ref)}") if anew else 0
        commits.define(work, snapshot.ref, snapshot, NewCommit(None, state_of(then).definition), emptied=anew)
        counts = put_back(work, snapshot, then, old)
        counts = (counts[0], counts[1], counts[2] + gone)
        note_after = {**note, **dict(zip(ROW_COUNTS, counts, strict=True))}
        work.applied(snapshot.ref, AppTransaction(RESTORED, state_of(then).at), note_after)
        return commits.commit(snapshot.ref, snapshot, NewCommit(None, work=work, note=note_after, app=app))


def _keeps_columns(now: DuckLakeDefinition, then: DuckLakeDefinition) -> bool:
    """True if the columns can become the old ones in place, so that the rows can stay."""
    types = {f["name"]: f["type"] for f in then.fields}
    stay = [
        f["name"]
        for f in now.fields
        if f["name"] in types and (f["type"] == types[f["name"]] or widens(f["type"], types[f["name"]]))
    ]
    return stay + [name for name in then.names if name not in stay] == then.names


def at_version(snapshot: Snapshot, version: int) -> Snapshot:
    """Return the table that has a snapshot's name at a version."""
    assert snapshot.find_other is not None, "a snapshot of a lake"
    return snapshot.find_other(version, None)


def _kept(work: Work, query: str) -> str:
    """Create a temporary table with the rows of a query, and return its name."""
    name = quote_identifier(f"__duckrun_{uuid.uuid4().hex}")
    work.cursor.execute(f"CREATE TEMP TABLE {name} AS {query}")
    return name


def put_back(work: Work, snapshot: Snapshot, then: Snapshot, old: str) -> tuple[int, int, int]:
    """Change the rows of a table to those of another snapshot, which ``old`` holds with their ids.

    Returns:
        Numbers of rows inserted, updated and deleted.
    """
    table = work.table(snapshot.ref)
    names = [quote_identifier(name) for name in then.schema.names]
    listed = ", ".join(names)
    deleted = work.execute(f"DELETE FROM {table} WHERE rowid NOT IN (SELECT {_ROW} FROM {old})")
    # DuckDB's statistics may be wrong (see TableState.columns). The transaction also sees columns
    # of both snapshots.
    now = f"SELECT rowid AS {_ROW}, {', '.join(f'{hide(name)} AS {name}' for name in names)} FROM {table}"
    differs = " OR ".join(f"t.{name} IS DISTINCT FROM o.{name}" for name in names)
    changed = _kept(work, f"SELECT o.* FROM {old} AS o JOIN ({now}) AS t USING ({_ROW}) WHERE {differs}")
    assigned = ", ".join(f"{name} = o.{name}" for name in names)
    updated = work.execute(f"UPDATE {table} AS t SET {assigned} FROM {changed} AS o WHERE t.rowid = o.{_ROW}")
    missing = f"SELECT {listed} FROM {old} AS o WHERE NOT EXISTS (SELECT 1 FROM {table} AS t WHERE t.rowid = o.{_ROW})"
    come = _kept(work, missing)
    inserted = work.execute(f"INSERT INTO {table} ({listed}) SELECT * FROM {come}")
    for each in (old, changed, come):
        work.cursor.execute(f"DROP TABLE {each}")
    work.changed = True
    return inserted, updated, deleted


@dataclass(frozen=True)
class LakeRestore:
    """Restore of all tables and views to a snapshot, within the open multi-table transaction."""

    commits: Commits
    views: Views
    macros: Macros
    find: Callable[..., Snapshot]
    """Returns the snapshot of a table, at a version if one is given."""

    def run(self, version: int, note: Mapping[str, Any]) -> list[str]:
        """Restore the lake to a snapshot.

        A table that was dropped since returns as a new one. Table options, and rows in other
        lakes, stay unchanged.

        Returns:
            One line of text per changed table, view and macro.
        """
        transactor, states, done = self.commits.transactor, self.commits.states, list[str]()
        work = transactor.together
        assert work is not None, "a transaction over several tables"
        then, now = states.at(version), states.at(work.base)
        views, views_now = self.views.at(version), self.views.at(work.base)
        # Drop first, so that the names are free for what returns.
        for schema, name in sorted(views_now.keys() - views.keys()):
            self.views.drop(_ref(schema, name))
            done.append(f"view {schema}.{name} is gone")
        before = {number: (schema, name) for number, schema, name in now}
        after = {number: (schema, name) for number, schema, name in then}
        for number, (schema, name) in before.items():
            if number not in after:
                self.commits.drop(_ref(schema, name))
                done.append(f"table {schema}.{name} is gone")
        for schema in states.schemas(version):
            transactor.run_alone(f"CREATE SCHEMA IF NOT EXISTS {{lake}}.{quote_identifier(schema)}")
        self._rename_back(before, after, done)
        for number, (schema, name) in after.items():
            ref = _ref(schema, name)
            if number not in before:
                self._come_back(work, ref, version, note)
                done.append(f"table {schema}.{name} is back, as a new one")
                continue
            snapshot = self.find(ref)
            if state_of(snapshot).version > version:
                restore(self.commits, snapshot, version, note, None)
                done.append(f"table {schema}.{name} is what it was")
        for (schema, name), (sql, comment) in views.items():
            if views_now.get((schema, name)) != (sql, comment):
                self.views.put(_ref(schema, name), sql, comment)
                done.append(f"view {schema}.{name} is what it was")
        self._put_macros_back(version, work.base, done)
        for schema in {*states.schemas(work.base)} - {*states.schemas(version)}:
            transactor.run_alone(f"DROP SCHEMA IF EXISTS {{lake}}.{quote_identifier(schema)}")
        return done

    def _put_macros_back(self, version: int, base: int, done: list[str]) -> None:
        """Restore the macros to a snapshot."""
        then, now = self.macros.at(version), self.macros.at(base)
        for schema, name in sorted(now.keys() - then.keys()):
            self.macros.drop(schema, name)
            done.append(f"macro {schema}.{name} is gone")
        for macro in then.values():
            if now.get((macro.schema, macro.name)) != macro:
                self.macros.put(macro)
                done.append(f"macro {macro} is what it was")

    def _rename_back(
        self, before: Mapping[int, tuple[str, str]], after: Mapping[int, tuple[str, str]], done: list[str]
    ) -> None:
        """Rename tables back, through temporary names since two may have swapped."""
        moved = {number: name for number, name in after.items() if number in before and before[number] != name}
        for number in moved:
            schema, name = before[number]
            self._rename(_ref(schema, name), _ref(schema, f"__duckrun_{number}"))
        for number, (schema, name) in moved.items():
            self._rename(_ref(schema, f"__duckrun_{number}"), _ref(schema, name))
            done.append(f"table {schema}.{name} has its name again")

    def _rename(self, ref: TableRef, new: TableRef) -> None:
        self.commits.rename(ref, new, state_of(self.find(ref)))

    def _come_back(self, work: Work, ref: TableRef, version: int, note: Mapping[str, Any]) -> None:
        """Create a table again from its rows at a snapshot."""
        then = self.find(ref, version)
        new = NewCommit(None, state_of(then).definition, work=work)
        self.commits.define(work, ref, None, new)
        names = quoted_list(then.schema.names)
        count = work.execute(f"INSERT INTO {work.table(ref)} ({names}) SELECT {names} FROM {then.scan_sql()}")
        self.commits.commit(ref, None, replace(new, note={**note, "rows_inserted": count}))


def _ref(schema: str, name: str) -> TableRef:
    return TableRef(schema, name, "", format=DUCKLAKE)


# -- rollbacks of an older attempt of the same work, within the transaction of a newer one


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
    live = replace(newest, format_state=replace(state_of(newest), at=-1), shared=None)
    if taken.anew:
        return live, 0  # The write replaces all rows.
    if taken.base is not None:
        old = _kept(work, f"SELECT * FROM {taken.base.scan_sql(row=_ROW)}")
        put_back(work, newest, taken.base, old)
        return live, 0
    row = fresh_name("__duckrun_row", newest.schema.names)
    ids = " UNION ALL ".join(_added(newest, record, row) for record in taken.records)
    gone = work.execute(f"DELETE FROM {work.table(newest.ref)} WHERE rowid IN ({ids})")
    work.changed = work.changed or bool(gone)
    return newest, gone


def _added(snapshot: Snapshot, record: CommitRecord, row: str) -> str:
    """Return a query for the ids of the rows that a commit added."""
    then = f"SELECT {row} FROM {at_version(snapshot, record.version).scan_sql(row=row)}"
    if snapshot.begun == record.version:
        return then
    return f"{then} WHERE {row} NOT IN (SELECT {row} FROM {at_version(snapshot, record.version - 1).scan_sql(row=row)})"
