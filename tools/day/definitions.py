"""The code location of the day: the example, assets that follow it, and a schedule."""

from typing import Any

import dagster as dg

from duckrun_dagster import DeltaIOManager, DuckrunResource, UnseenChanges
from example_project import definitions as example, landing, settings
from example_project.runner.plan import PUBLISH, UNDER_WAY

DAY: dict[str, Any] = {"group_name": "day"}
BY_DATE = "select flight_date, count(*) as flights, sum(arr_delay) as late from refined.flights group by all"


@dg.schedule(cron_schedule="* * * * *", job=example.ingest, default_status=dg.DefaultScheduleStatus.RUNNING)
def every_minute(context: dg.ScheduleEvaluationContext) -> Any:
    """The example's morning, unless a run is under way: the plan would request its assets again."""
    requests = example.every_morning(context)
    if context.instance.get_runs_count(dg.RunsFilter(statuses=UNDER_WAY)):
        return dg.SkipReason("A run is under way.")
    return requests


@dg.asset(
    key=["day", "published"],
    deps=[PUBLISH],
    automation_condition=dg.AutomationCondition.eager(),
    kinds={"duckdb"},
    **DAY,
)
def published(duckrun: DuckrunResource) -> Any:
    """Flights by carrier in the published marts. It runs after each publish."""
    return duckrun.session().sql("select carrier, count(*) as flights from marts.fct_flights group by all")


@dg.asset(
    key=["day", "followed"],
    ins={
        "flights": dg.AssetIn(
            ["refined", "flights"],
            metadata={"changes": "min_delta", "key": ["flight_id"], "columns": ["flight_id", "carrier", "arr_delay"]},
        )
    },
    metadata={"merge_keys": "flight_id"},
    automation_condition=UnseenChanges(DeltaIOManager(duckrun=example.duckrun)) & ~dg.AutomationCondition.in_progress(),
    kinds={"duckdb"},
    **DAY,
)
def followed(flights: Any) -> Any:
    """The delays of flights, row by row as the refined flights change."""
    return flights


@dg.asset(
    key=["day", "by_month"],
    deps=[["refined", "flights"]],
    partitions_def=landing.MONTHS,
    metadata={"partition_expr": "month"},
    kinds={"duckdb"},
    **DAY,
)
def by_month(context: dg.AssetExecutionContext, duckrun: DuckrunResource) -> Any:
    """Flights of a month by day; backfills make them, each month in a run of its own."""
    return duckrun.session().sql(
        f"select *, timestamp '{context.partition_key}' as month from ({BY_DATE}) "
        f"where date_trunc('month', flight_date) = date '{context.partition_key}'"
    )


automation = dg.AutomationConditionSensorDefinition(
    "automation",
    target=dg.AssetSelection.groups("day"),
    use_user_code_server=True,
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=15,
)

defs = dg.Definitions.merge(
    example.defs, dg.Definitions(assets=[published, followed, by_month], schedules=[every_minute], sensors=[automation])
)

if not settings.PUBLISHES:
    raise SystemExit("The day publishes after checks: leave out the engine, format and writer of the example.")
