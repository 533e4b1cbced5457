"""The life of a run: whatever fails, whatever is computed anew, and however it is run again, each table holds what the last
successful computation returned, and each append counts once.

A run of every day takes a part of a fixed number of lives. The suite `lives` draws new ones by DUCKRUN_TEST_SEED until its budget is
spent, and has those whose steps are processes of their own, or are written by Spark.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.drawing import seed
from tests.lives.jobs import Asset, Attempt, Job, Out
from tests.lives.life import Life, drawn_job

LIVES = 48
BUDGET = float(os.environ.get("DUCKRUN_TEST_BUDGET") or 20)
FORMATS = ("delta", "delta", "delta", "ducklake")


@pytest.mark.drawn(24)
@pytest.mark.parametrize("number", range(LIVES))
def test_a_life_leaves_what_was_computed_last(tmp_path: Path, number: int) -> None:
    rng = Random(number)
    Life(tmp_path / "life", drawn_job(rng, FORMATS[number % len(FORMATS)], most=3), rng).live(5)


@pytest.mark.lives
@pytest.mark.timeout(900)
@pytest.mark.parametrize("lake_format", sorted(set(FORMATS)))
def test_lives_until_the_budget_is_spent(tmp_path: Path, lake_format: str) -> None:
    until, number = time.monotonic() + BUDGET / 2, 0
    while time.monotonic() < until or number == 0:
        rng = Random(f"{seed()} {lake_format} {number}")
        Life(tmp_path / str(number), drawn_job(rng, lake_format), rng).live(rng.randint(3, 9))
        number += 1
    print(f"{number} lives on {lake_format}, seed {seed()}")


PAIR = (
    Asset("orders", (Out("orders", "orders", "append"), Out("days", "days", "overwrite"))),
    Asset("more", (Out("more", "orders", "append"),)),
)


@pytest.mark.lives
@pytest.mark.drawn(4)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("lake_format", sorted(set(FORMATS)))
@pytest.mark.parametrize("how", ["retry", "from failure", "from failure by API", "from asset failure"])
def test_a_process_dies_after_its_commit_before_dagster_knows(tmp_path: Path, lake_format: str, how: str) -> None:
    life = Life(tmp_path / "life", Job(PAIR, lake_format), Random(0), processes=True)
    first = {"orders": [(1, 1)], "days": [(1, 1)]}
    mended = {"orders": [(2, 2), (3, 3)], "days": [(2, 2)]}
    parent = life.run("new", script={"orders": [Attempt(first, "kill")], "more": [Attempt({"more": [(9, 9)]})]})
    assert parent is not None and parent.is_failure
    again = life.run(how, parent, script={"orders": [Attempt(mended)], "more": [Attempt({"more": [(9, 10)]})]})
    assert again is not None and again.is_success
    assert life.tables()["orders"] == {(2, 2): 1, (3, 3): 1, (9, 9): 1}
    assert life.tables()["days"] == {(2, 2): 1}


@pytest.mark.lives
@pytest.mark.drawn(2)
@pytest.mark.timeout(600)
def test_lives_whose_steps_are_processes(tmp_path: Path) -> None:
    rng = Random(f"{seed()} processes")
    Life(tmp_path / "life", drawn_job(rng, rng.choice(FORMATS), most=2), rng, processes=True).live(2)


@pytest.mark.lives
@pytest.mark.drawn(2)
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_life_whose_tables_spark_writes(tmp_path: Path, spark: Any) -> None:
    rng = Random(f"{seed()} spark")
    Life(tmp_path / "life", drawn_job(rng, engine="spark", most=2), rng).live(4)
