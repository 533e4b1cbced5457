"""The states of a DuckLake's tables as rows that count: as DuckLake reads them at a snapshot, in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from duckrun.errors import StorageError, VersionNotReadable
from duckrun.formats.ducklake.changes import state_rows
from duckrun.formats.ducklake.state import TableState, hide
from duckrun.sql.names import quote_identifier, quote_literal
from duckrun.sql.raising import raising
from duckrun.values.changes import Between, FileRows, OwnFunction, StateRows
from duckrun.values.snapshot import Snapshot, TableRef

if TYPE_CHECKING:
    from duckrun.formats.ducklake.ducklake import DuckLakeFormat

_EVER = 2**62
_FORGETS_FILES = ("merge_adjacent", "inline_flush")
"""What a snapshot says it did where the files of older snapshots are others from then on."""


class DuckLakeStates:
    """What StateReader says, of one lake."""

    def __init__(self, form: DuckLakeFormat) -> None:
        self._form = form

    # -- which states there are

    def begun(self, snapshot: Snapshot) -> int:
        return int(snapshot.own.begun)

    def again(self, snapshot: Snapshot, version: int) -> Snapshot:
        if version in (snapshot.version, self.read_at(snapshot)):
            return snapshot
        self._form.states.check(version, snapshot.ref)
        return self._form.of_state(snapshot.ref, self._form.states.again(snapshot.own, version))

    def read_at(self, snapshot: Snapshot) -> int:
        return snapshot.version if snapshot.own.at < 0 else int(snapshot.own.at)

    def at_time(self, ref: TableRef, timestamp: str) -> int:
        return self._form.states.at_time(timestamp, ref)

    def since_time(self, ref: TableRef, timestamp: str) -> int:
        found = self._form.catalog.ask(
            f"SELECT min(snapshot_id) FROM {self._form.catalog.meta('ducklake_snapshot')} WHERE snapshot_time::TIMESTAMPTZ >= ?::TIMESTAMPTZ",
            [timestamp],
        )
        if not found or found[0][0] is None:
            raise VersionNotReadable(f"Table {ref}: no snapshot of its lake is as young as {timestamp}.")
        return int(found[0][0])

    def refuse_unreadable(self, ref: TableRef, after: int, to: int, *, each: bool) -> None:
        snapshots = self._form.catalog.meta("ducklake_snapshot")
        within = f"snapshot_id BETWEEN {after} AND {to}"
        count, oldest = self._form.catalog.ask(f"SELECT count(*), min(snapshot_id) FROM {snapshots} WHERE {within}")[0]
        newest = self._form.states.newest()
        if newest is not None and max(after, to) > newest:
            raise VersionNotReadable(
                f"Table {ref} has no version {max(after, to)}: the newest snapshot of its lake is {newest}."
            )
        if oldest == after and (not each or count == to - after + 1):
            return
        works = oldest
        if each:
            there = {row[0] for row in self._form.catalog.ask(f"SELECT snapshot_id FROM {snapshots} WHERE {within}")}
            works = next((v + 1 for v in range(to, after - 1, -1) if v not in there), None)
        gone = after if oldest != after else next(v for v in range(after, to + 1) if v not in there)
        said = (
            f"The oldest from_version that works is {works}."
            if works is not None and works <= to
            else "No later from_version works: read the table whole."
        )
        raise VersionNotReadable(
            f"changes of table {ref} from version {after} to {to}: snapshot {gone} of its lake has expired, and nobody knows what the table was then. "
            f"{said}"
        )

    # -- the rows

    def rows(self, steps: Sequence[Between], to: Snapshot, columns: Sequence[str]) -> tuple[StateRows, ...]:
        return state_rows(self._form, steps, to, columns)

    def whole(self, snapshot: Snapshot) -> StateRows:
        columns = {name: snapshot.own.column(name) for name in snapshot.schema.names}
        return StateRows(snapshot.version, columns, (FileRows(None, snapshot.version, 1),))

    def sql(
        self,
        to: Snapshot,
        states: Sequence[StateRows],
        *,
        weight: str,
        step: str,
        row_id: str | None = None,
        row_commit: str | None = None,
    ) -> str | None:
        if not states:
            return None
        sources = self._sources(to, {(rows.version, rows.deleted_since) for rows in states})
        selects = [
            _select(rows, sources[rows.version, rows.deleted_since], weight, step, row_id, row_commit)
            for rows in states
        ]
        if (seen := states[0].seen) is not None:
            own = sum(name is not None for name in (row_id, row_commit))
            selects.append(self._guard(to, seen, len(states[0].columns) + own))
        return f"({' UNION ALL '.join(selects)})"

    def own_sql(self, function: OwnFunction, to: Snapshot, first: int, last: int) -> str:
        form = self._form
        schema, name, epoch = form.states.places(to.own).at(last)
        form.catalog.ensure(epoch)
        given = ", ".join(quote_literal(each) for each in (form.catalog.alias(epoch), schema, name))
        return f"(SELECT * FROM ducklake_{function}({given}, {first}, {last}))"

    def snapshots_sql(self) -> str:
        return f"(SELECT * FROM ducklake_snapshots({quote_literal(self._form.catalog.alias())}))"

    def _sources(self, to: Snapshot, versions: Iterable[tuple[int, int | None]]) -> dict[tuple[int, int | None], str]:
        """A table at some versions, or what was deleted from it since another one, in SQL behind FROM, with DuckLake's virtual columns."""
        form, state = self._form, to.own
        if state.at == -1 and form.together is not None:
            return dict.fromkeys(versions, quote_identifier(form.together.alias, state.schema, state.name))
        places = form.states.places(state)
        found = {}
        for version, since in versions:
            schema, name, epoch = places.at(version)
            form.catalog.ensure(epoch)
            alias = form.catalog.alias(epoch)
            found[version, since] = (
                f"{quote_identifier(alias, schema, name)} AT (VERSION => {version})"
                if since is None
                else f"ducklake_table_deletions({', '.join(map(quote_literal, (alias, schema, name)))}, {since}, {version})"
            )
        return found

    def _guard(self, to: Snapshot, seen: int, columns: int) -> str:
        """No row; an error where the rows of files that were listed lie in others by now: DuckLake forgets which those were."""
        state: TableState = to.own
        marks = "|".join(_FORGETS_FILES)
        message = quote_literal(
            f"changes of table {to.ref}: its files were merged or flushed after the changes were asked for. Ask again."
        )
        found = (
            f"SELECT CASE WHEN count(*) > 0 THEN {raising(StorageError, message)} ELSE 'fine' END AS said FROM {self._form.catalog.meta('ducklake_snapshot_changes')} "
            f"WHERE snapshot_id > {seen} AND regexp_matches(changes_made, '(^|,)({marks}):{state.id}(,|$)')"
        )
        nothing = ", ".join(["NULL"] * columns + ["CAST(0 AS BIGINT)", "CAST(0 AS BIGINT)"])
        return f"SELECT {nothing} FROM ({found}) AS guard WHERE said <> 'fine'"


