"""Search for cyclic garbage during a dbt command.

dbt's modules and manifest are a million objects that live until the command ends. Each full search
visits all of them, which takes a tenth of a second or more. Without the rules of this module the
searches take 15 to 20 % of a command's processor time.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from duckrun.sql.collector import threshold_at_least

_YOUNG = 10_000
"""Number of new objects before a search of the youngest ones; Python's default is 700.

Most objects of a rendered macro are dropped before that, so no search visits them. They take a few
megabytes.
"""

_LOCK = threading.Lock()
_commands = 0
"""Number of dbt commands of this process that are running and have frozen objects."""


@contextmanager
def sparing() -> Iterator[None]:
    """Exclude the objects that exist now from all searches until the end of the block.

    A host that has frozen objects itself keeps its policy: unfreezing would release them too.
    """
    global _commands
    with _LOCK:
        is_ours = bool(_commands) or not gc.get_freeze_count()
        if is_ours:
            _commands += 1
            gc.freeze()
    try:
        with threshold_at_least(_YOUNG):
            yield
    finally:
        if is_ours:
            with _LOCK:
                _commands -= 1
                if not _commands:
                    gc.unfreeze()


def spare() -> None:
    """Exclude further objects, such as a loaded manifest, until the end of sparing()."""
    with _LOCK:
        if _commands:
            gc.freeze()
