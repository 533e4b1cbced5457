"""Listing of local folders with any file names. obstore fails at names that it cannot encode."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from duckrun.errors import StorageError

_UNFINISHED = re.compile(r"#\d+$")  # as obstore names a local file until it is whole


def entries(folder: Path) -> tuple[list[str], list[str]]:
    """Return the names of the folders and of the whole files in a local folder, unopened."""
    try:
        with os.scandir(folder) as scan:
            listed = [(entry.name, _is_folder(entry)) for entry in scan]
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    except OSError as error:
        raise StorageError(f"Cannot list {folder}: {error.strerror}.") from error
    files = (name for name, is_dir in listed if not is_dir and not _UNFINISHED.search(name))
    return sorted(name for name, is_dir in listed if is_dir), sorted(files)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def files_below(location: Path, prefix: str) -> Iterator[dict[str, Any]]:
    """Yield all files below ``location/prefix``.

    Each has ``path`` (relative to the location), ``size`` and ``modified`` (seconds since 1970).
    """
    folders, files = entries(location / prefix)
    for name in files:
        path = f"{prefix}/{name}" if prefix else name
        with suppress(FileNotFoundError):  # a reader of a folder that others write
            status = (location / path).stat()
            yield {"path": path, "size": status.st_size, "modified": status.st_mtime}
    for name in folders:
        yield from files_below(location, f"{prefix}/{name}" if prefix else name)


def refuse_unwritable(root: str, location: str | None) -> None:
    """Raise StorageError if a root or a table's location cannot be created or written."""
    for file in () if location is None else (location, f"{location}/_delta_log"):  # each write asks: no Path is built
        if os.path.isfile(file):
            raise StorageError(
                f"{file} is a file, where the folder of a table would be",
                remedy="move it, or give the table another name or location",
            )
    nearest = root if os.path.isdir(root) else next(p for p in (Path(root), *Path(root).parents) if p.exists())
    if not os.path.isdir(nearest):
        raise StorageError(f"root_path {root} cannot be used: {nearest} is a file, not a folder.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise StorageError(f"root_path {root} cannot be written: no permission to write in {nearest}.")