def _select(rows: StateRows, source: str, weight: str, step: str, row_id: str | None, row_commit: str | None) -> str:
    # A filter on deleted rows finds none, or ends in an internal error (duckdb 1.5.5).
    unseen = hide if any(each.file is not None for each in rows.counts) else str
    columns = [f"{unseen(value)} AS {quote_identifier(name)}" for name, value in rows.columns.items()]
    columns += [f"rowid AS {quote_identifier(row_id)}"] if row_id is not None else []
    columns += [f"snapshot_id AS {quote_identifier(row_commit)}"] if row_commit is not None else []
    named = f"{quote_identifier(weight)}, {{}} AS {quote_identifier(step)}"
    files = sorted({each.file for each in rows.counts if each.file is not None})
    listed = ", ".join(map(quote_literal, files))
    where = f" WHERE filename IN ({listed})" if files and rows.deleted_since is None else ""
    alike = len({(each.step, each.weight) for each in rows.counts}) == 1 and len(files) == len(rows.counts)
    one = rows.counts[0]
    if not files or (alike and all(each.since is None and each.until is None for each in rows.counts)):
        own = f"CAST({one.weight} AS BIGINT) AS {named.format(f'CAST({one.step} AS BIGINT)')}"
        return f"SELECT {', '.join([*columns, own])} FROM {source}{where}"
    values = ", ".join(
        f"({quote_literal(each.file or '')}, CAST({each.step} AS BIGINT), CAST({each.weight} AS BIGINT), {-1 if each.since is None else each.since}, "
        f"{_EVER if each.until is None else each.until})"
        for each in rows.counts
    )
    hidden = f"{hide('filename')} AS __duckrun_file, {hide('snapshot_id')} AS __duckrun_came"
    inner = f"SELECT {', '.join(columns)}, {hidden} FROM {source}{where}"
    own = f"l.__duckrun_weight AS {named.format('l.__duckrun_step')}"
    names = [quote_identifier(name) for name in (*rows.columns, *(n for n in (row_id, row_commit) if n is not None))]
    return (
        f"SELECT {', '.join(f'r.{name}' for name in names)}, {own} FROM ({inner}) AS r JOIN (VALUES {values}) AS "
        "l(__duckrun_file, __duckrun_step, __duckrun_weight, __duckrun_since, __duckrun_until) ON l.__duckrun_file = r.__duckrun_file "
        "AND r.__duckrun_came > l.__duckrun_since AND r.__duckrun_came <= l.__duckrun_until"
    )
