"""Change feed of a publish: the net rows of the branch. Consumers of changes go on after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun import CommitConflict, OptimizeSpec, Session, WriteSpec
from duckrun.changes.cursors import Cursor, Upstream

MARKS = ", 'delta.enableDeletionVectors' = 'true'"
MAPPED = ", 'delta.columnMapping.mode' = 'name'"


@pytest.fixture
def main(root: Path) -> Iterator[Session]:
    with duckrun.connect(root) as session:
        yield session


def create(main: Session, more: str = "", parts: str = "") -> None:
    feed = f"tblproperties ('delta.enableChangeDataFeed' = 'true'{more})"
    main.sql(f"create table t (id int, g int, v int) using delta {parts} {feed}", dialect="spark")
    main.sql("insert into t select i, i % 2, 0 from range(10) r(i)")


def work(root: Path) -> None:
    with duckrun.connect(root, branch="b") as branch:
        branch.sql("update t set v = 1 where id = 3")
        branch.sql("update t set v = 2 where id = 3")
        branch.sql("update t set v = 9 where id = 5")
        branch.sql("update t set v = 0 where id = 5")
        branch.sql("delete from t where id = 4")
        branch.sql("insert into t values (100, 1, 1), (101, 1, 1)")
        branch.sql("delete from t where id = 101")
        branch.execute("t", OptimizeSpec())


NET = [(3, 0, "delete"), (3, 2, "insert"), (4, 0, "delete"), (100, 1, "insert")]


def changed(rows: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    return sorted((row["id"], row["v"], row["_change_type"]) for row in rows)


@pytest.mark.parametrize(
    ("more", "parts"),
    [("", ""), (MARKS, ""), ("", "partitioned by (g)"), (MAPPED, "partitioned by (g)")],
    ids=["plain", "vectors", "partitioned", "mapped"],
)
def test_a_publish_tells_the_net_rows_alone(main: Session, root: Path, more: str, parts: str) -> None:
    create(main, more, parts)
    work(root)
    main.sql("insert into t values (50, 0, 1)")
    version = main.publish("b").versions["main.t"]
    assert version is not None
    assert changed(main.table("t").table_changes(version, version).collect()) == NET
    changes = main.table("t").changes("full_delta", from_version=version - 1)
    assert changed(changes.collect()) == NET
    assert changes.sources == {version: "feed"}


@pytest.mark.spark
@pytest.mark.parametrize(("more", "parts"), [("", ""), (MARKS, "partitioned by (g)")], ids=["plain", "vectors"])
def test_spark_reads_the_net_rows_of_a_publish(main: Session, root: Path, spark: Any, more: str, parts: str) -> None:
    create(main, more, parts)
    work(root)
    version = main.publish("b").versions["main.t"]
    reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version)
    rows = [row.asDict() for row in reader.load((root / "main" / "t").as_posix()).collect()]
    assert changed(rows) == NET


def test_no_feed_is_written_where_the_files_tell_the_rows(main: Session, root: Path) -> None:
    create(main)
    with duckrun.connect(root, branch="b") as branch:
        branch.sql("insert into t values (100, 1, 1)")
    version = main.publish("b").versions["main.t"]
    assert version is not None
    assert changed(main.table("t").table_changes(version, version).collect()) == [(100, 1, "insert")]
    assert not list(root.rglob("_change_data/*.parquet"))


def test_rows_with_ids_are_told_as_updates(main: Session, root: Path) -> None:
    create(main, ", 'delta.enableRowTracking' = 'true'")
    work(root)
    version = main.publish("b").versions["main.t"]
    assert version is not None
    assert changed(main.table("t").table_changes(version, version).collect()) == [
        (3, 0, "update_preimage"),
        (3, 2, "update_postimage"),
        (4, 0, "delete"),
        (100, 1, "insert"),
    ]


def test_a_column_of_the_name_of_the_feeds_own_is_refused_before_any_commit(main: Session, root: Path) -> None:
    create(main)
    main.sql("create table u as select 1 as x")
    with duckrun.connect(root, branch="b") as branch:
        branch.sql("insert into u values (2)")
        branch.sql("update t set v = 1 where id = 3")
        branch.sql("alter table t add column _change_type varchar")
    with pytest.raises(duckrun.DuckrunError, match="_change_type"):
        main.publish("b")
    assert main.sql("from u").count() == 1
    assert [each.state for each in main.branches()] == ["open"]


class Consumer:
    """Appends a row to its output for each range of versions that it reads."""

    def __init__(self, upstream: str = "t", output: str = "target") -> None:
        self.upstream, self.output = upstream, output

    def run(self, session: Session) -> tuple[int, int]:
        cursor = Cursor(session.lake, session.table(self.output).ref, f"{self.output} of {self.upstream}")
        upstream = Upstream.of(session.lake, session.table(self.upstream).snapshot())
        step = cursor.begin({f"main.{self.upstream}": upstream})
        rows = pa.table({"rows": pa.array([step.offsets.number], pa.int32())})
        session.execute(self.output, WriteSpec("append", app=step.app), rows)
        read = step.ranges[f"main.{self.upstream}"]
        return read.from_version, read.to_version


@pytest.fixture
def consumer(main: Session) -> Consumer:
    create(main)
    main.sql("create table target as select 0 as rows")
    consumer = Consumer()
    assert consumer.run(main) == (-1, 1)
    return consumer


def test_a_consumer_in_main_reads_a_publish_once(main: Session, root: Path, consumer: Consumer) -> None:
    work(root)
    main.sql("insert into t values (50, 0, 1)")
    assert main.publish("b").versions == {"main.t": 3}
    assert consumer.run(main) == (1, 3)
    with duckrun.connect(root, branch="c") as branch:
        branch.sql("insert into t values (200, 1, 1)")
    main.publish("c")
    assert consumer.run(main) == (3, 4)


def test_a_consumer_that_ran_in_a_branch_goes_on_in_main(main: Session, root: Path, consumer: Consumer) -> None:
    after = Consumer("target", "all")
    with duckrun.connect(root, branch="b") as branch:
        branch.sql("create table all as select 0 as rows")
        branch.sql("insert into t values (100, 0, 1)")
        assert consumer.run(branch) == (1, 2)
        branch.sql("insert into t values (101, 0, 1)")
        assert consumer.run(branch) == (2, 3)
        assert after.run(branch) == (-1, 3)
    main.sql("alter table t set tblproperties ('a' = 'b')")
    assert main.publish("b").versions == {"main.t": 3, "main.target": 2, "main.all": 0}
    main.sql("insert into t values (51, 0, 1)")
    assert (consumer.run(main), after.run(main)) == ((3, 4), (2, 3))


def test_a_consumer_that_lacks_rows_of_main_refuses_the_publish_and_the_rebase(
    main: Session, root: Path, consumer: Consumer
) -> None:
    with duckrun.connect(root, branch="b") as branch:
        branch.sql("insert into t values (100, 0, 1)")
        assert consumer.run(branch) == (1, 2)
    main.sql("insert into t values (50, 0, 1)")
    for call in (main.publish, main.rebase):
        with pytest.raises(CommitConflict, match="target of t has read main.t in the branch, and lacks rows"):
            call("b")


def test_a_consumer_that_has_read_a_part_of_a_branch_refuses_its_publish(
    main: Session, root: Path, consumer: Consumer
) -> None:
    with duckrun.connect(root, branch="b") as branch:
        branch.sql("insert into t values (100, 0, 1)")
        assert consumer.run(branch) == (1, 2)
        branch.sql("insert into t values (101, 0, 1)")
        with pytest.raises(CommitConflict, match="target of t has read main.t up to version 2 .* newest one is 3"):
            main.publish("b")
        assert consumer.run(branch) == (2, 3)
    assert main.publish("b").versions["main.t"] == 2
    main.sql("insert into t values (51, 0, 1)")
    assert consumer.run(main) == (2, 3)


def test_a_consumer_goes_on_in_a_rebased_branch(main: Session, root: Path, consumer: Consumer) -> None:
    with duckrun.connect(root, branch="b") as branch:
        branch.sql("insert into t values (100, 0, 1)")
        assert consumer.run(branch) == (1, 2)
        main.sql("alter table t set tblproperties ('a' = 'b')")
        assert main.rebase("b") == {"main.t": 3}
        branch.sql("insert into t values (101, 0, 1)")
        assert consumer.run(branch) == (3, 4)
    assert main.publish("b").versions["main.t"] == 3
    main.sql("insert into t values (51, 0, 1)")
    assert consumer.run(main) == (3, 4)
