"""Statistics of staged files: Spark skips files by them, and finds every row that a bound could have hidden."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import duckrun
from duckrun import ReadSpec, WriteSpec
from duckrun.session import Session

NAN = float("nan")
LONG = "z" * 40


@pytest.fixture
def staged(duck: Session) -> Session:
    """main.t in two staged files: small values in one; NaN, a long string and microseconds in the other."""
    small = pa.table({"n": [1], "x": [1.0], "s": ["a"], "t": [datetime(2013, 1, 1, 0, 0, 0, 1)]})
    odd = pa.table({"n": [9], "x": [NAN], "s": [LONG + "tail"], "t": [datetime(2013, 6, 1, 0, 0, 0, 999_999)]})
    files = [*duck.stage("main.t", small), *duck.stage("main.t", odd)]
    duck.commit_staged("main.t", files, WriteSpec("append"))
    return duck


def stats(session: Session) -> dict[int, dict[str, dict[str, object]]]:
    """The stats JSON of each file of main.t, by the smallest n in it."""
    location = Path(session.lake.parse("main.t").location)
    adds = [json.loads(line)["add"] for line in _log(location) if line.startswith('{"add"')]
    found = [json.loads(add["stats"]) for add in adds]
    return {entry["minValues"]["n"]: entry for entry in found}


def _log(location: Path) -> list[str]:
    return (location / "_delta_log" / f"{0:020d}.json").read_text().splitlines()


def test_a_bound_is_a_bound(staged: Session) -> None:
    odd = stats(staged)[9]
    assert "x" not in odd["minValues"], "NaN is above every number to Spark, and DuckDB's figures leave it out"
    assert odd["minValues"]["s"] == LONG[:32]
    assert odd["maxValues"]["s"] > LONG + "tail"
    assert (odd["minValues"]["t"], odd["maxValues"]["t"]) == ("2013-06-01T00:00:00.999", "2013-06-01T00:00:01.000")
    assert odd["nullCount"] == {"n": 0, "x": 0, "s": 0, "t": 0}


@pytest.mark.spark
@pytest.mark.parametrize(
    "predicate",
    [
        "isnan(x)",
        "x > 1e300",
        f"s = '{LONG}tail'",
        f"s > '{LONG}'",
        "t = timestamp '2013-06-01 00:00:00.999999'",
        "t > timestamp '2013-06-01 00:00:00.999'",
    ],
)
def test_spark_finds_rows_that_only_a_careless_bound_would_hide(staged: Session, spark: object, predicate: str) -> None:
    with duckrun.connect(staged.lake.root, engine="spark", spark=spark) as on_spark:
        rows = on_spark.scan("main.t", ReadSpec(predicate=predicate, dialect="spark")).toArrow()
    assert rows.column("n").to_pylist() == [9]


@pytest.mark.spark
@pytest.mark.parametrize("predicate", ["n < 5", "s < 'b'", "t < timestamp '2013-02-01 00:00:00'"])
def test_spark_skips_files_by_the_statistics(staged: Session, spark: object, predicate: str) -> None:
    table = DeltaTable(staged.lake.parse("main.t").location)
    listed = {row["min"]["n"]: row["path"] for row in pa.table(table.get_add_actions()).to_pylist()}
    (Path(staged.lake.parse("main.t").location) / listed[9]).unlink()
    with duckrun.connect(staged.lake.root, engine="spark", spark=spark) as on_spark:
        kept = on_spark.scan("main.t", ReadSpec(predicate=predicate, dialect="spark")).toArrow()
        assert kept.column("n").to_pylist() == [1], "the file that is gone was not needed"
        with pytest.raises(Exception, match=r"(?i)does not exist|not found|FILE_NOT_EXIST"):
            on_spark.scan("main.t", ReadSpec(predicate="n > 5", dialect="spark")).toArrow()
