"""Writes of Spark to a DuckLake that are killed: the workers write files, and the process that would have committed them is gone.

A server runs Spark, and outlives who writes: it may finish files that nobody commits. The seed is DUCKRUN_TEST_SEED.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import duckrun
from duckrun.spark import RunServer
from tests.drawing import seed
from tests.ducklake import plain

pytestmark = [pytest.mark.kills, pytest.mark.spark, pytest.mark.drawn(2)]

SOAK = bool(os.environ.get("DUCKRUN_SOAK"))
KILLS = 30 if SOAK else 2
ROWS = 20_000
WRITER = """
import sys
from duckrun import AppTransaction, MergeSpec, WriteSpec, connect
from duckrun.spark import spark_session

root, remote, step, rows = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
app = AppTransaction("chain", step)
spark = spark_session(remote=remote)
with connect(root, format="ducklake", engine="spark", spark=spark) as session:
    print("begins", flush=True)
    frame = spark.range(step * rows, (step + 1) * rows, 1, 4).selectExpr("id", f"{step} as step", "repeat('x', 200) as text")
    session.execute("t", MergeSpec(("id",), app=app) if step % 2 else WriteSpec("append", app=app), frame)
print("ended", flush=True)
"""
"""An append, whose files become the table's, or a merge, which DuckDB applies from the files."""


def written(root: Path, remote: str, step: int, killed_after: float | None) -> bool:
    """Whether a process that writes one step came to its end; it is killed some seconds after it began to write."""
    command = [sys.executable, "-c", WRITER, str(root), remote, str(step), str(ROWS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "begins"
        if killed_after is not None:
            time.sleep(killed_after)
            process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().strip()
        assert killed_after is not None or process.wait() == 0
        return rest == "ended"


def rows_by_step(root: Path) -> dict[int, int]:
    if not (root / "catalog.sqlite").exists():
        return {}
    with plain.attached(root) as own:
        there = own.sql("SELECT 1 FROM duckdb_tables() WHERE database_name = 'lake' AND table_name = 't'").fetchall()
        return dict(own.sql("SELECT step, count(*) FROM lake.main.t GROUP BY step").fetchall()) if there else {}


def files_below(*folders: Path) -> set[Path]:
    return {path for folder in folders for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"}


def quiet(folder: Path) -> None:
    """Wait until the server writes no more files."""
    before: set[Path] = set()
    while (now := files_below(folder)) != before:
        before = now
        time.sleep(1)


def test_a_killed_write_is_whole_or_not_there_and_what_it_left_goes(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    root, rng, started = tmp_path / "lake", random.Random(seed()), time.monotonic()
    killed, longest = 0, 1.5
    server = RunServer.of_process("killed", os.getpid(), master="local[2]")
    try:
        remote, step = server.remote(), -1
        while killed < KILLS:
            step += 1
            for _ in range(rng.randint(1, 2) if SOAK else 1):
                before = rows_by_step(root)
                if not written(root, remote, step, rng.uniform(0.1, longest)):
                    killed += 1
                now = rows_by_step(root)
                assert now in (before, {**before, step: ROWS}), "half of a write is there"
            assert written(root, remote, step, None)
            assert rows_by_step(root) == dict.fromkeys(range(step + 1), ROWS), "the retried write wrote once"
        quiet(root / "data")
        with duckrun.connect(root, format="ducklake") as session:
            session.upkeep.orphans(older_than="0 seconds")
            assert session.upkeep.orphans(older_than="0 seconds").removed == ()
        with plain.attached(root) as own:
            known = own.sql("SELECT data_file FROM ducklake_list_files('lake', 't')").fetchall()
            deletes = own.sql("SELECT path FROM __ducklake_metadata_lake.ducklake_delete_file").fetchall()
        there = {str(path) for path in files_below(root / "data")}
        left = files_below(root / "_duckrun" / "scratch")
        assert {str(Path(path)) for (path,) in known} == there and not deletes and not left
        assert rows_by_step(root) == dict.fromkeys(range(step + 1), ROWS)
    finally:
        server.stop()
    figures(f"{killed} kills in {step} steps, seed {seed()}, {time.monotonic() - started:.0f} s")
