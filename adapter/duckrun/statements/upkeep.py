"""Execution of maintenance statements of a DuckLake."""

from __future__ import annotations

from typing import Any

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.formats.format import transactions_of
from duckrun.lake.lake import Lake
from duckrun.lake.lakes import Lakes
from duckrun.statements.reading import locate
from duckrun.statements.values import Done, InlineRows, OfLake
from duckrun.values.snapshot import TableRef
from duckrun.values.tables import MaintenanceResult


def check(lakes: Lakes, statement: OfLake) -> None:
    """Check a statement before anything runs.

    Raises:
        UnsupportedFeature: for a lake of another format.
        ReadOnlyLake: for a read-only lake.
        InvalidConfig: for a view.
    """
    lake, ref = _place(lakes, statement)
    if lake.format.transactions is None:
        raise UnsupportedFeature(
            f"CALL and CHECKPOINT are of lakes of format ducklake, and lake {lake.root} is of format "
            f"{lake.format.name}: there OPTIMIZE and VACUUM keep each "
            "table in order."
        )
    lake.ensure_writable(ref or lake.schema_ref(lake.default_schema))


def carry_out(session: Any, statement: OfLake) -> MaintenanceResult | Done:
    """Execute a maintenance statement; return its result, or a Done for an option."""
    lake, ref = _place(session.lakes, statement)
    if isinstance(statement, InlineRows):
        transactions_of(lake.format).set_inline_rows(statement.rows, ref)
        return Done("CALL set_option", str(ref) if ref is not None else lake.root, "duckdb")
    result: MaintenanceResult = session.maintain(statement.spec, ref, lake=lake)
    return result


def _place(lakes: Lakes, statement: OfLake) -> tuple[Lake, TableRef | None]:
    if statement.table is not None:
        located = locate(lakes, statement.table)
        if located.view is not None:
            raise InvalidConfig(f"{located.ref} is a view, which has no files.")
        return located.lake, located.ref
    return (lakes.lake if statement.lake is None else lakes.named(statement.lake, statement.lake)), None
