"""A step that reads its own table, in processes of their own: each attempt reads it as it was before the older ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

import duckrun
from duckrun.errors import TableNotFound
from duckrun_dagster import DeltaIOManager, DuckrunResource


def job_of(folder: str, lake_format: str) -> dg.JobDefinition:
    """A job of one asset, whose first two attempts fail: the first by an error behind its commit, the second as its process dies."""

    class Dying(DeltaIOManager):
        def write(self, context: dg.OutputContext, obj: Any, *, together: bool = False) -> Any:
            report = super().write(context, obj, together=together)
            if _attempts(folder) == 2:
                os._exit(9)
            return report

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=1))
    def totals(duckrun: DuckrunResource) -> Any:
        attempt = _attempts(folder) + 1
        Path(folder, f"attempt_{attempt}").touch()
        try:
            known = duckrun.session().table("shop.totals").toDF().toArrow()
        except TableNotFound:
            known = pa.table({"n": pa.array([], pa.int64())})
        yield dg.Output(pa.concat_tables([known, pa.table({"n": [attempt]})]))
        if attempt == 1:
            raise RuntimeError("after the commit")

    lake = DuckrunResource(root_path=str(Path(folder) / "lake"), format=lake_format)
    resources = {"duckrun": lake, "io_manager": Dying(duckrun=lake, schema="shop", preview=False)}
    jobs = [dg.define_asset_job("own", dg.AssetSelection.all(), executor_def=dg.multiprocess_executor)]
    return dg.Definitions(assets=[totals], resources=resources, jobs=jobs).resolve_job_def("own")


def _attempts(folder: str) -> int:
    return len(list(Path(folder).glob("attempt_*")))


@pytest.mark.lives
@pytest.mark.drawn(1)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("lake_format", ["delta", "ducklake"])
def test_steps_in_processes_of_their_own_read_their_own_table_as_the_first_attempt_did(
    tmp_path: Path, lake_format: str
) -> None:
    (tmp_path / "dagster").mkdir()
    (tmp_path / "lives").mkdir()
    instance = dg.DagsterInstance.local_temp(str(tmp_path / "dagster"))
    job = dg.build_reconstructable_job(__name__, "job_of", (str(tmp_path / "lives"), lake_format))
    failed = dg.execute_job(job, instance)
    assert not failed.success and _attempts(str(tmp_path / "lives")) == 2
    options = dg.ReexecutionOptions.from_failure(failed.run_id, instance)
    assert dg.execute_job(job, instance, reexecution_options=options).success
    assert dg.execute_job(job, instance).success
    with duckrun.connect(tmp_path / "lives" / "lake", schema="shop", format=lake_format) as session:
        assert [row["n"] for row in session.sql("select n from totals order by n").collect()] == [3, 4]
