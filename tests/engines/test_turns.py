"""Two engines and Spark without our code write one table in turns, whatever features it has: all readers have the rows of a plain model,
rows keep their ids, and the change feed tells the difference. At the end a Spark of its own process reads it too, and older versions.

The seed is DUCKRUN_TEST_SEED (tools/suites.py prints it); a sequence is known by the seed and its number, and
DUCKRUN_TEST_ONLY=<number> runs that one alone. With DUCKRUN_SOAK there are many sequences, and long ones;
DUCKRUN_TEST_SEQUENCES says how many.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.drawing import seed
from tests.engines.fresh_spark import read_by_a_fresh_process
from tests.engines.spark_checks import QUICK, configured
from tests.engines.turn_model import PLAIN
from tests.engines.turns import Turns

pytestmark = [pytest.mark.turns, pytest.mark.spark, pytest.mark.timeout(7200)]

SOAK = bool(os.environ.get("DUCKRUN_SOAK"))
SEQUENCES, STEPS, SECONDS, VERSIONS = (300, 14, 1500, 3) if SOAK else (6, 8, 35, 1)
SEQUENCES = int(os.environ.get("DUCKRUN_TEST_SEQUENCES") or SEQUENCES)
WRITERS = ("duckdb", "duckdb", "spark", PLAIN)


@pytest.fixture
def quick(spark: Any) -> Iterator[Any]:
    """The one Spark session, without what pays on many rows only."""
    with configured(spark, QUICK):
        yield spark


def _numbers() -> list[int]:
    only = os.environ.get("DUCKRUN_TEST_ONLY")
    return list(range(SEQUENCES)) if only is None else [int(only)]


def test_whoever_takes_the_next_step_all_readers_agree(
    tmp_path: Path, quick: Any, figures: Callable[[str], None]
) -> None:
    started, done, failed = time.monotonic(), list[Turns](), list[str]()
    for number in _numbers():
        if number and time.monotonic() - started > SECONDS:
            break
        turns = Turns(f"{seed()}/{number}", tmp_path / f"lake{number}", quick, few_reads=not SOAK)
        try:
            _run(turns)
            done.append(turns)
            print(f"sequence {turns.called}: {turns.taken.total()} steps, {turns.refused.total()} refused", flush=True)
        except Exception as error:
            failed.append(turns.called)
            print(turns.told(error), flush=True)
    failed += _read_anew(done, tmp_path / "fresh")
    taken, refused = (sum((getattr(turns, name) for turns in done), Counter[str]()) for name in ("taken", "refused"))
    figures(f"{len(done)} sequences, {taken.total()} steps ({dict(taken)}), seed {seed()}, {time.monotonic() - started:.0f} s; refused "
        f"{refused.total()}: {'; '.join(f'{count} by {why}' for why, count in refused.most_common())}")  # fmt: skip
    assert not failed, f"sequences {', '.join(failed)} differ; their steps are in what the test printed"


def _run(turns: Turns) -> None:
    """One table from its first step to its last; raises at the first difference."""
    try:
        turns.create(turns.rng.choice(WRITERS))
        for _ in range(STEPS):
            turns.step(turns.rng.choice(WRITERS))
    finally:
        turns.close()


def _read_anew(done: list[Turns], folder: Path) -> list[str]:
    """The sequences of whose table, or of an older version, a process without our code reads something else."""
    asked, differ = [turns.questions(VERSIONS) for turns in done], []
    answers = iter(read_by_a_fresh_process([each for of_one in asked for each in of_one], folder))
    for turns, of_one in zip(done, asked, strict=True):
        try:
            turns.compare_fresh([next(answers) for _ in of_one])
        except AssertionError as error:
            differ.append(turns.called)
            print(turns.told(error), flush=True)
    return differ
