"""Locks of tables on local paths: one commit at a time, across engines and processes."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from filelock import FileLock, Timeout

from duckrun.errors import ReadOnlyLake, StorageError
from duckrun.values.snapshot import TableRef

log = logging.getLogger(__name__)

_AGAIN = 0.01
"""Seconds between two tries. A longer wait loses to a holder that takes the lock again at once."""


def table_lock(ref: TableRef, is_local: bool) -> AbstractContextManager[None]:
    """Hold a table's OS lock, which the operating system frees when its holder dies.

    On an object store nothing is locked: the store's put-if-absent decides alone.
    """
    return file_lock(lock_path(ref), f"table {ref}") if is_local else nullcontext()


@contextmanager
def file_lock(path: Path, what: str) -> Iterator[None]:
    """Hold the operating system's lock of a file, which is created if missing.

    Args:
        what: Object that the lock protects, for messages.

    Raises:
        StorageError: The folder of the file cannot be created.
        ReadOnlyLake: The file cannot be written.
    """
    cannot = f"{what[0].upper()}{what[1:]} cannot be written"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{cannot}: cannot make {path.parent} ({error}).") from error
    lock = FileLock(str(path), thread_local=False)
    waited = 0
    while True:
        try:
            lock.acquire(timeout=30, poll_interval=_AGAIN)
            break
        except Timeout:
            waited += 30
            log.info("waiting for another writer of %s, %s s so far", what, waited)
        except PermissionError as error:
            raise ReadOnlyLake(f"{cannot}: no permission for {path}.") from error
    try:
        yield
    finally:
        lock.release()


def try_file_lock(path: Path) -> FileLock | None:
    """Hold the lock of a file until its release or the end of the process; None if it is taken.

    The file is created if missing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(str(path), thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return None
    return lock


def lock_path(ref: TableRef) -> Path:
    """Return the lock file of a table.

    It lies beside the table's folder, so that it exists before the table and outlives it.
    """
    folder = Path(ref.location)
    digest = hashlib.sha1(folder.name.encode()).hexdigest()[:8]
    begins = folder.name.encode()[:80].decode(errors="ignore")
    return folder.parent / "_duckrun" / "locks" / f"{begins}-{digest}.lock"
