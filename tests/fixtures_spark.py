"""The one Spark session of a test run (a pytest plugin: conftest.py names it in pytest_plugins)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local session with Delta, started by the first test that asks for it: classic, or Spark Connect where
    DUCKRUN_TEST_SPARK_REMOTE names one (local[2] is a server in this process)."""
    from duckrun.engines.spark_jars import STORE_PACKAGES
    from duckrun.engines.spark_session import spark_session, stop_spark_session

    remote = os.environ.get("DUCKRUN_TEST_SPARK_REMOTE")
    where = {"remote": remote} if remote else {"master": "local[2]"}
    yield spark_session(
        **where, conf={"spark.sql.shuffle.partitions": "2"}, packages=STORE_PACKAGES["s3"], app_name="duckrun-tests"
    )
    stop_spark_session()
