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


def entries(folder: str | Path) -> tuple[list[str], list[str]]:
    """Return the names of the folders and of the whole files in a local folder, unopened."""
    folders, files = _entries(folder)
    return [each.name for each in folders], [each.name for each in files]


def _entries(folder: str | Path) -> tuple[list[os.DirEntry[str]], list[os.DirEntry[str]]]:
    """Return the folders and the whole files in a local folder, by name."""
    try:
        with os.scandir(folder) as scan:
            listed = [(each, _is_folder(each)) for each in sorted(scan, key=lambda each: each.name)]
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    except OSError as error:
        raise StorageError(f"Cannot list {folder}: {error.strerror}.") from error
    files = [each for each, is_dir in listed if not is_dir and not _UNFINISHED.search(each.name)]
    return [each for each, is_dir in listed if is_dir], files


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def files_below(location: str | Path, prefix: str) -> Iterator[dict[str, Any]]:
    """Yield all files below ``location/prefix``.

    Each has ``path`` (relative to the location), ``size`` and ``modified`` (seconds since 1970).
    """
    folders, files = _entries(os.path.join(location, prefix))
    within = f"{prefix}/" if prefix else ""
    for file in files:
        with suppress(FileNotFoundError):  # a reader of a folder that others write
            status = file.stat()
            yield {"path": f"{within}{file.name}", "size": status.st_size, "modified": status.st_mtime}
    for folder in folders:
        yield from files_below(location, f"{within}{folder.name}")


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
