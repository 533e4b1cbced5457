"""Tables that plain delta-spark wrote, changed by the embedded engine: Spark, DuckDB and deltalake read the same afterwards."""

from __future__ import annotations

import shutil
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import duckrun
from duckrun import Session
from duckrun.values.rows import DeleteSpec, UpdateSpec, WriteSpec
from tests.engines.writers.test_foreign_paths import CHANGES, VALUES, removed_paths
from tests.lake import rows_of

pytestmark = pytest.mark.spark
ROWS = [(n, value) for n, value in enumerate(VALUES)]
OPERATIONS = {
    "merge": ("MERGE", {"numTargetRowsInserted": "1", "numTargetRowsUpdated": "2", "numTargetRowsDeleted": "0"}),
    "merge on": ("MERGE", {"numTargetRowsInserted": "1", "numTargetRowsUpdated": "2", "numTargetFilesRemoved": "2"}),
    "delete+insert": ("MERGE", {"numTargetRowsInserted": "3", "numTargetRowsDeleted": "2"}),
    "update": ("UPDATE", {"numUpdatedRows": str(len(ROWS)), "numCopiedRows": "0"}),
    "delete": ("DELETE", {"numDeletedRows": "2", "numRemovedFiles": "2", "numAddedFiles": "0"}),
    "delete a partition": ("DELETE", {"numDeletedRows": "1", "numRemovedFiles": "1"}),
    "delete all": ("DELETE", {"numDeletedRows": str(len(ROWS)), "numRemovedFiles": str(len(ROWS))}),
    "replace partitions": ("WRITE", {"numFiles": "1", "numOutputRows": "1", "numRemovedFiles": "1"}),
    "replace rows": ("WRITE", {"numOutputRows": "1", "numRemovedFiles": str(len(ROWS))}),
    "overwrite": ("WRITE", {"numFiles": "1", "numOutputRows": "1", "numRemovedFiles": str(len(ROWS))}),
    "overwrite by a stream": ("WRITE", {"numFiles": "1", "numRemovedFiles": str(len(ROWS))}),
    "append": ("WRITE", {}),
}


