"""Assets whose every attempt appends one row: what test_backfills.py runs as backfills of Dagster's own.

The folder has the lake. Its ``fails.json`` says how the step of an ``asset partition`` fails: ``before`` its write, behind
the commit and before Dagster's ``event``, or by its own blocking ``check``. A row says which attempt wrote it.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from duckrun_dagster import DeltaIOManager, DuckrunResource

DAYS = dg.StaticPartitionsDefinition(["d1", "d2", "d3", "d4"])


def failures(folder: Path, name: str, days: Sequence[str]) -> set[str]:
    fails = json.loads((folder / "fails.json").read_text())
    return {fails[work] for day in days if (work := f"{name} {day}".rstrip()) in fails}


class Dying(DeltaIOManager):
    """Fails behind a commit, before Dagster has its event: as if the process died there."""

    folder: str

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        super().handle_output(context, obj)
        days = context.asset_partition_keys if context.has_asset_partitions else [""]
        if "event" in failures(Path(self.folder), context.asset_key.to_user_string(), days):
            raise RuntimeError("the process died")


def appending(folder: Path, name: str, deps: list[str], **arguments: Any) -> dg.AssetsDefinition:
    """An asset that appends the number of its attempt, and fails as the folder says."""

    @dg.asset(
        name=name,
        deps=deps,
        metadata={"mode": "append", **({"partition_expr": "day"} if "partitions_def" in arguments else {})},
        check_specs=[dg.AssetCheckSpec("good", asset=name, blocking=True)],
        **arguments,
    )
    def _appending(context: dg.AssetExecutionContext) -> Any:
        days = sorted(context.partition_keys) if context.has_partition_key or context.has_partition_key_range else [""]
        work = folder / f"attempts of {name} {'-'.join(days)}"
        attempt = len(work.read_text()) + 1 if work.exists() else 1
        work.write_text("x" * attempt)
        fails = failures(folder, name, days)
        if "before" in fails:
            raise RuntimeError("before the write")
        rows = pa.table({"day": days, "attempt": [attempt] * len(days)})
        yield dg.Output(rows if days != [""] else rows.select(["attempt"]))
        yield dg.AssetCheckResult(passed="check" not in fails)

    return _appending


def definitions(folder: Path, lake_format: str, policy: dg.BackfillPolicy | None) -> dg.Definitions:
    lake = DuckrunResource(root_path=str(folder / "lake"), format=lake_format)
    days: dict[str, Any] = {"partitions_def": DAYS, "backfill_policy": policy}
    return dg.Definitions(
        assets=[
            appending(folder, "raw", [], **days),
            appending(folder, "orders", ["raw"], **days),
            appending(folder, "total", ["orders"]),
        ],
        resources={"io_manager": Dying(folder=str(folder), duckrun=lake, schema="shop", preview=False)},
        executor=dg.in_process_executor,
    )
