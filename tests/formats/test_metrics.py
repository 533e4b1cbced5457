"""Row counts of a commit: from the metrics of each writer, as they name them."""

from __future__ import annotations

import json

import pytest

from duckrun.formats.delta.log.entries import parse_commit

Counts = tuple[int | None, int | None, int | None]
CASES: dict[str, tuple[str, dict[str, object], Counts]] = {
    "merge by Spark": (
        "MERGE",
        {"numTargetRowsInserted": "1", "numTargetRowsUpdated": "2", "numTargetRowsDeleted": "3", "numOutputRows": "9"},
        (1, 2, 3),
    ),
    "merge by delta_rs": (
        "MERGE",
        {"num_target_rows_inserted": 1, "num_target_rows_updated": 2, "num_target_rows_deleted": 3},
        (1, 2, 3),
    ),
    "delete by Spark": ("DELETE", {"numDeletedRows": "4", "numCopiedRows": "6"}, (0, 0, 4)),
    "delete by delta_rs": ("DELETE", {"num_deleted_rows": 4, "num_copied_rows": 6}, (0, 0, 4)),
    "update by Spark": ("UPDATE", {"numUpdatedRows": "5", "numCopiedRows": "2"}, (0, 5, 0)),
    "append by Spark": ("WRITE", {"numOutputRows": "7"}, (7, 0, 0)),
    "append by delta_rs": ("WRITE", {"num_added_rows": 7}, (7, 0, 0)),
    # Spark counts the rows that it copied out of rewritten files as output.
    "replaceWhere by Spark": ("WRITE", {"numOutputRows": "7", "numCopiedRows": "3", "numDeletedRows": "2"}, (4, 0, 2)),
    "no metrics": ("WRITE", {}, (None, None, 0)),
}


@pytest.mark.parametrize("name", CASES)
def test_counts_are_read_from_the_metrics_of_each_writer(name: str) -> None:
    operation, metrics, counts = CASES[name]
    line = json.dumps({"commitInfo": {"operation": operation, "operationMetrics": metrics}})
    assert parse_commit(0, line.encode()).counts() == counts
