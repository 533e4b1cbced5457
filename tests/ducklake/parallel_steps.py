"""A job of two steps on a DuckLake; the lake is where PARALLEL_STEPS_LAKE says, its catalog what PARALLEL_STEPS_CATALOG does."""

import os

import dagster as dg
import pyarrow as pa

from duckrun_dagster import DeltaIOManager, DuckrunResource


def _appends(name: str) -> dg.AssetsDefinition:
    @dg.asset(name=name, metadata={"table": "shared", "mode": "append"})
    def appends() -> pa.Table:
        return pa.table({"step": [name]})

    return appends


def job(catalog: str) -> dg.JobDefinition:
    """Both steps append to one table."""
    lake = DuckrunResource(root_path=os.environ["PARALLEL_STEPS_LAKE"], format="ducklake", catalog=catalog)
    assets = [_appends("one"), _appends("two")]
    defs = dg.Definitions(
        assets=assets,
        jobs=[dg.define_asset_job("appends", assets)],
        resources={"io_manager": DeltaIOManager(duckrun=lake)},
    )
    return defs.resolve_job_def("appends")
