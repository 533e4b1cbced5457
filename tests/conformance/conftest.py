"""dbt's own conformance suite, `dbt-tests-adapter`, on the adapter: its fixtures, and a profile of one engine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import dbt.tests.adapter
import pandas  # noqa: F401  DuckDB imports it when a value is bound, and under freezegun's clock (sample mode) that import crashes
import pytest
from dbt.tests.fixtures.project import *  # noqa: F403  the fixtures that every class of the suite asks for

from tests.conformance.applicability import reason_of

HERE = Path(__file__).parent
SUITE = Path(dbt.tests.adapter.__path__[0])
ENGINE = os.environ.get("DUCKRUN_CONFORMANCE_ENGINE", "duckdb")
FORMAT = os.environ.get("DUCKRUN_CONFORMANCE_FORMAT", "delta")
# For hundreds of statements on a handful of rows each, in one JVM that lives for minutes.
SPARK = {
    "master": "local[2]",
    "conf": {
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        # To compile a plan takes longer than to run it on so few rows.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    },
}


def pytest_report_header() -> str:
    return f"conformance: engine {ENGINE}, format {FORMAT}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.conformance)
        item.add_marker(pytest.mark.drawn(1, whole_classes=True))
        reason = reason_of(item.cls, ENGINE) if isinstance(item, pytest.Function) and item.cls else None
        if reason:
            item.add_marker(pytest.mark.skip(reason=f"not applicable: {reason}"))


@pytest.fixture(scope="session")
def engine_name() -> str:
    """The engine of the profile: DUCKRUN_CONFORMANCE_ENGINE, or duckdb."""
    return ENGINE


@pytest.fixture(scope="session")
def format_name() -> str:
    """The format of the lake: DUCKRUN_CONFORMANCE_FORMAT, or delta."""
    return FORMAT


@pytest.fixture(scope="class")
def lake_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of its own for each class."""
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="class")
def dbt_profile_target(lake_root: Path, engine_name: str, format_name: str) -> dict[str, Any]:
    target = {"type": "duckrun", "root_path": str(lake_root), "threads": 4, "engine": engine_name}
    if format_name != "delta":
        target["format"] = format_name
    return {**target, "spark": SPARK} if engine_name == "spark" else target


@pytest.fixture(scope="class")
def logs_dir(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The suite's own fixture writes its logs into the repository."""
    folder = tmp_path_factory.mktemp("logs")
    os.environ["DBT_LOG_PATH"] = str(folder)
    yield str(folder)
    os.environ.pop("DBT_LOG_PATH", None)


@pytest.fixture(scope="module")
def test_data_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that come with a group of the suite, in a folder that its tests may write to."""
    folder = tmp_path_factory.mktemp("files") / "data"
    source = SUITE / request.path.stem.removeprefix("test_") / "data"
    if source.is_dir():
        shutil.copytree(source, folder)
    return folder
