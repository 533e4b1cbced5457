"""A process with the imports done, that forks writers of a DuckLake for each line it is given. Run by test_processes.py.

A line of JSON names the ``jobs``, one process each, which begin together once all of their sessions are open. For each of the ``pauses`` one
is killed that is in the middle of a transaction, so many seconds after one of them was seen there. The answer is a line with how each
ended. A fork before any thread is started is as good as a new process, and ten times as fast.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import duckrun
from duckrun import AppTransaction, MergeClause, MergeSpec, Session, WriteSpec

Inside = Callable[[bool], None]
"""What a writer says when it is in the middle of a transaction, and when it is not any more."""
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


def append(session: Session, job: dict[str, Any], inside: Inside) -> None:
    for number in range(job["count"]):
        session.execute("main.t", WriteSpec("append"), appended(job["who"], number))


def merge(session: Session, job: dict[str, Any], inside: Inside) -> None:
    for number in range(job["count"]):
        ids = merged(job["who"], number)
        rows = pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array([1] * len(ids), pa.int64())})
        session.execute("main.t", MergeSpec(("id",), COUNTING), rows)


def pairs(session: Session, job: dict[str, Any], inside: Inside) -> None:
    """Transactions over two tables: a row in each."""
    for step in range(job["count"]):
        app = AppTransaction(f"chain-{job['chain']}", step)
        rows = pa.table({"chain": pa.array([job["chain"]], pa.int64()), "step": pa.array([step], pa.int64())})
        if step % 2 == 0:
            with session.transaction():
                inside(True)
                session.execute("main.a", WriteSpec("append", app=app), rows)
                session.execute("main.b", WriteSpec("append", app=app), rows)
            inside(False)
        else:
            session.sql("begin")
            inside(True)
            session.sql(f"insert into main.a values ({job['chain']}, {step})", app=app)
            session.execute("main.b", MergeSpec(("chain", "step"), app=app), rows)
            session.sql("commit")
            inside(False)


WORK = {"append": append, "merge": merge, "pairs": pairs}


def write(job: dict[str, Any], ready: int, go: int, inside: Inside) -> None:
    with duckrun.connect(job["root"], format="ducklake", catalog=job["catalog"], memory_limit="512MB") as session:
        session.sql("SELECT 1").toArrow()
        os.write(ready, b"r")
        os.read(go, 1)
        WORK[job["work"]](session, job, inside)


def carry_out(jobs: list[dict[str, Any]], pauses: Sequence[float]) -> list[int]:
    """How each of the processes ended: 0, 1 for an error, -9 for a kill."""
    ready, said_ready = os.pipe()
    go, said_go = os.pipe()
    marks = mmap.mmap(-1, len(jobs))  # of this process and its children: one byte each
    children = []
    for number, job in enumerate(jobs):
        child = os.fork()
        if child == 0:
            try:
                write(job, said_ready, go, lambda now, at=number: marks.__setitem__(at, int(now)))  # type: ignore[misc]
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
    ended: dict[int, int] = {}

    def inside() -> int | None:
        """The one that is in the middle of a transaction, once one is; None when all have ended."""
        while len(ended) < len(children):
            for number, child in enumerate(children):
                if number in ended:
                    continue
                if marks[number]:
                    return number
                if (found := os.waitpid(child, os.WNOHANG))[0]:
                    ended[number] = os.waitstatus_to_exitcode(found[1])
            time.sleep(0.001)
        return None

    for pause in pauses:
        if inside() is not None:
            time.sleep(pause)
        victim = inside()
        if victim is not None:
            os.kill(children[victim], signal.SIGKILL)  # not waited for yet, so that nobody else has its id
            ended[victim] = os.waitstatus_to_exitcode(os.waitpid(children[victim], 0)[1])
    for number, child in enumerate(children):
        if number not in ended:
            ended[number] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for end in (ready, go, said_go):
        os.close(end)
    marks.close()
    return [ended[number] for number in range(len(jobs))]


class Writers:
    """The process of this file, as the tests have it."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.ducklake.writers"],
            cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, start_new_session=True,
        )  # fmt: skip

    def run(self, *jobs: dict[str, Any], pauses: Sequence[float] = ()) -> list[int]:
        """How each of the jobs ended, each in a process of its own, all at once; one is killed for each pause."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps({"jobs": jobs, "pauses": pauses}) + "\n")
        line = self.process.stdout.readline()
        assert line, "the process that forks writers has ended"
        return list(json.loads(line))

    def close(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


if __name__ == "__main__":
    while line := sys.stdin.readline():
        asked = json.loads(line)
        print(json.dumps(carry_out(asked["jobs"], asked["pauses"])), flush=True)
