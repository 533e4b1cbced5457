"""Schemas as folders: a marker file creates an empty one, and the last removal deletes it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Set
from contextlib import suppress
from itertools import islice
from pathlib import Path

from duckrun.storage.storage import Storage
from duckrun.values.names import DROPPED, RESERVED, name_of

_MADE = "schema"  # a file that a schema without tables has, on an object store too
_LOCKS = "locks"


def make(storage: Storage, folder: str) -> None:
    """Create a schema without tables; an existing one is no error."""
    storage.put(f"{folder}/{RESERVED}/{_MADE}", b"")


def others(storage: Storage, top: str, tables: Set[str]) -> Iterator[str]:
    """Yield the contents of a schema's folder that are no table, view or internal file."""
    folders, files = storage.list_names(top)
    yield from files
    for folder in folders:
        gone = folder.startswith(DROPPED)  # a drop that was killed left it, and the next one removes it
        if folder != RESERVED and not gone and name_of(folder) not in tables:
            inside = (key["path"] for key in storage.keys(f"{storage.root}/{top}/{folder}"))
            yield from islice((f"{folder}/{path}" for path in inside if not _of_a_first_write(path)), 1)
    folders, files = storage.list_names(f"{top}/{RESERVED}")
    yield from (
        f"{RESERVED}/{name}"
        for name in (*folders, *files)
        if name not in (_LOCKS, _MADE) and not name.endswith(".json")
    )


def remove(storage: Storage, folder: str) -> None:
    """Remove the rest of a schema without tables and views.

    Other files stay and keep the schema. So does a table that was created meanwhile.
    """
    storage.remove(f"{folder}/{RESERVED}/{_MADE}")
    if storage.is_local:
        top = Path(storage.root, folder)
        for doomed in top.glob(f"{DROPPED}*"):
            shutil.rmtree(doomed, ignore_errors=True)  # another drop may be removing it too
        # An abandoned first write may have left an empty folder.
        for empty in (*(top / name for name in storage.list_names(folder)[0]), top / RESERVED, top):
            with suppress(OSError):  # it is not empty, or not there
                empty.rmdir()


def _of_a_first_write(path: str) -> bool:
    """True for a data file of a table's first write, running or abandoned."""
    name = path.rpartition("/")[2]
    return name.startswith("part-") and name.endswith(".parquet")
