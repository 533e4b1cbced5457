"""dbt's snapshots: the rows that its snapshot query found become one merge of the snapshot's table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from dbt.adapters.duckrun.materialize.build import Build
from dbt.adapters.duckrun.materialize.response import DuckrunResponse
from dbt.adapters.duckrun.materialize.strategy import Write
from dbt.adapters.duckrun.model.values import match

from duckrun.errors import InvalidConfig
from duckrun.sql.names import quote_identifier
from duckrun.values.rows import MergeClause, MergeSpec, WriteSpec

_CHANGE = "dbt_change_type"
_NEW_ID = "__duckrun_scd_id"


@dataclass(frozen=True)
class SnapshotColumns:
    """How a snapshot names the columns that dbt adds, and what its open rows hold as the end of their validity."""

    scd_id: str
    valid_to: str
    open_until: str | None  # SQL; None: NULL

    @classmethod
    def parse(cls, columns: Mapping[str, str], model: Mapping[str, Any]) -> Self:
        config = model.get("config") or {}
        return cls(columns["dbt_scd_id"], columns["dbt_valid_to"], config.get("dbt_valid_to_current"))


def snapshot_merge(build: Build, sql: str, columns: SnapshotColumns) -> DuckrunResponse:
    """Close the rows that changed or went, and add the new ones, in one merge.

    A row of the source that only adds one gets no key: so it never matches, and a row that comes back with the id it
    had is added again, as dbt-duckdb's own update and insert do.
    """

    def plan(staging: str, source: list[str]) -> Write:
        target = build.target()
        scd_id = match(columns.scd_id, target.schema.names)
        valid_to = match(columns.valid_to, target.schema.names)
        if scd_id is None or valid_to is None:
            raise InvalidConfig(
                f"{build.config.node}: table {build.ref} has no column {columns.scd_id} or {columns.valid_to}: it is no "
                "snapshot, or its columns had other names. Rename it or drop it."
            )
        helpers = {_CHANGE, "dbt_unique_key"}
        columns_kept = [c for c in source if c.lower() not in helpers and not c.lower().startswith("dbt_unique_key_")]
        change, end = f"source.{quote_identifier(_CHANGE)}", f"target.{quote_identifier(valid_to)}"
        open_row = f"{end} is null"
        if columns.open_until is not None:
            open_row = f"({open_row} or {end} = ({columns.open_until}))"
        values = {match(c, target.schema.names) or c: f"source.{quote_identifier(c)}" for c in columns_kept} | {
            scd_id: f"source.{quote_identifier(_NEW_ID)}"
        }
        spec = MergeSpec(
            keys=(scd_id,),
            clauses=(
                MergeClause(
                    "matched_update",
                    condition=f"{change} in ('update', 'delete') and {open_row}",
                    set={valid_to: f"source.{quote_identifier(valid_to)}"},
                ),
                MergeClause("not_matched_insert", condition=f"{change} = 'insert'", set=values),
            ),
        )
        types = build.stage.engine.column_types(target)

        def typed(name: str) -> str:
            """A column in the type that it has in the table, as an INSERT of SQL casts it."""
            known = match(name, target.schema.names)
            cast = quote_identifier(name) if known is None else f"cast({quote_identifier(name)} as {types[known]})"
            return f"{cast} as {quote_identifier(name)}"

        id_, listed = quote_identifier(scd_id), ", ".join(typed(c) for c in columns_kept if c.lower() != scd_id.lower())
        select = (
            f"select {listed}, {quote_identifier(_CHANGE)}, {id_} as {quote_identifier(_NEW_ID)}, "
            f"case when {quote_identifier(_CHANGE)} <> 'insert' then {id_} end as {id_} from {quote_identifier(staging)}"
        )
        new = [c for c in columns_kept if match(c, target.schema.names) is None]
        if not new:
            return Write(spec, select)
        widened = ", ".join(typed(c) for c in columns_kept)
        widen = WriteSpec(mode="append", schema_mode="append_new_columns")
        return Write(
            spec, select, widen=widen, widen_select=f"select {widened} from {quote_identifier(staging)} limit 0"
        )

    return build.staged(sql, plan)
