"""Several processes that write one DuckLake at once, and writers that are killed: every row once, and never half of a transaction.

The seed is DUCKRUN_TEST_SEED; with DUCKRUN_SOAK the counts are full ones.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.drawing import seed
from tests.ducklake.plain import attached
from tests.ducklake.writers import Writers, appended, merged

SOAK = bool(os.environ.get("DUCKRUN_SOAK"))
APPENDS = 200 if SOAK else 20
MERGES = 100 if SOAK else 8
KILLS = 50 if SOAK else 25
"""On each catalog."""
STEPS = 4


@pytest.fixture(params=["sqlite", "postgres"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a catalog of several processes, which is not there yet."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_catalog")
    return f"sqlite:{tmp_path}/lake/catalog.sqlite"


@pytest.fixture(scope="module")
def writers() -> Iterator[Writers]:
    running = Writers()
    yield running
    running.close()


@pytest.mark.slow
@pytest.mark.whole
def test_three_processes_append_at_once(tmp_path: Path, catalog: str, writers: Writers) -> None:
    """The catalog is not there when they begin, so that they make it at once too."""
    jobs = [
        {"work": "append", "root": str(tmp_path / "lake"), "catalog": catalog, "who": who, "count": APPENDS}
        for who in range(3)
    ]
    assert writers.run(*jobs) == [0, 0, 0]
    expected = [i for who in range(3) for n in range(APPENDS) for i in appended(who, n).column("id").to_pylist()]
    with attached(tmp_path / "lake", catalog) as plain:
        found = plain.sql("select id from lake.main.t order by id").fetchall()
    assert [row[0] for row in found] == sorted(expected)


@pytest.mark.slow
@pytest.mark.whole
def test_three_processes_merge_into_one_table_at_once(tmp_path: Path, catalog: str, writers: Writers) -> None:
    jobs = [
        {"work": "merge", "root": str(tmp_path / "lake"), "catalog": catalog, "who": who, "count": MERGES}
        for who in range(3)
    ]
    assert writers.run(*jobs) == [0, 0, 0]
    expected = Counter(id for who in range(3) for number in range(MERGES) for id in merged(who, number))
    with attached(tmp_path / "lake", catalog) as plain:
        assert dict(plain.sql("select id, n from lake.main.t").fetchall()) == dict(expected)


@pytest.mark.kills
def test_killed_transactions_over_two_tables_are_there_whole_or_not_at_all(
    tmp_path: Path, catalog: str, writers: Writers, figures: Callable[[str], None]
) -> None:
    root, rng = tmp_path / "lake", random.Random(seed())
    prepared = {"work": "pairs", "root": str(root), "catalog": catalog, "chain": 0, "count": 1}
    killed, chain, full, made = 0, 0, 0.8, {(0, 0)}
    with attached_after(writers, prepared, root, catalog) as plain:
        while killed < KILLS:
            chain += 1
            job = {**prepared, "chain": chain, "count": STEPS}
            for _ in range(5):
                ends = writers.run(job, kill_after=rng.uniform(0, full))
                assert ends in ([0], [-9])
                if ends == [0]:
                    full *= 0.9  # it was done before: kill earlier
                    break
                killed += 1
                full *= 1.02
                check(plain, made, chain)
            if chain % 2 == 0:  # what says that a transaction was made must outlast its snapshot
                plain.execute("CALL ducklake_expire_snapshots('lake', older_than => now()::TIMESTAMP)")
            twins = 2 if chain % 2 else 1
            assert writers.run(*[job] * twins) == [0] * twins
            made |= {(chain, step) for step in range(STEPS)}
            assert check(plain, made, chain) == STEPS
    figures(f"{killed} kills of {chain} chains of {STEPS} transactions over two tables, {catalog.partition(':')[0]}")


def attached_after(writers: Writers, job: dict[str, Any], root: Path, catalog: str) -> Any:
    """The lake in plain DuckDB, once a writer has made it."""
    assert writers.run(job) == [0]
    return attached(root, catalog)


def check(plain: Any, made: set[tuple[int, int]], chain: int) -> int:
    """How many steps of a chain are there. Both tables have the same rows, each once; of chains before, all."""
    a, b = (plain.sql(f"select chain, step from lake.main.{table} order by all").fetchall() for table in "ab")
    assert a == b and len(a) == len(set(a))
    steps = [step for each, step in a if each == chain]
    assert steps == list(range(len(steps)))
    assert set(a) - {(chain, step) for step in steps} == {each for each in made if each[0] != chain}
    return len(steps)
