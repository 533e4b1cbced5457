"""What works with the dependencies alone, and how an error names the extra that is missing."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# A process in which some packages are not installed: whoever looks for one of them finds nothing.
WITHOUT = """
import sys
from importlib.machinery import PathFinder

class Installed(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {missing!r} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Installed
"""


def run(code: str, missing: tuple[str, ...], folder: Path) -> str:
    """Output of a new process that lacks some packages."""
    code = WITHOUT.format(missing=missing) + code
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


WRITE_AND_READ = """
import duckrun
with duckrun.connect("lake") as lake:
    lake.sql("create or replace table t as select * from (values (1, 'a'), (2, 'b')) v(id, name)")
    print(lake.sql("select count(*) as n from t").collect(), lake.table("t").toDF().toArrow().num_rows)
"""


@pytest.mark.parametrize(
    "missing",
    [
        ("pandas",),
        ("dagster", "dagster_dbt", "dbt", "pandas", "polars", "pyspark", "delta", "matplotlib", "IPython"),
    ],
    ids=",".join,
)
def test_a_session_writes_and_reads_without_the_libraries_that_it_does_not_use(tmp_path, missing):
    assert run(WRITE_AND_READ, missing, tmp_path) == "[{'n': 2}] 2"


def test_results_of_pandas_and_spark_name_their_extra_before_rows_are_read(tmp_path):
    code = """
import duckrun
with duckrun.connect("lake") as lake:
    frame = lake.sql("select 1 as n")
    spark = duckrun.connect("lake", engine="spark")
    for read in (frame.toPandas, frame.df, lambda: spark.sql("select 1").collect()):
        try:
            read()
        except duckrun.InvalidConfig as error:
            print(error)
"""
    *lines, spark = run(code, ("pandas", "pyspark", "delta"), tmp_path).splitlines()
    assert len(lines) == 2
    assert all("toPandas() needs pandas" in line and 'pip install "duckrun-dagster[pandas]"' in line for line in lines)
    assert 'pip install "duckrun-dagster[spark]"' in spark


ASSETS = """
import dagster as dg
import polars as pl
import pyarrow as pa
from duckrun_dagster import DeltaIOManager, DuckrunResource

@dg.asset
def arrow() -> pa.Table:
    return pa.table({"n": [1, 2, 3]})

@dg.asset
def frame(arrow: pl.LazyFrame) -> pl.DataFrame:
    return arrow.filter(pl.col("n") > 1).collect()

@dg.asset
def rows(frame: pa.Table) -> list[dict]:
    return frame.to_pylist()

manager = DeltaIOManager(duckrun=DuckrunResource(root_path="lake"))
done = dg.materialize([arrow, frame, rows], resources={"io_manager": manager})
print(done.success, done.asset_value("rows"))
for name in ("pandas", "pyspark"):
    @dg.asset(ins={"rows": dg.AssetIn(metadata={"type": name})})
    def named(rows) -> None:
        ...

    try:
        dg.materialize([arrow, frame, rows, named], selection=[named], resources={"io_manager": manager})
    except Exception as error:
        while error.__cause__ is not None and "pip install" not in str(error):
            error = error.__cause__
        print(error)
"""


def test_an_io_manager_works_without_a_library_and_names_its_extra_where_it_is_asked_for(tmp_path):
    success, *errors = run(ASSETS, ("pandas", "pyspark", "delta"), tmp_path).splitlines()
    assert success == "True [{'n': 2}, {'n': 3}]"
    for name, extra, error in zip(("pandas", "pyspark"), ("pandas", "spark"), errors, strict=True):
        assert f"{name!r} cannot be imported" in error and f'pip install "duckrun-dagster[{extra}]"' in error


def test_every_extra_that_a_message_names_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {
        name
        for folder in ("adapter", "duckrun_dagster", "example_project", "docs")
        for file in (ROOT / folder).rglob("*.*")
        if file.suffix in {".py", ".md", ".sql"}
        for names in re.findall(r"duckrun-dagster\[([\w,-]+)\]", file.read_text(encoding="utf-8"))
        for name in names.split(",")
    }
    assert {"pandas", "spark"} <= named <= set(extras)
