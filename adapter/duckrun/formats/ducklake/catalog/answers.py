"""Outcome of a COMMIT whose answer was lost, from the server of the catalog.

DuckLake treats a COMMIT without an answer as failed, and removes the transaction's data files. The
server may have carried it out nevertheless (duckdb 1.5.5). Such a commit without files is undone by
the catalog's ``begin_snapshot`` and ``end_snapshot`` columns. Its work can then be repeated.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb

from duckrun.errors import StorageError
from duckrun.formats.commits import CommitTaken
from duckrun.sql.quoting import quote_identifier, quote_literal

if TYPE_CHECKING:
    from duckrun.formats.ducklake.catalog.catalog import Catalog

log = logging.getLogger(__name__)

_PAUSES = (0.1, 0.5, 1.0, 2.0, 4.0)
"""Seconds between attempts to reach a server that may be restarting."""
_LOST_FILES = ("ducklake_file_column_stats", "ducklake_file_partition_value", "ducklake_file_variant_stats")
_REVERSIBLE = ("created_", "dropped_", "altered_", "inserted_into_table", "deleted_from_table", "inlined_")
"""Kinds of changes that keep the previous entries, with an ``end_snapshot``.

A merge of files removes the entries of the merged files.
"""
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
"""Catalog tables without snapshots, their key, and the table that owns their entries.

