"""Commits to a DuckLake table: its definition, its rows and its names."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

import duckdb

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.formats import nested
from duckrun.formats.commits import Behind, CommitTaken, NewCommit, WentAhead
from duckrun.formats.ducklake.catalog.catalog import APPLIED
from duckrun.formats.ducklake.catalog.refusals import DuckLakeRefusal
from duckrun.formats.ducklake.catalog.schema_versions import list_schemas
from duckrun.formats.ducklake.commits import inlined
from duckrun.formats.ducklake.commits.maintenance import flush_table
from duckrun.formats.ducklake.commits.transactor import Transactor
from duckrun.formats.ducklake.commits.work import Work
from duckrun.formats.ducklake.definition.ddl import changed_sql, created_sql, one_part, requires_added
from duckrun.formats.ducklake.definition.definition import DuckLakeDefinition, options_of
from duckrun.formats.ducklake.definition.rules import altered
from duckrun.formats.ducklake.definition.types import TYPES, widens
from duckrun.formats.ducklake.state.state import TableState, state_of
from duckrun.sql.quoting import quote_identifier
from duckrun.values.rows import WriteSpec
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.tables import AlterSpec, CreateSpec

log = logging.getLogger(__name__)


class Commits:
    """Writes to the tables of one lake."""

    def __init__(self, transactor: Transactor) -> None:
        self.transactor, self.catalog, self.states = transactor, transactor.catalog, transactor.states

    def define(
        self, work: Work, ref: TableRef, snapshot: Snapshot | None, new: NewCommit, *, emptied: bool | None = None
    ) -> None:
        """Create or change the table as a commit describes. Rows follow in the same transaction.

        Args:
            emptied: Passed by a restore only: True if all rows are already deleted. NOT NULL is
                then set after the commit.

        Raises:
            UnsupportedFeature: DuckLake would damage rows of the transaction.
            InvalidConfig: DuckLake rejects the definition.
        """
        definition = new.definition
        state = None if snapshot is None else state_of(snapshot)
        self._refuse_rows_after_ddl(work, ref, new, state)
        if state is not None and state.inlined:
            inlined.keep_out_of_older_rows(self.catalog, work, ref, state.id)
        if definition is None or (ref.schema, ref.name) in work.defined:
            work.lend_options(ref)
            return
        assert isinstance(definition, DuckLakeDefinition), "a definition of this format"
        inlined.refuse_system_columns(self.catalog, ref, None if state is None else state.id, definition.names)
        if snapshot is not None and not isinstance(new.spec, AlterSpec) and not emptied and not _empties(new):
            self._widen_first(work, ref, snapshot, definition)
        work.redefined = True
        if state is not None:
            list_schemas(self.catalog, state.id)
        if state is not None and state.inlined and not new.anew:
            work.altered[ref] = state.id
        before = None if state is None else state.definition
        is_empty = _empties(new) if emptied is None else emptied
        if before is not None and (ref.schema, ref.name) in work.filled and {*definition.names} - {*before.names}:
            # The table gets a column behind its first rows.
            if not isinstance(new.spec, AlterSpec) and not is_empty:
                raise UnsupportedFeature(_grown(ref))
            work.grown.add((ref.schema, ref.name))
        # An INSERT after RESET PARTITIONED BY in one transaction ends in an error of DuckDB
        # (1.5.5).
        loses_partitions = before is not None and bool(before.partition_by) and not definition.partition_by
        # DuckLake never sets NOT NULL on an added column, so such a table is recreated.
        is_needed = before is not None and (requires_added(before, definition) or loses_partitions)
        existing = None if new.anew or (is_needed and is_empty and emptied is None) else state
        if existing is None:
            statements = _creating(work, ref, before, definition)
        else:
            statements = _changing(work, ref, new, existing, definition, is_empty=is_empty)
            if loses_partitions and emptied is not None:  # A restore uses one partition until the commit.
                table = work.table(ref)
                statements.append(f"ALTER TABLE {table} SET PARTITIONED BY ({one_part(ref, definition).sql})")
                work.later.append((ref, f"ALTER TABLE {table} RESET PARTITIONED BY"))
        if isinstance(new.spec, AlterSpec) and any(" SET DATA TYPE " in statement for statement in statements):
            work.widened.add((ref.schema, ref.name))
            if state is not None and state.inlined:
                self._flush_first(work, ref, state.id)
        for statement in statements:
            if emptied is not None and statement.endswith(" SET NOT NULL"):
                work.later.append((ref, statement))
            else:
                self._run_definition(work, ref, new, statement)
        old: Mapping[str, str] = {} if existing is None else existing.definition.properties
        for option, value in options_of(old, definition.properties).items():
            work.options.append((ref, option, value))
        work.defined.add((ref.schema, ref.name))
        work.lend_options(ref)

    def _refuse_rows_after_ddl(self, work: Work, ref: TableRef, new: NewCommit, state: TableState | None) -> None:
        """Raise UnsupportedFeature for rows that DuckLake would damage after earlier DDL."""
        if (ref.schema, ref.name) in work.widened and not isinstance(new.spec, AlterSpec):
            raise UnsupportedFeature(
                f"Table {ref}: the type of a column was widened in this transaction, behind which DuckLake loses "
                "sight of the column's least and greatest value where rows follow, and DuckDB then reads wrong "
                "ones: widen it in a transaction before"
            )
        if (ref.schema, ref.name) in work.grown and not isinstance(new.spec, AlterSpec):
            raise UnsupportedFeature(_grown(ref))
        if new.spec is not None and new.spec.mode not in ("alter", "create", "delete"):
            columns = new.definition or (None if state is None else state.definition)
            types = (columns.sql_types if columns else None) or {}
            inlined.refuse_nested_in_the_catalog(self.catalog, ref, None if state is None else state.id, types)

    def _run_definition(self, work: Work, ref: TableRef, new: NewCommit, statement: str) -> None:
        """Run a statement of a definition, or after the commit if DuckLake takes it only then."""
        try:
            work.execute(statement)
        except duckdb.Error as error:
            # A new table replaces a view, and another program made a table after it was missing.
            if DuckLakeRefusal.NO_VIEW.is_of(error):
                self.states.outrun()
                raise Behind(f"table {ref} came meanwhile") from error
            sets_not_null = statement.endswith(" SET NOT NULL")
            if sets_not_null and isinstance(new.spec, AlterSpec) and DuckLakeRefusal.NOT_NULL_UNKNOWN.is_of(error):
                raise InvalidConfig(
                    f"table {ref}: DuckLake sets NOT NULL on columns that the table was made with, once rows "
                    f"of it were committed ({self.catalog.redacted(error).splitlines()[0]}). Make the table "
                    "with NOT NULL, by CREATE OR REPLACE TABLE"
                ) from error
            # DuckLake rejects SET NOT NULL after changes in one transaction.
            if sets_not_null and DuckLakeRefusal.NOT_NULL_LATER.is_of(error):
                work.later.append((ref, statement))
                work.failure = None if work.failure is error else work.failure
                return
            raise InvalidConfig(f"table {ref} cannot be so: {self.catalog.redacted(error).splitlines()[0]}") from error
        work.changed = True

    # -- separate commits ahead, without which DuckLake would damage rows (duckdb 1.5.5)

    def _flush_first(self, work: Work, ref: TableRef, table_id: int) -> None:
        """Flush the inlined rows of a table before a column is widened.

        A later flush would make DuckLake forget the least and greatest value of the column (see
        ``_widen_first``).

        Raises:
            WentAhead: Rows were flushed; restart from the new snapshot.
            UnsupportedFeature: The change happens within a multi-table transaction.
        """
        if not inlined.lie_in_catalog(self.catalog, table_id):
            return
        if work.is_shared:
            raise UnsupportedFeature(
                f"Table {ref}: rows of it lie in the catalog, and have to lie in files before a column gets a wider "
                "type: flush it in front of the transaction"
            )
        work.rollback()
        snapshot = flush_table(self.transactor, ref)
        self.states.forget()
        if snapshot is None:
            raise CommitTaken("another program has written the rows in the catalog into files")
        raise WentAhead("rows in the catalog were written into files, before a column gets a wider type", snapshot)

    def _widen_first(self, work: Work, ref: TableRef, snapshot: Snapshot, definition: DuckLakeDefinition) -> None:
        """Widen columns by a separate commit before a commit with rows.

        After both in one transaction, DuckLake knows no bounds of such a column. The next insert
        then sets the bounds for all rows, and DuckDB sorts by them (duckdb 1.5.5,
        https://github.com/duckdb/ducklake/issues/1308).

        The separate commit replaces the transaction's COMMIT, so that refused rows widen nothing.

        Raises:
            UnsupportedFeature: The change happens within a multi-table transaction.
        """
        before = state_of(snapshot).definition
        wider = {}
        for name, kind in before.sql_types.items():
            wanted = definition.sql_types.get(name, kind)
            grown = nested.with_new_fields(TYPES, kind, wanted)  # Added fields have no bounds to lose.
            if wanted != grown and widens(kind, wanted):
                wider[name] = wanted
        if not wider:
            return
        if work.is_shared:
            raise UnsupportedFeature(
                f"Table {ref}: the rows ask for wider types of {', '.join(wider)}, which DuckLake does not take with "
                "rows in one transaction: widen the columns in a transaction before (ALTER TABLE … ALTER COLUMN … "
                "TYPE …)"
            )
        after = before
        for name, kind in wider.items():
            after = after.with_column(name, type=kind)

        def widen() -> None:
            """Widen the columns, then raise WentAhead."""
            work.rollback()
            base = work.base
            if state_of(snapshot).inlined and inlined.lie_in_catalog(self.catalog, state_of(snapshot).id):
                base = flush_table(self.transactor, ref) or base

            def change(alone: Work) -> None:
                if alone.base != base:
                    raise CommitTaken(f"snapshot {alone.base} of the lake came meanwhile")
                for statement in changed_sql(alone.table(ref), before, after):
                    alone.execute(statement)
                alone.note(ref, {"mode": "alter", "reason": "types that the rows of the next commit ask for"})

            version = self.transactor.once(change, state_of(snapshot).epoch)
            self.states.forget()
            raise WentAhead(f"the types of {', '.join(wider)} were widened", version)

        work.instead = widen

    # -- rows and names

    def commit(self, ref: TableRef, snapshot: Snapshot | None, new: NewCommit) -> int:
        """Commit a write, and return the new snapshot; see Format."""
        if new.work is None:
            with self.transactor.transaction(self.catalog.cursor(create=True), snapshot) as opened:
                if snapshot is not None and new.spec is not None and new.spec.mode == "create" and not new.anew:
                    opened.changed = bool(opened.execute(f"DELETE FROM {opened.table(ref)}"))
                return self.commit(ref, snapshot, replace(new, work=opened))
        work: Work = new.work
        self.define(work, ref, snapshot, new)
        if new.app is not None:
            work.applied(ref, new.app, new.note)
        same = snapshot is not None and new.definition is None and new.app is None and not any(new.rows)
        if work.is_shared and snapshot is not None and same:
            return snapshot.version
        work.note(ref, new.note)
        if snapshot is None or (ref.schema, ref.name) in work.defined or state_of(snapshot).fresh:
            work.began[ref] = None
        if snapshot is None or not state_of(snapshot).inlined:
            work.may_begin_inlining = True
        if work.is_shared:
            work.remember(ref, snapshot, new)
            return work.base + 1
        version = work.commit()
        self.transactor.afterwards(work)
        if version is None:
            assert snapshot is not None, "a table that is made is a change"
            return snapshot.version
        if snapshot is not None and version == work.base + 1 and not work.redefined:
            self.states.advance(ref, work.base, version)
        return version

    def rename(self, ref: TableRef, new: TableRef, state: TableState) -> None:
        """Rename a table within its schema."""
        if ref.schema != new.schema:
            raise UnsupportedFeature(
                f"{ref} cannot move to schema {new.schema}: a DuckLake renames within a schema. "
                "CREATE TABLE … AS there."
            )

        def change(work: Work) -> None:
            work.refuse_rename(ref)
            work.execute(f"ALTER TABLE {work.table(ref)} RENAME TO {quote_identifier(new.name)}")
            work.execute(
                # Application transactions are recorded under the table's name.
                f"UPDATE {quote_identifier(work.alias)}.{APPLIED} SET name = ? WHERE name = ? AND snapshot >= ?",
                [f"{new.schema}.{new.name}", f"{ref.schema}.{ref.name}", state.begun],
            )
            work.note(new, {"mode": "rename", "from": str(ref)})
            work.changed = True
            if work.is_shared:
                work.renamed(ref, new, state)

        with self.transactor.locked():
            self.transactor.alone(f"rename of table {ref}", change, state.epoch)

    def drop(self, ref: TableRef) -> None:
        """Drop a table; a missing one is no error."""
        if not self.transactor.exists(ref):
            return

        def change(work: Work) -> None:
            work.execute(f"DROP TABLE IF EXISTS {work.table(ref)}")
            work.note(ref, {"mode": "drop"})
            work.forget(ref)
            work.changed = True

        with self.transactor.locked():
            if self.transactor.exists(ref):  # Another drop may have come first.
                self.transactor.alone(f"drop of table {ref}", change)


def _creating(
    work: Work, ref: TableRef, before: DuckLakeDefinition | None, definition: DuckLakeDefinition
) -> list[str]:
    """Return the statements that create a table, or replace it by a new one."""
    table = work.table(ref)
    work.forget(ref)
    work.new.add((ref.schema, ref.name))
    if before is not None:
        return [f"DROP TABLE {table}", *created_sql(table, definition)]
    schema = f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(work.alias, ref.schema)}"
    # The table replaces a view of its name.
    return [schema, f"DROP VIEW IF EXISTS {table}", *created_sql(table, definition)]


def _changing(
    work: Work, ref: TableRef, new: NewCommit, state: TableState, definition: DuckLakeDefinition, *, is_empty: bool
) -> list[str]:
    """Return the statements that change a table's definition."""
    begins, steps = state.definition, tuple[str, ...]()
    if isinstance(new.spec, AlterSpec):
        alteration = altered(state.definition, new.spec)
        begins, steps = alteration.reached or state.definition, alteration.steps
    statements = list(changed_sql(work.table(ref), begins, definition, steps, empty=is_empty))
    if statements and state.id >= 0:
        work.redefined_tables.add((ref.schema, ref.name))
    if any(" RENAME COLUMN " in statement for statement in statements):
        work.renamed_columns.add((ref.schema, ref.name))
    return statements


def _grown(ref: TableRef) -> str:
    """Return the message about rows after a new column, with the table's first rows before it.

    DuckLake takes the bounds of the later rows for those of all rows. The column's default in the
    earlier rows is then not found, or read as another value.
    duckdb 1.5.5 has a fix for inlined rows only: https://github.com/duckdb/ducklake/issues/1055
    """
    return (
        f"Table {ref} gets its first rows in this transaction, and a column behind them: "
        "DuckLake then reads wrong values where more rows follow. Make the "
        "table with the column, or write these rows in a transaction of their own"
    )


def _empties(new: NewCommit) -> bool:
    """True if the commit removes all rows of the table."""
    return isinstance(new.spec, WriteSpec | CreateSpec) and new.spec.mode in ("overwrite", "create")
