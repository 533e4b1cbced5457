"""The jobs, each group in a module of its own."""

from __future__ import annotations

from benchmarks.harness.case import Job
from benchmarks.jobs import (
    branches,
    chain,
    change_queries,
    changes,
    dbt_project,
    ducklake,
    io_managers,
    many,
    merges,
    polars_rows,
    reads,
    small_writes,
    spark_engine,
    write,
)

JOBS: dict[str, Job] = {
    job.name: job
    for module in (
        write,
        merges,
        chain,
        changes,
        change_queries,
        reads,
        small_writes,
        ducklake,
        many,
        branches,
        polars_rows,
        io_managers,
        dbt_project,
        spark_engine,
    )
    for job in module.JOBS
}
