"""Writers that are killed at random moments and run again: everything they were asked for is there once.

The seed is DUCKRUN_TEST_SEED (tools/suites.py prints it): it decides the chains and the moments. How far a writer has
come at a moment depends on the machine, so a seed repeats the work, not the exact instant.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from filelock import FileLock

import duckrun
from duckrun.engines.duckdb import load_extensions
from duckrun.lake.lake import ViewDefinition
from duckrun.storage.locks import lock_path
from duckrun.values.rows import WriteSpec
from tests.drawing import rounds
from tests.kills.chains import Row, apply, chain_of
from tests.tracked import FEATURES, check_numbers

pytestmark = pytest.mark.kills

SEED = int(os.environ.get("DUCKRUN_TEST_SEED") or random.SystemRandom().randrange(2**31))
BUDGET = float(os.environ.get("DUCKRUN_TEST_BUDGET") or 240)
SOAK = bool(os.environ.get("DUCKRUN_SOAK"))
CHAIN_KILLS = rounds(30)  # at least; those of definitions and drops come on top
FEATURED_KILLS = rounds(10)  # of chains on a table with features
OTHER_KILLS = rounds(10)
ROOT = Path(__file__).parents[2]


class Writers:
    """The process of writer.py or builder.py, which forks one writer after another."""

    def __init__(self, module: str = "tests.kills.writer") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, start_new_session=True,
        )  # fmt: skip
        self._running: int | None = None

    def run(
        self,
        job: dict[str, Any],
        *,
        kill_after: float | None,
        whole_group: bool = True,
        when: Path | None = None,
        how: signal.Signals = signal.SIGKILL,
    ) -> bool:
        """One writer, killed so many seconds after its session is open (None: left alone), or within them as soon as a
        file is there (``when``); True if the kill met it.
        """
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(job) + "\n")
        pid = self._running = int(self._line())
        line = self._line()
        if line == "ready":
            if kill_after is not None:
                until = time.monotonic() + kill_after
                while when is not None and not when.exists() and time.monotonic() < until:
                    if select.select([self.process.stdout], [], [], 0.02)[0]:
                        break
                if when is None:
                    select.select([self.process.stdout], [], [], kill_after)
                kill(pid, whole_group, how)
                # Python's main thread does not see a signal that falls just before it waits for a lock: as a user would, again.
                while how != signal.SIGKILL and not select.select([self.process.stdout], [], [], 10)[0]:
                    kill(pid, whole_group, how)
            line = self._line()
        self._running = None
        ended, end, number = line.split()
        self.process.stdin.write("\n")
        assert ended == "ended" and (end, number) in (("killed", "9"), ("exit", "0")), f"{line} (see above): {job}"
        assert end == "exit" or kill_after is not None, line
        return end == "killed"

    def _line(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline().strip()
        assert line, "the process that forks writers has ended"
        return line

    def close(self) -> None:
        if self._running is not None:  # a test has given up on it
            kill(self._running, True, signal.SIGKILL)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def kill(pid: int, whole_group: bool, how: signal.Signals) -> None:
    """A signal to the writer, or to it and the processes that stage for it."""
    with suppress(ProcessLookupError):
        os.killpg(pid, how) if whole_group else os.kill(pid, how)


@pytest.fixture
def writers() -> Iterator[Writers]:
    running = Writers()
    yield running
    running.close()


@pytest.fixture
def reader() -> duckdb.DuckDBPyConnection:
    """DuckDB without this library: delta_scan alone."""
    connection = duckdb.connect()
    load_extensions(connection)
    return connection


@pytest.mark.parametrize("features", [{}, FEATURES], ids=["plain", "tracked"])
def test_chains_of_writes_that_are_killed_commit_every_step_exactly_once(
    tmp_path: Path,
    writers: Writers,
    reader: duckdb.DuckDBPyConnection,
    figures: Callable[[str], None],
    features: dict[str, str],
) -> None:
    lake, rng = tmp_path / "lake", random.Random(SEED)
    wanted = FEATURED_KILLS if features else CHAIN_KILLS
    (tmp_path / "scratch").mkdir()
    with duckrun.connect(lake) as session:
        start = pa.table({"id": [0], "chain": [-1], "step": [0], "v": ["start"]})
        properties = {"delta.checkpointInterval": "5", **features}
        session.execute("t", WriteSpec("append", table_properties=properties), start)
    model: list[Row] = [(0, -1, 0, "start")]
    kills, chain, started, full = 0, 0, time.monotonic(), 1.5
    while kills < wanted or (SOAK and time.monotonic() - started < BUDGET):
        job = {"work": "chain", "lake": str(lake), "scratch": str(tmp_path / "scratch"), "seed": SEED, "chain": chain}
        for _ in range(3):
            if not writers.run(job, kill_after=rng.uniform(0, full), whole_group=rng.random() < 0.7):
                full *= 0.9  # it was done before: kill earlier
                break
            kills += 1
            full *= 1.02
            check_readable(lake, model, chain)
        writers.run(job, kill_after=None)
        steps = chain_of(SEED, chain)
        changed = []
        for number, step in enumerate(steps):
            before, model = model, apply(model, step)
            if Counter(before) != Counter(model):
                changed.append(number)
        check_after(lake, reader, model, chain, changed)
        chain += 1
    if features:
        check_numbers(str(lake / "main" / "t"))
    assert features or list((lake / "main" / "t").glob("deletion_vector_*.bin")), "no row left the table by a vector"
    figures(f"{kills} kills in {chain} chains, seed {SEED}, {time.monotonic() - started:.0f} s")


def rows_of(table: pa.Table) -> Counter[Row]:
    return Counter(zip(*(table.column(c).to_pylist() for c in ("id", "chain", "step", "v")), strict=True))


def by_deltalake(location: str) -> Counter[Row]:
    """The rows that deltalake's own engine finds, which reads deletion vectors."""
    engine = QueryBuilder().register("found", DeltaTable(location))
    return rows_of(pa.table(engine.execute("SELECT id, chain, step, v FROM found").read_all()))


