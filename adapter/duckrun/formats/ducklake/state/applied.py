"""Application transactions that were committed, in a table of the lake itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from duckrun.errors import StorageError
from duckrun.formats.commits import commit_of
from duckrun.formats.ducklake.catalog.catalog import APPLIED, Catalog
from duckrun.formats.ducklake.state.state import OpenTransaction, States, TableState
from duckrun.sql.quoting import quote_identifier
from duckrun.values.cursors import Counter
from duckrun.values.rows import AppTransaction, Commit
from duckrun.values.snapshot import TableRef

RESTORED = "__duckrun_restore"
"""Application id of a restore. The row's ``version`` is the restored snapshot."""


class _Row(NamedTuple):
    app_id: str
    version: int
    snapshot: int
    note: str


class Applied:
    """Application transactions of one lake's tables."""

    def __init__(self, catalog: Catalog, states: States) -> None:
        self.catalog, self.states = catalog, states
        self._inlined: tuple[int, str] | None = None

    def _table(self) -> str | None:
        """Return the SQL name of the table; None if the lake has none yet."""
        return quote_identifier(self.catalog.alias(), *APPLIED.split(".")) if self.states.has_applied() else None

    def _found(
        self, work: OpenTransaction | None, where: str, name: str, ids: Sequence[str], numbers: Sequence[int]
    ) -> list[_Row]:
        """Rows of a table for some application ids, by snapshot; empty if the lake has none.

        Includes the rows of an open multi-table transaction.

        Args:
            where: Further SQL condition, with ``numbers`` for its placeholders.
        """
        listed = f"name = ? AND app_id IN ({', '.join('?' * len(ids))}) AND {where}"
        select = f"SELECT app_id, version, snapshot, note FROM {{}} WHERE {listed} ORDER BY snapshot, rowid"
        if work is not None:
            table = quote_identifier(work.alias, *APPLIED.split("."))
            return [_Row(*row) for row in work.ask(select.format(table), [name, *ids, *numbers])]
        rows = self._in_catalog(where, name, ids, numbers)
        if rows is not None:
            return rows
        applied = self._table()
        if applied is None:
            return []
        return [_Row(*row) for row in self.catalog.ask(select.format(applied), [name, *ids, *numbers])]

    def _in_catalog(self, where: str, name: str, ids: Sequence[str], numbers: Sequence[int]) -> list[_Row] | None:
        """Read the same rows from the catalog's inlined table, which is several times as fast.

        Returns:
            None if another program has flushed rows into files.
        """
        meta, of_server = self.catalog.meta, self.catalog.address.kind == "postgres"
        # Another thread may reset the field meanwhile.
        place = self._inlined = self._inlined or self._look_for_inlined()
        if place is None:
            return None
        number, inlined = place
        # DuckLake stores texts as bytes in PostgreSQL.
        value, text = ("encode(?)", "decode({})") if of_server else ("?", "{}")
        listed = f"name = {value} AND app_id IN ({', '.join([value] * len(ids))}) AND {where}"
        # One statement, so that no flush can happen between the check where the rows are and their
        # read.
        sql = (
            f"SELECT {text.format('app_id')}, version, snapshot, {text.format('note')}, row_id FROM {meta(inlined)} "
            f"WHERE end_snapshot IS NULL AND {listed} "
            f"UNION ALL SELECT NULL, NULL, NULL, NULL, NULL WHERE NOT EXISTS (FROM {meta('ducklake_table_stats')} "
            f"WHERE table_id = {number} AND file_size_bytes = 0) "
            "ORDER BY 3 NULLS FIRST, 5"
        )
        try:
            rows = self.catalog.ask(sql, [name, *ids, *numbers])
        except StorageError:
            # The inlined table is gone, or the whole catalog. The next query reports the latter.
            rows = [(None,)]
        if rows and rows[0][0] is None:
            self._inlined = None
            return None
        return [_Row(*row[:4]) for row in rows]

    def _look_for_inlined(self) -> tuple[int, str] | None:
        """Return the id of the table and the name of its only inlined table."""
        meta = self.catalog.meta
        schema, table = APPLIED.split(".")
        rows = self.catalog.ask(
            f"SELECT t.table_id, d.table_name FROM {meta('ducklake_table')} AS t "
            f"JOIN {meta('ducklake_schema')} AS s USING (schema_id) "
            f"JOIN {meta('ducklake_inlined_data_tables')} AS d USING (table_id) "
            "WHERE s.schema_name = ? AND t.table_name = ? AND t.end_snapshot IS NULL AND s.end_snapshot IS NULL",
            [schema, table],
        )
        return (int(rows[0][0]), str(rows[0][1])) if len(rows) == 1 else None

    def transactions(self, ref: TableRef, version: int) -> tuple[AppTransaction, ...]:
        """Return the application transactions that the commit of a version recorded."""
        applied = self._table()
        if applied is None:
            return ()
        rows = self.catalog.ask(
            f"SELECT app_id, version FROM {applied} WHERE name = ? AND snapshot = ? AND app_id <> ?",
            [f"{ref.schema}.{ref.name}", version, RESTORED],
        )
        return tuple(AppTransaction(app_id, number) for app_id, number in rows)

    def find_commit(
        self, ref: TableRef, state: TableState, app: AppTransaction, work: OpenTransaction | None = None
    ) -> Commit | None:
        """Return the commit of an application transaction, even if its snapshot has expired."""
        where = "version >= ? AND snapshot >= ?"
        rows = self._found(work, where, f"{ref.schema}.{ref.name}", [app.app_id], [app.version, state.begun])
        if not rows:
            return None
        first = min(rows, key=lambda row: row.version)
        if first.version == app.version:
            return commit_of(ref, first.snapshot, json.loads(first.note))
        return commit_of(ref, state.version, {}, reason=f"the commit of {app.app_id} is followed by later ones")

    def counter(self, ref: TableRef, state: TableState, consumer: str, work: OpenTransaction | None = None) -> Counter:
        """See Format."""
        rows = self._found(work, "snapshot >= ?", f"{ref.schema}.{ref.name}", [consumer, RESTORED], [state.begun])
        own_rows = [row for row in rows if row.app_id == consumer]
        if not own_rows:
            return Counter()
        highest, at = max(row.version for row in own_rows), 2**62
        # Each restore in the rows returns to the rows up to its restored snapshot.
        while True:
            before = [row for row in rows if row.snapshot <= at]
            if not before:
                return Counter(highest=highest)
            if before[-1].app_id == consumer:
                return Counter(before[-1].version, highest)
            rows, at = before[:-1], before[-1].version
