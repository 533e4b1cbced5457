"""What Delta's streaming options give for the worked example of docs/changes.md, beside the four queries: known outputs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import duckrun
from duckrun import InvalidConfig, Session, WriteSpec
from duckrun.spark import stream_table
from tests.changes.test_changes import EXAMPLE, FIRST
from tests.lake import rows_of

BEGUN = [("jack", "apple"), ("john", "pineapple"), ("sarah", "orange")]
NOW = [("jack", "banana"), ("lena", "fig"), ("sarah", "kiwi")]
FED = [
    ("jack", "apple", "update_preimage", 1),
    ("jack", "banana", "update_postimage", 1),
    ("john", "pineapple", "delete", 2),
    ("lena", "fig", "insert", 3),
    ("sarah", "kiwi", "update_postimage", 3),
    ("sarah", "orange", "update_preimage", 3),
]
# Rows come again with their files, and none goes: DuckDB has put the three rows into one file, Spark into two.
CARRIED = {
    "duckdb": [
        ("jack", "apple"), *[("jack", "banana")] * 3, *[("john", "pineapple")] * 2, ("lena", "fig"), ("sarah", "kiwi"),
        *[("sarah", "orange")] * 3,
    ],
    "spark": [
        ("jack", "apple"), ("jack", "banana"), ("john", "pineapple"), ("lena", "fig"), ("sarah", "kiwi"), *[("sarah", "orange")] * 2,
    ],
}  # fmt: skip
MIDDLE = {"duckdb": NOW, "spark": [("lena", "fig"), ("sarah", "kiwi")]}


def filled(session: Session, vectors: str, steps: int = 3) -> None:
    properties = {"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": "true"}
    if not session.lake.exists(session.ref("main.fruits")):
        session.execute("main.fruits", WriteSpec("overwrite", table_properties=properties), duckrun.SQL(FIRST))
    for statement in EXAMPLE[:steps]:
        session.sql(statement)


@pytest.mark.spark
@pytest.mark.parametrize("writer", ["duckdb", "spark"])
@pytest.mark.parametrize("vectors", ["false", "true"], ids=["copy-on-write", "vectors"])
def test_the_seven_outputs(tmp_path: Path, spark: Any, writer: str, vectors: str) -> None:
    with (
        duckrun.connect(tmp_path, engine=writer, spark=spark if writer == "spark" else None) as own,  # type: ignore[arg-type]
        duckrun.connect(tmp_path, engine="spark", spark=spark) as session,
    ):

        def given(target: str, **options: Any) -> list[tuple[Any, ...]]:
            stream_table(session, "main.fruits", f"out.{target}", options=options)
            columns = [c for c in session.table(f"out.{target}").toDF().columns if c != "_commit_timestamp"]
            return rows_of(session.table(f"out.{target}").toDF(), *columns)

        filled(own, vectors, 0)
        begun = [(*row, "insert", 0) for row in BEGUN]
        assert given("feed", readChangeFeed=True) == begun  # the newest state as inserts, and later what changes
        filled(own, vectors)
        assert given("feed", readChangeFeed=True) == sorted([*begun, *FED], key=repr)
        assert given("feed_from", readChangeFeed=True, startingVersion=1) == FED
        assert given("now") == NOW
        for number, options in enumerate(({}, {"ignoreDeletes": True})):
            with pytest.raises(InvalidConfig, match="meets a commit that updated or deleted rows.*readChangeFeed"):
                given(f"plain{number}", startingVersion=0, **options)
        assert (
            given("skipped", startingVersion=0, skipChangeCommits=True) == BEGUN
        )  # lena, whom a MERGE inserted, is missing
        assert given("carried", startingVersion=0, ignoreChanges=True) == CARRIED[writer]
        assert given("middle", startingVersion=3, ignoreChanges=True) == MIDDLE[writer]


@pytest.mark.spark
def test_an_option_that_is_none(tmp_path: Path, spark: Any) -> None:
    with duckrun.connect(tmp_path, engine="spark", spark=spark) as session:
        filled(session, "false", 0)
        with pytest.raises(InvalidConfig, match="has no option 'ignoreChange'.*ignoreChanges"):
            stream_table(session, "main.fruits", "main.out", options={"ignoreChange": True})


def test_the_feed_is_read_in_one_go_by_the_same_names(session: Session) -> None:
    filled(session, "false")
    columns = ("name", "fruit", "_change_type", "_commit_version")

    def read(**options: Any) -> Any:
        return session.read.format("delta").option("readChangeFeed", "true").options(**options)

    assert rows_of(read(startingVersion=1).table("main.fruits"), *columns) == FED
    found = read(startingVersion=2, endingVersion=2).load(session.ref("main.fruits").location)
    assert rows_of(found, *columns) == [FED[2]]
    times = {entry["version"]: entry["timestamp"] for entry in session.table("main.fruits").history()}
    first, last = (datetime.fromtimestamp(times[version] / 1000, UTC).isoformat() for version in (1, 2))
    found = read(startingTimestamp=first, endingTimestamp=last).table("main.fruits")
    assert rows_of(found, *columns) == FED[:3]
    with pytest.raises(InvalidConfig, match="goes with readChangeFeed"):
        session.read.format("delta").option("startingVersion", 1).table("main.fruits")
    with pytest.raises(InvalidConfig, match="reads a range"):
        read(versionAsOf=1).table("main.fruits")
