"""A run that pins versions sees all tables of a publish, or none."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import duckrun
from duckrun import CommitConflict, Session, TableNotFound, VersionNotReadable
from duckrun.run.pins import Pins
from duckrun.values.branches import PENDING, PLAN

TABLES = ("a", "b", "c")


@pytest.fixture
def main(root: Path) -> Iterator[Session]:
    with duckrun.connect(root) as session:
        for name in TABLES:
            session.sql(f"create table {name} as select 0 as x")
        yield session


class Run:
    """A session that reads each table at one version for its whole life."""

    def __init__(self, main: Session, branch: str | None = None) -> None:
        root = main.lake.root
        self._of_lakes = duckrun.connect(root, branch=branch)
        self.session = duckrun.connect(root, branch=branch, pins=Pins(self._of_lakes.lakes))

    def newest(self, *names: str) -> list[int]:
        return [self.session.sql(f"select max(x) as x from {name}").collect()[0]["x"] for name in names]


def publish(main: Session, value: int, names: tuple[str, ...] = TABLES) -> None:
    with duckrun.connect(main.lake.root, branch="b") as branch:
        for name in names:
            branch.sql(f"insert into {name} values ({value})")
    main.publish("b")


def test_a_table_pinned_before_a_publish_pins_the_others_before_it(main: Session) -> None:
    before = Run(main)
    assert before.newest("b") == [0]
    publish(main, 1)
    after = Run(main)
    assert before.newest("a", "c", "b") == [0, 0, 0]
    assert after.newest("c", "a", "b") == [1, 1, 1]
    assert main.sql("select max(x) as x from a").collect() == [{"x": 1}]


@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "b", "a")])
def test_each_run_between_publishes_sees_those_before_it(main: Session, order: tuple[str, ...]) -> None:
    first, *others = order
    runs = []
    for number in range(4):
        run = Run(main)
        assert run.newest(first) == [number]
        runs.append(run)
        publish(main, number + 1)
    assert [run.newest(*others) for run in runs] == [[number] * 2 for number in range(4)]


def test_publishes_of_different_tables_are_all_hidden_from_a_run_before_them(main: Session) -> None:
    run = Run(main)
    assert run.newest("a") == [0]
    publish(main, 1, ("b",))
    publish(main, 2, ("b", "c"))
    main.sql("insert into b values (3)")
    assert run.newest("b", "c") == [0, 0]
    assert Run(main).newest("a", "b", "c") == [0, 3, 2]


def test_other_commits_are_seen_as_before(main: Session) -> None:
    run = Run(main)
    assert run.newest("a") == [0]
    main.sql("insert into b values (5)")
    assert run.newest("b") == [5]


def test_a_table_that_a_publish_creates_or_replaces_is_the_old_one_or_none(main: Session) -> None:
    run = Run(main)
    assert run.newest("a") == [0]
    with duckrun.connect(main.lake.root, branch="b") as branch:
        branch.sql("create table d as select 1 as x")
        branch.sql("drop table b")
        branch.sql("create table b as select 7 as x")
    main.publish("b")
    assert run.newest("b") == [0]
    with pytest.raises(TableNotFound, match="for this run"):
        run.newest("d")
    assert Run(main).newest("d", "b") == [1, 7]


def test_a_run_of_more_than_a_week_is_refused_after_a_publish(main: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Run(main)
    assert before.newest("a") == [0]
    publish(main, 1)
    after = Run(main)
    assert after.newest("a") == [1]
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 8 * 86_400)
    assert after.newest("b") == [1]
    with duckrun.connect(main.lake.root) as other:
        other.publish("b")  # replayed; it removes the old record
    with pytest.raises(VersionNotReadable, match="main.b: this run began .* a week ago"):
        before.newest("b")
    assert before.newest("a") == [0]
    assert Run(main).newest("b", "c") == [1, 1]


def test_a_publish_under_way_is_hidden_from_runs_that_begin_in_it(main: Session, root: Path) -> None:
    """A process that has ended after its first commit leaves the same files."""
    publish(main, 1)
    record = json.loads(next((root / "_duckrun" / "publish").glob("*.json")).read_text())
    tables = [
        {
            "schema": "main",
            "name": name,
            "location": "",
            "change": "changed",
            "before": record["before"][f"main.{name}"],
        }
        for name in TABLES
    ]
    (root / PENDING).mkdir(parents=True, exist_ok=True)
    (root / f"{PENDING}/{record['id']}{PLAN}").write_text(json.dumps({"decision": "commit", "tables": tables}))
    (root / "_duckrun" / "publish" / f"{record['id']}.json").unlink()
    run = Run(main)
    assert run.newest("a", "b") == [0, 0]
    (root / "_duckrun" / "publish" / f"{record['id']}.json").write_text(json.dumps(record))
    assert run.newest("c") == [0]
    assert Run(main).newest(*TABLES) == [1, 1, 1]


def test_a_run_in_a_branch_reads_its_own_tables_and_those_of_main_before_a_publish(main: Session) -> None:
    with duckrun.connect(main.lake.root, branch="mine") as mine:
        mine.sql("insert into a values (50)")
    run = Run(main, "mine")
    assert run.newest("a") == [50]
    publish(main, 1)
    assert run.newest("b", "c") == [0, 0]
    late = Run(main, "mine")
    assert late.newest("b", "a") == [1, 50]


def test_a_write_of_a_run_to_a_table_that_was_published_meanwhile(main: Session) -> None:
    run = Run(main)
    assert run.newest("a") == [0]
    publish(main, 1)
    run.session.sql("insert into b values (9)")  # it reads no row
    assert run.newest("b") == [9]
    assert run.newest("c") == [0]
    with pytest.raises(CommitConflict):
        run.session.sql("insert into c select max(x) + 1 from c")


@pytest.mark.parametrize("work", ["rebase", "publish", "discard"])
@pytest.mark.parametrize("layout", ["", "tblproperties ('delta.columnMapping.mode' = 'name')"], ids=["plain", "mapped"])
def test_a_run_in_a_branch_reads_no_other_rows_after_its_versions_are_gone(
    main: Session, layout: str, work: str
) -> None:
    main.sql(f"create table t (x int) using delta {layout}", dialect="spark")
    main.sql("insert into t values (0)")
    with duckrun.connect(main.lake.root, branch="b") as branch:
        for value in (1, 2):
            branch.sql(f"insert into t values ({value})")
    run = Run(main, "b")
    frame = run.session.sql("select max(x) as x from t")
    assert run.newest("t") == [2]
    for value in range(10, 15):  # main's version of the same number has other rows
        main.sql(f"insert into t values ({value})")
    getattr(main, work)("b")
    with pytest.raises(VersionNotReadable, match="branch b"):
        run.newest("t")
    if work != "discard":
        assert frame.collect() == [{"x": 2}]
        assert Run(main, "b").newest("t") == [14]
