"""Lock of the publishes of a lake: in its folder, or of this machine for a lake in a store."""

from __future__ import annotations

import hashlib
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from duckrun.branches import registry
from duckrun.lake.lake import Lake
from duckrun.storage.locks import file_lock
from duckrun.values.names import RESERVED


@contextmanager
def alone(lake: Lake) -> Iterator[str]:
    """Hold the lock of publishes of a lake; yield an id of the processes that can wait for it.

    A store has no locks: put-if-absent decides between machines. Whoever holds the lock of this
    machine knows that its other attempts have ended.
    """
    if lake.storage.is_local:
        with file_lock(Path(lake.root, RESERVED, "locks", "publish.lock"), f"lake {lake.root}"):
            yield ""
        return
    name = hashlib.sha256(lake.root.encode()).hexdigest()[:24]
    lock = Path(tempfile.gettempdir(), f"duckrun-publish-{registry.user()}", f"{name}.lock")
    with file_lock(lock, f"lake {lake.root}"):
        machine = lock.with_suffix(".id")
        if not machine.exists():
            machine.write_text(uuid.uuid4().hex)
        yield machine.read_text()
