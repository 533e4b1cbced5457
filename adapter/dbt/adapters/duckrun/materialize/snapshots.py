"""dbt's snapshots: the rows of its snapshot query become one merge of the snapshot's table."""

from __future__ import annotations

from collections.abc import Mapping

from dbt.adapters.duckrun.materialize.strategy import Staged, Write
from dbt.adapters.duckrun.model.config import ModelConfig
from dbt.adapters.duckrun.model.values import match

from duckrun.errors import InvalidConfig
from duckrun.sql.quoting import quote_identifier
from duckrun.values.frozen import frozen
from duckrun.values.rows import MergeClause, MergeSpec, WriteSpec

_CHANGE = "dbt_change_type"
_NEW_ID = "__duckrun_scd_id"


@frozen
class SnapshotColumns:
    """The names of the columns that dbt adds, and the end of validity of open rows."""

    scd_id: str
    valid_to: str
    open_until: str | None  # SQL; None: NULL


def plan_snapshot(columns: SnapshotColumns, config: ModelConfig, staged: Staged, types: Mapping[str, str]) -> Write:
    """Return one merge that closes changed and deleted rows, and adds new rows.

    Args:
        columns: The columns that dbt adds.
        config: The snapshot's config.
        staged: The rows and the snapshot's table.
        types: The SQL types of the target's columns.
    """
    assert staged.target is not None, "dbt creates the table of a snapshot by its own SELECT"
    known, staging = staged.target.schema.names, quote_identifier(staged.name)
    scd_id, valid_to = match(columns.scd_id, known), match(columns.valid_to, known)
    if scd_id is None or valid_to is None:
        raise InvalidConfig(
            f"{config.node}: table {staged.table} has no column {columns.scd_id} or {columns.valid_to}: it is no "
            "snapshot, or its columns had other names. Rename it or drop it."
        )
    helpers = {_CHANGE, "dbt_unique_key"}
    columns_to_store = [
        c for c in staged.columns if c.lower() not in helpers and not c.lower().startswith("dbt_unique_key_")
    ]
    change, end = f"source.{quote_identifier(_CHANGE)}", f"target.{quote_identifier(valid_to)}"
    open_row = f"{end} is null"
    if columns.open_until is not None:
        open_row = f"({open_row} or {end} = ({columns.open_until}))"
    values = {match(c, known) or c: f"source.{quote_identifier(c)}" for c in columns_to_store}
    closes = MergeClause(
        "matched_update",
        condition=f"{change} in ('update', 'delete') and {open_row}",
        set={valid_to: f"source.{quote_identifier(valid_to)}"},
    )
    adds = MergeClause(
        "not_matched_insert",
        condition=f"{change} = 'insert'",
        set=values | {scd_id: f"source.{quote_identifier(_NEW_ID)}"},
    )
    # Cast to the table's types, as an INSERT of SQL does.
    typed = {
        name: f"{quote_identifier(name) if there is None else f'cast({quote_identifier(name)} as {types[there]})'} as "
        f"{quote_identifier(name)}"
        for name, there in ((name, match(name, known)) for name in columns_to_store)
    }
    # A source row that is only an insert gets no key, so it never matches. A row that comes back
    # with its old id is then inserted again, as dbt-duckdb's own update and insert do.
    id_ = quote_identifier(scd_id)
    others = ", ".join(sql for name, sql in typed.items() if name.lower() != scd_id.lower())
    select = (
        f"select {others}, {quote_identifier(_CHANGE)}, {id_} as {quote_identifier(_NEW_ID)}, "
        f"case when {quote_identifier(_CHANGE)} <> 'insert' then {id_} end as {id_} from {staging}"
    )
    spec = MergeSpec(keys=(scd_id,), clauses=(closes, adds), **config.writing)
    if all(match(name, known) for name in columns_to_store):
        return Write(spec, select)
    widen_select = f"select {', '.join(typed.values())} from {staging} limit 0"
    widen = WriteSpec(mode="append", schema_mode="append_new_columns", writer=config.writer)
    return Write(spec, select, widen, widen_select)
