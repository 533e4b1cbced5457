"""Temporary folders below the root of a lake, outside of its data.

Spark's workers write rows there for DuckDB to apply, and DuckDB writes rows for them to read.

On a disk, the process that creates a folder locks a file beside it. The lock of a killed process is
free. The next process that creates a folder, or the lake's maintenance, then removes the folder. An
object store has no locks, so folders are removed by age.
"""

from __future__ import annotations

import shutil
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from duckrun.errors import DuckrunError
from duckrun.storage.locks import file_lock, try_file_lock
from duckrun.storage.storage import Storage
from duckrun.values.upkeep import WEEK

SCRATCH = "_duckrun/scratch"
"""Place of the folders below the root of a lake."""
_LOCK = ".lock"
YOUNGEST = timedelta(days=1)
"""Minimum age for removal in an object store: a younger folder may belong to a live process."""


@contextmanager
def scratch(storage: Storage) -> Iterator[str]:
    """Yield the path of a new folder, and remove it at the end of the block.

    Folders of killed processes are removed first.
    """
    base = f"{storage.root}/{SCRATCH}"
    # Leftovers do no harm here. The lake's maintenance reports the error.
    with suppress(DuckrunError, OSError):
        remove_left(storage, datetime.now(UTC) - WEEK)
    with ExitStack() as stack:
        folder = f"{base}/{uuid.uuid4().hex}"
        while storage.is_local:
            lock = Path(f"{folder}{_LOCK}")
            stack.enter_context(file_lock(lock, f"lake {storage.root}"))
            if lock.exists():
                break
            # A clean-up removed the file before it was locked.
            folder = f"{base}/{uuid.uuid4().hex}"
        try:
            yield folder
        finally:
            remove_folder(storage, folder)


def remove_left(storage: Storage, older_than: datetime, *, dry_run: bool = False) -> list[str]:
    """Remove the folders of dead processes, and return the paths of their files.

    Without locks, a folder is removed if its newest file is older than ``older_than`` and a day.

    Args:
        dry_run: Only return the paths.
    """
    folders = _left_on_disk(storage, older_than) if storage.is_local else _left_in_store(storage, older_than)
    removed = []
    for folder, files in folders:
        removed += files
        if not dry_run:
            remove_folder(storage, folder)
    return removed


def _left_on_disk(storage: Storage, older_than: datetime) -> Iterator[tuple[str, list[str]]]:
    """Folders of dead processes with their files. Each is locked while the caller handles it."""
    base = Path(storage.root, SCRATCH)
    for name in sorted({each.name.removesuffix(_LOCK) for each in base.iterdir()}) if base.is_dir() else ():
        folder = base / name
        files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
        if not Path(f"{folder}{_LOCK}").exists() and not _all_older(files, older_than):
            continue
        lock = try_file_lock(Path(f"{folder}{_LOCK}"))
        if lock is None:
            continue
        try:
            yield folder.as_posix(), [path.as_posix() for path in files]
        finally:
            lock.release()


def _all_older(files: list[Path], moment: datetime) -> bool:
    try:
        return all(path.stat().st_mtime < moment.timestamp() for path in files)
    except FileNotFoundError:  # Another process is removing them.
        return False


def _left_in_store(storage: Storage, older_than: datetime) -> Iterator[tuple[str, list[str]]]:
    base, moment = f"{storage.root}/{SCRATCH}", min(older_than, datetime.now(UTC) - YOUNGEST)
    folders: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for each in storage.keys(base):
        folders[each["path"].partition("/")[0]].append((f"{base}/{each['path']}", each["modified"]))
    for name, files in folders.items():
        if all(modified < moment.timestamp() for _, modified in files):
            yield f"{base}/{name}", [path for path, _ in files]


def remove_folder(storage: Storage, folder: str) -> None:
    """Remove a folder and its lock file, if it has one. What fails stays for a later clean-up."""
    with suppress(DuckrunError, OSError):
        if storage.is_local:
            shutil.rmtree(folder, ignore_errors=True)
            Path(f"{folder}{_LOCK}").unlink(missing_ok=True)
        else:
            storage.remove_below(folder, [str(each["path"]) for each in storage.keys(folder)])
