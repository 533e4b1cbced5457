"""Jobs whose steps are processes of their own; the lake is where PARALLEL_STEPS_LAKE says."""

import os
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from duckrun_dagster import DeltaIOManager, DuckrunDbtCliResource, DuckrunResource
from duckrun_dagster.dbt.cli import _step_of

STEPS = 8
ROWS = 300_000
LIMIT = "6GB"


def rows(count: int, start: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table({"id": numbers, "text": [f"the text of row {n:012d}" for n in numbers], "n": [start] * count})


def _merging(number: int) -> dg.AssetsDefinition:
    @dg.asset(name=f"merged_{number}", metadata={"merge_keys": "id"})
    def merged() -> pa.Table:
        return rows(ROWS, int(os.environ.get("PARALLEL_STEPS_START", "0")))

    return merged


def _first(number: int) -> dg.AssetsDefinition:
    @dg.asset(name=f"first_{number}", metadata={"table": "shared", "mode": "append"})
    def first() -> pa.Table:
        return pa.table({"step": [number]})

    return first


def _dbt(number: int) -> dg.AssetsDefinition:
    @dg.asset(name=f"dbt_{number}", io_manager_key="none")
    def told(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        """What a dbt process that this step starts would be told."""
        project = Path(os.environ["PARALLEL_STEPS_LAKE"]).with_name("dbt")
        dbt = DuckrunDbtCliResource(project_dir=str(project))
        told = dbt._environment(None, _step_of(context), None)
        return dg.MaterializeResult(metadata={"fraction": float(told.get("DUCKRUN_MEMORY_FRACTION", 1))})

    return told


MERGING: list[Any] = [_merging(number) for number in range(STEPS)]
FIRST: list[Any] = [_first(number) for number in range(STEPS)]
DBT: list[Any] = [_dbt(number) for number in range(STEPS)]

lake = DuckrunResource(root_path=os.environ.get("PARALLEL_STEPS_LAKE", "unset"), memory_limit=LIMIT)
defs = dg.Definitions(
    assets=[*MERGING, *FIRST, *DBT],
    jobs=[
        dg.define_asset_job("merging", dg.AssetSelection.assets(*MERGING)),
        dg.define_asset_job("first", dg.AssetSelection.assets(*FIRST)),
        dg.define_asset_job("dbt", dg.AssetSelection.assets(*DBT)),
    ],
    resources={"io_manager": DeltaIOManager(duckrun=lake, preview=False), "none": dg.FilesystemIOManager()},
)


def job(name: str) -> dg.JobDefinition:
    """For reconstructable(): a job by its name."""
    return defs.resolve_job_def(name)
