"""Folders in which files lie for a while below the root of a lake, outside of its data: what Spark's workers wrote for DuckDB to apply, and
what DuckDB computed for them to read.

On disk the process that made a folder holds the lock of a file beside it. Nobody holds that of a process which was killed, so that the next
one which makes a folder, and the lake's maintenance, remove what it left. A store has no locks: there a folder goes by its age.
"""

from __future__ import annotations

import shutil
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from filelock import FileLock, Timeout

from duckrun.errors import DuckrunError
from duckrun.storage.locks import file_lock
from duckrun.storage.storage import Storage
from duckrun.values.upkeep import WEEK

SCRATCH = "_duckrun/scratch"
"""Where, below the root of a lake, such folders lie."""
_LOCK = ".lock"
YOUNGEST = timedelta(days=1)
"""In a store nothing is removed that is younger, whatever is asked for: it may be of a process that lives."""


@contextmanager
def scratch(storage: Storage) -> Iterator[str]:
    """The place of a new folder, which is removed at the end of the block; those of processes that were killed are removed before."""
    base = f"{storage.root}/{SCRATCH}"
    with suppress(DuckrunError, OSError):  # it is in nobody's way: the lake's maintenance says what is wrong
        remove_left(storage, datetime.now(UTC) - WEEK)
    with ExitStack() as stack:
        folder = f"{base}/{uuid.uuid4().hex}"
        while storage.is_local:
            lock = Path(f"{folder}{_LOCK}")
            stack.enter_context(file_lock(lock, f"lake {storage.root}"))
            if lock.exists():
                break
            folder = f"{base}/{uuid.uuid4().hex}"  # one who cleans up met the file before its lock was held
        try:
            yield folder
        finally:
            _remove(storage, folder)


def remove_left(storage: Storage, older_than: datetime, *, dry_run: bool = False) -> list[str]:
    """Remove the folders of processes that live no more: their files. Where no lock tells that, a folder goes whose newest file is older than
    ``older_than``, and a day. With ``dry_run`` they are only named.
    """
    found = _left_on_disk(storage, older_than) if storage.is_local else _left_in_store(storage, older_than)
    removed = []
    for folder, files in found:
        removed += files
        if not dry_run:
            _remove(storage, folder)
    return removed


def _left_on_disk(storage: Storage, older_than: datetime) -> Iterator[tuple[str, list[str]]]:
    """The folders whose owner is gone, each while its lock is held, with their files."""
    base = Path(storage.root, SCRATCH)
    for name in sorted({each.name.removesuffix(_LOCK) for each in base.iterdir()}) if base.is_dir() else ():
        folder = base / name
        files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
        if not Path(f"{folder}{_LOCK}").exists() and not _all_older(files, older_than):
            continue
        lock = FileLock(f"{folder}{_LOCK}", thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            continue
        try:
            yield folder.as_posix(), [path.as_posix() for path in files]
        finally:
            lock.release()


def _all_older(files: list[Path], moment: datetime) -> bool:
    try:
        return all(path.stat().st_mtime < moment.timestamp() for path in files)
    except FileNotFoundError:  # somebody removes them now
        return False


def _left_in_store(storage: Storage, older_than: datetime) -> Iterator[tuple[str, list[str]]]:
    base, moment = f"{storage.root}/{SCRATCH}", min(older_than, datetime.now(UTC) - YOUNGEST)
    folders: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for each in storage.keys(base):
        folders[each["path"].partition("/")[0]].append((f"{base}/{each['path']}", each["modified"]))
    for name, files in folders.items():
        if all(modified < moment.timestamp() for _, modified in files):
            yield f"{base}/{name}", [path for path, _ in files]


def _remove(storage: Storage, folder: str) -> None:
    """Remove a folder, and the file of its lock. What cannot be removed now is left for the next one who cleans up."""
    with suppress(DuckrunError, OSError):
        if storage.is_local:
            shutil.rmtree(folder, ignore_errors=True)
            Path(f"{folder}{_LOCK}").unlink(missing_ok=True)
        else:
            storage.remove_below(folder, [str(each["path"]) for each in storage.keys(folder)])
