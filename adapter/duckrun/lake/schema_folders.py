"""Schemas as folders: a marker file creates an empty one, and the last removal deletes it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Set
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from duckrun.values.names import DROPPED, RESERVED, name_of

if TYPE_CHECKING:
    from duckrun.lake.lake import Lake

_MADE = "schema"  # a file that a schema without tables has, on an object store too
_LOCKS = "locks"


def make(lake: Lake, schema: str) -> None:
    """Create a schema without tables; an existing one is no error."""
    lake.storage.put(f"{lake.folder(schema)}/{RESERVED}/{_MADE}", b"")


def others(lake: Lake, schema: str, tables: Set[str]) -> Iterator[str]:
    """Yield the contents of a schema's folder that are no table, view or internal file."""
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


def remove(lake: Lake, schema: str) -> None:
    """Remove the rest of a schema without tables and views.

    Other files stay and keep the schema. So does a table that was created meanwhile.
    """
    top = lake.schema_ref(schema).location
    lake.storage.remove(f"{lake.folder(schema)}/{RESERVED}/{_MADE}")
    if lake.storage.is_local:
        for doomed in Path(top).glob(f"{DROPPED}*"):
            shutil.rmtree(doomed, ignore_errors=True)  # another drop may be removing it too
        for folder in (*_empty(lake, schema), Path(top, RESERVED), Path(top)):
            with suppress(OSError):  # it is not empty, or not there
                folder.rmdir()


def _empty(lake: Lake, schema: str) -> list[Path]:
    """Return the folders inside a schema's folder; an abandoned first write may have left one."""
    top = lake.folder(schema)
    return [Path(lake.root, top, folder) for folder in lake.storage.list_names(top)[0]]


def _of_a_first_write(path: str) -> bool:
    """True for a data file of a table's first write, running or abandoned."""
    name = path.rpartition("/")[2]
    return name.startswith("part-") and name.endswith(".parquet")
