"""A job that publishes its tables after its checks, which test_publishing.py runs in one process and in several.

The folder has the lake. Its ``state.json`` says how a step behaves: it ``raises``, it ``dies``, or it fails ``once`` after its
write. ``check`` is the severity by which the blocking check fails; ``value`` is the row that the orders append. ``also`` are
statements that the step of the totals runs.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from duckrun_dagster import DeltaIOManager, DuckrunResource, publish_after_checks

ORDERS, TOTALS, REPORT = (dg.AssetKey(["sales", name]) for name in ("orders", "totals", "report"))
PUBLISH = dg.AssetKey(["publish", "nightly"])
DAYS = dg.StaticPartitionsDefinition(["d1", "d2"])


def state(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "state.json").read_text())


def behave(folder: Path, name: str) -> None:
    how, mark = state(folder).get(name), folder / f"{name}.failed"
    if how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "raises" or how == "once" and not mark.exists():
        mark.touch()
        raise RuntimeError(f"{name} {how}")


def definitions(folder: Path) -> dg.Definitions:
    @dg.asset(key=ORDERS, metadata={"mode": "append"}, retry_policy=dg.RetryPolicy(max_retries=1))
    def orders() -> Iterator[dg.Output[pa.Table]]:
        yield dg.Output(pa.table({"id": [state(folder).get("value", 1)]}))
        behave(folder, "orders")

    @dg.asset_check(asset=ORDERS, blocking=True)
    def few(duckrun: DuckrunResource) -> dg.AssetCheckResult:
        severity = state(folder).get("check")
        return dg.AssetCheckResult(
            passed=severity is None,
            severity=dg.AssetCheckSeverity[severity or "ERROR"],
            metadata={"rows": duckrun.session().sql("from sales.orders").count()},
        )

    @dg.asset(key=TOTALS, ins={"orders": dg.AssetIn(key=ORDERS)})
    def totals(orders: pa.Table, duckrun: DuckrunResource) -> pa.Table:
        for statement in state(folder).get("also", ()):
            duckrun.session().sql(statement)
        behave(folder, "totals")
        return pa.table({"n": [orders.num_rows]})

    @dg.asset_check(asset=TOTALS)
    def never_stops(duckrun: DuckrunResource) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False, metadata={"n": duckrun.session().sql("from sales.totals").collect()})

    @dg.asset(
        key=REPORT,
        deps=[PUBLISH],
        ins={"orders": dg.AssetIn(key=ORDERS)},
        automation_condition=dg.AutomationCondition.any_deps_match(dg.AutomationCondition.newly_updated()).allow(
            dg.AssetSelection.assets(PUBLISH)
        ),
    )
    def report(context: dg.AssetExecutionContext, orders: pa.Table) -> pa.Table:
        behave(folder, "report")
        return orders

    lake = DuckrunResource(root_path=str(folder / "lake"), **state(folder).get("resource", {}))
    mine = dg.Definitions(
        assets=[orders, totals, report],
        asset_checks=[few, never_stops],
        jobs=[dg.define_asset_job("everything", "*")],
        resources={"duckrun": lake, "io_manager": DeltaIOManager(duckrun=lake, preview=False)},
    )
    return dg.Definitions.merge(mine, publish_after_checks("nightly", [orders, totals]))


def job(folder: str, name: str) -> dg.JobDefinition:
    """For reconstructable(): a job by its name."""
    return definitions(Path(folder)).resolve_job_def(name)


def by_days(folder: Path) -> dg.Definitions:
    """For backfills: two partitioned assets, and the asset that publishes a day of both."""

    def daily(name: str, deps: list[str]) -> dg.AssetsDefinition:
        @dg.asset(name=name, deps=deps, partitions_def=DAYS, metadata={"partition_expr": "day"})
        def of_day(context: dg.AssetExecutionContext) -> pa.Table:
            behave(folder, f"{name} {context.partition_key}")
            return pa.table({"day": [context.partition_key], "value": [state(folder).get("value", 1)]})

        return of_day

    lake = DuckrunResource(root_path=str(folder / "lake"))
    assets = [daily("raw", []), daily("orders", ["raw"])]
    mine = dg.Definitions(
        assets=assets,
        resources={"duckrun": lake, "io_manager": DeltaIOManager(duckrun=lake, schema="shop", preview=False)},
        executor=dg.in_process_executor,
    )
    return dg.Definitions.merge(mine, publish_after_checks("daily", assets))
