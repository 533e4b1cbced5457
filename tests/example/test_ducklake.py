"""The example in a DuckLake: the same rows as in Delta tables, nothing where nothing landed, and what comes next."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.example.test_counts import Example
from tools.check_demo import in_the_landing, newest_snapshot, other_rows

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]


def test_the_demo_in_a_ducklake_has_the_rows_that_it_has_in_delta_tables(tmp_path: Path) -> None:
    delta, lake = Example(tmp_path / "delta", sample=40), Example(tmp_path / "lake", sample=40, format="ducklake")
    delta.run("demo")
    first = lake.run("demo")
    assert "26 of 26 checks passed" in first
    assert other_rows(delta.lake, lake.lake) == []
    assert re.search(rf"^raw/flights +ducklake pyspark +spark +{lake.in_the_files()[0]:,} ", first, re.MULTILINE)

    before = newest_snapshot(lake.lake)
    assert "nothing to do" in lake.run("demo")
    assert newest_snapshot(lake.lake) == before

    delta.run("demo-next")
    following = lake.run("demo-next")
    assert other_rows(delta.lake, lake.lake) == [] and in_the_landing(lake.lake) == []
    assert re.search(r"raw/flights .* 59 partitions", following), following  # March, and February as it was corrected
    untouched = re.findall(r"^(raw/planes|marts/dim_plane) .* —$", following, re.MULTILINE)
    assert untouched == ["raw/planes", "marts/dim_plane"]
