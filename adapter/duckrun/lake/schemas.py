"""Schemas as such: made before they have a table, and dropped with what is in them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Set
from contextlib import suppress
from itertools import islice
from pathlib import Path

from duckrun.errors import InvalidConfig
from duckrun.lake.catalogued import CatalogLake
from duckrun.lake.lake import INFORMATION, RESERVED, Lake
from duckrun.values.names import DROPPED, name_of
from duckrun.values.snapshot import TableRef

_MADE = "schema"  # a file that a schema without tables has, on an object store too
_LOCKS = "locks"


def create_schema(lake: Lake, schema: str) -> None:
    """Make a schema that has no tables yet; one that is there is fine. Raises InvalidConfig for a name that is none."""
    lake.check_name(schema)
    if schema.lower() == INFORMATION:
        raise InvalidConfig(f"{schema} is the schema that lists what is in a lake; choose another name.")
    lake.ensure_writable(lake.schema_ref(schema))
    if isinstance(lake, CatalogLake):
        lake.create_schema(schema)
        return
    lake.storage.put(f"{lake.folder(schema)}/{RESERVED}/{_MADE}", b"")


def droppable(lake: Lake, schema: str, *, cascade: bool) -> list[TableRef]:
    """The tables and views that go with a schema. Raises InvalidConfig where there are any and it is not to ``cascade``, and for
    other files in its folder, which are nobody's to remove.
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
    if isinstance(lake, CatalogLake):
        return [lake.resolve(schema, name) for name in names]
    while (others := list(_others(lake, schema, known))) and (came := {*lake.tables(schema)} - known):
        known |= came  # a table that is made just now is none of them, and not this drop's either
    if others:
        raise InvalidConfig(
            f"Schema {schema} was not dropped: {top.location} holds {', '.join(others[:3])}"
            f"{f' and {len(others) - 3} more' if len(others) > 3 else ''}, which is no table or view of this lake. Nothing was "
            "dropped; move it, or drop the tables one by one."
        )
    return [lake.resolve(schema, name) for name in names]


def _others(lake: Lake, schema: str, tables: Set[str]) -> Iterator[str]:
    """What lies in the folder of a schema and is no table, view, or file of ours."""
    top = lake.folder(schema)
    folders, files = lake.storage.list_names(top)
    yield from files
    for folder in folders:
        gone = folder.startswith(DROPPED)  # a drop that was killed left it, and the next one removes it
        if folder != RESERVED and not gone and name_of(folder) not in tables:
            inside = (key["path"] for key in lake.storage.keys(f"{lake.root}/{top}/{folder}"))
            yield from islice((f"{folder}/{path}" for path in inside if not _of_a_first_write(path)), 1)
    folders, files = lake.storage.list_names(f"{top}/{RESERVED}")
    yield from (
        f"{RESERVED}/{name}"
        for name in (*folders, *files)
        if name not in (_LOCKS, _MADE) and not name.endswith(".json")
    )


def _of_a_first_write(path: str) -> bool:
    """True for a data file of a table that is being made, or was not in the end."""
    name = path.rpartition("/")[2]
    return name.startswith("part-") and name.endswith(".parquet")


def drop_schema(lake: Lake, schema: str) -> bool:
    """Remove what is left of a schema without tables and views; whether it is gone. Other files stay, and keep it, as does a
    table that came meanwhile.
    """
    lake.check_name(schema)
    top = lake.schema_ref(schema)
    lake.ensure_writable(top)
    if isinstance(lake, CatalogLake):
        lake.drop_schema(schema)
        return schema not in lake.schemas()
    lake.storage.remove(f"{lake.folder(schema)}/{RESERVED}/{_MADE}")
    if lake.storage.is_local:
        for doomed in Path(top.location).glob(f"{DROPPED}*"):
            shutil.rmtree(doomed, ignore_errors=True)  # another drop may be removing it too
        for folder in (*_empty(lake, schema), Path(top.location, RESERVED), Path(top.location)):
            with suppress(OSError):  # it is not empty, or not there
                folder.rmdir()
    return schema not in lake.schemas()


def _empty(lake: Lake, schema: str) -> list[Path]:
    """The folders in that of a schema; a table that was never made may have left one."""
    top = lake.folder(schema)
    return [Path(lake.root, top, folder) for folder in lake.storage.list_names(top)[0]]
