"""Change feed of a publish: the net rows of the branch. Consumers of changes go on after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun import OptimizeSpec, Session, WriteSpec
from duckrun.changes.cursors import Cursor, Upstream

MARKS = ", 'delta.enableDeletionVectors' = 'true'"
MAPPED = ", 'delta.columnMapping.mode' = 'name'"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


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


def test_a_consumer_reads_a_publish_once(main: Session, root: Path) -> None:
    create(main)
    main.sql("create table target as select 0 as rows")
    cursor = Cursor(main.lake, main.table("target").ref, "counter")

    def consume() -> tuple[int, int]:
        upstream = Upstream.of(main.lake, main.table("t").snapshot())
        step = cursor.begin({"main.t": upstream})
        rows = pa.table({"rows": pa.array([step.offsets.number], pa.int32())})
        main.execute("target", WriteSpec("append", app=step.app), rows)
        read = step.ranges["main.t"]
        return read.from_version, read.to_version

    assert consume() == (-1, 1)
    work(root)
    main.sql("insert into t values (50, 0, 1)")
    assert main.publish("b").versions == {"main.t": 3}
    assert consume() == (1, 3)
    with duckrun.connect(root, branch="c") as branch:
        branch.sql("insert into t values (200, 1, 1)")
    main.publish("c")
    assert consume() == (3, 4)
