"""Processes that write one table at once which tracks its rows: base ids never overlap, the mark is right, no row's id is another's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import duckrun
from duckrun import MergeSpec, UpdateSpec, WriteSpec
from tests.tracked import FEATURES, check_numbers

pytestmark = [pytest.mark.turns, pytest.mark.spark]

APPENDS = 100
"""Of each of two processes; every tenth write is a merge that updates a row of its own and inserts one."""
WRITER = """
import sys
import pyarrow as pa
import duckrun
from duckrun import MergeSpec, WriteSpec
root, number, writes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with duckrun.connect(root, memory_limit="1GB") as session:
    for n in range(writes):
        first = number * 1_000_000 + n * 10
        if n % 10 == 9:
            rows = pa.table({"id": [first, first - 10], "v": ["merged", "merged"]})
            session.execute("t", MergeSpec(("id",), merge_mode="deletion_vectors"), rows)
        else:
            session.execute("t", WriteSpec("append"), pa.table({"id": [first, first + 1], "v": ["new", "new"]}))
"""


def ids_by_spark(spark: Any, location: str) -> dict[int, tuple[int, int]]:
    """Each row's id and version, by the table's own column ``id``."""
    found = spark.read.format("delta").load(location).selectExpr(
        "id", "_metadata.row_id AS r", "_metadata.row_commit_version AS w"
    )  # fmt: skip
    rows = found.collect()
    ids = {row["id"]: (row["r"], row["w"]) for row in rows}
    assert len(ids) == len(rows) == len({number for number, _ in ids.values()})
    return ids


def test_two_processes_write_one_table_that_tracks_its_rows(tmp_path: Path, spark: Any) -> None:
    root = tmp_path / "lake"
    with duckrun.connect(root) as session:
        start = session.sql("SELECT CAST(-1 AS BIGINT) AS id, 'start' AS v")
        session.execute("t", WriteSpec("error", table_properties=FEATURES), start)
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, str(root), str(number), str(APPENDS)]) for number in (1, 2)
        ]
        assert [writer.wait() for writer in writers] == [0, 0]
        location = session.ref("t").location
        check_numbers(location)
        before = ids_by_spark(spark, location)
        assert len(before) == len(session.scan("t").toArrow()) == 1 + 2 * (APPENDS * 9 // 10 * 2 + APPENDS // 10)
        merged = {n for n, (_, version) in before.items() if n % 100 == 80}
        assert len(merged) == 2 * (APPENDS // 10)
        session.execute("t", UpdateSpec({"v": "'anew'"}, predicate="id % 2 = 0", merge_mode="copy_on_write"))
        updated = session.snapshot("t").version
        after = ids_by_spark(spark, location)
        assert after == {n: (row_id, updated if n % 2 == 0 else w) for n, (row_id, w) in before.items()}
        session.table("t").optimize().executeCompaction()
        session.execute("t", MergeSpec(("id",)), session.sql("SELECT CAST(-1 AS BIGINT) AS id, 'last' AS v"))
        last = session.snapshot("t").version
        assert ids_by_spark(spark, location) == {**after, -1: (before[-1][0], last)}
        check_numbers(location)
