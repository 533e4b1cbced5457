"""What the catalog says of tables: which there are, what each is at a snapshot of the lake, and which snapshots changed it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from duckrun.errors import TableNotFound, VersionNotReadable
from duckrun.formats.ducklake.catalog import Catalog, there
from duckrun.formats.ducklake.definition import DuckLakeDefinition
from duckrun.formats.ducklake.stored import DEFINITION, LAYOUT, ROWS, Stored, types_in
from duckrun.sql.names import quote_identifier
from duckrun.values.snapshot import TableRef

_CHANGE = re.compile(r'([a-z_]+):("(?:[^"]|"")*"(?:\."(?:[^"]|"")*")?|\d+)')
HIDDEN = "_duckrun"


@dataclass(frozen=True)
class TableState:
    """A table at a snapshot of its lake. ``version`` is the last snapshot that changed it, or the oldest that is left where that has expired:
    both read the same rows. ``epoch`` names the attachment through which it is read: the snapshot at which the type of a column was last
    widened, 0 for none, and which tables of inlined rows were dropped. ``at`` is the snapshot that was asked for.
    """

    id: int
    uuid: str
    schema: str
    name: str
    begun: int
    version: int
    at: int
    epoch: int | str
    definition: DuckLakeDefinition
    column_ids: Mapping[str, int]
    inlined: bool = False
    """Whether there are tables of inlined rows of it, which a flush may drop."""
    narrow: frozenset[str] = frozenset()
    """The columns of which DuckLake may know what is not true at this snapshot: that were widened, lost values to a rewrite, or their bounds to a commit."""
    fresh: bool = False
    """Whether it has had no row yet."""

    def column(self, name: str) -> str:
        """A column in SQL. What DuckLake knows of the values of a column is of the newest snapshot, at older ones too: of another type where it was
        widened, upon which DuckDB's filters fail (an internal error), of fewer values after a rewrite, upon which an ORDER BY gives 267 for 11, and
        of those of later commits where the first lost its bounds (bounds.py; duckdb 1.5.5). Behind a CASE it knows nothing of them. Nor may it of
        FLOAT, whose bounds it keeps as their shortest texts and compares as DOUBLE: a filter, and a join, loses files whose bound another number of
        that text is.
        """
        quoted = quote_identifier(name)
        return hide(quoted) if self.is_hidden(name) else quoted

    def is_hidden(self, name: str) -> bool:
        """True for a column of whose values DuckDB is to know nothing."""
        return name in self.narrow or self.definition.sql_types[name] == "FLOAT"


def hide(column: str) -> str:
    """A column of a DuckLake table in SQL, of whose values DuckDB knows nothing: neither a filter nor bounds pass a CASE."""
    return f"CASE WHEN rowid IS NOT NULL THEN {column} END"


@dataclass(frozen=True)
class Places:
    """The names of a table (schema, name, since which snapshot), and the attachment through which it is read now."""

    names: Sequence[tuple[Any, ...]]
    epoch: int | str
    own: Callable[[int | str, int], int | str]

    def at(self, snapshot: int) -> tuple[str, str, int | str]:
        """Schema, name and epoch at a snapshot."""
        schema, name, _ = next((n for n in reversed(self.names) if n[2] <= snapshot), self.names[0])
        return schema, name, self.own(self.epoch, snapshot)


def changes_in(text: str | None) -> list[tuple[str, str]]:
    """What a snapshot changed, as (kind, id or name)."""
    return [(kind, what) for kind, what in _CHANGE.findall(text or "")]


def touches(text: str | None, table_id: int, kinds: Iterable[str] = (*ROWS, *DEFINITION, *LAYOUT)) -> bool:
    """True if a snapshot changed rows, files or the definition of a table."""
    return any(kind in kinds and what == str(table_id) for kind, what in changes_in(text))


class States:
    """The states of one lake's tables, kept as long as no snapshot changes them. Safe across threads: what is kept is replaced whole."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._newest: dict[tuple[str, str], TableState] = {}
        self._unlisted: dict[int, str] = {}
        self._doubted: set[int] = set()
        """The tables whose bounds of columns are looked at behind each commit."""
        self._committed, self._alone = -1, False
        """The last snapshot that was made here, and whether others seem to make none meanwhile."""

    def forget(self) -> None:
        """Know nothing more: the catalog has changed in a way that no snapshot tells."""
        self._newest.clear()

    def doubt(self, table_id: int) -> None:
        """Bounds of columns of a table were lost: what is known of it is asked again."""
        self._doubted.add(table_id)

    # -- the lake

    def newest(self) -> int | None:
        """The newest snapshot of the lake; None where there is no catalog yet."""
        found = self.catalog.ask(f"SELECT max(snapshot_id) FROM {self.catalog.meta('ducklake_snapshot')}")
        return None if not found or found[0][0] is None else int(found[0][0])

    def at_time(self, timestamp: str, ref: TableRef) -> int:
        """The newest snapshot at or before a time (ISO 8601): of a time in whole milliseconds, as history() has them, to the millisecond.
        Raises VersionNotReadable.
        """
        snapshots = self.catalog.meta("ducklake_snapshot")
        made = "snapshot_time::TIMESTAMPTZ"
        made = f"CASE WHEN date_trunc('milliseconds', $1::TIMESTAMPTZ) = $1::TIMESTAMPTZ THEN date_trunc('milliseconds', {made}) ELSE {made} END"
        found = self.catalog.ask(
            f"SELECT max(snapshot_id) FILTER (WHERE {made} <= $1::TIMESTAMPTZ), min(snapshot_time) FROM {snapshots}",
            [timestamp],
        )
        if not found or found[0][0] is None:
            first = f"; the oldest snapshot of its lake is of {found[0][1]}" if found else ""
            raise VersionNotReadable(f"Table {ref} has no version at {timestamp}{first}.")
        return int(found[0][0])

    def check(self, snapshot: int, ref: TableRef) -> None:
        """Raise VersionNotReadable for a snapshot that is expired or not there yet."""
        snapshots = self.catalog.meta("ducklake_snapshot")
        found = self.catalog.ask(
            f"SELECT min(snapshot_id), max(snapshot_id), count(*) FILTER (WHERE snapshot_id = ?) FROM {snapshots}",
            [snapshot],
        )
        if not found or found[0][0] is None:
            raise TableNotFound(f"There is no table {ref}: its lake has no catalog yet.")
        oldest, newest, is_there = found[0]
        if is_there:
            return
        if snapshot > newest:
            raise VersionNotReadable(
                f"Table {ref} has no version {snapshot}: the newest snapshot of its lake is {newest}."
            )
        raise VersionNotReadable(
            f"Version {snapshot} of table {ref} has expired; the oldest snapshot of its lake is {oldest}. Choose a newer one."
        )

    def schemas(self) -> list[str]:
        found = self.catalog.ask(
            f"SELECT schema_name FROM {self.catalog.meta('ducklake_schema')} WHERE end_snapshot IS NULL ORDER BY 1"
        )
        return [name for (name,) in found if name != HIDDEN]

    def names(self, kind: str, schema: str) -> list[str]:
        """The tables or views of a schema, now."""
        entries, schemas = self.catalog.meta(f"ducklake_{kind}"), self.catalog.meta("ducklake_schema")
        found = self.catalog.ask(
            f"SELECT {kind}_name FROM {entries} AS e JOIN {schemas} AS s USING (schema_id) "
            "WHERE s.schema_name = ? AND e.end_snapshot IS NULL AND s.end_snapshot IS NULL ORDER BY 1",
            [schema],
        )
        return [name for (name,) in found]

    # -- one table

    def is_known(self, ref: TableRef) -> bool:
        """True for a table that was there when this object last looked."""
        return (ref.schema, ref.name) in self._newest

    def known(self, ref: TableRef) -> TableState | None:
        """What a table is, as far as that is known without a question; None where others may have changed it."""
        kept = self._newest.get((ref.schema, ref.name))
        return kept if kept is not None and self._alone and kept.at == self._committed else None

    def begun(self, ref: TableRef) -> TableState | None:
        """What a table is, for a write that looks itself, in its transaction, whether the lake is as it is said here. While nobody else
        commits, the catalog is not asked.
        """
        kept = self.known(ref)
        if kept is not None:
            return kept
        found = self.find(ref)
        self._alone = found is not None and found.at == self._committed
        return found

    def outrun(self) -> None:
        """Others have committed: the next write asks the catalog."""
        self._alone = False

    def advance(self, ref: TableRef, base: int, made: int) -> None:
        """A commit from one snapshot made another, which changed the rows of one table and nothing else."""
        for key, kept in list(self._newest.items()):
            if kept.at == base and kept.id not in self._doubted and not kept.fresh:
                own = key == (ref.schema, ref.name)
                self._newest[key] = replace(kept, at=made, version=made if own else kept.version)
        self._alone = self._alone or self._committed == base
        self._committed = made

    def exists(self, ref: TableRef) -> bool:
        return self.number(ref) is not None

    def number(self, ref: TableRef) -> int | None:
        """The id of a table, now; None where there is none of that name."""
        row = self._row(ref, None)
        return None if row is None else int(row[0])

    def find(self, ref: TableRef, at: int | None = None) -> TableState | None:
        """A table at a snapshot of the lake, or now; None where it has none of that name."""
        if at is not None:
            return self._load(ref, at)
        key = (ref.schema, ref.name)
        kept = self._newest.get(key)
        found = None if kept is None else self._advanced(kept)
        if found is None:
            found = self._load(ref, None)
        if found is None:
            self._newest.pop(key, None)
        else:
            self._newest[key] = found
        return found

    def _advanced(self, kept: TableState) -> TableState | None:
        """What is known of a table, brought forward by what has changed since; None where it is to be read anew."""
        changes = self.catalog.meta("ducklake_snapshot_changes")
        found = self.catalog.ask(
            f"SELECT snapshot_id, changes_made FROM {changes} WHERE snapshot_id > {kept.at} "
            f"UNION ALL SELECT snapshot_id, NULL FROM {self.catalog.meta('ducklake_snapshot')} WHERE snapshot_id = {kept.version}"
        )
        if not any(text is None and number == kept.version for number, text in found):
            return None  # the version has expired
        at, version, created = kept.at, kept.version, False
        for number, text in sorted((n, t) for n, t in found if n > kept.at):
            for kind, what in changes_in(text):
                if kind in ("inline_flush", "inlined_insert", "inlined_delete") and what == str(kept.id):
                    return None  # tables of inlined rows may have come or gone
                created = created or kind == "created_table"
                if kind in (*ROWS, *LAYOUT):
                    version = number if what == str(kept.id) else version
                elif (kind == "altered_table" and what != str(kept.id)) or kind in (
                    "created_schema",
                    "created_view",
                    "created_table",
                    "dropped_view",
                ):
                    continue
                else:
                    return None
            at = number
        if created and not self._keeps_name(kept):  # DuckLake notes a table that was renamed as one that was made
            return None
        if version == kept.version:
            return kept if at == kept.at else replace(kept, at=at)
        stored = Stored(self.catalog, kept.id, at, ("column", "bounds"))
        return replace(kept, at=at, version=version, narrow=stored.narrow, fresh=stored.fresh)

    def _keeps_name(self, state: TableState) -> bool:
        tables = self.catalog.meta("ducklake_table")
        same = f"SELECT 1 FROM {tables} WHERE table_id = {state.id} AND table_name = ? AND end_snapshot IS NULL"
        return bool(self.catalog.ask(same, [state.name]))

    def _row(self, ref: TableRef, at: int | None) -> tuple[Any, ...] | None:
        """Id, UUID, schema and name of a table, and the newest snapshot of its lake."""
        tables, schemas = self.catalog.meta("ducklake_table"), self.catalog.meta("ducklake_schema")
        found = self.catalog.ask(
            f"SELECT t.table_id, CAST(t.table_uuid AS VARCHAR), s.schema_name, t.table_name, (SELECT max(snapshot_id) FROM {self.catalog.meta('ducklake_snapshot')}) "
            f"FROM {tables} AS t JOIN {schemas} AS s USING (schema_id) WHERE s.schema_name = ? AND t.table_name = ? AND {there('t', at)} AND {there('s', at)}",
            [ref.schema, ref.name],
        )
        return found[0] if found else None

    def again(self, state: TableState, at: int) -> TableState:
        """The same table at another snapshot, whatever its name was then."""
        schema, name, _ = self.places(state).at(at)
        return self._of_row((state.id, state.uuid, schema, name), at)

    def places(self, state: TableState) -> Places:
        """By which name and through which attachment a table is read at each snapshot, as things are now."""
        meta = self.catalog.meta
        names = self.catalog.ask(
            f"SELECT s.schema_name, t.table_name, greatest(t.begin_snapshot, s.begin_snapshot) FROM {meta('ducklake_table')} AS t "
            f"JOIN {meta('ducklake_schema')} AS s USING (schema_id) WHERE t.table_id = {state.id} ORDER BY 3"
        )
        return Places(names, self._epoch_now(state.id), self._own)

    def at(self, snapshot: int | None) -> list[tuple[int, str, str]]:
        """The tables at a snapshot, or now, as (id, schema, name)."""
        tables, schemas = self.catalog.meta("ducklake_table"), self.catalog.meta("ducklake_schema")
        found = self.catalog.ask(
            f"SELECT t.table_id, s.schema_name, t.table_name FROM {tables} AS t JOIN {schemas} AS s USING (schema_id) "
            f"WHERE {there('t', snapshot)} AND {there('s', snapshot)} AND s.schema_name <> ? ORDER BY 1",
            [HIDDEN],
        )
        return [(int(number), schema, name) for number, schema, name in found]

    def schemas_at(self, snapshot: int) -> list[str]:
        """The schemas at a snapshot."""
        schemas = self.catalog.meta("ducklake_schema")
        found = self.catalog.ask(f"SELECT schema_name FROM {schemas} AS s WHERE {there('s', snapshot)} ORDER BY 1")
        return [name for (name,) in found if name != HIDDEN]

    def _load(self, ref: TableRef, at: int | None) -> TableState | None:
        row = self._row(ref, at)
        return None if row is None else self._of_row(row[:4], int(row[4]) if at is None else at)

    def _of_row(self, row: tuple[Any, ...], at: int) -> TableState:
        table_id, uuid, schema, name = row
        stored = Stored(self.catalog, table_id, at)
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
            frozenset(definition.names) if stored.rewritten else stored.narrow,
            stored.fresh,
        )

    def epoch_now(self, state: TableState) -> int | str:
        """The attachment through which a state is read now: a flush may have dropped what the one that it was found by knows."""
        if not state.inlined:
            return state.epoch
        return self._own(self._epoch_now(state.id), state.version)

    def _epoch_now(self, table_id: int) -> int | str:
        return _epoch(table_id, Stored(self.catalog, table_id, -1, ("column", "inlined", "schema")))

    def _own(self, epoch: int | str, snapshot: int) -> int | str:
        """The attachment for a snapshot: one of its own where the catalog does not list the schema of it, as that with which an altered
        table has its first rows in the catalog. Any other attachment takes a schema that it knows for that (duckdb 1.5.5).
        """
        if snapshot not in self._unlisted:
            found = self.catalog.ask(
                f"SELECT s.schema_version FROM {self.catalog.meta('ducklake_snapshot')} AS s WHERE s.snapshot_id = {snapshot} AND "
                f"s.schema_version NOT IN (SELECT schema_version FROM {self.catalog.meta('ducklake_schema_versions')})"
            )
            self._unlisted[snapshot] = f".s{found[0][0]}" if found else ""
        own = self._unlisted[snapshot]
        return f"{epoch}{own}" if own else epoch


def _epoch(table_id: int, stored: Stored) -> int | str:
    """What tells the attachments apart through which a table is read. One that has seen two types of a column while they were the newest fails,
    also for versions before, and so does one that knows a table of inlined rows which a flush has dropped since: that of an older schema.
    """
    if stored.inlined is None or stored.inlined == stored.first_schema:
        return stored.widened
    return f"{stored.widened}.{table_id}.{stored.inlined}"
