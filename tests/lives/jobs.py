"""The jobs of lives: assets that compute what a script says and fail where it says so.

Everything lies in one folder, so that each step may be a process of its own: ``job.json`` (the assets), ``script.json`` (what each
attempt of the next run returns, and where it fails) and ``journal.jsonl`` (which attempts Dagster ran).
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import dagster as dg
import pyarrow as pa

from duckrun_dagster import DeltaIOManager, DuckrunResource, SparkResource

Kind = Literal["overwrite", "append", "merge", "delete+insert", "partition", "partitioned append"]
Failure = Literal["before", "during", "between", "after", "check", "kill"]

PARTITIONS = ("a", "b")
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])


@dataclass(frozen=True)
class Out:
    """One table that an asset writes; two outs may name one table."""

    name: str
    table: str
    kind: Kind

    @property
    def is_partitioned(self) -> bool:
        return self.kind in ("partition", "partitioned append")

    @property
    def is_append(self) -> bool:
        return self.kind in ("append", "partitioned append")

    @property
    def metadata(self) -> dict[str, Any]:
        modes = {"append": "append", "partitioned append": "append", "delete+insert": "delete+insert"}
        found: dict[str, Any] = {"table": self.table}
        if self.kind in modes:
            found["mode"] = modes[self.kind]
        if self.kind in ("merge", "delete+insert"):
            found["merge_keys"] = ["id"]
        if self.is_partitioned:
            found["partition_expr"] = "p"
        return found


@dataclass(frozen=True)
class Asset:
    """One step of a job: its outs come in their order, and ``retries`` is what its RetryPolicy allows."""

    name: str
    outs: tuple[Out, ...]
    deps: tuple[str, ...] = ()
    retries: int = 0

    @property
    def is_partitioned(self) -> bool:
        return any(out.is_partitioned for out in self.outs)


@dataclass(frozen=True)
class Job:
    """The assets of one life, and the lake that they write."""

    assets: tuple[Asset, ...]
    format: str = "delta"
    engine: str = "duckdb"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Job":
        values = json.loads(text)
        assets = [
            Asset(**{**each, "outs": tuple(Out(**out) for out in each["outs"]), "deps": tuple(each["deps"])})
            for each in values.pop("assets")
        ]
        return cls(tuple(assets), **values)


@dataclass(frozen=True)
class Attempt:
    """One attempt of an asset: the rows of each of its outs as (id, v), and where it fails."""

    rows: dict[str, list[tuple[int, int]]]
    fails: Failure | None = None


class Dying(DeltaIOManager):
    """An IO manager whose process may die after a commit, before Dagster knows of it."""

    folder: str

    def write(self, context: dg.OutputContext, obj: Any, *, together: bool = False) -> Any:
        report = super().write(context, obj, together=together)
        step = context.step_context
        script = json.loads((Path(self.folder) / "script.json").read_text())
        attempts = script.get(step.step.op_name, [])
        attempt = attempts[min(step.previous_attempt_count, len(attempts) - 1)] if attempts else {}
        if attempt.get("fails") == "kill" and context.name == list(attempt["rows"])[-1]:
            os._exit(9)
        return report


def _asset(asset: Asset, folder: Path) -> dg.AssetsDefinition:
    first, last = asset.outs[0].name, asset.outs[-1].name

    @dg.multi_asset(
        name=asset.name,
        outs={out.name: dg.AssetOut(key=[out.name], metadata=out.metadata, dagster_type=dg.Any) for out in asset.outs},
        deps=[dg.AssetKey([each]) for each in asset.deps],
        check_specs=[dg.AssetCheckSpec("good", asset=dg.AssetKey([first]), blocking=True)],
        partitions_def=dg.StaticPartitionsDefinition(list(PARTITIONS)) if asset.is_partitioned else None,
        retry_policy=dg.RetryPolicy(max_retries=asset.retries) if asset.retries else None,
    )
    def compute(context: dg.AssetExecutionContext) -> Iterator[Any]:
        number = context.op_execution_context.retry_number
        attempt = Attempt(**json.loads((folder / "script.json").read_text())[asset.name][number])
        partition = context.partition_key if asset.is_partitioned else None
        entry = {"asset": asset.name, "run": context.run.run_id, "attempt": number, "partition": partition}
        with (folder / "journal.jsonl").open("a") as journal:
            journal.write(json.dumps(entry) + "\n")
        if attempt.fails == "before":
            raise RuntimeError("before the write")
        for out in asset.outs:
            breaks = attempt.fails == "during" and out.name == last
            yield dg.Output(_value(attempt.rows[out.name], partition if out.is_partitioned else None, breaks), out.name)
            if attempt.fails == "between" and out.name == first:
                raise RuntimeError("between two writes")
        yield dg.AssetCheckResult(passed=attempt.fails != "check", check_name="good", asset_key=dg.AssetKey([first]))
        if attempt.fails == "after":
            raise RuntimeError("after the write")

    return compute


def _value(rows: list[tuple[int, int]], partition: str | None, breaks: bool) -> Any:
    table = pa.Table.from_pylist([{"id": i, "v": v} for i, v in rows], schema=SCHEMA)
    if partition is not None:
        table = table.append_column("p", pa.array([partition] * len(table), pa.string()))
    if not breaks:
        return table

    def batches() -> Iterator[pa.RecordBatch]:
        yield from table.to_batches()
        raise RuntimeError("during the write")

    return pa.RecordBatchReader.from_batches(table.schema, batches())


def job_of(folder: str) -> dg.JobDefinition:
    """The job of a folder; for reconstructable()."""
    job = Job.from_json((Path(folder) / "job.json").read_text())
    lake = DuckrunResource(root_path=str(Path(folder) / "lake"), format=job.format)
    manager = Dying(
        duckrun=lake,
        preview=False,
        folder=folder,
        engine=job.engine,
        spark=SparkResource() if job.engine == "spark" else None,
    )
    defs = dg.Definitions(
        assets=[_asset(each, Path(folder)) for each in job.assets],
        resources={"io_manager": manager},
        jobs=[dg.define_asset_job("life", dg.AssetSelection.all())],
    )
    return defs.resolve_job_def("life")
