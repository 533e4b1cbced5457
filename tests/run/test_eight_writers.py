"""Eight processes merge into one table for a while, one of them by Spark: it holds what the merges give one after another, in the order
of their versions. What a key holds afterwards depends on that order, so that one merge too many, too few or too late shows.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

import duckrun
from duckrun import CommitConflict, MergeClause, MergeSpec, Session, WriteSpec
from tests.drawing import seed

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["duckrun", "tests.run.test_eight_writers"])
SECONDS = 120 if os.environ.get("DUCKRUN_SOAK") else 12
WRITERS, OWN, SHARED, OTHERS = 8, 40, 60, 2000
MODULUS = 1_000_003
SPEC = MergeSpec(
    ("id",),
    (
        MergeClause("matched_delete", "source.v % 10 = 0"),
        MergeClause("matched_update", set={"v": f"(target.v * 3 + source.v) % {MODULUS}"}),
        MergeClause("not_matched_insert"),
    ),
)
Merged = tuple[int, dict[int, int]]
"""A version, and the value that its merge brought for each key."""


def merges(session: Session, who: int, number: int) -> Iterator[Merged]:
    """Merge keys of its own and keys that all write, until the time is over."""
    random, ends = Random(f"{number} {who}"), time.monotonic() + SECONDS
    while time.monotonic() < ends:
        own = random.sample(range(1000 + who * OWN, 1000 + (who + 1) * OWN), 3)
        keys = {key: random.randrange(1, MODULUS) for key in own + random.sample(range(SHARED), random.randrange(3))}
        with suppress(CommitConflict):  # it lost each of its races, and wrote nothing
            rows = pa.table({"id": list(keys), "v": list(keys.values())})
            version = session.execute("t", SPEC, rows).version
            assert version is not None
            yield version, keys


def merging(lake: Path, who: int, number: int, ready: Any, answers: Any) -> None:
    """One of the processes."""
    try:
        with duckrun.connect(lake, memory_limit="512MB") as session:
            ready.wait(120)
            answers.put(list(merges(session, who, number)))
    except BaseException as error:
        answers.put(f"writer {who}: {type(error).__name__}: {error}")
        raise


def model(before: dict[int, int], merged: list[Merged]) -> dict[int, int]:
    """What the merges leave of a table, one after another."""
    found = dict(before)
    for _, keys in sorted(merged, key=lambda each: each[0]):
        for key, value in keys.items():
            if key not in found:
                found[key] = value
            elif value % 10 == 0:
                del found[key]
            else:
                found[key] = (found[key] * 3 + value) % MODULUS
    return found


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("marked", [False, True], ids=["written anew", "marked"])
def test_eight_processes_that_merge_for_a_while_equal_one_after_another(
    tmp_path: Path, spark: Any, marked: bool, figures: Any
) -> None:
    lake, number = tmp_path / "lake", seed()
    before = {n: n for n in range(5000, 5000 + OTHERS)} | {n: n for n in range(SHARED)}
    properties = {"delta.enableDeletionVectors": str(marked).lower()}
    ready, answers = CONTEXT.Barrier(WRITERS), CONTEXT.Queue()
    writers = [CONTEXT.Process(target=merging, args=(lake, who, number, ready, answers)) for who in range(1, WRITERS)]
    with duckrun.connect(lake, engine="spark", spark=spark) as on_spark:
        rows = pa.table({"id": list(before), "v": list(before.values())})
        on_spark.execute("t", WriteSpec("append", table_properties=properties), rows)
        for writer in writers:
            writer.start()
        ready.wait(120)
        by_spark = list(merges(on_spark, 0, number))
        found = [answers.get(timeout=180) for _ in writers]
        for writer in writers:
            writer.join(timeout=60)
        assert not [answer for answer in found if isinstance(answer, str)], found
        merged = by_spark + [each for answer in found for each in answer]
        versions = sorted(version for version, _ in merged)
        assert versions == list(range(1, len(versions) + 1)), "each version is one merge that was told to have landed"
        assert by_spark and all(found)
        expected = model(before, merged)
        figures(f"{len(merged)} merges, {len(by_spark)} of them by Spark, seed {number}")
        assert {row["id"]: row["v"] for row in on_spark.sql("SELECT id, v FROM t").collect()} == expected
    with duckrun.connect(lake) as session:
        assert {row["id"]: row["v"] for row in session.sql("SELECT id, v FROM t").collect()} == expected
    engine = QueryBuilder().register("found", DeltaTable(str(lake / "main" / "t")))
    by_deltalake = pa.table(engine.execute("SELECT id, v FROM found").read_all())
    assert dict(zip(*(by_deltalake.column(c).to_pylist() for c in ("id", "v")), strict=True)) == expected
