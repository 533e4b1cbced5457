"""A process with the imports done, that forks writers of a DuckLake for each line it is given. Run by test_processes.py.

A line of JSON names the ``jobs``, one process each, which begin together once all of their sessions are open; with ``kill_after`` all of
them are killed so many seconds later. The answer is a line with how each ended. A fork before any thread is started is as good as a new
process, and ten times as fast.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import pyarrow as pa

import duckrun
from duckrun import AppTransaction, MergeClause, MergeSpec, Session, WriteSpec

COUNTING = (
    MergeClause("matched_update", set={"n": "target.n + 1"}),
    MergeClause("not_matched_insert"),
)
IDS = 40


def appended(who: int, number: int) -> pa.Table:
    """The rows of one append: ten, of which no other has one."""
    first = (who * 100_000 + number) * 10
    return pa.table({"id": pa.array(range(first, first + 10), pa.int64())})


def merged(who: int, number: int) -> list[int]:
    """The ids that one merge counts."""
    return random.Random(who * 1000 + number).sample(range(IDS), 8)


def append(session: Session, job: dict[str, Any]) -> None:
    for number in range(job["count"]):
        session.execute("main.t", WriteSpec("append"), appended(job["who"], number))


def merge(session: Session, job: dict[str, Any]) -> None:
    for number in range(job["count"]):
        ids = merged(job["who"], number)
        rows = pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array([1] * len(ids), pa.int64())})
        session.execute("main.t", MergeSpec(("id",), COUNTING), rows)


def pairs(session: Session, job: dict[str, Any]) -> None:
    """Transactions over two tables: a row in each, and how many there are by now in a third."""
    for step in range(job["count"]):
        app = AppTransaction(f"chain-{job['chain']}", step)
        rows = pa.table({"chain": pa.array([job["chain"]], pa.int64()), "step": pa.array([step], pa.int64())})
        if step % 2 == 0:
            with session.transaction():
                session.execute("main.a", WriteSpec("append", app=app), rows)
                session.execute("main.b", WriteSpec("append", app=app), rows)
        else:
            session.sql("begin")
            session.sql(f"insert into main.a values ({job['chain']}, {step})", app=app)
            session.execute("main.b", MergeSpec(("chain", "step"), app=app), rows)
            session.sql("commit")


WORK = {"append": append, "merge": merge, "pairs": pairs}


def write(job: dict[str, Any], ready: int, go: int) -> None:
    with duckrun.connect(job["root"], format="ducklake", catalog=job["catalog"], memory_limit="512MB") as session:
        session.sql("SELECT 1").toArrow()
        os.write(ready, b"r")
        os.read(go, 1)
        WORK[job["work"]](session, job)


def carry_out(jobs: list[dict[str, Any]], kill_after: float | None) -> list[int]:
    """How each of the processes ended: 0, 1 for an error, -9 for a kill."""
    ready, said_ready = os.pipe()
    go, said_go = os.pipe()
    children = []
    for job in jobs:
        child = os.fork()
        if child == 0:
            try:
                write(job, said_ready, go)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
            os._exit(0)
        children.append(child)
    os.close(said_ready)  # a child that fails before it is ready closes the last of these
    left = len(jobs)
    while left and (came := os.read(ready, left)):
        left -= len(came)
    os.write(said_go, b"g" * len(jobs))
    if kill_after is not None:
        time.sleep(kill_after)
        for child in children:
            os.kill(child, signal.SIGKILL)  # not waited for yet, so that nobody else has its id
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    for end in (ready, go, said_go):
        os.close(end)
    return ended


class Writers:
    """The process of this file, as the tests have it."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.ducklake.writers"],
            cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, start_new_session=True,
        )  # fmt: skip

    def run(self, *jobs: dict[str, Any], kill_after: float | None = None) -> list[int]:
        """Carry out jobs, each in a process of its own, all at once."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps({"jobs": jobs, "kill_after": kill_after}) + "\n")
        line = self.process.stdout.readline()
        assert line, "the process that forks writers has ended"
        return list(json.loads(line))

    def close(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


if __name__ == "__main__":
    while line := sys.stdin.readline():
        asked = json.loads(line)
        print(json.dumps(carry_out(asked["jobs"], asked["kill_after"])), flush=True)
