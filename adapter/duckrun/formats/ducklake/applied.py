"""Which application transactions were committed to a table: the lake's own table of them, in its catalog."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from duckrun.errors import StorageError
from duckrun.formats.ducklake.catalog import APPLIED, Catalog
from duckrun.formats.ducklake.state import States, TableState
from duckrun.sql.names import quote_identifier
from duckrun.values.cursors import Counter
from duckrun.values.rows import AppTransaction, Commit
from duckrun.values.snapshot import TableRef

if TYPE_CHECKING:
    from duckrun.formats.ducklake.work import Work

_FIGURES = ("rows_inserted", "rows_updated", "rows_deleted")
RESTORED = "__duckrun_restore"
"""The application id of a row that says: this commit brought back the state of the snapshot that is its version."""


class _Row(NamedTuple):
    app_id: str
    version: int
    snapshot: int
    note: str


class Applied:
    """The application transactions of one lake's tables."""

    def __init__(self, catalog: Catalog, states: States) -> None:
        self.catalog, self.states = catalog, states
        self._has_applied = False
        self._inlined: tuple[int, str] | None = None

    def _table(self) -> str | None:
        """The table of application transactions, in SQL; None where the lake has none yet."""
        schema, table = APPLIED.split(".")
        self._has_applied = self._has_applied or table in self.states.names("table", schema)
        return quote_identifier(self.catalog.alias(), schema, table) if self._has_applied else None

    def _found(
        self, work: Work | None, where: str, name: str, ids: Sequence[str], numbers: Sequence[int]
    ) -> list[_Row]:
        """The rows of a table with one of some application ids that ``where`` says, in the order of their snapshots, with what an open transaction over
        several tables has put there; none where the lake has none.
        """
        listed = f"name = ? AND app_id IN ({', '.join('?' * len(ids))}) AND {where}"
        select = f"SELECT app_id, version, snapshot, note FROM {{}} WHERE {listed} ORDER BY snapshot, rowid"
        if work is not None:
            table = quote_identifier(work.alias, *APPLIED.split("."))
            return [_Row(*row) for row in work.ask(select.format(table), [name, *ids, *numbers])]
        found = self._in_catalog(where, name, ids, numbers)
        if found is not None:
            return found
        applied = self._table()
        if applied is None:
            return []
        return [_Row(*row) for row in self.catalog.ask(select.format(applied), [name, *ids, *numbers])]

    def _in_catalog(self, where: str, name: str, ids: Sequence[str], numbers: Sequence[int]) -> list[_Row] | None:
        """The same out of the catalog's own table of these rows, which is several times as fast as DuckLake's reading of it; None where they do not all
        lie there, since another program has flushed them into files.
        """
        meta, of_server = self.catalog.meta, self.catalog.address.kind == "postgres"
        if self._inlined is None and not self._look_for_inlined():
            return None
        assert self._inlined is not None, "just found"
        number, inlined = self._inlined
        value, text = ("encode(?)", "decode({})") if of_server else ("?", "{}")  # PostgreSQL has texts as bytes
        listed = f"name = {value} AND app_id IN ({', '.join([value] * len(ids))}) AND {where}"
        # In one statement, so that no flush comes between the question where the rows are and their reading.
        sql = (
            f"SELECT {text.format('app_id')}, version, snapshot, {text.format('note')}, row_id FROM {meta(inlined)} WHERE end_snapshot IS NULL AND {listed} "
            f"UNION ALL SELECT NULL, NULL, NULL, NULL, NULL WHERE NOT EXISTS (FROM {meta('ducklake_table_stats')} WHERE table_id = {number} AND file_size_bytes = 0) "
            "ORDER BY 3 NULLS FIRST, 5"
        )
        try:
            found = self.catalog.ask(sql, [name, *ids, *numbers])
        except StorageError:  # the catalog's table is gone, or the catalog is, which the next question says
            found = [(None,)]
        if found and found[0][0] is None:
            self._inlined = None
            return None
        return [_Row(*row[:4]) for row in found]

    def _look_for_inlined(self) -> bool:
        meta = self.catalog.meta
        schema, table = APPLIED.split(".")
        found = self.catalog.ask(
            f"SELECT t.table_id, d.table_name FROM {meta('ducklake_table')} AS t JOIN {meta('ducklake_schema')} AS s USING (schema_id) "
            f"JOIN {meta('ducklake_inlined_data_tables')} AS d USING (table_id) "
            "WHERE s.schema_name = ? AND t.table_name = ? AND t.end_snapshot IS NULL AND s.end_snapshot IS NULL",
            [schema, table],
        )
        if len(found) == 1:
            self._inlined = int(found[0][0]), str(found[0][1])
        return self._inlined is not None

    def transactions(self, ref: TableRef, version: int) -> tuple[AppTransaction, ...]:
        """Those that the commit of a version made."""
        applied = self._table()
        if applied is None:
            return ()
        found = self.catalog.ask(
            f"SELECT app_id, version FROM {applied} WHERE name = ? AND snapshot = ? AND app_id <> ?",
            [f"{ref.schema}.{ref.name}", version, RESTORED],
        )
        return tuple(AppTransaction(app_id, number) for app_id, number in found)

    def newest(self, ref: TableRef, state: TableState | None, app_id: str, work: Work | None = None) -> int | None:
        """The newest version that an application id has committed, or None."""
        if state is None:
            return None
        found = self._found(work, "snapshot >= ?", f"{ref.schema}.{ref.name}", [app_id], [state.begun])
        return max((row.version for row in found), default=None)

    def find_commit(
        self, ref: TableRef, state: TableState, app: AppTransaction, work: Work | None = None
    ) -> Commit | None:
        """The commit of an application transaction, by the lake's own table of them: also once its snapshot has expired."""
        where = "version >= ? AND snapshot >= ?"
        found = self._found(work, where, f"{ref.schema}.{ref.name}", [app.app_id], [app.version, state.begun])
        if not found:
            return None
        first = min(found, key=lambda row: row.version)
        number, snapshot = first.version, first.snapshot
        note = json.loads(first.note) if number == app.version else {}
        said: dict[str, Any] = {name: note.get(name) for name in _FIGURES}
        return Commit(
            table=str(ref),
            location=ref.location,
            version=snapshot if number == app.version else state.version,
            mode=note.get("mode", "unknown"),
            engine=note.get("engine", "unknown"),
            writer=note.get("writer", "none"),
            reason=note.get("reason", "") if note else f"the commit of {app.app_id} is followed by later ones",
            **said,
        )

    def counter(self, ref: TableRef, state: TableState, consumer: str, work: Work | None = None) -> Counter:
        """See Format."""
        found = self._found(work, "snapshot >= ?", f"{ref.schema}.{ref.name}", [consumer, RESTORED], [state.begun])
        own = [row for row in found if row.app_id == consumer]
        if not own:
            return Counter()
        highest, at = max(row.version for row in own), 2**62
        while True:
            before = [row for row in found if row.snapshot <= at]
            if not before:
                return Counter(highest=highest)
            if before[-1].app_id == consumer:
                return Counter(before[-1].version, highest)
            found, at = before[:-1], before[-1].version
