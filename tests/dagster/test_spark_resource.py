"""SparkResource: what a run shares, told without starting Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from duckrun.engines.spark.process.connect import ENVIRONMENT, RunServer
from duckrun.errors import InvalidConfig
from duckrun_dagster import DuckrunDbtCliResource, SparkResource
from duckrun_dagster.resources.run_worker import worker_of_run
from duckrun_dagster.resources.spark_resource import _gives_dbt_spark

PROJECT = Path(__file__).parents[2] / "example_project" / "dbt"


@pytest.mark.parametrize(("given", "kept"), [(True, "always"), (False, "never"), ("auto", "auto")])
def test_connect_server_takes_words_and_truth_values(given: Any, kept: str) -> None:
    assert SparkResource(connect_server=given).connect_server == kept


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"connect_server": "sometimes"}, "auto, always, never"),
        ({"connect_server": True, "remote": "sc://there"}, "remote names one that runs"),
        ({"master": "local[2]", "remote": "sc://there"}, "exclude each other"),
    ],
)
def test_settings_that_exclude_each_other_are_refused_by_name(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        SparkResource(**settings).environment()


def told_to_dbt(**settings: Any) -> dict[str, str]:
    """What an asset of an in-process run hands to a process that it starts."""
    found: dict[str, str] = {}

    @dg.asset
    def small(spark: SparkResource) -> None:
        found.update(spark.environment())

    with dg.instance_for_test() as instance:
        spark = SparkResource(master="local[2]", **settings) if "remote" not in settings else SparkResource(**settings)
        assert dg.materialize([small], instance=instance, resources={"spark": spark}).success
    return found


def test_dbt_is_told_the_server_of_the_run_which_ends_with_the_run_s_worker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = told_to_dbt(conf={"spark.executor.memory": "3g"}, packages=["a:b:1"])
    monkeypatch.setenv(ENVIRONMENT, found[ENVIRONMENT])
    server = RunServer.from_environment()
    assert server is not None and (server.master, server.packages) == ("local[2]", ("a:b:1",))
    assert server.worker == os.getpid() and server.conf["spark.executor.memory"] == "3g"
    assert json.loads(found[ENVIRONMENT])["name"] == server.name
    assert "3g" not in repr(server), "settings may hold credentials"
    assert not list(tmp_path.glob("duckrun-spark*/*")), "to tell where Spark would be starts nothing"


def test_dbt_is_told_the_address_of_a_server_that_runs_and_nothing_where_each_process_has_its_own() -> None:
    assert told_to_dbt(remote="sc://there:15002") == {"SPARK_REMOTE": "sc://there:15002"}
    assert told_to_dbt(connect_server="never") == {}
    assert SparkResource(master="local[2]").environment() == {}, "outside of a run nothing would end the server"


def test_the_worker_of_a_run_in_one_process_is_that_process() -> None:
    @dg.op
    def one() -> int:
        return 1

    @dg.op
    def two(number: int) -> int:
        return number + 1

    @dg.job(executor_def=dg.in_process_executor)
    def both() -> None:
        two(one())

    with dg.instance_for_test() as instance:
        run = both.execute_in_process(instance=instance)
        worker = worker_of_run(instance, run.run_id)
        assert worker is not None
        assert (worker.process, worker.steps, worker.several_processes) == (os.getpid(), 2, False)
        assert worker_of_run(instance, "no such run") is None


class DbtWithSpark(DuckrunDbtCliResource):
    spark: SparkResource


def test_a_dbt_resource_with_a_spark_is_known_to_need_one() -> None:
    spark = SparkResource(master="local[2]")
    assert _gives_dbt_spark(DbtWithSpark(project_dir=str(PROJECT), spark=spark).get_resource_definition())
    assert not _gives_dbt_spark(DuckrunDbtCliResource(project_dir=str(PROJECT)).get_resource_definition())
    assert not _gives_dbt_spark(spark.get_resource_definition())


OF_SOMEBODY_ELSE = """
import sys
import dagster as dg
from pyspark.sql import DataFrame, SparkSession
from duckrun_dagster import DeltaIOManager, DuckrunResource, SparkResource

@dg.asset
def goods() -> DataFrame:
    return SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate().range(3)

for spark in (None, SparkResource(), SparkResource(master="local[2]")):
    manager = DeltaIOManager(duckrun=DuckrunResource(root_path=sys.argv[1]), spark=spark)
    result = dg.materialize([goods], resources={"io_manager": manager}, raise_on_error=False)
    error = next(e for e in result.all_events if e.is_step_failure).step_failure_data.error
    print(">", " ".join((error.cause or error).message.split()))
"""


@pytest.mark.slow
@pytest.mark.spark
def test_an_asset_that_makes_a_session_of_its_own_is_told_of_the_resource(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OF_SOMEBODY_ELSE, str(tmp_path / "lake")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    told = [line for line in done.stdout.splitlines() if line.startswith(">")]
    assert len(told) == 3, done.stderr[-3000:]
    none, without_jars, another = told
    assert "Asset goods is a PySpark DataFrame" in none and "Give it spark=SparkResource(" in none
    assert "Asset goods: This process has a Spark session without Delta's jars." in without_jars
    assert "Asset goods: Spark was asked for at local[2], but this process has a session at local[1]" in another
    assert all("SparkSession.builder.getOrCreate()" in each for each in (without_jars, another))
    assert all("session() of a SparkResource" in each for each in (without_jars, another))
    assert not (tmp_path / "lake").exists()