Source: the DuckLake specification 1.0, Tables.
"""


class NotCommitted(CommitTaken):
    """The connection was lost at COMMIT, and the transaction left no trace."""


_DELETE_FILE = (
    "delete_file_id", "table_id", "begin_snapshot", "end_snapshot", "data_file_id", "path", "path_is_relative",
    "format", "delete_count", "file_size_bytes", "footer_size", "encryption_key", "partial_max",
)  # fmt: skip


def delete_files_of(catalog: Catalog, tables: Iterable[str], epoch: int | str) -> str:
    """Return the query for the current delete files of some tables, given as schema.name.

    A commit that deletes more rows of a data file removes the entry of the file's old delete file.
    """
    names = ", ".join(map(quote_literal, tables))
    meta = partial(catalog.meta, epoch=epoch)
    return (
        f"SELECT {', '.join(f'd.{name}' for name in _DELETE_FILE)} FROM {meta('ducklake_delete_file')} AS d "
        f"JOIN {meta('ducklake_table')} AS t USING (table_id) JOIN {meta('ducklake_schema')} AS s USING (schema_id) "
        "WHERE d.end_snapshot IS NULL AND t.end_snapshot IS NULL AND s.end_snapshot IS NULL "
        f"AND s.schema_name || '.' || t.table_name IN ({names})"
    )


def outcome(catalog: Catalog, base: int, txn_id: str, delete_files: Sequence[tuple[Any, ...]] = ()) -> int | None:
    """Return the snapshot of a commit; None if the commit left no trace.

    Args:
        base: Snapshot that the transaction started from.
        txn_id: Id in the extra information of the commit.
        delete_files: Result of ``delete_files_of()`` before the commit.

    Raises:
        duckdb.Error: The server does not answer.
        StorageError: The commit exists without its files, and others have committed on top of it.
    """
    for pause in (*_PAUSES, None):
        try:
            return _Question(catalog, delete_files).outcome(base, txn_id)
        except duckdb.Error as error:
            if pause is None:
                raise
            log.info("lake %s: asking for the outcome of a commit: %s", catalog.storage.root, catalog.redacted(error))
            time.sleep(pause)
    raise AssertionError("the last attempt returns or raises")


def _first_file(snapshot: int) -> str:
    """Server SQL for the number of the first data or delete file that a snapshot added."""
    return (
        f"(SELECT next_file_id FROM ducklake_snapshot WHERE snapshot_id < {snapshot} ORDER BY snapshot_id DESC LIMIT 1)"
    )


def _literal(value: Any) -> str:
    return "NULL" if value is None else quote_literal(value) if isinstance(value, str) else str(value)


class _Question:
    """Transaction on the catalog's server, outside of the lake."""

    def __init__(self, catalog: Catalog, delete_files: Sequence[tuple[Any, ...]]) -> None:
        self._catalog, self._delete_files, self._root = catalog, delete_files, catalog.storage.root
        self._cursor, self._database = catalog.beside()

    def outcome(self, base: int, txn_id: str) -> int | None:
        try:
            self._cursor.execute("BEGIN TRANSACTION")
            # Wait for a backend that still works on the COMMIT: an insert of a snapshot holds a
            # conflicting lock. This must precede any SELECT, which would fix the transaction's
            # view.
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
            except duckdb.Error as error:  # The transaction has already ended.
                log.debug("lake %s: %s", self._root, self._catalog.redacted(error))
            self._cursor.close()

    def _ask(self, sql: str) -> list[tuple[Any, ...]]:
        return self._cursor.execute(
            f"FROM postgres_query({quote_literal(self._database)}, {quote_literal(sql)})"
        ).fetchall()

    def _run(self, sql: str) -> None:
        self._cursor.execute(f"CALL postgres_execute({quote_literal(self._database)}, {quote_literal(sql)})")

    def _gone(self, snapshot: int) -> list[str]:
        """Data and delete files of a snapshot that do not exist."""
        data = quote_literal(self._catalog.data_path)
        place = (
            f"CASE WHEN t.path_is_relative THEN CASE WHEN s.path_is_relative THEN {data} ELSE '' END || s.path "
            "ELSE '' END || t.path"
        )
        files = " UNION ALL ".join(
            f"SELECT {place} || f.path FROM {table} AS f JOIN ducklake_table AS t ON t.table_id = f.table_id "
            "AND t.end_snapshot IS NULL "
            "JOIN ducklake_schema AS s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL "
            f"WHERE f.{number} >= {_first_file(snapshot)} AND f.path_is_relative"
            for table, number in (("ducklake_data_file", "data_file_id"), ("ducklake_delete_file", "delete_file_id"))
        )
        storage = self._catalog.storage
        return [
            path
            for (path,) in self._ask(files)
            if not storage.has(storage.root, str(path).removeprefix(f"{storage.root}/"))
        ]

    def _refuse_irreversible(self, snapshot: int, changes: str, gone: list[str]) -> None:
        """Raise StorageError if a later snapshot, or a merge of files, prevents the undo."""
        newest = self._ask("SELECT max(snapshot_id) FROM ducklake_snapshot")[0][0]
        kinds = [part for part in changes.split(",") if ":" in part]
        replaced = self._ask(
            f"SELECT data_file_id FROM ducklake_delete_file WHERE delete_file_id >= {_first_file(snapshot)} "
            f"AND begin_snapshot < {snapshot}"
        )
        known = {row[_DELETE_FILE.index("data_file_id")] for row in self._delete_files}
        is_reversible = all(kind.startswith(_REVERSIBLE) for kind in kinds) and {row[0] for row in replaced} <= known
        if newest == snapshot and is_reversible:
            return
        why = "merged files" if newest == snapshot else f"has snapshot {newest} on top of it"
        raise StorageError(
            f"Lake {self._root}: the answer to the commit of snapshot {snapshot} was lost, and DuckLake removed its "
            f"data files, such as {gone[0]}. It {why}, so that "
            "it cannot be taken back: restore the catalog to before it."
        )

    def _take_back(self, snapshot: int) -> None:
        """Undo the newest snapshot in the catalog.

        Row ids are not reused, and column bounds are not narrowed again.
        """
        new_files = f"SELECT data_file_id FROM ducklake_data_file WHERE begin_snapshot = {snapshot}"
        for table in _LOST_FILES:
            self._run(f"DELETE FROM {table} WHERE data_file_id IN ({new_files})")
        self._run(
            "UPDATE ducklake_table_stats AS s SET record_count = s.record_count - f.rows, file_size_bytes = "
            "s.file_size_bytes - f.bytes "
            "FROM (SELECT table_id, sum(record_count) AS rows, sum(file_size_bytes) AS bytes FROM ducklake_data_file "
            f"WHERE begin_snapshot = {snapshot} GROUP BY table_id) AS f WHERE f.table_id = s.table_id"
        )
        self._run(f"DELETE FROM ducklake_delete_file WHERE delete_file_id >= {_first_file(snapshot)}")
        numbers = ", ".join(str(row[0]) for row in self._delete_files) or "NULL"
        present = self._ask(f"SELECT delete_file_id FROM ducklake_delete_file WHERE delete_file_id IN ({numbers})")
        for row in self._delete_files:
            if (row[0],) not in present:
                self._run(
                    f"INSERT INTO ducklake_delete_file ({', '.join(_DELETE_FILE)}) VALUES "
                    f"({', '.join(map(_literal, row))})"
                )
        # The commit scheduled the replaced delete files for removal. They are needed again.
        self._run(f"DELETE FROM ducklake_files_scheduled_for_deletion WHERE data_file_id IN ({numbers})")
        # This finds the inlined tables, too, whose names vary.
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
            "FROM ducklake_inlined_data_tables WHERE table_id NOT IN (SELECT table_id FROM ducklake_table) "
            "OR schema_version > "
            "(SELECT schema_version FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1)"
        )
        for (name,) in self._ask(f"SELECT table_name {newer}"):
            self._run(f"DROP TABLE {quote_identifier(str(name))}")
        self._run(f"DELETE {newer}")
        for table, key, owner in _ORPHANS:
            self._run(f"DELETE FROM {table} WHERE {key} NOT IN (SELECT {key} FROM {owner})")
