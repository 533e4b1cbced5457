"""A table of many features in an object store, through its life: what any store has to keep of it."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

import duckrun
from duckrun import MergeSpec, UpdateSpec, VacuumSpec, WriteSpec
from tests.lake import rows_of

FEATURES = {
    "delta.columnMapping.mode": "name",
    "delta.enableRowTracking": "true",
    "delta.enableDeletionVectors": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.checkpointPolicy": "v2",
    "delta.checkpointInterval": "3",
}
ROWS = pa.table({"id": [1, 2], "day": ["mon", "o'x/y %"]})


def lives_through(root: str, options: Mapping[str, str]) -> None:
    """Write, change, rename, compact, checkpoint, restore and vacuum the table main.featured, and read it in a fresh session."""
    with duckrun.connect(root, storage_options=options) as s:
        s.execute("main.featured", WriteSpec("error", partition_by=("day",), table_properties=FEATURES), ROWS)
        s.execute("main.featured", MergeSpec(("id",)), pa.table({"id": [2, 3], "day": ["tue", "mon"]}))
        s.sql("alter table featured rename column day to weekday")
        s.execute("main.featured", UpdateSpec({"id": "id * 10"}, "weekday = 'mon'", merge_mode="copy_on_write"))
        s.table("main.featured").optimize().executeCompaction()
        s.sql("delete from featured")
        s.table("main.featured").restoreToVersion(s.snapshot("main.featured").version - 1)
        log = s.lake.storage.keys(s.ref("main.featured").location, "_delta_log")
        assert any(".checkpoint." in key["path"] for key in log)
        s.execute("main.featured", VacuumSpec(retention_hours=0, enforce_retention=False))
    with duckrun.connect(root, storage_options=options) as fresh:
        wanted = [(2, "tue"), (10, "mon"), (30, "mon")]
        table = fresh.table("main.featured")
        assert sorted(rows_of(fresh.scan("main.featured"))) == wanted
        assert fresh.sql("select id from featured where weekday = 'tue'").collect() == [{"id": 2}]
        ids = {row["id"]: row["_row_id"] for row in table.toDF(row_ids=True).collect()}
        assert len(set(ids.values())) == 3 and ids[10] == 0 and ids[2] == 1
        fresh.sql("insert into featured values (4, 'wed')")
        found = table.changes("min_delta", fresh.snapshot("main.featured").version - 1, key=["id"]).collect()
        assert [(row["_change_type"], row["id"], row["weekday"]) for row in found] == [("insert", 4, "wed")]
