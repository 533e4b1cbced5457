"""The one Spark session of a test run (a pytest plugin: conftest.py names it in pytest_plugins)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A classic local session with Delta; started by the first test that asks for it."""
    from duckrun.engines.spark_session import spark_session, stop_spark_session

    yield spark_session(master="local[2]", conf={"spark.sql.shuffle.partitions": "2"}, app_name="duckrun-tests")
    stop_spark_session()
