"""The outcome of a COMMIT whose answer was lost, asked of the server of a catalog.

DuckLake takes a COMMIT without an answer for one that failed, and removes the data files that the transaction wrote, though the
server may have carried it out (duckdb 1.5.5). So a commit that is there without its files is taken back, by its own columns
``begin_snapshot`` and ``end_snapshot``: what it was to do can then be done again.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import duckdb

from duckrun.errors import StorageError
from duckrun.formats.commits import CommitTaken
from duckrun.sql.names import quote_identifier, quote_literal

if TYPE_CHECKING:
    from duckrun.formats.ducklake.catalog import Catalog

log = logging.getLogger(__name__)

_PAUSES = (0.1, 0.5, 1.0, 2.0, 4.0)
"""Seconds between the attempts to ask a server that may be restarting."""
_LOST_FILES = ("ducklake_file_column_stats", "ducklake_file_partition_value", "ducklake_file_variant_stats")
_REVERSIBLE = ("created_", "dropped_", "altered_", "inserted_into_table", "deleted_from_table", "inlined_")
"""Changes that leave what was there before with its ``end_snapshot``. A merge of files removes the entries of those that it merged."""
_ORPHANS = (
    ("ducklake_table_stats", "table_id", "ducklake_table"),
    ("ducklake_table_column_stats", "table_id", "ducklake_table"),
    ("ducklake_column_mapping", "table_id", "ducklake_table"),
    ("ducklake_name_mapping", "mapping_id", "ducklake_column_mapping"),
    ("ducklake_partition_column", "partition_id", "ducklake_partition_info"),
    ("ducklake_sort_expression", "sort_id", "ducklake_sort_info"),
    ("ducklake_macro_impl", "macro_id", "ducklake_macro"),
    ("ducklake_macro_parameters", "macro_id", "ducklake_macro"),
)
"""Tables of a catalog without snapshots of their own, and the one whose entries theirs belong to (DuckLake specification 1.0, Tables)."""


class NotCommitted(CommitTaken):
    """The connection was lost at COMMIT, and nothing of the transaction is there."""


def outcome(catalog: Catalog, base: int, txn_id: str) -> int | None:
    """The snapshot that a commit with an id made; None where nothing of it is there.

    Args:
        base: The snapshot that the transaction began from.
        txn_id: The id in the extra information of its commit.

    Raises:
        duckdb.Error: The server does not answer.
        StorageError: The commit is there, its files are gone, and others have committed on top of it.
    """
    for pause in (*_PAUSES, None):
        try:
            return _Question(catalog).outcome(base, txn_id)
        except duckdb.Error as error:
            if pause is None:
                raise
            log.info("lake %s: asking for the outcome of a commit: %s", catalog.storage.root, catalog.redacted(error))
            time.sleep(pause)
    raise AssertionError("the last attempt returns or raises")


class _Question:
    """A transaction on the server beside the lake."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._cursor, self._database = catalog.beside()

    def outcome(self, base: int, txn_id: str) -> int | None:
        try:
            self._cursor.execute("BEGIN TRANSACTION")
            # Waits for a backend that still works on the COMMIT: whoever inserts a snapshot holds a lock that this one excludes. It comes
            # before any SELECT, which would fix what the transaction sees.
            self._run("SET LOCAL lock_timeout = '20s'; LOCK TABLE ducklake_snapshot IN EXCLUSIVE MODE")
            landed = self._ask(
                f"SELECT snapshot_id, changes_made FROM ducklake_snapshot_changes WHERE snapshot_id > {base} "
                f"AND position({quote_literal(txn_id)} in commit_extra_info) > 0"
            )
            if not landed:
                return None
            snapshot, changes = int(landed[0][0]), str(landed[0][1] or "")
            gone = self._gone(snapshot)
            if not gone:
                log.info("lake %s: snapshot %s is committed, though the answer to it was lost", self._root, snapshot)
                return snapshot
            self._refuse_irreversible(snapshot, changes, gone)
            self._take_back(snapshot)
            self._cursor.execute("COMMIT")
            log.warning("lake %s: snapshot %s, whose data files DuckLake removed, is taken back", self._root, snapshot)
            return None
        finally:
            try:
                self._cursor.execute("ROLLBACK")
            except duckdb.Error as error:  # there is none any more
                log.debug("lake %s: %s", self._root, self._catalog.redacted(error))
            self._cursor.close()

    @property
    def _root(self) -> str:
        return self._catalog.storage.root

    def _ask(self, sql: str) -> list[tuple[Any, ...]]:
        return self._cursor.execute(
            f"FROM postgres_query({quote_literal(self._database)}, {quote_literal(sql)})"
        ).fetchall()

    def _run(self, sql: str) -> None:
        self._cursor.execute(f"CALL postgres_execute({quote_literal(self._database)}, {quote_literal(sql)})")

    def _gone(self, snapshot: int) -> list[str]:
        """The data and delete files of a snapshot that are not there."""
        data = quote_literal(self._catalog.data_path)
        place = f"CASE WHEN t.path_is_relative THEN CASE WHEN s.path_is_relative THEN {data} ELSE '' END || s.path ELSE '' END || t.path"
        files = " UNION ALL ".join(
            f"SELECT {place} || f.path FROM {table} AS f JOIN ducklake_table AS t ON t.table_id = f.table_id AND t.end_snapshot IS NULL "
            f"JOIN ducklake_schema AS s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL WHERE f.begin_snapshot = {snapshot} AND f.path_is_relative"
            for table in ("ducklake_data_file", "ducklake_delete_file")
        )
        storage = self._catalog.storage
        return [
            path for (path,) in self._ask(files) if not storage.is_there(str(path).removeprefix(f"{storage.root}/"))
        ]

    def _refuse_irreversible(self, snapshot: int, changes: str, gone: list[str]) -> None:
        newest = self._ask("SELECT max(snapshot_id) FROM ducklake_snapshot")[0][0]
        kinds = [part for part in changes.split(",") if ":" in part]
        if newest == snapshot and all(kind.startswith(_REVERSIBLE) for kind in kinds):
            return
        why = "merged files" if newest == snapshot else f"has snapshot {newest} on top of it"
        raise StorageError(
            f"Lake {self._root}: the answer to the commit of snapshot {snapshot} was lost, and DuckLake removed its data files, such as {gone[0]}. It {why}, so that "
            "it cannot be taken back: restore the catalog to before it."
        )

    def _take_back(self, snapshot: int) -> None:
        """Make the catalog what it was before its newest snapshot. Row ids are not used again, and bounds of columns stay as wide as they are."""
        new_files = f"SELECT data_file_id FROM ducklake_data_file WHERE begin_snapshot = {snapshot}"
        for table in _LOST_FILES:
            self._run(f"DELETE FROM {table} WHERE data_file_id IN ({new_files})")
        self._run(
            "UPDATE ducklake_table_stats AS s SET record_count = s.record_count - f.rows, file_size_bytes = s.file_size_bytes - f.bytes "
            "FROM (SELECT table_id, sum(record_count) AS rows, sum(file_size_bytes) AS bytes FROM ducklake_data_file "
            f"WHERE begin_snapshot = {snapshot} GROUP BY table_id) AS f WHERE f.table_id = s.table_id"
        )
        columns = self._ask(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema() AND "
            "table_name LIKE 'ducklake%' AND column_name IN ('begin_snapshot', 'end_snapshot') ORDER BY 2, 1"
        )
        for name, column in columns:
            table = quote_identifier(str(name))
            if column == "begin_snapshot":
                self._run(f"DELETE FROM {table} WHERE begin_snapshot = {snapshot}")
            else:
                self._run(f"UPDATE {table} SET end_snapshot = NULL WHERE end_snapshot = {snapshot}")
        for table in ("ducklake_snapshot", "ducklake_snapshot_changes"):
            self._run(f"DELETE FROM {table} WHERE snapshot_id = {snapshot}")
        newer = (
            "FROM ducklake_inlined_data_tables WHERE table_id NOT IN (SELECT table_id FROM ducklake_table) OR schema_version > "
            "(SELECT schema_version FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1)"
        )
        for (name,) in self._ask(f"SELECT table_name {newer}"):
            self._run(f"DROP TABLE {quote_identifier(str(name))}")
        self._run(f"DELETE {newer}")
        for table, key, owner in _ORPHANS:
            self._run(f"DELETE FROM {table} WHERE {key} NOT IN (SELECT {key} FROM {owner})")
