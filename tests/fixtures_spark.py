"""The one Spark session of a test run (a pytest plugin: conftest.py names it in pytest_plugins)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

# A local session without a store's jars leaves out the checksums of local files, each of which starts a process. That of
# the tests has the jars of S3, which ask for the file system that can write checksums: it only does not.
WITHOUT_CHECKSUMS = {"spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs"}

# Every day, Spark interprets expressions: to generate and compile code for a few rows takes a quarter
# of the JVM's processor time. The long suites generate code, as users do.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    """Refuse Spark to a case that is not marked: `make test` would start a second JVM for it, in another process."""
    # The node of a fixture of the whole session is the session.
    if fixturedef.argname == "spark" and not request._pyfuncitem.get_closest_marker("xdist_group"):
        pytest.fail("mark this case `spark`, so that all that need Spark run in one process", pytrace=False)


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A local session with Delta, started by the first test that asks for it: classic, or Spark Connect where
    DUCKRUN_TEST_SPARK_REMOTE names one (local[2] is a server in this process)."""
    from duckrun.engines.spark.process.jars import STORE_PACKAGES
    from duckrun.engines.spark.process.session import spark_session, stop_spark_session

    remote = os.environ.get("DUCKRUN_TEST_SPARK_REMOTE")
    where = {"remote": remote} if remote else {"master": "local[2]"}
    conf = {"spark.sql.shuffle.partitions": "2", **WITHOUT_CHECKSUMS}
    if request.config.option.markexpr.startswith("not ("):
        conf |= INTERPRETED
    session = spark_session(**where, conf=conf, packages=STORE_PACKAGES["s3"], app_name="duckrun-tests")
    if not remote:
        local = session._jvm.org.apache.hadoop.fs.FileSystem.getLocal(session._jsc.hadoopConfiguration())
        local.setWriteChecksum(False)
    yield session
    stop_spark_session()
