"""Execution of CREATE SCHEMA and DROP SCHEMA."""

from __future__ import annotations

from collections.abc import Callable

from duckrun.errors import InvalidConfig, TableNotFound, note_commit
from duckrun.lake.lakes import Lakes
from duckrun.lake.schemas import drop_schema, droppable
from duckrun.statements.values import CreateSchema, DropSchema
from duckrun.values.nearest import did_you_mean
from duckrun.values.snapshot import TableRef


def create(lakes: Lakes, statement: CreateSchema) -> str:
    """Create a schema without tables.

    Returns:
        The reason if the schema was not created, else "".

    Raises:
        InvalidConfig: if the schema exists, or has the name of a lake.
    """
    name = ".".join(statement.target)
    lake, schema = lakes.schema_of(statement.target)
    known = lake.schema_named(schema)
    if known is not None and known in lake.schemas():
        if statement.if_not_exists:
            return "the schema exists already"
        raise InvalidConfig(f"Schema {name} exists already; CREATE SCHEMA IF NOT EXISTS {name}.")
    if lake is lakes.own and lakes.is_lake(schema):
        raise InvalidConfig(
            f"{schema} is a lake of this session, so {schema}.x would mean two things: choose another name."
        )
    lake.check_name(schema)
    lake.ensure_writable(lake.schema_ref(schema))
    lake.make_schema(schema)
    return ""


def drop(lakes: Lakes, statement: DropSchema, drop_name: Callable[[TableRef], None], *, in_transaction: bool) -> str:
    """Drop a schema.

    Args:
        lakes: the lakes of the session.
        statement: the DROP SCHEMA; CASCADE drops its tables, views and macros first.
        drop_name: drops a table or view.
        in_transaction: True if the session's transaction commits or takes back all drops.

    Returns:
        The reason if the schema was not dropped, else "".

    Raises:
        TableNotFound: for an unknown schema, with the nearest names.
        InvalidConfig: for a schema that is not empty.
    """
    name = ".".join(statement.target)
    lake, name_of_schema = lakes.schema_of(statement.target)
    schema = lake.schema_named(name_of_schema)
    if schema is None:
        if statement.if_exists:
            return "there is no such schema"
        known = lake.schemas()
        listed = f" Lake {lake.root} has {', '.join(known) or 'none yet'}."
        raise TableNotFound(f"There is no schema {name} to drop.{did_you_mean(name_of_schema, known, listed)}")
    macros = sorted(each for of, each in lake.macros() if of == schema)
    if macros and not statement.cascade:
        raise InvalidConfig(
            f"Schema {schema} holds macro {', '.join(macros)}; drop it, or DROP SCHEMA {schema} CASCADE."
        )
    for ref in droppable(lake, schema, cascade=statement.cascade):
        drop_name(ref)
        if not in_transaction:
            note_commit(f"DROP of {ref}")
    for each in macros:
        lake.drop_macro(lake.schema_ref(schema), each)
    return "" if drop_schema(lake, schema) else "it has tables again, which another session made meanwhile"
