"""Processes that are killed while they publish, fork, rebase or discard a branch of three tables.

A process dies at one of its writes to the lake, or at a random moment. The seed is
DUCKRUN_TEST_SEED.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable, QueryBuilder

import duckrun
from duckrun import Session, VacuumSpec
from duckrun.run.pins import Pins
from tests.drawing import rounds
from tests.kills.branch_writer import rows
from tests.kills.test_kills import SEED, Writers

pytestmark = pytest.mark.kills

PUBLISH_KILLS, OTHER_KILLS, SPARK_KILLS = rounds(150), rounds(50), rounds(6)
TABLES = ("a", "b", "c")
Rows = Counter[tuple[int, int]]


@pytest.fixture
def writers() -> Iterator[Writers]:
    running = Writers("tests.kills.branch_writer")
    yield running
    running.close()


@pytest.fixture
def writers_by_spark() -> Iterator[Writers]:
    running = Writers("tests.kills.spark_writer")
    yield running
    running.close()


class Lake:
    """A lake of three tables, and the rows that main and the branch should have."""

    def __init__(self, folder: Path, writers: Writers, draw: random.Random) -> None:
        self.root, self.answer = folder / "lake", folder / "answer"
        self.writers, self.draw = writers, draw
        self.most = 20
        """Highest number of writes of a piece of work, as far as it is known."""
        self.longest = 0.3
        self.kills = self.round = 0
        marks = "tblproperties ('delta.enableDeletionVectors' = 'true')"
        with self.connect() as session:
            for name, more in zip(TABLES, ("", marks, f"partitioned by (round) {marks}"), strict=True):
                session.sql(f"create table {name} (id bigint, round bigint) using delta {more}", dialect="spark")
                session.sql(f"insert into {name} values (0, 0), (1, 0), (2, 0)")
        self.main = {name: Counter({(0, 0): 1, (1, 0): 1, (2, 0): 1}) for name in TABLES}

    def connect(self, branch: str | None = None) -> Session:
        return duckrun.connect(self.root, branch=branch)

    def killed(self, work: str, how: str = "append") -> bool:
        """Let a process work on the branch, and kill it; True if that met it."""
        self.answer.unlink(missing_ok=True)
        dies_at = self.draw.randrange(1, self.most + 1) if self.draw.random() < 0.7 else None
        job = {
            "work": work, "how": how, "lake": str(self.root), "branch": "b", "tables": TABLES, "round": self.round,
            "answer": str(self.answer), "dies_at": dies_at, "after": self.draw.random() < 0.5,
        }  # fmt: skip
        wait = self.draw.uniform(0, self.longest) if dies_at is None else 60
        is_killed = self.writers.run(job, kill_after=wait)
        assert is_killed or self.answer.exists()
        self.kills += is_killed
        if not is_killed and dies_at is not None:
            self.most = max(8, dies_at - 1)  # it makes fewer writes
        if not is_killed and dies_at is None:
            self.longest *= 0.9
        return is_killed

    def rows(self, session: Session, names: tuple[str, ...] = TABLES) -> dict[str, Rows]:
        return {
            name: Counter((row["id"], row["round"]) for row in session.sql(f"from {name}").collect()) for name in names
        }

    def by_deltalake(self) -> dict[str, Rows]:
        return {name: by_deltalake(self.root / "main" / name) for name in TABLES}

    def write_in_branch(self) -> dict[str, Rows]:
        """Change the three tables in the branch, and return its rows."""
        self.round += 1
        after = {}
        with self.connect("b") as branch:
            for name in TABLES:
                branch.sql(f"insert into {name} values ({self.round * 10}, {self.round})")
                gone = self.draw.choice(sorted(self.main[name]))
                branch.sql(f"delete from {name} where id = {gone[0]} and round = {gone[1]}")
                after[name] = self.main[name] - Counter({gone: 1}) + Counter({(self.round * 10, self.round): 1})
        return after

    def write_elsewhere(self) -> None:
        """Write with a new session, which finishes what a killed process has begun."""
        with self.connect() as session:
            session.sql(f"create or replace table other as select {self.round} as round")


def by_deltalake(folder: Path) -> Rows:
    batches = QueryBuilder().register("t", DeltaTable(folder.as_posix())).execute("select id, round from t").read_all()
    return Counter(zip(batches.column(0).to_pylist(), batches.column(1).to_pylist(), strict=True))


class PinnedReader:
    """A thread that pins the tables again and again, in any order. Their versions rise together."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._ended = threading.Event()
        self.mixed: list[dict[str, int]] = []
        self.reads = 0
        self._thread = threading.Thread(target=self._read)

    def _read(self) -> None:
        draw = random.Random(SEED)
        with self._lake.connect() as session:
            while not self._ended.is_set():
                pins = Pins(session.lakes)
                versions = {name: pins.snapshot(session.ref(name)).version for name in draw.sample(TABLES, 3)}
                self.reads += 1
                time.sleep(0.005)  # the processor is for the writers
                if len(set(versions.values())) > 1:
                    self.mixed.append(versions)

    def __enter__(self) -> PinnedReader:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()


