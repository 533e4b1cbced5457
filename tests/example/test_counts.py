"""The example's pipeline, run as a user runs it: what is in the lake afterwards is what was in the files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable

import duckrun
from tools.check_demo import other_rows

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[2]
FLIGHT_TABLES = ("raw.flights", "refined.flights", "marts.fct_flights")
Figures = tuple[int, int, int]  # flights, miles flown, flights without an arrival delay


class Example:
    """The example with a home of its own. `sample`: every n-th flight of January and February, March comes next."""

    def __init__(self, home: Path, sample: int = 1, engine: str = "duckdb", format: str = "delta") -> None:
        self.lake = home / ".lake"
        self.landing = home / ".landing"
        self.environment = {
            **os.environ,
            "DUCKRUN_EXAMPLE_HOME": str(home),
            "DUCKRUN_EXAMPLE_SAMPLE": str(sample),
            "DUCKRUN_EXAMPLE_ENGINE": engine,
            "DUCKRUN_EXAMPLE_FORMAT": format,
        }

    def run(self, command: str, timeout: int = 500, branch: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-m", "example_project", command],
            cwd=ROOT,
            env={**self.environment, "DUCKRUN_BRANCH": branch},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, done.stdout[-8000:]
        return done.stdout

    def versions(self) -> dict[str, int]:
        return {
            f"{log.parent.parent.name}.{log.parent.name}": max(int(commit.stem) for commit in log.glob("*.json"))
            for log in self.lake.glob("*/*/_delta_log")
        }

    def engines(self) -> set[str]:
        """The engines that wrote the newest versions of the tables."""
        with duckrun.connect(str(self.lake)) as lake:
            newest = [lake.table(table).history(1)[0] for table in self.versions()]
        return {"spark" if "Spark" in commit["engineInfo"] else "duckdb" for commit in newest}

    def in_the_files(self) -> Figures:
        flights = pl.read_csv(self.landing / "flights" / "*.csv", null_values="NA", columns=["distance", "arr_delay"])
        return flights.height, flights["distance"].sum(), flights["arr_delay"].null_count()

    def through_deltalake(self, table: str) -> Figures:
        rows = DeltaTable(str(self.lake / table.replace(".", "/"))).to_pyarrow_table(columns=["distance", "arr_delay"])
        frame = pl.DataFrame(rows)
        return frame.height, frame["distance"].sum(), frame["arr_delay"].null_count()

    def through(self, engine: str, table: str) -> Figures:
        with duckrun.connect(str(self.lake), engine=engine) as lake:  # type: ignore[arg-type]
            row = lake.sql(
                f"select count(*) as n, sum(distance) as miles, count(*) - count(arr_delay) as missing from {table}"
            ).toArrow()
        found = row.to_pylist()[0]
        return int(found["n"]), int(found["miles"]), int(found["missing"])

    def check_counts(self) -> Figures:
        expected = self.in_the_files()
        for table in FLIGHT_TABLES:
            assert self.through("duckdb", table) == expected, table
            assert self.through_deltalake(table) == expected, table
            assert self.through("spark", table) == expected, table
        return expected


@pytest.mark.slow
@pytest.mark.timeout(900)  # a minute and a half on an idle machine
def test_the_demo_lands_makes_and_adds_what_comes_next(tmp_path: Path) -> None:
    example = Example(tmp_path, sample=40)

    first = example.run("demo")
    flights, _, _ = example.check_counts()
    assert flights == pytest.approx((27004 + 24951) / 40, rel=0.02)
    before = example.versions()
    for table in before:
        assert table.split(".")[1] in first
    report = re.findall(r"^report: (.*\.html)$", first, re.MULTILINE)
    assert report and "data:image/png" in Path(report[0]).read_text()

    # A check of the first run of transform fails, and a rerun publishes what it has written.
    assert first.index("not published") < first.index("main is unchanged") < first.index("again, mended")

    again = example.run("demo")
    assert "nothing to do" in again
    assert example.versions() == before

    example.run("demo-next", branch="dev")
    assert example.versions() == before
    with duckrun.connect(str(example.lake), branch="dev") as dev:
        assert dev.sql("from marts.fct_flights").count() > flights

    following = example.run("demo-next")
    more, _, _ = example.check_counts()
    added = more - flights
    assert re.search(rf"marts/fct_flights .* merge: {added:,} inserted, [\d,]+ updated, 2 partitions\b", following), (
        following
    )
    assert re.search(r"raw/flights .* 59 partitions", following), following  # March, and February as it was corrected
    with duckrun.connect(str(example.lake)) as lake:
        corrected = lake.table("live.flights").changes("min_delta", before["live.flights"], key=["flight_id"]).counts()
        assert corrected["insert"] == added and 5 < corrected["update_postimage"] < 20
        shown = f"merge: {added:,} inserted, {corrected['update_postimage']} updated"
        assert re.search(rf"live/flights .* {shown}", following), following
        told = lake.sql("select sum(flights) as n, sum(minutes_late) as late from live.airline_months").collect()
        whole = lake.sql("select count(*) as n, sum(arr_delay) as late from marts.fct_flights").collect()
        assert told == whole
    after = example.versions()
    untouched = {
        "raw.planes",
        "raw.airports",
        "raw.airlines",
        "marts.dim_airline",
        "marts.dim_airport",
        "marts.dim_plane",
    }
    assert {table for table in after if after[table] == before[table]} == untouched | {"seeds.other_airports"}


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_all_of_it_on_spark_gives_the_same_rows(tmp_path: Path) -> None:
    mixed, spark = Example(tmp_path / "mixed", sample=40), Example(tmp_path / "spark", sample=40, engine="spark")
    mixed.run("demo")
    spark.run("demo", timeout=800)
    assert other_rows(mixed.lake, spark.lake) == []
    assert spark.engines() == {"spark"}
    assert mixed.engines() == {"duckdb", "spark"}
    assert "nothing to do" in spark.run("demo")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_whole_year_agrees_with_the_source(tmp_path: Path) -> None:
    example = Example(tmp_path)
    example.run("demo")
    example.run("demo-next")
    assert example.check_counts() == (336_776, 350_217_607, 9_430)
