"""Two engines write one table in turns, whatever features it has: all readers have the rows of a plain model, rows keep their ids, and the
change feed tells the difference.

The seed is DUCKRUN_TEST_SEED (tools/suites.py prints it); a sequence is known by the seed and its number, and
DUCKRUN_TEST_ONLY=<number> runs that one alone.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

import duckrun
from tests.drawing import seed
from tests.engines.turns import Turns

pytestmark = [pytest.mark.differential, pytest.mark.spark]

SOAK = bool(os.environ.get("DUCKRUN_SOAK"))
SEQUENCES, STEPS, SECONDS = (300, 14, 3000) if SOAK else (6, 8, 55)

ENGINES = ("duckdb", "spark")


def _numbers() -> list[int]:
    only = os.environ.get("DUCKRUN_TEST_ONLY")
    return list(range(SEQUENCES)) if only is None else [int(only)]


def test_whoever_takes_the_next_step_all_readers_agree(tmp_path: Path, spark: Any) -> None:
    started = time.monotonic()
    for number in _numbers():
        if number and time.monotonic() - started > SECONDS:
            break
        _run(tmp_path / f"lake{number}", spark, f"{seed()}/{number}")


def _run(root: Path, spark: Any, called: str) -> None:
    """One table from its first step to its last; raises with its steps at the first difference."""
    rng = random.Random(called)
    with duckrun.connect(root) as duck, duckrun.connect(root, engine="spark", spark=spark) as other:
        turns = Turns(rng, {"duckdb": duck, "spark": other}, spark, few_reads=not SOAK)
        try:
            turns.create(rng.choice(ENGINES))
            for _ in range(STEPS):
                turns.step(rng.choice(ENGINES))
        except Exception as error:
            raise AssertionError(f"sequence {called}: {error}\n" + "\n".join(turns.log)) from error