def test_a_killed_publish_shows_all_tables_or_none(
    tmp_path: Path, writers: Writers, figures: Callable[[str], None]
) -> None:
    lake, draw = Lake(tmp_path, writers, random.Random(SEED)), random.Random(SEED + 1)
    finished = Counter[bool]()
    with PinnedReader(lake) as reader:
        while lake.kills < PUBLISH_KILLS:
            after, before = lake.write_in_branch(), lake.main
            versions = {name: DeltaTable((lake.root / "main" / name).as_posix()).version() for name in TABLES}
            lake.killed("publish")
            about = f"seed {SEED}, round {lake.round}"
            for name, there in lake.by_deltalake().items():
                assert there in (before[name], after[name]), about
            with lake.connect() as session, duckrun.connect(lake.root, pins=Pins(session.lakes)) as run:
                assert lake.rows(run) in (before, after), about
            if draw.random() < 0.5:
                lake.write_elsewhere()
                there = lake.by_deltalake()
                assert there in (before, after), about
                finished[there == after] += 1
            with lake.connect() as session:
                assert session.publish("b").versions == {f"main.{n}": versions[n] + 1 for n in TABLES}, about
                assert session.branches() == []
            assert lake.by_deltalake() == after, about
            assert not list((lake.root / "_duckrun" / "publish" / "pending").glob("*.json")), about
            lake.main = after
    assert reader.mixed == [] and reader.reads > 0
    figures(f"{lake.kills} kills, {dict(finished)} by another session, {reader.reads} pinned reads, seed {SEED}")


def test_a_killed_first_write_leaves_whole_commits_and_can_be_repeated(
    tmp_path: Path, writers: Writers, figures: Callable[[str], None]
) -> None:
    lake, draw = Lake(tmp_path, writers, random.Random(SEED + 2)), random.Random(SEED + 3)
    while lake.kills < OTHER_KILLS:
        lake.round += 1
        new = Counter(zip(*rows(lake.round).to_pydict().values(), strict=True))
        lake.killed("write")
        about = f"seed {SEED}, round {lake.round}"
        assert lake.by_deltalake() == lake.main, about
        with lake.connect("b") as branch:
            for name, there in lake.rows(branch).items():
                assert there in (lake.main[name], lake.main[name] + new), about
        with lake.connect() as session:
            if draw.random() < 0.3:
                session.discard("b")
                assert lake.by_deltalake() == lake.main, about
                assert not list(lake.root.rglob("branch.json")), about
                continue
            while lake.killed("write"):
                pass
            session.publish("b")
        lake.main = {name: lake.main[name] + new for name in TABLES}
        assert lake.by_deltalake() == lake.main, about
    figures(f"{lake.kills} kills, seed {SEED}")


