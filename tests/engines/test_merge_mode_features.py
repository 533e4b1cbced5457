"""merge_mode deletion_vectors on Spark's tables with features, by both engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun import DeleteSpec, MergeSpec, Session, UpdateSpec
from tests.lake import rows_of

pytestmark = pytest.mark.spark
MARKS: dict[str, Any] = {"merge_mode": "deletion_vectors"}
FEATURES = {
    "columnMapping": "(id BIGINT, v STRING) USING DELTA TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    "rowTracking": "(id BIGINT, v STRING) USING DELTA TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
    "inCommitTimestamp": "(id BIGINT, v STRING) USING DELTA TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
    "generatedColumns": "(id BIGINT, v STRING, x BIGINT GENERATED ALWAYS AS (id * 2)) USING DELTA",
}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[tuple[Session, Session]]:
    """A session of DuckDB's and one of Spark's on one lake."""
    root = tmp_path_factory.mktemp("marks") / "lake"
    with duckrun.connect(root) as duck, duckrun.connect(root, engine="spark", spark=spark) as other:
        yield duck, other


def made(spark: Any, session: Session, name: str, definition: str) -> str:
    """A table of Spark's with 1,000 rows in one file; its location."""
    location = session.ref(name).location
    spark.sql(f"CREATE TABLE delta.`{location}` {definition}")
    spark.sql(f"INSERT INTO delta.`{location}` (id, v) SELECT /*+ COALESCE(1) */ id, 'old' FROM range(1000)")
    return location


@pytest.mark.parametrize("feature", FEATURES)
def test_both_engines_mark(both: tuple[Session, Session], spark: Any, feature: str) -> None:
    duck, other = both
    name = f"main.{feature.lower()}"
    made(spark, duck, name, FEATURES[feature])
    before = duck.snapshot(name).version
    source = pa.table({"id": [3], "v": ["new"]})
    specs = [DeleteSpec("id = 1", **MARKS), UpdateSpec({"v": "'u'"}, "id = 2", **MARKS)]
    commits = [other.execute(name, spec) for spec in specs]
    assert [commit.files_marked for commit in commits] == [1, 1]
    assert f"version {before + 1} turned deletion vectors on" in commits[0].reason and "turned" not in commits[1].reason
    assert duck.snapshot(name).properties["delta.enableDeletionVectors"] == "true"
    for session in both:
        assert rows_of(session.sql(f"select count(*) as n, min(id) as a, sum(id) as s from {name}")) == [
            (999, 0, 499499)
        ]
        assert rows_of(session.sql(f"select id from {name} where v = 'u'")) == [(2,)]
    merged = duck.execute(name, MergeSpec(("id",), **MARKS), source)
    deleted = duck.execute(name, DeleteSpec("id = 4", **MARKS))
    assert (merged.files_marked, deleted.files_marked) == (1, 1)
    for session in both:
        assert rows_of(session.sql(f"select count(*) as n, min(id) as a, sum(id) as s from {name}")) == [
            (998, 0, 499495)
        ]
        assert rows_of(session.sql(f"select id from {name} where v = 'new'")) == [(3,)]


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_the_change_feed_has_the_rows_that_were_marked(both: tuple[Session, Session], spark: Any, engine: str) -> None:
    session = both[engine == "spark"]
    name = f"main.feed_{engine}"
    location = made(
        spark, session, name, "(id BIGINT, v STRING) USING DELTA TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )

    def changes(version: int) -> list[tuple[Any, ...]]:
        found = spark.sql(f"SELECT * FROM table_changes_by_path('{location}', {version}, {version})").collect()
        kinds = {"update_preimage": "delete", "update_postimage": "insert"}  # Spark's own commits tell updates apart
        return sorted((kinds.get(row["_change_type"], row["_change_type"]), row["id"], row["v"]) for row in found)

    commit = session.execute(name, DeleteSpec("id in (1, 2)", **MARKS))
    assert commit.files_marked == 1
    assert changes(commit.version) == [("delete", 1, "old"), ("delete", 2, "old")]
    commit = session.execute(name, UpdateSpec({"v": "'u'"}, "id = 3", **MARKS))
    assert commit.files_marked == 1
    assert changes(commit.version) == [("delete", 3, "old"), ("insert", 3, "u")]
    source = pa.table({"id": [4, 2000], "v": ["m", "m"]})
    commit = session.execute(name, MergeSpec(("id",), **MARKS), source)
    assert commit.files_marked
    assert changes(commit.version) == [("delete", 4, "old"), ("insert", 4, "m"), ("insert", 2000, "m")]
    for each in both:
        assert rows_of(each.sql(f"select v, count(*) as n from {name} group by v")) == [
            ("m", 2),
            ("old", 996),
            ("u", 1),
        ]