@pytest.fixture(scope="module")
def of_spark(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of plain Spark: a row in each partition, whose values are beyond what is written plainly."""
    location = tmp_path_factory.mktemp("spark") / "t"
    frame = spark.createDataFrame([(n, p) for n, p in ROWS], "id long, p string")
    frame.repartition(1).write.format("delta").partitionBy("p").save(str(location))
    return location


@pytest.mark.parametrize("change", OPERATIONS)
def test_what_a_change_removes_is_gone_for_every_reader_and_the_history_says_what_it_was(
    duck: Session, root: Path, spark: Any, of_spark: Path, change: str
) -> None:
    location = root / "main" / "t"
    shutil.copytree(of_spark, location)
    do, expected = CHANGES[change]
    do(duck)
    wanted = sorted(expected(ROWS), key=repr)
    assert rows_of(duck.table("t").toDF(), "id", "p") == wanted
    seen = spark.read.format("delta").load(str(location)).select("id", "p").collect()
    assert sorted((tuple(row) for row in seen), key=repr) == wanted
    counts = DeltaTable(location).get_add_actions().to_struct_array().to_pylist()
    assert sum(add["num_records"] for add in counts) == len(wanted)
    before = {add["path"] for add in DeltaTable(location, version=0).get_add_actions().to_struct_array().to_pylist()}
    assert removed_paths(location, 1) <= before
    last = spark.sql(f"DESCRIBE HISTORY delta.`{location}` LIMIT 1").collect()[0].asDict()
    operation, metrics = OPERATIONS[change]
    assert (last["version"], last["operation"]) == (1, operation)
    assert {name: last["operationMetrics"].get(name) for name in metrics} == metrics
    assert ("mode" in last["operationParameters"]) == (operation == "WRITE")


@pytest.mark.parametrize("mode", ["copy_on_write", "deletion_vectors"])
@pytest.mark.parametrize("commits", ["kept", "cleaned up"])
def test_files_with_vectors_go_with_them(duck: Session, root: Path, spark: Any, commits: str, mode: Any) -> None:
    """Also where the commit that gave a file its vector is gone from the log, and a checkpoint alone holds it."""
    location = root / "main" / "v"
    spark.sql(
        f"CREATE TABLE delta.`{location}` (id bigint, p string) USING delta PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'delta.checkpointInterval' = '1')"
    )
    target = f"delta.`{location}`"
    spark.sql(f"INSERT INTO {target} SELECT /*+ COALESCE(1) */ id, if(id < 50, 'é', 'b') FROM range(100)")
    spark.sql(f"DELETE FROM {target} WHERE id % 10 = 0")
    if commits == "cleaned up":
        for path in sorted((location / "_delta_log").glob("*.json"))[:-1]:
            path.unlink()
        newest = location / "_delta_log" / f"{2:020d}.json"
        if newest.exists() and (location / "_delta_log" / f"{2:020d}.checkpoint.parquet").exists():
            newest.unlink()
    marked = [f for f in duck.snapshot("v").files() if f.deletion_vector]
    assert [(f.deleted_rows, f.live_rows) for f in marked] == [(5, 45), (5, 45)]
    duck.execute("v", UpdateSpec({"id": "id + 1000"}, "id = 1 or id = 51", merge_mode=mode))
    commit = duck.execute("v", DeleteSpec("id = 2 or id = 52", merge_mode=mode))
    assert (commit.rows_deleted, commit.files_removed) == (2, 2 if mode == "copy_on_write" else 0)
    wanted = sorted(n + 1000 * (n in (1, 51)) for n in range(100) if n % 10 and n not in (2, 52))
    assert sorted(row["id"] for row in duck.sql("select id from v").collect()) == wanted
    assert sorted(row["id"] for row in spark.read.format("delta").load(str(location)).collect()) == wanted


MOMENT = datetime(2024, 1, 1, 10, 30)
KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "double": (pa.float64(), 1.0),
    "moment": (pa.timestamp("us", "UTC"), MOMENT),
    "whole moment": (pa.timestamp("us", "UTC"), datetime(2024, 1, 1)),
    "naive moment": (pa.timestamp("us"), MOMENT),
    "boolean": (pa.bool_(), True),
    "decimal": (pa.decimal128(10, 2), Decimal(1)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_replacing_a_partition_takes_it_whoever_spelled_its_value(
    session: Session, spark: Any, root: Path, kind: str
) -> None:
    """One partition by three writers, each of whom may spell its value in another way, is one partition."""
    type_, value = KINDS[kind]
    location = str(root / "main" / "t")

    def rows(number: int) -> pa.Table:
        return pa.table({"id": pa.array([number], pa.int64()), "p": pa.array([value], type_)})

    write_deltalake(location, rows(1), partition_by=["p"])
    name = "timestamp_ntz" if kind == "naive moment" else DeltaTable(location).schema().fields[1].type.type  # type: ignore[union-attr]
    text = str(value)
    made = spark.sql(f"SELECT 2L AS id, CAST('{text}' AS {name}) AS p")
    made.write.format("delta").mode("append").save(location)
    with duckrun.connect(root) as duck:
        duck.execute("t", WriteSpec("append"), rows(3).to_reader())
    session.execute("t", WriteSpec("replace"), rows(4))
    assert [row["id"] for row in session.sql("select id from t").collect()] == [4]


@pytest.mark.parametrize("marked", [True, False], ids=["with vectors", "plain"])
def test_a_new_table_supports_what_was_asked_for_and_no_more(session: Session, root: Path, marked: bool) -> None:
    properties = {"delta.enableDeletionVectors": "true"} if marked else {}
    session.execute("t", WriteSpec("append", table_properties=properties), pa.table({"id": [1, 2]}))
    snapshot = session.snapshot("t")
    features = snapshot.reader_features | snapshot.writer_features
    assert features - {"appendOnly", "invariants"} == ({"deletionVectors"} if marked else set())
    with duckrun.connect(root) as duck:
        duck.execute("t", UpdateSpec({"id": "id + 1"}, "id = 2"))
        duck.sql("alter table t add column n int")
        assert rows_of(duck.table("t").toDF(), "id") == [(1,), (3,)]
