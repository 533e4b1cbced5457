"""Which application transactions were committed to a table: the lake's own table of them, in its catalog."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

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


class Applied:
    """The application transactions of one lake's tables."""

    def __init__(self, catalog: Catalog, states: States) -> None:
        self.catalog, self.states = catalog, states
        self._has_applied = False

    def _table(self) -> str | None:
        """The table of application transactions, in SQL; None where the lake has none yet."""
        schema, table = APPLIED.split(".")
        self._has_applied = self._has_applied or table in self.states.names("table", schema)
        return quote_identifier(self.catalog.alias(), schema, table) if self._has_applied else None

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

    def _of_work(self, work: Work | None, sql: str, values: list[Any]) -> list[tuple[Any, ...]]:
        """The rows of a query over ``{applied}``, with what an open transaction over several tables has put there; none where it is not there."""
        if work is not None:
            return work.ask(sql.format(applied=quote_identifier(work.alias, *APPLIED.split("."))), values)
        applied = self._table()
        return [] if applied is None else self.catalog.ask(sql.format(applied=applied), values)

    def newest(self, ref: TableRef, state: TableState | None, app_id: str, work: Work | None = None) -> int | None:
        """The newest version that an application id has committed, or None."""
        if state is None:
            return None
        found = self._of_work(
            work,
            "SELECT max(version) FROM {applied} WHERE name = ? AND app_id = ? AND snapshot >= ?",
            [f"{ref.schema}.{ref.name}", app_id, state.begun],
        )
        return found[0][0] if found else None

    def find_commit(
        self, ref: TableRef, state: TableState, app: AppTransaction, work: Work | None = None
    ) -> Commit | None:
        """The commit of an application transaction, by the lake's own table of them: also once its snapshot has expired."""
        found = self._of_work(
            work,
            "SELECT version, snapshot, note FROM {applied} WHERE name = ? AND app_id = ? AND version >= ? AND snapshot >= ? ORDER BY version",
            [f"{ref.schema}.{ref.name}", app.app_id, app.version, state.begun],
        )
        if not found:
            return None
        number, snapshot, text = found[0]
        note = json.loads(text) if number == app.version else {}
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
        found = self._of_work(
            work,
            "SELECT app_id, version, snapshot FROM {applied} WHERE name = ? AND app_id IN (?, ?) AND snapshot >= ? ORDER BY snapshot",
            [f"{ref.schema}.{ref.name}", consumer, RESTORED, state.begun],
        )
        own = [row for row in found if row[0] == consumer]
        if not own:
            return Counter()
        highest, at = max(row[1] for row in own), 2**62
        while True:
            before = [row for row in found if row[2] <= at]
            if not before:
                return Counter(highest=highest)
            app_id, number, _ = before[-1]
            if app_id == consumer:
                return Counter(number, highest)
            found, at = before[:-1], number