def check_readable(lake: Path, model: list[Row], chain: int) -> None:
    """Right after a kill: the table is as some number of whole steps left it."""
    found = by_deltalake(str(lake / "main" / "t"))
    states, rows = [Counter(model)], model
    for step in chain_of(SEED, chain):
        rows = apply(rows, step)
        states.append(Counter(rows))
    assert found in states, f"chain {chain}, seed {SEED}: a part of a step is visible: {found}"


def check_after(
    lake: Path, reader: duckdb.DuckDBPyConnection, model: list[Row], chain: int, changed: list[int]
) -> None:
    """After a chain is through: its rows by two independent readers, its commits, no lock, no other table."""
    location, about = str(lake / "main" / "t"), f"chain {chain}, seed {SEED}: {chain_of(SEED, chain)}"
    assert by_deltalake(location) == Counter(model), about
    scanned = reader.execute("FROM delta_scan(?)", [location]).to_arrow_table()
    assert rows_of(scanned) == Counter(model), about
    made = Counter(
        txn["version"]
        for file in Path(location, "_delta_log").glob("*.json")
        for line in file.read_text().splitlines()
        if (txn := json.loads(line).get("txn")) and txn["appId"] == f"chain-{chain}"
    )
    assert max(made.values()) == 1 and set(changed) <= set(made), f"{about}: commits of each step {made}"
    with duckrun.connect(lake) as session:
        assert session.tables() == ["main.t"]
        lock = FileLock(lock_path(session.lake.parse("t")))
    lock.acquire(timeout=0)
    lock.release()


def test_views_and_tables_that_change_places_are_whole_after_a_kill(tmp_path: Path, writers: Writers) -> None:
    lake, rng = tmp_path / "lake", random.Random(SEED + 1)
    job = {"work": "definitions", "lake": str(lake), "once": False}
    for _ in range(OTHER_KILLS * (10 if SOAK else 1)):
        assert writers.run(job, kill_after=rng.uniform(0, 0.4))
        with duckrun.connect(lake) as session:
            assert set(session.tables()) <= {"defs.v", "defs.both"}
            view = session.lake.definition(session.lake.parse("defs.v"))
            if view is not None:
                assert isinstance(view, ViewDefinition)
                row = session.sql("SELECT * FROM defs.v").collect()[0]
                assert str(row["n"]) == row["same"]
            if "defs.both" in session.tables():
                rows = session.sql("SELECT n FROM defs.both").collect()
                assert len(rows) == 2 and rows[0] == rows[1], rows
    writers.run({**job, "once": True}, kill_after=None)
    with duckrun.connect(lake) as session:
        assert session.tables() == ["defs.both", "defs.v"]
        assert session.sql("SELECT sum(n) AS n FROM defs.both").collect() == [{"n": 4}]
        check_swept(lake / "defs")


def test_a_table_whose_drop_is_killed_is_there_whole_or_not_at_all(tmp_path: Path, writers: Writers) -> None:
    lake, rng = tmp_path / "lake", random.Random(SEED + 2)
    job = {"work": "drops", "lake": str(lake), "once": False}
    for _ in range(OTHER_KILLS * (10 if SOAK else 1)):
        assert writers.run(job, kill_after=rng.uniform(0.05, 0.5))
        with duckrun.connect(lake) as session:
            assert session.tables() in ([], ["drops.t"])
            if session.tables():
                assert session.sql("SELECT count(*) AS n, sum(id) AS s FROM drops.t").collect() == [{"n": 40, "s": 780}]
    writers.run({**job, "once": True}, kill_after=None)
    with duckrun.connect(lake) as session:
        assert session.tables() == []
    check_swept(lake / "drops")


def check_swept(schema: Path) -> None:
    """The drop that went through has removed what the killed ones left."""
    assert [folder.name for folder in schema.glob("_duckrun_dropped_*")] == []
