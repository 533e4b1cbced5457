"""A process that forks one piece of work on a branch for each line it is given. Run by test_branch_kills.py.

The work may kill itself at one of its writes to the lake, before or after that write.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import deltalake  # noqa: F401 - so that the forked process need not
import pyarrow as pa

import duckrun
from duckrun import AppTransaction, Session, WriteSpec
from duckrun.storage.storage import Storage
from tests.kills.writer import say_ready, serve

WRITES = ("put_at", "put_new", "remove", "remove_files")
"""Methods of Storage that change the lake."""


def die_at(number: int, *, after: bool) -> None:
    """Let this process kill itself at its n-th write."""
    count = 0

    def dying(name: str) -> None:
        write = getattr(Storage, name)

        def instead(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == number and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            written = write(*arguments, **options)
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return written

        setattr(Storage, name, instead)

    for name in WRITES:
        dying(name)


def rows(number: int) -> pa.Table:
    return pa.table({"id": [number * 10 + i for i in range(3)], "round": [number] * 3})


def write(session: Session, job: dict[str, Any]) -> None:
    """The first write to each table, once: it forks the table."""
    for name in job["tables"]:
        spec = WriteSpec("append", app=AppTransaction(f"round {job['round']}"))
        session.execute(name, spec, rows(job["round"]))


def begin(job: dict[str, Any], *, in_branch: bool = False) -> Session:
    session = duckrun.connect(job["lake"], branch=job["branch"] if in_branch else None, memory_limit="512MB")
    say_ready(session)
    if job["dies_at"] is not None:
        die_at(job["dies_at"], after=job["after"])
    return session


def first_write(job: dict[str, Any]) -> None:
    with begin(job, in_branch=True) as session:
        write(session, job)
        Path(job["answer"]).touch()


def call(job: dict[str, Any]) -> None:
    """Publish, rebase or discard the branch."""
    with begin(job) as session:
        getattr(session, job["work"])(job["branch"])
        Path(job["answer"]).touch()


if __name__ == "__main__":
    serve({"write": first_write, "publish": call, "rebase": call, "discard": call})
