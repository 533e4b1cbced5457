"""StateReader of a DuckLake: SQL for the rows of a table at a snapshot, with multiplicities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from duckrun.errors import SchemaMismatch, StorageError, UnsupportedFeature, VersionNotReadable
from duckrun.formats.ducklake.state.changes import state_rows
from duckrun.formats.ducklake.state.columns import Columns, by_name
from duckrun.formats.ducklake.state.state import OpenTransaction, States, TableState, hide, state_of
from duckrun.formats.ducklake.state.stored import touching
from duckrun.formats.ducklake.state.tenures import Tenures
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.sql.raising import raising
from duckrun.values.changes import Between, FileRows, LakeFunction, OwnFunction, StateRows, WeighedRead
from duckrun.values.snapshot import Snapshot, TableRef

_EVER = 2**62
"""Upper limit for snapshots, greater than any."""
_FORGETS_FILES = ("merge_adjacent", "inline_flush")
"""Kinds of changes after which older snapshots have other files."""


class DuckLakeStates:
    """StateReader of one DuckLake."""

    def __init__(
        self,
        states: States,
        of_state: Callable[[TableRef, TableState], Snapshot],
        together: Callable[[], OpenTransaction | None],
    ) -> None:
        self._states, self._of_state, self._together, self._catalog = states, of_state, together, states.catalog
        self._tenures: dict[tuple[int, str, str], Tenures] = {}

    # -- which states there are

    def has_table(self, snapshot: Snapshot, version: int) -> bool:
        return self._is_live(snapshot, version) or self._named(snapshot).at(version) is not None

    def first(self, snapshot: Snapshot, after: int) -> int:
        snapshot_number = self._named(snapshot).first(after)
        return int(snapshot.version) if snapshot_number is None else snapshot_number

    def _named(self, snapshot: Snapshot) -> Tenures:
        """Tables that the name of a snapshot's table stood for, cached at the first call."""
        state = state_of(snapshot)
        key = (state.id, state.schema, state.name)
        if key not in self._tenures:
            self._tenures[key] = Tenures.of(self._states, state)
        return self._tenures[key]

    def _is_live(self, snapshot: Snapshot, version: int) -> bool:
        """True for the version that the open multi-table transaction will create."""
        work = self._together()
        return work is not None and state_of(snapshot).at == -1 and version > work.base and version == snapshot.version

    def again(self, snapshot: Snapshot, version: int) -> Snapshot:
        if version in (snapshot.version, self.read_at(snapshot)):
            return snapshot
        self._states.check(version, snapshot.ref)
        return self._of_state(snapshot.ref, self._states.again(state_of(snapshot), version))

    def read_at(self, snapshot: Snapshot) -> int:
        if state_of(snapshot).at >= 0:
            return state_of(snapshot).at
        work = self._together()
        # An unchanged table is read at the start snapshot of the open transaction.
        return snapshot.version if work is None else max(snapshot.version, work.base)

    def at_time(self, ref: TableRef, timestamp: str) -> int:
        return self._states.at_time(timestamp, ref)

    def since_time(self, ref: TableRef, timestamp: str) -> int:
        snapshots = self._catalog.meta("ducklake_snapshot")
        since = f"SELECT min(snapshot_id) FROM {snapshots} WHERE snapshot_time::TIMESTAMPTZ >= ?::TIMESTAMPTZ"
        rows = self._catalog.ask(since, [timestamp])
        if not rows or rows[0][0] is None:
            raise VersionNotReadable(f"Table {ref}: no snapshot of its lake is as young as {timestamp}.")
        return int(rows[0][0])

    def refuse_unreadable(self, ref: TableRef, after: int, to: int, *, each: bool) -> None:
        snapshots = self._catalog.meta("ducklake_snapshot")
        work = self._together()
        if work is not None and to > work.base:
            to = work.base  # Changes of the transaction itself are readable.
            after = min(after, to)
        within = f"snapshot_id BETWEEN {after} AND {to}"
        count, oldest = self._catalog.ask(f"SELECT count(*), min(snapshot_id) FROM {snapshots} WHERE {within}")[0]
        newest = self._states.newest()
        if newest is not None and max(after, to) > newest:
            raise VersionNotReadable(
                f"Table {ref} has no version {max(after, to)}: the newest snapshot of its lake is {newest}."
            )
        if oldest == after and (not each or count == to - after + 1):
            return
        works = oldest
        if each:
            there = {row[0] for row in self._catalog.ask(f"SELECT snapshot_id FROM {snapshots} WHERE {within}")}
            works = next((v + 1 for v in range(to, after - 1, -1) if v not in there), None)
        gone = after if oldest != after else next(v for v in range(after, to + 1) if v not in there)
        hint = (
            f"The oldest from_version that works is {works}."
            if works is not None and works <= to
            else "No later from_version works: read the table whole."
        )
        raise VersionNotReadable(
            f"changes of table {ref} from version {after} to {to}: snapshot {gone} of its lake has expired, and "
            "nobody knows what the table was then. "
            f"{hint}"
        )

    # -- the rows

    def rows(self, steps: Sequence[Between], to: Snapshot, columns: Sequence[str]) -> tuple[StateRows, ...]:
        named, state = self._named(to), state_of(to)
        tree = Columns.of(self._catalog, state)

        def is_own(version: int | None) -> bool:
            if version is None:
                return True
            tenure = None if self._is_live(to, version) else named.at(version)
            return tenure is not None and tenure.number == state.id

        # User columns of the same names hide DuckLake's virtual columns, which identify files and
        # commits.
        hidden = not tree.ever_named.isdisjoint(("filename", "snapshot_id"))
        work = self._together()
        # The catalog lacks the columns of a table that an open transaction has altered.
        hidden = hidden or (state.at == -1 and work is not None and (state.schema, state.name) in work.redefined_tables)
        own_steps = [step for step in steps if not hidden and is_own(step.before) and is_own(step.after)]
        plans = [*state_rows(self._catalog, self._states.newest(), own_steps, to, columns)] if own_steps else []
        for step in steps:
            if step not in own_steps:
                plans += self._state(to, tree, step.before, columns, FileRows(None, step.number, -1))
                plans += self._state(to, tree, step.after, columns, FileRows(None, step.number, 1))
        return tuple(plans)

    def _state(
        self, to: Snapshot, tree: Columns, version: int | None, columns: Sequence[str], count: FileRows
    ) -> Iterator[StateRows]:
        """All rows of the table that had the name of ``to`` at a version, if there was one."""
        state, together = state_of(to), self._together()
        if version is None:
            return
        if self._is_live(to, version):
            assert together is not None, "as a live snapshot says"
            source = quote_identifier(together.alias, state.schema, state.name)
            of_table = state.columns()
            yield StateRows(version, {name: of_table[name] for name in columns}, (count,), source=source)
            return
        tenure = self._named(to).at(version)
        if tenure is None:
            return
        then = self._states.find(TableRef(tenure.schema, tenure.name, to.ref.location), version)
        assert then is not None, "the catalog has it at that snapshot"
        epoch = self._states.epoch_now(then)
        self._catalog.ensure(epoch)
        source = self._catalog.rows(epoch, then.schema, then.name, version)
        if then.id == state.id and state.at >= 0:
            yield StateRows(version, tree.converted(version, to, columns), (count,), source=source)
            return
        if then.id == state.id and together is not None and (state.schema, state.name) in together.renamed_columns:
            raise UnsupportedFeature(
                f"changes of table {to.ref}: columns of it were renamed in this transaction, so that they cannot be "
                "told from those of before. Ask before "
                "the transaction, or once it is committed."
            )
        # Row ids are unique per table. Those of other tables become negative, with a range for each
        # table.
        place = self._named(to).numbers.index(then.id) if then.id != state.id else 0
        row_id = "rowid" if then.id == state.id else f"(-1 - rowid - {place << 44})"
        yield StateRows(version, by_name(then, to, columns, version), (count,), source=source, row_id=row_id)

    def whole(self, snapshot: Snapshot) -> StateRows:
        return StateRows(snapshot.version, state_of(snapshot).columns(), (FileRows(None, snapshot.version, 1),))

    def sql(self, to: Snapshot, read: WeighedRead) -> str | None:
        states = read.states
        if not states:
            return None
        if read.row_commit is not None:
            _refuse_columns(to, "its rows by their ids and versions", ("snapshot_id",))
        sources = self._sources(to, {(rows.version, rows.deleted_since) for rows in states if rows.source is None})
        selects = [_select(rows, rows.source or sources[rows.version, rows.deleted_since], read) for rows in states]
        if (seen := states[0].seen) is not None:
            extra = sum(name is not None for name in (read.row_id, read.row_commit))
            selects.append(self._guard(to, seen, len(states[0].columns) + extra))
        return f"({' UNION ALL '.join(selects)})"

    def own_sql(self, function: OwnFunction, to: Snapshot, first: int, last: int) -> str:
        if function == "table_changes":
            _refuse_columns(to, "table_changes()", ("snapshot_id", "change_type"))
        schema, name, epoch = self._states.places(state_of(to)).at(last)
        self._catalog.ensure(epoch)
        arguments = ", ".join(quote_literal(each) for each in (self._catalog.alias(epoch), schema, name))
        return f"(SELECT * FROM ducklake_{function}({arguments}, {first}, {last}))"

    def lake_sql(self, function: LakeFunction) -> str:
        self._catalog.ensure()
        return f"(SELECT * FROM ducklake_{function}({quote_literal(self._catalog.alias())}))"

    def _sources(self, to: Snapshot, versions: Iterable[tuple[int, int | None]]) -> dict[tuple[int, int | None], str]:
        """FROM clauses for a table at some versions, or for rows deleted since another version.

        They have DuckLake's virtual columns.
        """
        state, together = state_of(to), self._together()
        places = self._states.places(state)
        sources = {}
        for version, since in versions:
            if self._is_live(to, version):
                assert together is not None, "as a live snapshot says"
                sources[version, since] = quote_identifier(together.alias, state.schema, state.name)
                continue
            schema, name, epoch = places.at(version)
            self._catalog.ensure(epoch)
            if since is None:
                sources[version, since] = self._catalog.rows(epoch, schema, name, version)
            else:
                table = ", ".join(map(quote_literal, (self._catalog.alias(epoch), schema, name)))
                sources[version, since] = f"ducklake_table_deletions({table}, {since}, {version})"
        return sources

    def _guard(self, to: Snapshot, seen: int, columns: int) -> str:
        """A query without rows that fails if the planned files were merged or flushed meanwhile.

        DuckLake forgets which files held the rows.
        """
        message = quote_literal(
            f"changes of table {to.ref}: its files were merged or flushed after the changes were asked for. Ask again."
        )
        check = (
            f"SELECT CASE WHEN count(*) > 0 THEN {raising(StorageError, message)} ELSE 'fine' END AS said "
            f"FROM {self._catalog.meta('ducklake_snapshot_changes')} "
            f"WHERE snapshot_id > {seen} AND {touching(_FORGETS_FILES, state_of(to).id)}"
        )
        nothing = ", ".join(["NULL"] * columns + ["CAST(0 AS BIGINT)", "CAST(0 AS BIGINT)"])
        return f"SELECT {nothing} FROM ({check}) AS guard WHERE said <> 'fine'"


