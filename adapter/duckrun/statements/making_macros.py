"""CREATE MACRO and DROP MACRO, looked at and carried out."""

from __future__ import annotations

from duckrun.errors import InvalidConfig, TableNotFound
from duckrun.lake.lake import Lake
from duckrun.lake.lakes import Lakes
from duckrun.sql.functions import is_of_duckdb
from duckrun.statements.macros import place
from duckrun.statements.parse.parts import unsupported
from duckrun.statements.values import CreateMacro, DropMacro
from duckrun.values.macros import Macro, MacroForm
from duckrun.values.nearest import did_you_mean


def check(lakes: Lakes, statement: CreateMacro | DropMacro) -> None:
    """Raise UnsupportedFeature for a lake that keeps none, ReadOnlyLake, InvalidConfig for a name that is taken: before anything runs."""
    what = "CREATE MACRO" if isinstance(statement, CreateMacro) else "DROP MACRO"
    lake, schema, name = place(lakes, statement.target)
    if not lake.format.transacts:
        raise unsupported(f"{what} on a lake of format {lake.format.name}")
    lake.check_name(schema)
    lake.check_name(name)
    lake.ensure_writable(lake.schema_ref(schema))
    if isinstance(statement, CreateMacro) and is_of_duckdb(name):
        raise InvalidConfig(f"{name}() is a function of DuckDB's own; choose another name for the macro.")


def create(lakes: Lakes, statement: CreateMacro, sql: str) -> tuple[str, str]:
    """Make a macro of a text with full names; its name, and why it was not made where that is fine."""
    lake, schema, name = place(lakes, statement.target)
    before = _like(lake, schema, name)
    if before is not None and statement.if_exists == "ignore":
        return str(before), "the macro exists already"
    if before is not None and statement.if_exists == "error":
        raise InvalidConfig(f"Macro {before} exists already; CREATE OR REPLACE MACRO puts this one in its place.")
    made = Macro(
        schema, name if before is None else before.name, (MacroForm(statement.parameters, sql, statement.is_table),)
    )
    if before is not None and before == made:
        return str(made), "the macro is so already"
    lake.put_macro(made)
    return str(made), ""


def drop(lakes: Lakes, statement: DropMacro) -> tuple[str, str]:
    """Drop a macro; its name, and why nothing was done where that is fine. Raises TableNotFound with the nearest."""
    lake, schema, name = place(lakes, statement.target)
    found = _like(lake, schema, name)
    if found is None:
        if statement.if_exists:
            return f"{schema}.{name}", "there is no such macro"
        known = [str(macro) for macro in lake.macros().values()]
        raise TableNotFound(f"There is no macro {schema}.{name} to drop.{did_you_mean(f'{schema}.{name}', known)}")
    lake.drop_macro(lake.schema_ref(found.schema), found.name)
    return str(found), ""


def _like(lake: Lake, schema: str, name: str) -> Macro | None:
    return next(
        (m for (s, n), m in lake.macros().items() if (s.lower(), n.lower()) == (schema.lower(), name.lower())), None
    )
