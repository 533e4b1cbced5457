"""Schemas that are folders: made by a file where they have no table, and gone with the last of what is in them."""

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
    """Make a schema that has no tables yet; one that is there is fine."""
    lake.storage.put(f"{lake.folder(schema)}/{RESERVED}/{_MADE}", b"")


def others(lake: Lake, schema: str, tables: Set[str]) -> Iterator[str]:
    """What lies in the folder of a schema and is none of its ``tables``, no view, and no file of ours."""
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
    """Remove what is left of a schema without tables and views. Other files stay, and keep it, as does a table that came meanwhile."""
    top = lake.schema_ref(schema).location
    lake.storage.remove(f"{lake.folder(schema)}/{RESERVED}/{_MADE}")
    if lake.storage.is_local:
        for doomed in Path(top).glob(f"{DROPPED}*"):
            shutil.rmtree(doomed, ignore_errors=True)  # another drop may be removing it too
        for folder in (*_empty(lake, schema), Path(top, RESERVED), Path(top)):
            with suppress(OSError):  # it is not empty, or not there
                folder.rmdir()


def _empty(lake: Lake, schema: str) -> list[Path]:
    """The folders in that of a schema; a table that was never made may have left one."""
    top = lake.folder(schema)
    return [Path(lake.root, top, folder) for folder in lake.storage.list_names(top)[0]]


def _of_a_first_write(path: str) -> bool:
    """True for a data file of a table that is being made, or was not in the end."""
    name = path.rpartition("/")[2]
    return name.startswith("part-") and name.endswith(".parquet")
