"""Preparations for a commit to a DuckLake, without which DuckLake would damage rows.

They are a separate commit, or options outside of all commits. Each function states the damage
(duckdb 1.5.5).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import duckdb

from duckrun.errors import UnsupportedFeature
from duckrun.formats import nested
from duckrun.formats.commits import CommitTaken, WentAhead
from duckrun.formats.ducklake.ddl import changed_sql
from duckrun.formats.ducklake.definition import DuckLakeDefinition
from duckrun.formats.ducklake.maintenance import flush_table
from duckrun.formats.ducklake.types import TYPES, widens
from duckrun.formats.ducklake.work import Work
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.values.snapshot import Snapshot, TableRef

if TYPE_CHECKING:
    from duckrun.formats.ducklake.commits import Commits

log = logging.getLogger(__name__)

_LIMIT = "data_inlining_row_limit"


def keep_out_of_older_rows(form: Commits, work: Work, ref: TableRef, table_id: int) -> None:
    """Send new rows of a table to files if its inlined rows have an older schema.

    Columns that changed while ``inline_rows`` was 0 lead to that. DuckLake would store new rows
    beside the old ones. With more or fewer columns the commit fails. After a widening, neither a
    read nor a flush works any more (duckdb 1.5.5).

    Raises:
        UnsupportedFeature: The change happens within a multi-table transaction.
    """
    meta = form.catalog.meta
    rows = form.catalog.ask(
        f"SELECT (SELECT max(schema_version) FROM {meta('ducklake_inlined_data_tables')} "
        f"WHERE table_id = {table_id}) < "
        f"(SELECT max(schema_version) FROM {meta('ducklake_schema_versions')} WHERE table_id = {table_id}), "
        f"(SELECT count(*) FROM {meta('ducklake_metadata')} WHERE scope = 'table' AND scope_id = {table_id} "
        f"AND key = '{_LIMIT}' AND value = '0')"
    )
    older, settled = rows[0]
    if not older or (settled and work is form.together):  # Its attachment is newer than the option.
        return
    if work is form.together:
        raise UnsupportedFeature(
            f"Table {ref}: its columns changed while inline_rows was 0, and rows of before lie in the catalog: "
            f"call set_inline_rows(0, '{ref}') in front of the transaction"
        )
    place = f"schema => {quote_literal(ref.schema)}, table_name => {quote_literal(ref.name)}"
    for alias in dict.fromkeys((form.catalog.alias(), work.alias)):
        # An attachment reads the options once, when it is attached.
        with form.catalog.errors(f"table {ref}"):
            work.cursor.cursor().execute(f"CALL {quote_identifier(alias)}.set_option('{_LIMIT}', 0, {place})")
    if not settled:
        log.warning("table %s: its columns changed while inline_rows was 0; its rows lie in files from now on", ref)


_SAFE = {
    "boolean", "tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger", "ubigint", "decimal",
    "varchar",
}  # fmt: skip
"""Types whose values survive in a struct of an inlined row."""


def refuse_structs_in_the_catalog(form: Commits, ref: TableRef, table_id: int | None, types: Mapping[str, str]) -> None:
    """Raise UnsupportedFeature if structs of inlined rows would not survive.

    DuckLake stores their fields as texts of casts (``CAST('2020-01-01' AS DATE)``). Then no row of
    the table can be read any more, or a BLOB changes.
    """
    unsafe = [name for name, kind in types.items() if "STRUCT" in kind and _is_unsafe(duckdb.type(kind))]
    if unsafe and _may_lie_in_catalog(form, table_id):
        raise UnsupportedFeature(
            f"Table {ref}: {', '.join(unsafe)} is a struct with fields that DuckLake does not give back of rows "
            "in the catalog (dates, times, floats, BLOB, UUID, …): have its rows in files, by inline_rows: 0 or, "
            f"once the table is created, set_inline_rows(0, '{ref}')"
        )


def refuse_system_columns(form: Commits, ref: TableRef, table_id: int | None, names: Iterable[str]) -> None:
    """Raise UnsupportedFeature if inlined rows would need a reserved column name of PostgreSQL.

    Source: PostgreSQL's documentation, System Columns.
    """
    taken = [name for name in names if name.lower() in _SYSTEM_COLUMNS]
    if taken and form.catalog.address.kind == "postgres" and _may_lie_in_catalog(form, table_id):
        raise UnsupportedFeature(
            f"Table {ref}: {', '.join(taken)} is a system column of PostgreSQL, where rows of the table would "
            "lie: use another name, or have the rows in files, by inline_rows: 0"
        )


_SYSTEM_COLUMNS = {"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"}


def _may_lie_in_catalog(form: Commits, table_id: int | None) -> bool:
    """True if small inserts are inlined, by the option of the table, the lake or the session."""
    limits = dict(
        form.catalog.ask(
            f"SELECT coalesce(scope, 'lake'), max(value::BIGINT) FROM {form.catalog.meta('ducklake_metadata')} "
            f"WHERE key = '{_LIMIT}' "
            f"AND (scope IS NULL OR scope <> 'table' OR scope_id = {-1 if table_id is None else table_id}) AND "
            "(scope IS NULL OR scope <> 'schema') GROUP BY ALL"
        )
    )
    return bool(limits.get("table", limits.get("lake", form.catalog.inline_rows)))


def _is_unsafe(kind: Any, *, inside: bool = False) -> bool:
    if kind.id in ("struct", "list", "map", "array"):
        parts = [each for _, each in kind.children if hasattr(each, "id")]
        return any(_is_unsafe(each, inside=inside or kind.id == "struct") for each in parts)
    return inside and kind.id not in _SAFE


def flush_first(form: Commits, work: Work, ref: TableRef, table_id: int) -> None:
    """Flush the inlined rows of a table before a column is widened.

    A later flush would make DuckLake forget the least and greatest value of the column (see
    ``widen_first``).

    Raises:
        WentAhead: Rows were flushed; restart from the new snapshot.
        UnsupportedFeature: The change happens within a multi-table transaction.
    """
    if not _lie_in_catalog(form, table_id):
        return
    if work is form.together:
        raise UnsupportedFeature(
            f"Table {ref}: rows of it lie in the catalog, and have to lie in files before a column gets a wider "
            "type: flush it in front of the transaction"
        )
    work.rollback()
    snapshot = flush_table(form, ref)
    form.states.forget()
    if snapshot is None:
        raise CommitTaken("another program has written the rows in the catalog into files")
    raise WentAhead("rows in the catalog were written into files, before a column gets a wider type", snapshot)


def _lie_in_catalog(form: Commits, table_id: int) -> bool:
    """True if the table has inlined rows."""
    meta = form.catalog.meta
    listed = f"SELECT table_name FROM {meta('ducklake_inlined_data_tables')} WHERE table_id = {table_id}"
    return any(form.catalog.ask(f"SELECT 1 FROM {meta(name)} LIMIT 1") for (name,) in form.catalog.ask(listed))


def widen_first(form: Commits, work: Work, ref: TableRef, snapshot: Snapshot, definition: DuckLakeDefinition) -> None:
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
    if work is form.together:
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
        if snapshot.format_state.inlined and _lie_in_catalog(form, snapshot.format_state.id):
            base = flush_table(form, ref) or base

        def change(alone: Work) -> None:
            if alone.base != base:
                raise CommitTaken(f"snapshot {alone.base} of the lake came meanwhile")
            for statement in changed_sql(alone.table(ref), before, after):
                alone.execute(statement)
            alone.note(ref, {"mode": "alter", "reason": "types that the rows of the next commit ask for"})

        version = form.once(change, snapshot.format_state.epoch)
        form.states.forget()
        raise WentAhead(f"the types of {', '.join(wider)} were widened", version)

    work.instead = widen
