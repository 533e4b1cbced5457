"""What the embedded engine wrote, held against Spark's own checks: commits and checksums are validated, its own
statements work on, and a moment means the same version.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import duckrun
from duckrun import DeleteSpec, Session, UpdateSpec
from duckrun.values.rows import ReadSpec
from duckrun.values.tables import OptimizeSpec
from tests.engines.feature_cases import FEATURES, Feature
from tests.lake import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.matrix]
CHECKS = {
    "checksum.mismatch.fatal": "true",
    "incremental.commit.verify": "true",
    "versionChecksum.forcedValidationInterval": "0",
    "versionChecksum.forcedValidationMinTimeIntevalMinutes": "0",
    "commitValidation.enabled": "true",
    "commitValidation.consistentDataChange.mode": "fatal",
    "checkpoint.partSize": "2",
}
"""Of delta-spark, which has most of them off or gentle; with files of two actions, checkpoints of version 2 have several sidecars."""
BOTH = ("duckdb", "spark")
WORKED_ON = ("row tracking", "change data feed")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[dict[str, Session]]:
    """A session of each engine on one lake, while Spark checks what it reads."""
    keys = {f"spark.databricks.delta.{key}": value for key, value in CHECKS.items()}
    before = {key: spark.conf.get(key, None) for key in keys}
    for key, value in keys.items():
        spark.conf.set(key, value)
    root = tmp_path_factory.mktemp("checked") / "lake"
    try:
        with duckrun.connect(root) as duck, duckrun.connect(root, engine="spark", spark=spark) as other:
            yield {"duckdb": duck, "spark": other}
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)


def _path(both: dict[str, Session], name: str) -> Path:
    return Path(both["duckdb"].ref(name).location)


def _by_spark(spark: Any, path: Path, columns: str = "id, v") -> list[tuple[Any, ...]]:
    """Rows as Spark without our code reads them, from files alone."""
    _forget(spark)
    return sorted((tuple(row) for row in spark.sql(f"select {columns} from delta.`{path}`").collect()), key=repr)


def _forget(spark: Any) -> None:
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def _insert(session: Session, name: str, *ids: int) -> None:
    session.sql(f"insert into {name} (id, v) values " + ", ".join(f"({i}, 'n{i}')" for i in ids))


@pytest.mark.parametrize(
    "feature", [feature for feature in FEATURES if feature.name in WORKED_ON], ids=lambda feature: feature.name
)
def test_spark_works_on_with_what_was_written(both: dict[str, Session], spark: Any, feature: Feature) -> None:
    duck = both["duckdb"]
    name = "main." + feature.name.replace(" ", "_").replace("-", "_")
    path = _path(both, name)
    duck.execute(name, feature.spec)
    _insert(duck, name, 1, 2, 3)
    _insert(duck, name, 4, 5)
    rows = {i: f"n{i}" for i in (1, 2, 3, 4, 5)}
    if not feature.appends_only:
        duck.sql(
            f"merge into {name} t using (select unnest([5, 6]) as id) s on t.id = s.id when matched then update set v = 'm' "
            "when not matched then insert (id, v) values (s.id, 'm')"
        )
        duck.execute(name, UpdateSpec({"v": "'u'"}, "id = 2"))
        duck.execute(name, DeleteSpec("id = 1"))
        duck.execute(name, OptimizeSpec())
        rows = {2: "u", 3: "n3", 4: "n4", 5: "m", 6: "m"}
    wanted = sorted(rows.items())
    assert _by_spark(spark, path) == wanted
    tracked = "row tracking" in feature.name
    ids = _by_spark(spark, path, "id, _metadata.row_id, _metadata.row_commit_version") if tracked else []
    newest = duck.snapshot(name).version
    detail = spark.sql(f"describe detail delta.`{path}`").first()
    assert detail["numFiles"] == len(list(duck.snapshot(name).files()))
    history = spark.sql(f"describe history delta.`{path}`").collect()
    assert [row["version"] for row in history] == list(range(newest, -1, -1))
    assert all(row["timestamp"] and row["operation"] and row["engineInfo"] for row in history)
    if feature.name == "change data feed":
        kinds = spark.sql(f"select _change_type, id from table_changes_by_path('{path}', 1, {newest})").collect()
        counts = {kind: sorted(i for k, i in kinds if k == kind) for kind in {k for k, _ in kinds}}
        assert counts == {
            "insert": [1, 2, 3, 4, 5, 6],
            "update_preimage": [2, 5],
            "update_postimage": [2, 5],
            "delete": [1],
        }
    if feature.appends_only:
        return
    spark.sql(f"optimize delta.`{path}`")
    spark.sql(f"vacuum delta.`{path}`")
    assert _by_spark(spark, path) == rows_of(duck.sql(f"select id, v from {name}")) == wanted
    if tracked:
        assert _by_spark(spark, path, "id, _metadata.row_id, _metadata.row_commit_version") == ids
    spark.sql(f"update delta.`{path}` set v = 'by spark' where id = 3")
    duck.execute(name, DeleteSpec("id = 4"))
    spark.sql(f"restore table delta.`{path}` to version as of {newest}")
    assert _by_spark(spark, path) == rows_of(duck.sql(f"select id, v from {name}")) == wanted
    _insert(duck, name, 7)
    assert _by_spark(spark, path) == rows_of(duck.sql(f"select id, v from {name}")) == [*wanted, (7, "n7")]


def test_a_moment_gives_the_version_that_spark_gives(both: dict[str, Session], spark: Any) -> None:
    duck, name = both["duckdb"], "main.moments"
    path = _path(both, name)
    made = "create table {} (id int, v string) using delta tblproperties ('delta.enableInCommitTimestamps' = 'true')"
    duck.sql(made.format(name), dialect="spark")
    for turn in range(4):
        both[BOTH[turn % 2]].sql(f"insert into {name} values ({turn}, 'a')", dialect="spark")
        time.sleep(0.02)
    stamps = []
    for commit in sorted((path / "_delta_log").glob("*.json")):
        stamps.append(json.loads(commit.read_text().splitlines()[0])["commitInfo"]["inCommitTimestamp"])
        os.utime(commit, (1_000_000_000, 1_000_000_000))  # the file's own moment says nothing
    assert stamps == sorted(set(stamps))
    for version, stamp in enumerate(stamps):
        moments = [stamp] + ([stamp - 1] if version else [])
        for moment in moments:
            said = datetime.fromtimestamp(moment / 1000, UTC).isoformat(timespec="milliseconds")
            _forget(spark)
            theirs = spark.read.format("delta").option("timestampAsOf", said).load(str(path)).count()
            assert duck.scan(name, ReadSpec(timestamp=said)).count() == theirs, (version, moment - stamp)
            expected = version if moment == stamp else version - 1
            assert duck.snapshot(name, ReadSpec(timestamp=said)).version == expected == theirs
