"""Random writes in main and two branches, compared with a model in Python after each step.

The seed is DUCKRUN_TEST_SEED. ``make test`` takes few sequences, the suite ``branches`` 200, and a
soak 5,000.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from duckrun.formats.delta.branches import differences
from tests.branches.model import Lake
from tests.drawing import seed

STEPS, STEPS_ON_SPARK = 10, 6
FEW = 4
MANY = 5000 if os.environ.get("DUCKRUN_SOAK") else 200


def run(root: Path, number: int, spark: Any = None) -> None:
    lake, done = Lake(root, random.Random(f"{seed()} {number}"), spark), [f"seed {seed()} number {number}"]
    patched = pytest.MonkeyPatch()
    patched.setattr(differences, "_FEW", lake.draw.choice([0, 200]))  # main's files by its log, or by their names
    try:
        for _ in range(STEPS if spark is None else STEPS_ON_SPARK):
            done.append(lake.step())
            lake.check(done)
        lake.check_by_deltalake(done)
    except BaseException:
        print(*done, sep="\n")
        raise
    finally:
        patched.undo()
    lake.close()


@pytest.mark.parametrize("number", range(FEW))
def test_main_and_branches_equal_the_model_after_each_step(tmp_path: Path, number: int) -> None:
    run(tmp_path / "lake", number)


@pytest.mark.spark
@pytest.mark.parametrize("number", range(max(1, FEW // 2)))
def test_both_engines_equal_the_model(tmp_path: Path, spark: Any, number: int) -> None:
    run(tmp_path / "lake", number, spark)


@pytest.mark.branches
@pytest.mark.parametrize("number", range(MANY))
def test_many_sequences_equal_the_model(tmp_path: Path, number: int) -> None:
    run(tmp_path / "lake", FEW + number)
