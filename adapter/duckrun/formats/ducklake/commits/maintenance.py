"""Maintenance of a DuckLake by DuckLake's own functions, under the writers' lock.

The steps are flush, merge, rewrite, expire, cleanup and orphans. Inlined rows are flushed before
files are merged or rewritten. Otherwise older versions read wrong rows
(https://github.com/duckdb/ducklake/issues/1406).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any

import duckdb

from duckrun.errors import InvalidConfig, StorageError, TableNotFound, note_commit, removing
from duckrun.formats.commits import CommitTaken
from duckrun.formats.ducklake.catalog.bounds import mend
from duckrun.formats.ducklake.catalog.catalog import refuse_delta
from duckrun.formats.ducklake.catalog.schema_versions import list_schemas
from duckrun.formats.ducklake.commits.transactor import Transactor
from duckrun.formats.ducklake.commits.work import Work
from duckrun.formats.ducklake.state.records import ALL
from duckrun.formats.transactions import Kept
from duckrun.sql.quoting import quote_literal
from duckrun.storage.scratch import remove_left
from duckrun.values.snapshot import TableRef
from duckrun.values.upkeep import (
    WEEK,
    ExpireSpec,
    FlushSpec,
    LakeCheckpointSpec,
    MergeFilesSpec,
    OrphansSpec,
    RemovalSpec,
    RewriteSpec,
    UpkeepSpec,
)


def maintain(transactor: Transactor, spec: UpkeepSpec, ref: TableRef | None, needed_from: int | None) -> Kept:
    """Run one maintenance step on a table, or on the lake (None).

    Args:
        needed_from: Oldest snapshot that a consumer needs; it and later ones do not expire.

    Raises:
        InvalidConfig: A transaction is open, or the step does not apply.
        TableNotFound: There is no such table.
        ReadOnlyLake: The lake is open read-only.
        StorageError: A step failed.
        CommitConflict: Other programs committed too often meanwhile.
    """
    if transactor.together is not None:
        raise InvalidConfig(
            f"{spec.mode} of lake {transactor.storage.root}: a transaction is open; commit it, or roll it back, first"
        )
    if transactor.states.newest() is None:
        refuse_delta(transactor.storage)
        raise StorageError(
            f"Lake {transactor.storage.root} has no catalog yet ({transactor.catalog.address}): nothing is in it."
        )
    if ref is not None:
        if not spec.of_tables:
            raise InvalidConfig(f"{spec.mode} is of the lake, not of table {ref} alone: leave the table out.")
        if not transactor.states.exists(ref):
            raise TableNotFound(f"There is no table {ref}.")
    with transactor.catalog.locked():
        try:
            return _Upkeep(transactor, ref, needed_from).run(spec)
        finally:
            transactor.states.forget()  # Some steps change the catalog without a snapshot.


def flush_table(transactor: Transactor, ref: TableRef) -> int | None:
    """Flush the inlined rows of a table, and return the new snapshot, if any.

    The caller holds the lock.
    """
    upkeep = _Upkeep(transactor, ref, None)
    upkeep._flush()
    return upkeep.kept.version


class _Upkeep:
    def __init__(self, transactor: Transactor, ref: TableRef | None, needed_from: int | None) -> None:
        self.transactor, self.catalog, self.states = transactor, transactor.catalog, transactor.states
        self.ref, self.needed_from = ref, needed_from
        self.kept = Kept()

    def run(self, spec: UpkeepSpec) -> Kept:
        match spec:
            case LakeCheckpointSpec():
                for step in spec.steps:
                    self.run(step)
            case FlushSpec():
                self._flush()
            case MergeFilesSpec():
                self._flush()
                with self._unsorted(self._in_files(deletes=False)):
                    self._in_snapshot("ducklake_merge_adjacent_files", "optimize", self._place())
            case RewriteSpec():
                self._flush()
                share = (
                    [] if spec.delete_threshold is None else [f"delete_threshold => {float(spec.delete_threshold)!r}"]
                )
                with self._unsorted(self._in_files(deletes=True)):
                    self._in_snapshot("ducklake_rewrite_data_files", spec.mode, [*self._place(), *share])
            case ExpireSpec():
                self._expire(spec)
            case RemovalSpec():
                orphans = isinstance(spec, OrphansSpec)
                with nullcontext() if spec.dry_run else removing():
                    self._remove("ducklake_delete_orphaned_files" if orphans else "ducklake_cleanup_old_files", spec)
                    if orphans:
                        storage, moment = self.catalog.storage, _moment(spec)
                        self.kept.removed += remove_left(storage, moment, dry_run=spec.dry_run)
        return self.kept

    # -- what makes a snapshot

    def _place(self) -> list[str]:
        if self.ref is None:
            return []
        return [quote_literal(self.ref.name), f"schema => {quote_literal(self.ref.schema)}"]

    def _flush(self) -> None:
        if self.ref is not None:
            table = f"table_name => {quote_literal(self.ref.name)}"
            places = [[f"schema_name => {quote_literal(self.ref.schema)}", table]]
        else:  # The rows of the hidden schema stay inlined, where they are found fast.
            places = [[f"schema_name => {quote_literal(schema)}"] for schema in self.states.schemas()]
        rows = self._in_snapshot("ducklake_flush_inlined_data", "flush", *places)
        self.kept.rows_flushed += sum(row[2] for row in rows)

    def _changed(self, rows: str) -> dict[TableRef, str]:
        """Sorted tables with a column that changed its type after the first snapshot of ``rows``.

        Maps each table to its sort keys.
        """
        meta = self.catalog.meta
        of_table = "true" if self.ref is None else "s.schema_name = ? AND t.table_name = ?"
        sort_keys = self.catalog.ask(
            "SELECT s.schema_name, t.table_name, string_agg(concat_ws(' ', e.expression, e.sort_direction, "
            "replace(e.null_order, '_', ' ')), ', ' "
            f"ORDER BY e.sort_key_index) FROM {meta('ducklake_table')} AS t "
            f"JOIN {meta('ducklake_schema')} AS s USING (schema_id) "
            f"JOIN {meta('ducklake_sort_info')} AS i USING (table_id) "
            f"JOIN {meta('ducklake_sort_expression')} AS e USING (sort_id) "
            f"WHERE t.end_snapshot IS NULL AND s.end_snapshot IS NULL AND i.end_snapshot IS NULL AND {of_table} "
            f"AND EXISTS (SELECT 1 FROM {meta('ducklake_column')} AS o JOIN {meta('ducklake_column')} AS n "
            "ON n.table_id = o.table_id AND n.column_type <> o.column_type "
            "AND (n.column_id = o.column_id OR n.column_name = o.column_name) WHERE n.table_id = t.table_id "
            "AND n.end_snapshot IS NULL "
            f"AND o.end_snapshot > ({rows})) GROUP BY ALL",
            [] if self.ref is None else [self.ref.schema, self.ref.name],
        )
        return {TableRef(schema, name, ""): keys for schema, name, keys in sort_keys}

    def _in_files(self, *, deletes: bool) -> dict[TableRef, str]:
        """Such tables with older files: one file with ``deletes``, or several without."""
        meta = self.catalog.meta
        marked = (
            f"EXISTS (FROM {meta('ducklake_delete_file')} AS d WHERE d.data_file_id = f.data_file_id "
            "AND d.end_snapshot IS NULL)"
        )
        return self._changed(
            f"SELECT begin_snapshot FROM {meta('ducklake_data_file')} AS f WHERE f.table_id = t.table_id "
            "AND f.end_snapshot IS NULL "
            f"AND {marked if deletes else f'NOT {marked}'} ORDER BY 1 LIMIT 1 OFFSET {0 if deletes else 1}"
        )

    @contextmanager
    def _unsorted(self, tables: dict[TableRef, str]) -> Iterator[None]:
        """Suspend the sort order of tables in the block.

        Sorting rows by a column whose type has changed ends in an internal error of DuckDB (1.5.5).
        The order changes in separate commits: DuckLake does not merge files of a table that its
        transaction alters.
        """
        if tables:
            self._order(dict.fromkeys(tables, "RESET SORTED BY"))
        try:
            yield
        finally:
            if tables:
                self._order({ref: f"SET SORTED BY ({keys})" for ref, keys in tables.items()})

    def _order(self, changes: dict[TableRef, str]) -> None:
        def change(work: Work) -> None:
            for ref, clause in changes.items():
                work.execute(f"ALTER TABLE {work.table(ref)} {clause}")
                work.note(ref, {"mode": "alter", "reason": "rows of another type are not sorted"})

        self.transactor.alone("maintenance", change)

    def _in_snapshot(self, function: str, mode: str, *places: Sequence[str]) -> list[tuple[Any, ...]]:
        """Call a DuckLake function for each of the ``places``, in one transaction with retries.

        Returns:
            The rows (schema, table, count, ...) of all calls.
        """
        meta = self.catalog.meta
        # Sorting by wrong bounds changes rows: if the bounds cannot be repaired, do nothing.
        number = None if self.ref is None else self.states.number(self.ref)
        mend(self.catalog, number)
        list_schemas(self.catalog, number)

        def attempt() -> list[tuple[Any, ...]]:
            # A flush can suspend the sort order in its own transaction, a merge cannot (see
            # _unsorted).
            unsorted = {}
            if mode == "flush":
                unsorted = self._changed(
                    f"SELECT min(v.begin_snapshot) FROM {meta('ducklake_inlined_data_tables')} AS d "
                    f"JOIN {meta('ducklake_schema_versions')} AS v "
                    "USING (table_id, schema_version) WHERE d.table_id = t.table_id"
                )
            with self._fresh() as work:
                for ref in unsorted:
                    self._rows(work, f"ALTER TABLE {work.table(ref)} RESET SORTED BY")
                rows = []
                for arguments in places:
                    call = f"CALL {function}({', '.join([quote_literal(work.alias), *arguments])})"
                    rows += self._rows(work, call)
                for ref, keys in unsorted.items():
                    self._rows(work, f"ALTER TABLE {work.table(ref)} SET SORTED BY ({keys})")
                # The table's own record of a flush omits tables with only inlined deletes.
                work.notes.append({"table": ALL, "mode": mode, "engine": "duckdb", "writer": "ducklake"})
                snapshot = work.commit()
                if snapshot is not None:
                    note_commit(f"snapshot {snapshot} of lake {self.catalog.storage.root}")
                self.kept.version = snapshot if snapshot is not None else self.kept.version
                return rows

        return self.transactor.retried(mode, attempt)

    @contextmanager
    def _fresh(self) -> Iterator[Work]:
        """Open a transaction through a new attachment, which has seen no older column types."""
        cursor = self.catalog.cursor()
        # An instance can open a DuckDB file only once.
        is_attached = self.catalog.address.kind != "duckdb"
        name = f"m{uuid.uuid4().hex[:12]}" if is_attached else 0
        alias = self.catalog.attach_for(cursor, str(name)) if is_attached else self.catalog.alias()
        work = Work(self.catalog, cursor, name, alias)
        try:
            yield work.begin()
        finally:
            work.rollback()
            if is_attached:
                self.catalog.detach(cursor, alias)

    def _rows(self, work: Work, sql: str) -> list[tuple[Any, ...]]:
        try:
            return work.cursor.execute(sql).fetchall()
        except duckdb.TransactionException as error:
            raise CommitTaken(self.catalog.redacted(error)) from None
        except duckdb.Error as error:
            raise StorageError(f"Lake {self.catalog.storage.root}: {self.catalog.redacted(error)}") from None

    # -- what makes none

    def _ask(self, function: str, *arguments: str) -> list[tuple[Any, ...]]:
        with self.catalog.errors(function):
            call = f"CALL {function}({', '.join([quote_literal(self.catalog.alias()), *arguments])})"
            return self.catalog.cursor().execute(call).fetchall()

    def _expire(self, spec: ExpireSpec) -> None:
        table = self.catalog.meta("ducklake_snapshot")
        times = {
            int(n): at for n, at in self.catalog.ask(f"SELECT snapshot_id, snapshot_time::TIMESTAMPTZ FROM {table}")
        }
        newest = max(times)
        if spec.versions is not None:
            unknown = [version for version in spec.versions if version not in times]
            if unknown:
                raise InvalidConfig(
                    f"expire of lake {self.catalog.storage.root}: there is no snapshot "
                    f"{', '.join(map(str, unknown))}; there are {len(times)} from {min(times)} to {newest}"
                )
            if newest in spec.versions:
                raise InvalidConfig(
                    f"expire of lake {self.catalog.storage.root}: snapshot {newest} is the newest, which is what the "
                    "lake is"
                )
            chosen = sorted(set(spec.versions))
        else:
            assert spec.older_than is not None, "one of the two is given"
            chosen = sorted(number for number, at in times.items() if at < spec.older_than and number != newest)
        if self.needed_from is not None and spec.spare_consumers:
            self.kept.spared += [number for number in chosen if number >= self.needed_from]
            chosen = [number for number in chosen if number < self.needed_from]
        if chosen and not spec.dry_run:
            self._ask("ducklake_expire_snapshots", f"versions => [{', '.join(map(str, chosen))}]")
            note_commit(f"the expiry of {len(chosen)} snapshots of lake {self.catalog.storage.root}")
        self.kept.expired += chosen

    def _remove(self, function: str, spec: RemovalSpec) -> None:
        older = f"older_than => TIMESTAMPTZ {quote_literal(_moment(spec).astimezone(UTC).isoformat())}"
        rows = self._ask(function, older, f"dry_run => {str(spec.dry_run).lower()}")
        self.kept.removed += [str(row[0]) for row in rows]


def _moment(spec: RemovalSpec) -> datetime:
    """Time before which a file was written, or released, if it may be removed."""
    return spec.older_than or datetime.now(UTC) - WEEK
