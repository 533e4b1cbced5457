"""States of tables at snapshots of the lake, read from the catalog."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Protocol

from duckrun.errors import TableNotFound, VersionNotReadable
from duckrun.formats.ducklake.catalog.catalog import APPLIED, Catalog, there
from duckrun.formats.ducklake.catalog.schema_versions import list_schemas
from duckrun.formats.ducklake.definition.definition import DuckLakeDefinition
from duckrun.formats.ducklake.state.stored import EVERY, LAYOUT, ROWS, Stored, types_in
from duckrun.sql.quoting import quoted_names
from duckrun.values.snapshot import Snapshot, TableRef

# ``kind:id``, or ``kind:"schema"."name"`` for new entries.
_CHANGE = re.compile(r'([a-z_]+):("(?:[^"]|"")*"(?:\."(?:[^"]|"")*")?|\d+)')
HIDDEN = "_duckrun"


@dataclass(frozen=True)
class TableState:
    """Table at a snapshot of its lake."""

    id: int
    uuid: str
    schema: str
    name: str
    begun: int
    version: int
    """Last snapshot that changed the table, or the oldest one left if that has expired.

    Both read the same rows.
    """
    at: int
    """Snapshot that the caller requested; -1 inside a transaction."""
    epoch: int | str
    """Attachment through which the table is read.

    It names the snapshot that last widened a column (0 for none) and the dropped inlined tables.
    """
    definition: DuckLakeDefinition
    column_ids: Mapping[str, int]
    inlined: bool = False
    """True if the catalog has tables of inlined rows for it, which a flush may drop."""
    has_old_inlined: bool = False
    """True if such a table has an older schema. A flush drops it, perhaps without a snapshot."""
    narrow: frozenset[str] = frozenset()
    """Columns for which DuckLake's statistics may be wrong at this snapshot.

    They were widened, lost values in a rewrite, lost their bounds in a commit, or are partitioned
    by a bucket that some files lack.
    """
    fresh: bool = False
    """True if the table has never had a row."""

    def columns(self) -> dict[str, str]:
        """Return the columns in SQL, behind a CASE if DuckLake's statistics for one may be wrong.

        DuckLake applies the statistics of the newest snapshot to older snapshots too (duckdb 1.5.5,
        https://github.com/duckdb/ducklake/issues/1377):

        - After a widening they have another type. Filters then fail with an internal error.
        - After a rewrite they cover fewer values. An ORDER BY then returned 267 for 11.
        - After lost bounds they cover only later commits (see bounds.py).
        - DuckDB skips files outside of a bucket's partition (see bounds.py).

        FLOAT is always hidden. DuckLake stores its bounds as their shortest texts and compares them
        as DOUBLE. A filter or join then skips a file if another number has the same text as its
        bound.
        """
        hidden, quoted = self.hidden, quoted_names(self.definition.names)
        return {name: hide(column) if name in hidden else column for name, column in quoted.items()}

    @property
    def hidden(self) -> set[str]:
        """Columns whose statistics DuckDB must not see."""
        kinds = self.definition.sql_types
        return {name for name, kind in kinds.items() if name in self.narrow or kind == "FLOAT"}


def state_of(snapshot: Snapshot) -> TableState:
    """Return what the format knows of a table at a snapshot, with its type."""
    state: TableState = snapshot.format_state
    return state


def hide(column: str) -> str:
    """Return SQL for a column of a DuckLake table without its statistics.

    Neither filters nor bounds pass a CASE.
    """
    return f"CASE WHEN rowid IS NOT NULL THEN {column} END"


@dataclass(frozen=True)
class Places:
    """Names of a table over time, and the attachment through which it is read now."""

    names: Sequence[tuple[Any, ...]]
    """Tuples (first snapshot with that name, schema, name), oldest first."""
    epoch_at: Callable[[int], int | str]

    def at(self, snapshot: int) -> tuple[str, str, int | str]:
        """Return schema, name and epoch at a snapshot."""
        return *self.name_at(snapshot), self.epoch_at(snapshot)

    def name_at(self, snapshot: int) -> tuple[str, str]:
        """Return schema and name at a snapshot."""
        _, schema, name = next((n for n in reversed(self.names) if n[0] <= snapshot), self.names[0])
        return schema, name


def changes_in(text: str | None) -> list[tuple[str, str]]:
    """Parse ``changes_made`` of a snapshot into (kind, id or name) pairs."""
    return [(kind, what) for kind, what in _CHANGE.findall(text or "")]


def kinds_of(text: str | None, table_id: int) -> set[str]:
    """Return the kinds of a snapshot's changes to one table."""
    return {kind for kind, what in changes_in(text) if what == str(table_id)}


def touches(text: str | None, table_id: int, kinds: Iterable[str] = EVERY) -> bool:
    """True if a snapshot changed the rows, files or definition of a table."""
    return not kinds_of(text, table_id).isdisjoint(kinds)


class OpenTransaction(Protocol):
    """Multi-table transaction whose changes its own reads see."""

    alias: str
    base: int
    redefined_tables: set[tuple[str, str]]
    renamed_columns: set[tuple[str, str]]

    def ask(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query in the transaction."""


class States:
    """Cache of the states of one lake's tables, until a snapshot changes them.

    Safe across threads: cached values are replaced, never modified.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._newest: dict[tuple[str, str], TableState] = {}
        self._unlisted: dict[int, str] = {}
        self._has_applied = False
        self._doubted: set[int] = set()
        """Tables whose column bounds are read again after each commit."""
        self._committed, self._alone = -1, False
        """The last snapshot that was made here, and whether others seem to make none meanwhile."""

    def forget(self) -> None:
        """Clear the cache after a catalog change that no snapshot records."""
        self._newest.clear()

    def doubt(self, table_id: int) -> None:
        """Mark a table whose column bounds were lost: read it again after each commit."""
        self._doubted.add(table_id)

    # -- the lake

    def newest(self) -> int | None:
        """Return the newest snapshot of the lake; None if there is no catalog yet."""
        rows = self.catalog.ask(f"SELECT max(snapshot_id) FROM {self.catalog.meta('ducklake_snapshot')}")
        return None if not rows or rows[0][0] is None else int(rows[0][0])

    def at_time(self, timestamp: str, ref: TableRef) -> int:
        """Return the newest snapshot at or before a time (ISO 8601).

        A time in whole milliseconds, as ``history()`` returns, is compared by the millisecond.

        Raises:
            VersionNotReadable: The time is before the oldest snapshot.
        """
        snapshots = self.catalog.meta("ducklake_snapshot")
        time = "snapshot_time::TIMESTAMPTZ"
        time = (
            # history() shows milliseconds: a time from there must find its own snapshot.
            "CASE WHEN date_trunc('milliseconds', $1::TIMESTAMPTZ) = $1::TIMESTAMPTZ THEN "
            f"date_trunc('milliseconds', {time}) ELSE {time} END"
        )
        rows = self.catalog.ask(
            f"SELECT max(snapshot_id) FILTER (WHERE {time} <= $1::TIMESTAMPTZ), min(snapshot_time) FROM {snapshots}",
            [timestamp],
        )
        if not rows or rows[0][0] is None:
            first = f"; the oldest snapshot of its lake is of {rows[0][1]}" if rows else ""
            raise VersionNotReadable(f"Table {ref} has no version at {timestamp}{first}.")
        return int(rows[0][0])

    def check(self, snapshot: int, ref: TableRef) -> None:
        """Raise VersionNotReadable for a snapshot that has expired or does not exist yet."""
        snapshots = self.catalog.meta("ducklake_snapshot")
        rows = self.catalog.ask(
            f"SELECT min(snapshot_id), max(snapshot_id), count(*) FILTER (WHERE snapshot_id = ?) FROM {snapshots}",
            [snapshot],
        )
        if not rows or rows[0][0] is None:
            raise TableNotFound(f"There is no table {ref}: its lake has no catalog yet.")
        oldest, newest, is_there = rows[0]
        if is_there:
            return
        if snapshot > newest:
            raise VersionNotReadable(
                f"Table {ref} has no version {snapshot}: the newest snapshot of its lake is {newest}."
            )
        raise VersionNotReadable(
            f"Version {snapshot} of table {ref} has expired; the oldest snapshot of its lake is {oldest}. "
            "Choose a newer one."
        )

    def names(self, kind: str, schema: str) -> list[str]:
        """Current tables or views of a schema.

        Args:
            kind: ``table`` or ``view``.
        """
        # duckdb_tables() would load every table of the lake and of all other attachments.
        entries, schemas = self.catalog.meta(f"ducklake_{kind}"), self.catalog.meta("ducklake_schema")
        rows = self.catalog.ask(
            f"SELECT {kind}_name FROM {entries} AS e JOIN {schemas} AS s USING (schema_id) "
            "WHERE s.schema_name = ? AND e.end_snapshot IS NULL AND s.end_snapshot IS NULL ORDER BY 1",
            [schema],
        )
        return [name for (name,) in rows]

    def has_applied(self) -> bool:
        """True once the lake has the table of application transactions."""
        schema, table = APPLIED.split(".")
        self._has_applied = self._has_applied or table in self.names("table", schema)
        return self._has_applied

    # -- one table

    def is_known(self, ref: TableRef) -> bool:
        """True for a table that the cache holds."""
        return (ref.schema, ref.name) in self._newest

    def known(self, ref: TableRef) -> TableState | None:
        """Return a cached state that needs no query.

        Returns:
            None if another writer may have changed the table.
        """
        state = self._newest.get((ref.schema, ref.name))
        return state if state is not None and self._alone and state.at == self._committed else None

    def begun(self, ref: TableRef) -> TableState | None:
        """Return a state for a write, whose transaction checks that it is still the newest.

        Asks the catalog only if another writer may have committed.
        """
        cached = self.known(ref)
        if cached is not None:
            return cached
        state = self.find(ref)
        self._alone = state is not None and state.at == self._committed
        return state

    def outrun(self) -> None:
        """Note that another writer committed: the next write must ask the catalog."""
        self._alone = False

    def advance(self, ref: TableRef, base: int, snapshot: int) -> None:
        """Update the cache after a commit that changed only the rows of one table."""
        for key, state in list(self._newest.items()):
            if state.at == base and state.id not in self._doubted and not state.fresh:
                is_changed = key == (ref.schema, ref.name)
                self._newest[key] = replace(state, at=snapshot, version=snapshot if is_changed else state.version)
        self._alone = self._alone or self._committed == base
        self._committed = snapshot
        """The last snapshot committed here, and whether nobody else seems to commit meanwhile."""

    def exists(self, ref: TableRef) -> bool:
        """True if there is a table of that name now."""
        return self.number(ref) is not None

    def number(self, ref: TableRef) -> int | None:
        """Return the id of a table, now; None if there is none of that name."""
        row = self._row(ref, None)
        return None if row is None else int(row[0])

    def find(self, ref: TableRef, at: int | None = None) -> TableState | None:
        """Return a table at a snapshot of the lake, or now; None if there is none of that name."""
        if at is not None:
            return self._load(ref, at)
        key = (ref.schema, ref.name)
        cached = self._newest.get(key)
        state = None if cached is None else self._advanced(cached)
        if state is None:
            state = self._load(ref, None)
        if state is None:
            self._newest.pop(key, None)
        else:
            self._newest[key] = state
        return state

    def _advanced(self, state: TableState) -> TableState | None:
        """Bring a cached state forward by the snapshots since; None if it must be read again."""
        changes = self.catalog.meta("ducklake_snapshot_changes")
        rows = self.catalog.ask(
            f"SELECT snapshot_id, changes_made FROM {changes} WHERE snapshot_id > {state.at} "
            f"UNION ALL SELECT snapshot_id, NULL FROM {self.catalog.meta('ducklake_snapshot')} "
            f"WHERE snapshot_id = {state.version}"
        )
        if not any(text is None and number == state.version for number, text in rows):
            return None  # the version has expired
        at, version, created = state.at, state.version, False
        for number, text in sorted((n, t) for n, t in rows if n > state.at):
            for kind, what in changes_in(text):
                if kind in ("inline_flush", "inlined_insert", "inlined_delete") and what == str(state.id):
                    return None  # Tables of inlined rows may have been added or dropped.
                created = created or kind == "created_table"
                if kind in (*ROWS, *LAYOUT):
                    version = number if what == str(state.id) else version
                elif (kind == "altered_table" and what != str(state.id)) or kind in (
                    "created_schema",
                    "created_view",
                    "created_table",
                    "dropped_view",
                ):
                    continue
                else:
                    return None
            at = number
        # DuckLake records a rename as created_table.
        if created and not self.tables(
            "1", f"t.table_id = {state.id} AND t.table_name = ? AND {there('t', None)}", state.name
        ):
            return None
        if version == state.version:
            return state if at == state.at else replace(state, at=at)
        stored = Stored(self.catalog, state.id, at, ("column", "bounds", "unbucketed"))
        return replace(state, at=at, version=version, narrow=stored.narrow, fresh=stored.fresh)

    def _row(self, ref: TableRef, at: int | None) -> tuple[Any, ...] | None:
        """Id, UUID, schema and name of a table, and the newest snapshot of its lake."""
        rows = self.tables(
            "t.table_id, CAST(t.table_uuid AS VARCHAR), s.schema_name, t.table_name, (SELECT max(snapshot_id) FROM "
            f"{self.catalog.meta('ducklake_snapshot')})",
            f"s.schema_name = ? AND t.table_name = ? AND {there('t', at)} AND {there('s', at)}",
            ref.schema,
            ref.name,
        )
        return rows[0] if rows else None

    def tables(self, columns: str, where: str, *values: str) -> list[tuple[Any, ...]]:
        """Return columns of tables ``t`` and their schemas ``s``, by the first column."""
        tables, schemas = self.catalog.meta("ducklake_table"), self.catalog.meta("ducklake_schema")
        joined = f"{tables} AS t JOIN {schemas} AS s USING (schema_id)"
        return self.catalog.ask(f"SELECT {columns} FROM {joined} WHERE {where} ORDER BY 1", values)

    def again(self, state: TableState, at: int) -> TableState:
        """Return the same table at another snapshot, whatever its name was then."""
        schema, name = self.places(state).name_at(at)
        return self._of_row((state.id, state.uuid, schema, name), at)

    def places(self, state: TableState) -> Places:
        """Return the names and attachments through which a table is read at each snapshot."""
        columns = "greatest(t.begin_snapshot, s.begin_snapshot), s.schema_name, t.table_name"
        epoch = cache(partial(self._epoch_now, state.id))
        return Places(self.tables(columns, f"t.table_id = {state.id}"), lambda at: self._own(epoch(), at))

    def at(self, snapshot: int | None) -> list[tuple[int, str, str]]:
        """Tables at a snapshot, or now, as (id, schema, name)."""
        where = f"{there('t', snapshot)} AND {there('s', snapshot)} AND s.schema_name <> ?"
        rows = self.tables("t.table_id, s.schema_name, t.table_name", where, HIDDEN)
        return [(int(number), schema, name) for number, schema, name in rows]

    def schemas(self, snapshot: int | None = None) -> list[str]:
        """Schemas at a snapshot, or now, without the hidden one."""
        schemas = self.catalog.meta("ducklake_schema")
        rows = self.catalog.ask(f"SELECT schema_name FROM {schemas} AS s WHERE {there('s', snapshot)} ORDER BY 1")
        return [name for (name,) in rows if name != HIDDEN]

    def _load(self, ref: TableRef, at: int | None) -> TableState | None:
        row = self._row(ref, at)
        return None if row is None else self._of_row(row[:4], int(row[4]) if at is None else at)

    def _of_row(self, row: tuple[Any, ...], at: int) -> TableState:
        table_id, uuid, schema, name = row
        stored = Stored(self.catalog, table_id, at)
        if stored.has_unlisted:
            list_schemas(self.catalog, table_id)
        version = stored.version
        epoch = self._own(_epoch(table_id, stored), version)
        self.catalog.ensure(epoch)
        definition = stored.definition(types_in(self.catalog, epoch, schema, name, version))
        return TableState(
            table_id,
            uuid,
            schema,
            name,
            stored.begun,
            version,
            at,
            epoch,
            definition,
            stored.column_ids(),
            stored.inlined is not None,
            stored.has_old_inlined,
            # After a rewrite, the statistics of every column may be wrong.
            frozenset(definition.names) if stored.rewritten else stored.narrow,
            stored.fresh,
        )

    def epoch_now(self, state: TableState) -> int | str:
        """Return the attachment for a state as of now.

        A flush may have dropped inlined tables that the state's own attachment knows.
        """
        if not state.inlined:
            return state.epoch
        return self._own(self._epoch_now(state.id), state.version)

    def _epoch_now(self, table_id: int) -> int | str:
        return _epoch(table_id, Stored(self.catalog, table_id, -1, ("column", "inlined", "schema")))

    def _own(self, epoch: int | str, snapshot: int) -> int | str:
        """Return the attachment for a snapshot.

        A snapshot gets its own one if the catalog does not list its schema version. That happens
        when an altered table gets its first inlined rows. Other attachments would use a schema that
        they know instead (duckdb 1.5.5).
        """
        if snapshot not in self._unlisted:
            rows = self.catalog.ask(
                f"SELECT s.schema_version FROM {self.catalog.meta('ducklake_snapshot')} AS s "
                f"WHERE s.snapshot_id = {snapshot} AND "
                f"s.schema_version NOT IN (SELECT schema_version FROM {self.catalog.meta('ducklake_schema_versions')})"
            )
            self._unlisted[snapshot] = f".s{rows[0][0]}" if rows else ""
        suffix = self._unlisted[snapshot]
        return f"{epoch}{suffix}" if suffix else epoch


def _epoch(table_id: int, stored: Stored) -> int | str:
    """Return the key of the attachment through which a table is read.

    An attachment fails, for older versions too, once it has seen two types of a column as the
    newest. It also fails once a flush drops an inlined table of an older schema that it knows.
    """
    if stored.inlined is None or stored.inlined == stored.first_schema:
        return stored.widened
    return f"{stored.widened}.{table_id}.{stored.inlined}"
