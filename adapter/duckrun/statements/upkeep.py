"""Statements that keep a DuckLake in order, carried out."""

from __future__ import annotations

from typing import Any

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.lake.lake import Lake
from duckrun.lake.lakes import Lakes
from duckrun.statements.reading import locate
from duckrun.statements.values import Done, InlineRows, OfLake
from duckrun.values.snapshot import TableRef
from duckrun.values.tables import MaintenanceResult


def check(lakes: Lakes, statement: OfLake) -> None:
    """Raise UnsupportedFeature for a lake of another format, ReadOnlyLake, and what a name may raise: before anything runs."""
    lake, ref = _place(lakes, statement)
    if lake.format.whole is None:
        raise UnsupportedFeature(
            f"CALL and CHECKPOINT are of lakes of format ducklake, and lake {lake.root} is of format {lake.format.name}: there OPTIMIZE and VACUUM keep each "
            "table in order."
        )
    lake.ensure_writable(ref or lake.schema_ref(lake.default_schema))


def carry_out(session: Any, statement: OfLake) -> MaintenanceResult | Done:
    """What upkeep did; a Done for an option."""
    lake, ref = _place(session.lakes, statement)
    if isinstance(statement, InlineRows):
        whole = lake.format.whole
        assert whole is not None, "check() has refused a lake without"
        whole.set_inline_rows(statement.rows, ref)
        return Done("CALL set_option", str(ref) if ref is not None else lake.root, "duckdb")
    found: MaintenanceResult = session.maintain(statement.spec, ref, lake=lake)
    return found


def _place(lakes: Lakes, statement: OfLake) -> tuple[Lake, TableRef | None]:
    if statement.table is not None:
        found = locate(lakes, statement.table)
        if found.view is not None:
            raise InvalidConfig(f"{found.ref} is a view, which has no files.")
        return found.lake, found.ref
    return (lakes.lake if statement.lake is None else lakes.named(statement.lake, statement.lake)), None
