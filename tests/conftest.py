"""Fixtures that every test shares: an empty lake, an engine by name, and a session on both."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import duckrun
from duckrun.session import Session

# A JVM of the tests lives for minutes: with its quick compiler only it takes a third less of the processors. By itself it would
# then keep 48 MB for compiled code, which the generated code of many queries fills, and the JVM ends.
# Hadoop without its native library starts a `chmod` for each file; VFORK starts it without a helper process in between.
os.environ.setdefault(
    "JDK_JAVA_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Djdk.lang.Process.launchMechanism=VFORK",
)

pytest_plugins = [
    "tests.drawing",
    "tests.figures",
    "tests.fixtures_answers",
    "tests.fixtures_azure",
    "tests.fixtures_mysql",
    "tests.fixtures_postgres",
    "tests.fixtures_s3",
    "tests.fixtures_spark",
    "tests.lake_formats",
]


# The markers of the long suites (LONG in the Makefile).
LONG = ("kills", "conformance", "differential", "turns", "changes", "cluster", "ui", "slow", "matrix", "answers")
# Of how many parts a run takes one, of tests that do not say it themselves. The other suites have budgets or matrices of their own.
PARTS = {"slow": 9, "cluster": 3}
# Half a second for each statement on Spark adds up: every day so few, and in the suite on_spark some more, others.
PARTS_ON_SPARK = int(os.environ.get("DUCKRUN_TEST_SPARK_PARTS", "22"))
EVERY_OTHER = ("tests/dagster/", "tests/ducklake/", "tests/test_concurrency.py")  # of whose cases a run takes half
PARTS_OF_DBT = 3  # every day: two seconds for each build; dbt's own suite (conformance) runs beside it


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in this same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several workers (pytest-xdist), one of them runs all that needs Spark: one Spark session a test run."""
    for item in items:
        for lack in item.iter_markers("lacks"):
            engine, error, why = lack.args
            if getattr(item, "callspec", None) and item.callspec.params.get("engine") == engine:
                item.add_marker(pytest.mark.xfail(raises=error, reason=why, strict=True))
        marks = {mark.name for mark in item.iter_markers()}
        spark = "spark" in marks or "spark" in getattr(item, "fixturenames", ())
        if spark:
            item.add_marker(pytest.mark.xdist_group("spark"))
        if marks & {"drawn", "whole"}:
            continue
        if parts := next((PARTS[name] for name in LONG if name in PARTS and name in marks), None):
            item.add_marker(pytest.mark.drawn(parts))
        elif spark and not marks & set(LONG):
            item.add_marker(pytest.mark.on_spark)
            item.add_marker(pytest.mark.drawn(PARTS_ON_SPARK))
        elif "make_project" in getattr(item, "fixturenames", ()) and not marks & set(LONG):
            item.add_marker(pytest.mark.drawn(PARTS_OF_DBT))
        elif item.nodeid.startswith(EVERY_OTHER) and not marks & set(LONG):
            item.add_marker(pytest.mark.drawn(2))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of a lake that does not exist yet."""
    return tmp_path / "lake"


@pytest.fixture(params=["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest) -> str:
    """The name of an engine: one test, all engines."""
    return request.param


@pytest.fixture
def session(root: Path, engine: str, request: pytest.FixtureRequest) -> Iterator[Session]:
    """A session whose own engine is the test's; it writes Spark frames when the engine is Spark."""
    spark = request.getfixturevalue("spark") if engine == "spark" else None
    with duckrun.connect(root, engine=engine, spark=spark) as opened:
        yield opened


@pytest.fixture
def duck(root: Path) -> Iterator[Session]:
    """A session on the embedded engine."""
    with duckrun.connect(root) as opened:
        yield opened
