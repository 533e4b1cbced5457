"""Files that a checkpoint by Spark names are named again by commits of the embedded engine, whatever the types of their columns: Spark
writes the bounds of dates, times and decimals as columns of the checkpoint, which no commit has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import duckrun
from duckrun import DeleteSpec
from tests.engines.spark_checks import CHECKS, forget, read, set_to

pytestmark = [pytest.mark.spark, pytest.mark.turns]
ROWS = ["id", "seen", "plain", "cost", "ratio", "day"]


@pytest.mark.parametrize("as_struct", [False, True], ids=["statistics twice", "statistics as a struct alone"])
def test_a_checkpoint_of_dates_times_and_decimals_is_written_on(tmp_path: Path, spark: Any, as_struct: bool) -> None:
    path = tmp_path / "main" / "t"
    columns = "id bigint, seen timestamp, plain timestamp_ntz, cost decimal(20, 2), ratio double, day date"
    properties = "'delta.enableDeletionVectors' = 'true'" + (
        ", 'delta.checkpoint.writeStatsAsJson' = 'false', 'delta.checkpoint.writeStatsAsStruct' = 'true'"
        if as_struct
        else ""
    )
    spark.sql(f"create table delta.`{path}` ({columns}) using delta partitioned by (day) tblproperties ({properties})")
    for first in (1, 4):
        spark.sql(
            f"insert into delta.`{path}` select /*+ coalesce(1) */ id, timestamp '2024-02-29 23:59:59.999999', timestamp_ntz "
            f"'1969-12-31 23:59:59.000001', cast(id as decimal(20, 2)) / 100, double('infinity'), date '2024-02-29' from range({first}, {first + 3})"
        )
    log = spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, str(path))
    log.checkpoint()
    for version in (0, 1):  # of these versions, nothing but the checkpoint is left
        (path / "_delta_log" / f"{version:020d}.json").unlink()
    before = read(spark, path, ", ".join(ROWS), anew=True)
    with set_to(spark, CHECKS), duckrun.connect(tmp_path) as session:
        session.sql("alter table main.t set tblproperties ('delta.enableRowTracking' = 'true')", dialect="spark")
        session.execute("main.t", DeleteSpec("id = 2", merge_mode="deletion_vectors"))
        assert read(spark, path, ", ".join(ROWS), anew=True) == [row for row in before if row[0] != 2]
        session.sql("delete from main.t where true")
        session.sql("restore table main.t to version as of 2", dialect="spark")
        assert read(spark, path, ", ".join(ROWS), anew=True) == before
        assert session.sql("select count(*) as n from main.t where seen > '2024-02-29' and cost < 0.04").collect() == [
            {"n": 3}
        ]
    forget(spark)
    adds = [
        action["add"]
        for commit in sorted((path / "_delta_log").glob("*.json"))[1:]
        for action in map(json.loads, commit.read_text().splitlines())
        if "add" in action
    ]
    assert len(adds) > 2
    for add in adds:
        assert json.loads(add["stats"])["numRecords"] == 3
        assert not [key for key in add if key.endswith("_parsed")]


def test_rows_of_files_without_statistics_get_ids_by_the_files_themselves(tmp_path: Path, spark: Any) -> None:
    """Spark itself refuses that: DELTA_ROW_ID_ASSIGNMENT_WITHOUT_STATS."""
    path = tmp_path / "main" / "t"
    with set_to(spark, {"stats.collect": "false"}):
        spark.sql(f"create table delta.`{path}` (id bigint, p string) using delta partitioned by (p)")
        for first in (1, 4, 6):
            spark.sql(f"insert into delta.`{path}` select id, 'a/b %' as p from range({first}, {first + 3})")
    with set_to(spark, CHECKS), duckrun.connect(tmp_path) as session:
        session.sql("alter table main.t set tblproperties ('delta.enableRowTracking' = 'true')", dialect="spark")
        found = read(spark, path, "id, _metadata.row_id, _metadata.row_commit_version", anew=True)
        assert [row[0] for row in found] == [1, 2, 3, 4, 5, 6, 6, 7, 8]
        assert sorted(row[1] for row in found) == list(range(9))
        ours = session.table("main.t").toDF(row_ids=True).toArrow().to_pylist()
        assert sorted((row["id"], row["_row_id"], row["_row_commit_version"]) for row in ours) == found
        session.sql("insert into main.t values (9, 'c')")
        assert read(spark, path, "max(_metadata.row_id)", anew=True) == [(9,)]