def test_a_killed_rebase_leaves_a_branch_that_takes_writes(
    tmp_path: Path, writers: Writers, figures: Callable[[str], None]
) -> None:
    lake = Lake(tmp_path, writers, random.Random(SEED + 4))
    while lake.kills < OTHER_KILLS:
        before = lake.write_in_branch()
        number, about = lake.round, f"seed {SEED}, round {lake.round}"
        with lake.connect() as session:
            for name in TABLES:
                session.sql(f"insert into {name} values ({-number}, {-number})")
        of_main, own = Counter({(-number, -number): 1}), Counter({(number * 10 + 5, number): 1})
        lake.killed("rebase")
        with lake.connect("b") as branch:
            there = lake.rows(branch)
            for name in TABLES:
                assert there[name] in (before[name], before[name] + of_main), about
                branch.sql(f"insert into {name} values ({number * 10 + 5}, {number})")
                assert lake.rows(branch, (name,))[name] == there[name] + own, about
        with lake.connect() as session:
            session.rebase("b")
            with lake.connect("b") as branch:
                expected = {name: before[name] + of_main + own for name in TABLES}
                assert lake.rows(branch) == expected, about
            session.publish("b")
        lake.main = expected
        assert lake.by_deltalake() == expected, about
    figures(f"{lake.kills} kills, seed {SEED}")


def test_a_killed_discard_is_finished_by_the_next_writer(
    tmp_path: Path, writers: Writers, figures: Callable[[str], None]
) -> None:
    lake = Lake(tmp_path, writers, random.Random(SEED + 6))
    while lake.kills < OTHER_KILLS:
        after, about = lake.write_in_branch(), f"seed {SEED}, round {lake.round}"
        lake.killed("discard")
        assert lake.by_deltalake() == lake.main, about
        lake.write_elsewhere()
        with lake.connect() as session:
            there = session.branches()
            with lake.connect("b") as branch:
                assert lake.rows(branch) == (after if there else lake.main), about
                assert branch.sql("from a").count()
            if there:
                assert there[0].state == "open", about
            session.discard("b") if session.branches() else None
        assert not list(lake.root.rglob("branch.json")), about
    figures(f"{lake.kills} kills, seed {SEED}")


def updated(before: Rows, number: int) -> Rows:
    """Return the rows after the update of spark_writer.py."""
    return Counter([(i, number if i == 1 else at) for i, at in before.elements()])


def test_a_killed_write_by_spark_leaves_whole_commits_and_can_be_repeated(
    tmp_path: Path, writers_by_spark: Writers, figures: Callable[[str], None]
) -> None:
    lake, draw = Lake(tmp_path, writers_by_spark, random.Random(SEED + 8)), random.Random(SEED + 9)
    lake.longest, lake.most = 3.0, 8
    kinds = Counter[str]()
    while lake.kills < SPARK_KILLS:
        there = dict(lake.main)
        for how in draw.sample(["append", "merge", "update"], 2):  # the first write of the branch, and a later one
            lake.round += 1
            new = Counter(zip(*rows(lake.round).to_pydict().values(), strict=True))
            before = there
            there = {
                name: updated(each, lake.round) if how == "update" else each + new for name, each in before.items()
            }
            about = f"seed {SEED}, round {lake.round}, {how}"
            while lake.killed("write", how):
                kinds[how] += 1
                assert lake.by_deltalake() == lake.main, about
                with lake.connect("b") as branch:
                    for name, now in lake.rows(branch).items():
                        assert now in (before[name], there[name]), about
            with lake.connect("b") as branch:
                assert lake.rows(branch) == there, about
        with lake.connect() as session:
            if draw.random() < 0.3:
                session.discard("b")
                assert not list(lake.root.rglob("branch.json")), about
                assert lake.by_deltalake() == lake.main, about
                continue
        kinds["publish"] += lake.killed("publish")
        with lake.connect() as session:
            session.publish("b")
            lake.main = there
            assert lake.by_deltalake() == there, about
            for name in TABLES:
                session.execute(name, VacuumSpec(retention_hours=0, enforce_retention=False))
        assert lake.by_deltalake() == there, about
        assert not list(lake.root.glob("main/*/_branches/**/_delta_log/*")), about  # what killed writes have left
    figures(f"{lake.kills} kills, {dict(kinds)}, seed {SEED}")
