"""A process with Dagster imported, that forks one run of an incremental pipeline for each line it is given. Run by
test_incremental_kills.py.

Three assets, each of what changed in the one before: ``raw`` (filled by the test), ``clean``, ``kept``, and the history ``past``.
"""

from __future__ import annotations

import os
from typing import Any

import dagster as dg
import deltalake  # noqa: F401 - so that the forked process need not
import pandas  # noqa: F401
import polars as pl

from duckrun import Frame
from duckrun_dagster import DeltaIOManager, DuckrunResource, SparkResource
from tests.kills.writer import serve


def changes(name: str, kind: str = "min_delta", **more: Any) -> dict[str, dg.AssetIn]:
    return {name: dg.AssetIn(metadata={"changes": kind, "key": ["id"], **more})}


raw = dg.AssetSpec("raw").with_io_manager_key("io_manager")


def steps(engine: str, format: str = "delta") -> list[dg.AssetsDefinition]:
    """The assets, all by one engine."""
    by_id = {"merge_keys": "id", "engine": engine}
    marks = {"merge_mode": "deletion_vectors"} if format == "delta" else {}

    @dg.asset(ins=changes("raw"), metadata={**by_id, **marks})
    def clean(raw: pl.DataFrame) -> pl.DataFrame:
        return raw.with_columns(v=pl.col("v") + 1)

    @dg.asset(ins=changes("clean", predicate="v % 3 <> 0"), metadata=by_id)
    def kept(clean: Frame) -> Frame:
        return clean

    @dg.asset(ins=changes("clean", "full_delta"), metadata={**by_id, "mode": "scd2", "sequence_by": "_commit_version"})
    def past(clean: Frame) -> Frame:
        return clean

    return [clean, kept, past]


def run(job: dict[str, Any]) -> None:
    """One run; with ``may_fail`` it may be another one's that lands. ``remote`` is the Spark server of its steps, if they run on Spark; ``format``
    and ``inline_rows`` are those of the lake.
    """
    format = job.get("format", "delta")
    lake = DuckrunResource(root_path=job["lake"], format=format, inline_rows=job.get("inline_rows"))
    remote = job.get("remote")
    spark = SparkResource(remote=remote) if remote else None
    log = open(f"{job['lake']}.log", "w")  # noqa: SIM115 - as long as the process
    print("ready", flush=True)
    os.dup2(log.fileno(), 2)
    outcome = dg.materialize(
        [raw, *steps("spark" if remote else "duckdb", format)],
        resources={"io_manager": DeltaIOManager(duckrun=lake, spark=spark, preview=False)},
        instance=dg.DagsterInstance.ephemeral(),
        raise_on_error=not job["may_fail"],
        tags=job.get("tags"),
    )
    assert outcome.success or job["may_fail"]


if __name__ == "__main__":
    serve({"run": run})