def _refuse_columns(snapshot: Snapshot, what: str, added: Sequence[str]) -> None:
    """Raise SchemaMismatch if a user column hides a column that DuckLake adds."""
    if twins := [name for name in state_of(snapshot).definition.names if name.lower() in added]:
        raise SchemaMismatch(
            f"Table {snapshot.ref} has a column {twins[0]}, the name of one that DuckLake adds, so that {what} "
            "cannot be read: rename the column, or ask "
            "changes(), which answers all the same."
        )


def _select(rows: StateRows, source: str, read: WeighedRead) -> str:
    # A filter on deleted rows finds nothing, or ends in an internal error (duckdb 1.5.5).
    unseen = hide if any(each.file is not None for each in rows.counts) else str
    columns = [f"{unseen(value)} AS {quote_identifier(name)}" for name, value in rows.columns.items()]
    columns += [f"{rows.row_id} AS {quote_identifier(read.row_id)}"] if read.row_id is not None else []
    columns += [f"snapshot_id AS {quote_identifier(read.row_commit)}"] if read.row_commit is not None else []
    named = f"{quote_identifier(read.weight)}, {{}} AS {quote_identifier(read.step)}"
    files = sorted({each.file for each in rows.counts if each.file is not None})
    listed = ", ".join(map(quote_literal, files))
    where = f" WHERE filename IN ({listed})" if files and rows.deleted_since is None else ""
    alike = len({(each.step, each.weight) for each in rows.counts}) == 1 and len(files) == len(rows.counts)
    one = rows.counts[0]
    if not files or (alike and all(each.since is None and each.until is None for each in rows.counts)):
        counted = f"CAST({one.weight} AS BIGINT) AS {named.format(f'CAST({one.step} AS BIGINT)')}"
        return f"SELECT {', '.join([*columns, counted])} FROM {source}{where}"
    values = ", ".join(
        f"({quote_literal(each.file or '')}, CAST({each.step} AS BIGINT), CAST({each.weight} AS BIGINT), "
        f"{-1 if each.since is None else each.since}, "
        f"{_EVER if each.until is None else each.until})"
        for each in rows.counts
    )
    hidden = f"{hide('filename')} AS __duckrun_file, {hide('snapshot_id')} AS __duckrun_came"
    inner = f"SELECT {', '.join(columns)}, {hidden} FROM {source}{where}"
    counted = f"l.__duckrun_weight AS {named.format('l.__duckrun_step')}"
    extra = [name for name in (read.row_id, read.row_commit) if name is not None]
    names = [quote_identifier(name) for name in (*rows.columns, *extra)]
    return (
        f"SELECT {', '.join(f'r.{name}' for name in names)}, {counted} FROM ({inner}) AS r JOIN (VALUES {values}) AS "
        "l(__duckrun_file, __duckrun_step, __duckrun_weight, __duckrun_since, __duckrun_until) "
        "ON l.__duckrun_file = r.__duckrun_file "
        "AND r.__duckrun_came > l.__duckrun_since AND r.__duckrun_came <= l.__duckrun_until"
    )
