"""Restore of a table, or of a whole lake, to a snapshot.

One transaction deletes, updates and inserts the rows that differ. Rows that still exist keep their
id. DuckLake cannot give a removed id to a row again, so rows that return have new ids. All rows get
new ids if the columns stood in another order, or if a current type does not widen to the old one.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from duckrun.errors import VersionNotReadable
from duckrun.formats.commits import NewCommit
from duckrun.formats.ducklake.applied import RESTORED
from duckrun.formats.ducklake.definition import DuckLakeDefinition
from duckrun.formats.ducklake.state import hide
from duckrun.formats.ducklake.types import widens
from duckrun.formats.ducklake.work import Work
from duckrun.sql.quoting import quote_identifier
from duckrun.values.lake_format import DUCKLAKE
from duckrun.values.rows import AppTransaction
from duckrun.values.snapshot import Snapshot, TableRef

_ROW = "__duckrun_row"

if TYPE_CHECKING:
    from duckrun.formats.ducklake.ducklake import DuckLakeFormat


def restore(
    form: DuckLakeFormat, snapshot: Snapshot, version: int, note: Mapping[str, Any], app: AppTransaction | None
) -> int:
    """Restore a table to an older version, and return the new snapshot.

    Raises:
        CommitTaken: Another program commits meanwhile.
        VersionNotReadable: Another table had the name then, or the version has expired.
    """
    then = form.snapshot(snapshot.ref, version)
    if then.table_id != snapshot.table_id:
        raise VersionNotReadable(
            f"Table {snapshot.ref}: another table had its name at version {version}; read that by CREATE TABLE … AS "
            "SELECT … "
            "of that version."
        )
    with form.transaction(form.catalog.cursor(create=True), snapshot) as work:
        anew = not _keeps_columns(snapshot.format_state.definition, then.format_state.definition)
        old = kept(work, then)
        gone = work.execute(f"DELETE FROM {work.table(snapshot.ref)}") if anew else 0
        form.define(work, snapshot.ref, snapshot, NewCommit(None, then.format_state.definition), emptied=anew)
        counts = put_back(work, snapshot, then, old)
        counts = (counts[0], counts[1], counts[2] + gone)
        note_after = {**note, **dict(zip(("rows_inserted", "rows_updated", "rows_deleted"), counts, strict=True))}
        work.applied(snapshot.ref, AppTransaction(RESTORED, then.format_state.at), note_after)
        return form.commit(snapshot.ref, snapshot, NewCommit(None, work=work), note_after, app)


def _keeps_columns(now: DuckLakeDefinition, then: DuckLakeDefinition) -> bool:
    """True if the columns can become the old ones in place, so that the rows can stay."""
    types = {f["name"]: f["type"] for f in then.fields}
    stay = [
        f["name"]
        for f in now.fields
        if f["name"] in types and (f["type"] == types[f["name"]] or widens(f["type"], types[f["name"]]))
    ]
    return stay + [name for name in then.names if name not in stay] == then.names


def kept(work: Work, then: Snapshot) -> str:
    """Create a temporary table with the rows and row ids of another snapshot."""
    old = quote_identifier(f"__duckrun_{uuid.uuid4().hex}")
    work.cursor.execute(f"CREATE TEMP TABLE {old} AS SELECT * FROM {then.scan_sql(row=_ROW)}")
    return old


def put_back(work: Work, snapshot: Snapshot, then: Snapshot, old: str) -> tuple[int, int, int]:
    """Change the rows of a table to those of another snapshot, which ``old`` holds.

    Returns:
        Numbers of rows inserted, updated and deleted.
    """
    table = work.table(snapshot.ref)
    names = [quote_identifier(name) for name in then.schema.names]
    listed = ", ".join(names)
    deleted = work.execute(f"DELETE FROM {table} WHERE rowid NOT IN (SELECT {_ROW} FROM {old})")
    # DuckDB's statistics may be wrong (see TableState.column). The transaction also sees columns of
    # both snapshots.
    now = f"SELECT rowid AS {_ROW}, {', '.join(f'{hide(name)} AS {name}' for name in names)} FROM {table}"
    differs = " OR ".join(f"t.{name} IS DISTINCT FROM o.{name}" for name in names)
    changed = quote_identifier(f"__duckrun_{uuid.uuid4().hex}")
    work.cursor.execute(
        f"CREATE TEMP TABLE {changed} AS SELECT o.* FROM {old} AS o JOIN ({now}) AS t USING ({_ROW}) WHERE {differs}"
    )
    assigned = ", ".join(f"{name} = o.{name}" for name in names)
    updated = work.execute(f"UPDATE {table} AS t SET {assigned} FROM {changed} AS o WHERE t.rowid = o.{_ROW}")
    missing = f"SELECT {listed} FROM {old} AS o WHERE NOT EXISTS (SELECT 1 FROM {table} AS t WHERE t.rowid = o.{_ROW})"
    come = quote_identifier(f"__duckrun_{uuid.uuid4().hex}")
    work.cursor.execute(f"CREATE TEMP TABLE {come} AS {missing}")
    inserted = work.execute(f"INSERT INTO {table} ({listed}) SELECT * FROM {come}")
    for each in (old, changed, come):
        work.cursor.execute(f"DROP TABLE {each}")
    work.changed = True
    return inserted, updated, deleted


def restore_lake(form: DuckLakeFormat, version: int, note: Mapping[str, Any]) -> list[str]:
    """Restore all tables and views to a snapshot, within the open multi-table transaction.

    A table that was dropped since returns as a new one. Table options, and rows in other lakes,
    stay unchanged.

    Returns:
        One line of text per changed table, view and macro.

    Raises:
        VersionNotReadable: The snapshot has expired or does not exist.
    """
    assert form.together is not None, "a transaction over several tables"
    _check(form, version)
    states, work, done = form.states, form.together, []
    then, now = states.at(version), states.at(work.base)
    views, views_now = form.views.at(version), form.views.at(work.base)
    # Drop first, so that the names are free for what returns.
    for schema, name in sorted(views_now.keys() - views.keys()):
        form.views.drop(_ref(schema, name))
        done.append(f"view {schema}.{name} is gone")
    before = {number: (schema, name) for number, schema, name in now}
    after = {number: (schema, name) for number, schema, name in then}
    for number, (schema, name) in before.items():
        if number not in after:
            form.drop(_ref(schema, name))
            done.append(f"table {schema}.{name} is gone")
    for schema in states.schemas_at(version):
        form.run_alone(f"CREATE SCHEMA IF NOT EXISTS {{lake}}.{quote_identifier(schema)}")
    _rename_back(form, before, after, done)
    for number, (schema, name) in after.items():
        ref = _ref(schema, name)
        if number not in before:
            _come_back(form, work, ref, version, note)
            done.append(f"table {schema}.{name} is back, as a new one")
            continue
        snapshot = form.snapshot(ref)
        old = states.find(ref, version)
        assert old is not None, "the catalog lists it at that snapshot"
        if snapshot.format_state.version > version:
            restore(form, snapshot, version, note, None)
            done.append(f"table {schema}.{name} is what it was")
    for (schema, name), (sql, comment) in views.items():
        if views_now.get((schema, name)) != (sql, comment):
            form.views.put(_ref(schema, name), sql, comment)
            done.append(f"view {schema}.{name} is what it was")
    _put_macros_back(form, version, work.base, done)
    for schema in {*states.schemas_at(work.base)} - {*states.schemas_at(version)}:
        form.run_alone(f"DROP SCHEMA IF EXISTS {{lake}}.{quote_identifier(schema)}")
    return done


def _put_macros_back(form: DuckLakeFormat, version: int, base: int, done: list[str]) -> None:
    """Restore the macros to a snapshot."""
    then, now = form.macros.at(version), form.macros.at(base)
    for schema, name in sorted(now.keys() - then.keys()):
        form.macros.drop(schema, name)
        done.append(f"macro {schema}.{name} is gone")
    for macro in then.values():
        if now.get((macro.schema, macro.name)) != macro:
            form.macros.put(macro)
            done.append(f"macro {macro} is what it was")


def _check(form: DuckLakeFormat, version: int) -> None:
    snapshots = [row["snapshot_id"] for row in form.records.snapshots()]
    if version not in snapshots:
        why = (
            f"the newest is {snapshots[0]}"
            if version > snapshots[0]
            else (f"it has expired, and the oldest is {snapshots[-1]}")
        )
        raise VersionNotReadable(f"Lake {form.storage.root} has no snapshot {version}: {why}")


def _ref(schema: str, name: str) -> TableRef:
    return TableRef(schema, name, "", format=DUCKLAKE)


def _rename_back(
    form: DuckLakeFormat,
    before: Mapping[int, tuple[str, str]],
    after: Mapping[int, tuple[str, str]],
    done: list[str],
) -> None:
    """Give renamed tables their old names, through temporary names since two may have swapped."""
    moved = {number: name for number, name in after.items() if number in before and before[number] != name}
    for number in moved:
        schema, name = before[number]
        form.rename(_ref(schema, name), _ref(schema, f"__duckrun_{number}"))
    for number, (schema, name) in moved.items():
        form.rename(_ref(schema, f"__duckrun_{number}"), _ref(schema, name))
        done.append(f"table {schema}.{name} has its name again")


def _come_back(form: DuckLakeFormat, work: Work, ref: TableRef, version: int, note: Mapping[str, Any]) -> None:
    """Create a table again from its rows at a snapshot."""
    then = form.snapshot(ref, version)
    form.define(work, ref, None, NewCommit(None, then.format_state.definition))
    names = ", ".join(quote_identifier(name) for name in then.schema.names)
    count = work.execute(f"INSERT INTO {work.table(ref)} ({names}) SELECT {names} FROM {then.scan_sql()}")
    form.commit(
        ref, None, NewCommit(None, then.format_state.definition, work=work), {**note, "rows_inserted": count}, None
    )
