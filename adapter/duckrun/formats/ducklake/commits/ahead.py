"""Preparations for a commit to a DuckLake, without which DuckLake would damage rows.

They are a separate commit. Each function states the damage (duckdb 1.5.5).
"""

from __future__ import annotations

from duckrun.errors import UnsupportedFeature
from duckrun.formats import nested
from duckrun.formats.commits import CommitTaken, WentAhead
from duckrun.formats.ducklake.commits.inlined import lie_in_catalog
from duckrun.formats.ducklake.commits.maintenance import flush_table
from duckrun.formats.ducklake.commits.transactor import Transactor
from duckrun.formats.ducklake.commits.work import Work
from duckrun.formats.ducklake.definition.ddl import changed_sql
from duckrun.formats.ducklake.definition.definition import DuckLakeDefinition
from duckrun.formats.ducklake.definition.types import TYPES, widens
from duckrun.values.snapshot import Snapshot, TableRef


def flush_first(transactor: Transactor, work: Work, ref: TableRef, table_id: int) -> None:
    """Flush the inlined rows of a table before a column is widened.

    A later flush would make DuckLake forget the least and greatest value of the column (see
    ``widen_first``).

    Raises:
        WentAhead: Rows were flushed; restart from the new snapshot.
        UnsupportedFeature: The change happens within a multi-table transaction.
    """
    if not lie_in_catalog(transactor.catalog, table_id):
        return
    if work.is_shared:
        raise UnsupportedFeature(
            f"Table {ref}: rows of it lie in the catalog, and have to lie in files before a column gets a wider "
            "type: flush it in front of the transaction"
        )
    work.rollback()
    snapshot = flush_table(transactor, ref)
    transactor.states.forget()
    if snapshot is None:
        raise CommitTaken("another program has written the rows in the catalog into files")
    raise WentAhead("rows in the catalog were written into files, before a column gets a wider type", snapshot)


def widen_first(
    transactor: Transactor, work: Work, ref: TableRef, snapshot: Snapshot, definition: DuckLakeDefinition
) -> None:
    """Widen columns by a separate commit before a commit with rows.

    After both in one transaction, DuckLake knows no bounds of such a column. The next insert then
    sets the bounds for all rows, and DuckDB sorts by them (duckdb 1.5.5).

    The separate commit replaces the transaction's COMMIT, so that refused rows widen nothing.

    Raises:
        UnsupportedFeature: The change happens within a multi-table transaction.
    """
    before: DuckLakeDefinition = snapshot.format_state.definition
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
        if snapshot.format_state.inlined and lie_in_catalog(transactor.catalog, snapshot.format_state.id):
            base = flush_table(transactor, ref) or base

        def change(alone: Work) -> None:
            if alone.base != base:
                raise CommitTaken(f"snapshot {alone.base} of the lake came meanwhile")
            for statement in changed_sql(alone.table(ref), before, after):
                alone.execute(statement)
            alone.note(ref, {"mode": "alter", "reason": "types that the rows of the next commit ask for"})

        version = transactor.once(change, snapshot.format_state.epoch)
        transactor.states.forget()
        raise WentAhead(f"the types of {', '.join(wider)} were widened", version)

    work.instead = widen
