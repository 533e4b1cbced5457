"""What the log of a table that tracks its rows must say, commit by commit. Source: Delta protocol, Row Tracking, In-Commit Timestamps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FEATURES = {
    "delta.enableRowTracking": "true",
    "delta.columnMapping.mode": "name",
    "delta.enableDeletionVectors": "true",
    "delta.enableInCommitTimestamps": "true",
}


def actions_of(location: str) -> list[list[dict[str, Any]]]:
    """The actions of each commit, oldest first."""
    log = sorted(Path(location, "_delta_log").glob("0*.json"))
    return [[json.loads(line) for line in commit.read_text().splitlines()] for commit in log]


def check_numbers(location: str) -> None:
    """The files' ranges of ids, and the mark after each commit, as the log has them."""
    mark, ranges, stamps = -1, dict[str, tuple[int, int, int]](), list[int]()
    for number, actions in enumerate(actions_of(location)):
        stamps.append(actions[0]["commitInfo"]["inCommitTimestamp"])
        for add in (action["add"] for action in actions if "add" in action):
            first, rows = add["baseRowId"], json.loads(add["stats"])["numRecords"]
            if add["path"] in ranges:
                assert ranges[add["path"]] == (first, rows, add["defaultRowCommitVersion"])
                continue
            assert first > mark, f"commit {number} gives ids that are given"
            ranges[add["path"]] = (first, rows, add["defaultRowCommitVersion"])
            assert add["defaultRowCommitVersion"] == number
        said = [
            a["domainMetadata"] for a in actions if a.get("domainMetadata", {}).get("domain") == "delta.rowTracking"
        ]
        for each in said:
            highest = json.loads(each["configuration"])["rowIdHighWaterMark"]
            assert highest > mark, "the mark goes up alone"
            mark = highest
        assert mark == max((first + rows - 1 for first, rows, _ in ranges.values()), default=-1), f"commit {number}"
    spans = sorted((first, first + rows) for first, rows, _ in ranges.values())
    assert all(one[1] <= other[0] for one, other in zip(spans, spans[1:], strict=False))
    assert stamps == sorted(set(stamps))
