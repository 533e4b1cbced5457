"""Several processes that write one DuckLake at once, and writers that are killed: every row once, and never half of a transaction.

The seed is DUCKRUN_TEST_SEED; with DUCKRUN_SOAK the counts are full ones.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.drawing import seed
from tests.ducklake.plain import attached
from tests.ducklake.writers import Writers, appended, merged

SOAK = bool(os.environ.get("DUCKRUN_SOAK"))
APPENDS = 200 if SOAK else 20
MERGES = 100 if SOAK else 8
KILLS = 50
"""Within transactions, on each catalog."""
CHAINS, STEPS, ROUNDS = 2, 3, 8
"""How many chains are written at once, of how many transactions each, and how often at most all of their writers are killed."""


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
    """Who is killed holds the lock, for which the others wait: the next one goes on at once, and is killed too."""
    root, rng = tmp_path / "lake", random.Random(seed())
    prepared = {"work": "pairs", "root": str(root), "catalog": catalog, "chain": 0, "count": 1}
    killed = chains = 0
    made, full = {(0, 0)}, 0.3
    with attached_after(writers, prepared, root, catalog) as plain:
        while killed < KILLS:
            under_way = range(chains + 1, chains + 1 + CHAINS)
            jobs = [{**prepared, "chain": chain, "count": STEPS} for chain in under_way]
            for _ in range(ROUNDS):
                ends = writers.run(*jobs, pauses=[rng.uniform(0, full) for _ in jobs])
                assert set(ends) <= {0, -9}
                killed += ends.count(-9)
                check(plain, made, under_way)
                full *= 0.8 if 0 in ends else 1.05  # one was done before: kill earlier
                if killed >= KILLS or 0 in ends:
                    break
            chains += CHAINS
            if rng.random() < 0.5:  # what says that a transaction was made must outlast its snapshot
                plain.execute("CALL ducklake_expire_snapshots('lake', older_than => now()::TIMESTAMP)")
            twins = jobs * (1 + (chains // CHAINS) % 2)
            assert writers.run(*twins) == [0] * len(twins)
            made |= {(chain, step) for chain in under_way for step in range(STEPS)}
            assert check(plain, made, under_way) == [STEPS] * CHAINS
    figures(
        f"{killed} kills within transactions over two tables, {chains} chains of {STEPS}, {catalog.partition(':')[0]}"
    )


def attached_after(writers: Writers, job: dict[str, Any], root: Path, catalog: str) -> Any:
    """The lake in plain DuckDB, once a writer has made it."""
    assert writers.run(job) == [0]
    return attached(root, catalog)


def check(plain: Any, made: set[tuple[int, int]], under_way: Sequence[int]) -> list[int]:
    """How many steps of each chain that is under way are there. Both tables have the same rows, each once; of chains before, all."""
    a, b = (plain.sql(f"select chain, step from lake.main.{table} order by all").fetchall() for table in "ab")
    assert a == b and len(a) == len(set(a))
    steps = {chain: [step for each, step in a if each == chain] for chain in under_way}
    assert all(found == list(range(len(found))) for found in steps.values())
    assert {row for row in a if row[0] not in under_way} == {row for row in made if row[0] not in under_way}
    return [len(found) for found in steps.values()]
