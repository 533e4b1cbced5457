"""An incremental pipeline of three steps that is killed at random moments: downstream equals a full recompute, and nothing is applied twice.

The seed is DUCKRUN_TEST_SEED, as in test_kills.py.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import duckrun
from duckrun import SQL, Session, WriteSpec
from duckrun.engines.spark.process.connect import RunServer
from duckrun.values.tables import OptimizeSpec
from tests.drawing import rounds
from tests.kills.test_kills import BUDGET, SEED, SOAK, Writers

pytestmark = pytest.mark.kills

KILLS = 1000 if SOAK else rounds(50)


@pytest.fixture
def pipelines() -> Iterator[tuple[Writers, Writers]]:
    both = Writers("tests.kills.pipeline"), Writers("tests.kills.pipeline")
    yield both
    for each in both:
        each.close()


def change(session: Session, rng: random.Random) -> str:
    """Something happens to the first table."""
    low = rng.randint(0, 15)
    is_delta = session.lake.format.name == "delta"
    some = f"select unnest(range({low}, {low + rng.randint(1, 8)})) as id, cast({rng.randint(0, 99)} as bigint) as v"
    newest = session.table("raw").snapshot().version
    statement = rng.choice(
        [
            f"update raw set v = {rng.randint(0, 99)} where id between {low} and {low + 4}",
            f"update raw set v = v where id > {low}",
            f"delete from raw where id between {low} and {low + rng.randint(0, 3)}",
            f"merge into raw using ({some}) s on raw.id = s.id when matched then update set * when not matched then insert *",
            f"restore table raw to version as of {rng.randint(max(0 if is_delta else _begun(session, 'raw'), newest - 4), newest)}",
            "optimize",
            "overwrite",
        ]
    )
    if statement == "optimize" and is_delta:
        session.execute("raw", OptimizeSpec())
    elif statement == "optimize":
        session.upkeep.merge_files("raw")
        session.upkeep.rewrite_files("raw", delete_threshold=0.01)
    elif statement == "overwrite":
        session.execute("raw", WriteSpec("overwrite"), SQL(some))
    else:
        session.sql(statement)
    return statement


def _begun(session: Session, name: str) -> int:
    """The first version of a table."""
    return int(session.table(name).history()[-1]["version"])


def check(session: Session) -> None:
    """What each table is by the one before it, recomputed in SQL."""
    for name, query in (
        ("clean", "select id, v + 1 as v from raw"),
        ("kept", "select id, v from clean where v % 3 <> 0"),
        ("past", "select id, v from clean"),
    ):
        own = f"select id, v from {name}" + (" where valid_to is null" if name == "past" else "")
        left, right = (session.sql(f"{sql} order by id, v").collect() for sql in (own, query))
        assert left == right, name
    broken = session.sql(
        "select count(*) as n from past a join past b on a.id = b.id and a.valid_from < b.valid_from "
        "and (a.valid_to is null or a.valid_to > b.valid_from)"
    ).collect()
    assert broken == [{"n": 0}], "intervals overlap"


@dataclass
class Ordeal:
    """Rounds of changes, runs that are killed, and runs that are not; after each round downstream is checked. ``full`` is about what a
    run takes, in seconds, within which it is killed.
    """

    rng: random.Random
    job: dict[str, Any]
    one: Writers
    other: Writers
    full: float
    longest: float
    """A run is killed within so many seconds, however slow the machine gets."""
    at_most: int
    """Kills in a round."""
    kills: int = 0
    rounds: int = 0
    at_once: int = 0
    restored: int = 0

    def round(self, session: Session) -> None:
        self.rounds += 1
        said = [change(session, self.rng) for _ in range(self.rng.randint(1, 3))]
        for _ in range(self.at_most):
            if not self.one.run(self.job, kill_after=self.rng.uniform(0.1, self.full)):
                self.full *= 0.8
                break
            self.kills += 1
            self.full = min(self.full * 1.1, self.longest)
        if self.rounds > 1 and self.rng.random() < 0.3:
            said += self._restore(session)
        if self.rng.random() < 0.3:
            self.at_once += 1
            beside = threading.Thread(target=self.other.run, args=(self._may_fail,), kwargs={"kill_after": None})
            beside.start()
            self.one.run(self._may_fail, kill_after=None)
            beside.join()
        if "remote" in self.job:  # where the server may still be at the work of a run that was killed
            self.one.run(self._may_fail, kill_after=None)
        for _ in range(2):  # the offsets of a killed run first, then what has changed since
            self.one.run(self.job, kill_after=None)
        try:
            check(session)
        except AssertionError as error:
            error.add_note(f"seed {SEED}, round {self.rounds}: {said}")
            raise

    @property
    def _may_fail(self) -> dict[str, Any]:
        return {**self.job, "may_fail": True}

    def _restore(self, session: Session) -> list[str]:
        name = self.rng.choice(["clean", "kept", "past"])
        if not session.lake.exists(session.ref(name)):
            return []
        newest = session.table(name).snapshot().version
        session.table(name).restoreToVersion(self.rng.randint(max(_begun(session, name), newest - 2), newest))
        self.restored += 1
        return [f"{name} was restored"]

    def __str__(self) -> str:
        return f"{self.kills} kills in {self.rounds} rounds, {self.at_once} with two runs at once, {self.restored} restores, seed {SEED}"


RAW = SQL("select range as id, range * 7 % 50 as v from range(12)")


def test_an_incremental_pipeline_that_is_killed_equals_a_full_recompute(
    tmp_path: Path, pipelines: tuple[Writers, Writers], figures: Callable[[str], None]
) -> None:
    lake, started = tmp_path / "lake", time.monotonic()
    job = {"work": "run", "lake": str(lake), "may_fail": False}
    ordeal = Ordeal(random.Random(SEED), job, *pipelines, full=2.5, longest=5, at_most=6)
    with duckrun.connect(lake) as session:
        session.execute("raw", WriteSpec("error"), RAW)
        # A slow machine exceeds the budget rather than kill too little.
        while ordeal.kills < KILLS / 3 or (
            ordeal.kills < KILLS and (time.monotonic() - started < BUDGET * 0.75 or SOAK)
        ):
            ordeal.round(session)
    figures(f"{ordeal}, {time.monotonic() - started:.0f} s")


def test_an_incremental_pipeline_in_a_ducklake_that_is_killed_equals_a_full_recompute(
    tmp_path: Path, pipelines: tuple[Writers, Writers], figures: Callable[[str], None]
) -> None:
    lake, started, rng = tmp_path / "lake", time.monotonic(), random.Random(SEED)
    inline_rows = rng.choice([0, 20])
    job = {"work": "run", "lake": str(lake), "may_fail": False, "format": "ducklake", "inline_rows": inline_rows}
    ordeal = Ordeal(rng, job, *pipelines, full=4, longest=8, at_most=3)
    with duckrun.connect(lake, format="ducklake", inline_rows=inline_rows) as session:
        session.execute("raw", WriteSpec("error"), RAW)
        while ordeal.kills < 1 or (
            ordeal.kills < (KILLS if SOAK else rounds(12)) and (time.monotonic() - started < BUDGET / 10 or SOAK)
        ):
            ordeal.round(session)
    figures(f"{ordeal}, inline_rows {inline_rows}, {time.monotonic() - started:.0f} s")


@pytest.mark.spark
def test_steps_on_spark_that_are_killed_equal_a_full_recompute(
    tmp_path: Path, pipelines: tuple[Writers, Writers], figures: Callable[[str], None]
) -> None:
    """The server outlives the run, and may commit what it was at when the run that asked for it is gone."""
    lake, started = tmp_path / "lake", time.monotonic()
    server = RunServer.of_process("killed", os.getpid(), master="local[2]")
    try:
        job = {"work": "run", "lake": str(lake), "may_fail": False, "remote": server.remote()}
        ordeal = Ordeal(random.Random(SEED), job, *pipelines, full=15, longest=20, at_most=3)
        with duckrun.connect(lake) as session:
            session.execute("raw", WriteSpec("error"), RAW)
            while ordeal.kills < (30 if SOAK else rounds(9)):
                ordeal.round(session)
    finally:
        server.stop()
    figures(f"{ordeal}, {time.monotonic() - started:.0f} s")
