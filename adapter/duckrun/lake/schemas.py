"""Dropping of schemas with their contents."""

from __future__ import annotations

from duckrun.errors import InvalidConfig
from duckrun.lake.lake import Lake
from duckrun.values.snapshot import TableRef


def droppable(lake: Lake, schema: str, *, cascade: bool) -> list[TableRef]:
    """Return the tables and views to drop with a schema.

    Raises:
        InvalidConfig: There are some and ``cascade`` is False, or the folder has files of others.
    """
    lake.check_name(schema)
    top = lake.schema_ref(schema)
    lake.ensure_writable(top)
    tables, views = lake.tables(schema), lake.views(schema)
    names = sorted({*tables, *views})
    if names and not cascade:
        shown = f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
        raise InvalidConfig(f"Schema {schema} holds {shown}; drop them, or DROP SCHEMA {schema} CASCADE.")
    known = {*tables}
    while (others := list(lake.others_in(schema, known))) and (came := {*lake.tables(schema)} - known):
        known |= came  # a table that is made just now is none of them, and not this drop's either
    if others:
        raise InvalidConfig(
            f"Schema {schema} was not dropped: {top.location} holds "
            f"{', '.join(others[:3])}{f' and {len(others) - 3} more' if len(others) > 3 else ''}, which is no "
            "table or view of this lake",
            remedy="move it, or drop the tables one by one",
        )
    return [lake.resolve(schema, name) for name in names]


def drop_schema(lake: Lake, schema: str) -> bool:
    """Remove the rest of a schema without tables and views; True if it is gone.

    Other files stay and keep the schema. So does a table that was created meanwhile.
    """
    lake.check_name(schema)
    lake.ensure_writable(lake.schema_ref(schema))
    lake.remove_schema(schema)
    return schema not in lake.schemas()
