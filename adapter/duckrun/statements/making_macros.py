"""Checks and execution of CREATE MACRO and DROP MACRO."""

from __future__ import annotations

from duckrun.errors import InvalidConfig, TableNotFound
from duckrun.lake.lake import Lake
from duckrun.lake.lakes import Lakes
from duckrun.sql.duckdb_itself import is_of_duckdb
from duckrun.statements.macros import place
from duckrun.statements.parse.parts import unsupported
from duckrun.statements.values import CreateMacro, DropMacro
from duckrun.values.macros import Macro, MacroForm
from duckrun.values.nearest import did_you_mean


def check(lakes: Lakes, statement: CreateMacro | DropMacro) -> None:
    """Check a statement before anything runs.

    Raises:
        UnsupportedFeature: for a lake whose format has no macros.
        ReadOnlyLake: for a read-only lake.
        InvalidConfig: for the name of a DuckDB function.
    """
    what = "CREATE MACRO" if isinstance(statement, CreateMacro) else "DROP MACRO"
    lake, schema, name = place(lakes, statement.target)
    if not lake.has_catalog:
        raise unsupported(f"{what} on a lake of format {lake.format.name}")
    lake.check_name(schema)
    lake.check_name(name)
    lake.ensure_writable(lake.schema_ref(schema))
    if isinstance(statement, CreateMacro) and is_of_duckdb(name):
        raise InvalidConfig(f"{name}() is a function of DuckDB's own; choose another name for the macro.")


def create(lakes: Lakes, statement: CreateMacro, sql: str) -> tuple[str, str]:
    """Store a macro.

    Args:
        lakes: the lakes of the session.
        statement: the CREATE MACRO.
        sql: the macro's text with qualified names.

    Returns:
        The macro's name, and the reason if nothing was stored, else "".

    Raises:
        InvalidConfig: if the macro exists, and the statement replaces none.
    """
    lake, schema, name = place(lakes, statement.target)
    before = _like(lake, schema, name)
    if before is not None and statement.if_exists == "ignore":
        return str(before), "the macro exists already"
    if before is not None and statement.if_exists == "error":
        raise InvalidConfig(f"Macro {before} exists already; CREATE OR REPLACE MACRO puts this one in its place.")
    macro = Macro(
        schema, name if before is None else before.name, (MacroForm(statement.parameters, sql, statement.is_table),)
    )
    if before is not None and before == macro:
        return str(macro), "the macro is so already"
    lake.put_macro(macro)
    return str(macro), ""


def drop(lakes: Lakes, statement: DropMacro) -> tuple[str, str]:
    """Drop a macro.

    Returns:
        The macro's name, and the reason if nothing was dropped, else "".

    Raises:
        TableNotFound: for an unknown macro, with the nearest names.
    """
    lake, schema, name = place(lakes, statement.target)
    existing = _like(lake, schema, name)
    if existing is None:
        if statement.if_exists:
            return f"{schema}.{name}", "there is no such macro"
        known = [str(macro) for macro in lake.macros().values()]
        raise TableNotFound(f"There is no macro {schema}.{name} to drop.{did_you_mean(f'{schema}.{name}', known)}")
    lake.drop_macro(lake.schema_ref(existing.schema), existing.name)
    return str(existing), ""


def _like(lake: Lake, schema: str, name: str) -> Macro | None:
    return next(
        (m for (s, n), m in lake.macros().items() if (s.lower(), n.lower()) == (schema.lower(), name.lower())), None
    )
