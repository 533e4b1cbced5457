"""The graph: `dagster dev -m example_project.definitions` shows it, the demo runs it."""

from __future__ import annotations

import dagster as dg
from dagster_dbt import DbtCliResource

from duckrun_dagster import DeltaIOManager, DuckrunResource, SparkResource
from example_project import checks, dbt_assets, landing, plan, python_assets, report, settings, spark_assets

# The lake is named once, in dbt's profile.
duckrun = DuckrunResource(project_dir=str(settings.DBT_FOLDER))
spark = SparkResource(
    master="local[2]",
    conf={
        "spark.sql.shuffle.partitions": "4",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "true",
    },
)

# Every job runs its steps in its own process, one after the other: so a run starts Spark at most once. With Dagster's default,
# a process for each step, each PySpark asset would start a Spark of its own, and two of them would want the machine's memory at once.
executor = dg.in_process_executor

ingest = dg.define_asset_job(
    plan.INGEST,
    selection=dg.AssetSelection.groups("ingest"),
    executor_def=executor,
    description="The landing folder into raw tables, and the enriched flights, by Spark.",
)
transform = dg.define_asset_job(
    plan.TRANSFORM,
    selection=dg.AssetSelection.groups("warehouse", "marts", "analytics", "report"),
    executor_def=executor,
    description="dbt's models, the Python assets and the report.",
)


@dg.schedule(cron_schedule="0 6 * * *", jobs=[ingest, transform], execution_timezone="America/New_York")
def every_morning(context: dg.ScheduleEvaluationContext) -> dg.SkipReason | list[dg.RunRequest]:
    """What landed since yesterday, and what is to be made from it."""
    landing.report(context.instance)
    runs = plan.plan(context.instance, context.repository_def.asset_graph, duckrun.lake())
    if not runs:
        return dg.SkipReason("Nothing landed, and every asset is up to date.")
    # What comes after the first job waits for `after_ingest`: it is made from tables that are written now.
    return [run.request() for run in runs if run.job == runs[0].job]


@dg.run_status_sensor(
    run_status=dg.DagsterRunStatus.SUCCESS,
    monitored_jobs=[ingest],
    request_jobs=[transform],
    default_status=dg.DefaultSensorStatus.STOPPED,
)
def after_ingest(context: dg.RunStatusSensorContext) -> dg.SkipReason | list[dg.RunRequest]:
    """The rest of the graph, when Spark's part is done."""
    assert context.repository_def is not None
    runs = plan.plan(context.instance, context.repository_def.asset_graph, duckrun.lake())
    if not runs or runs[0].job != plan.TRANSFORM:
        return dg.SkipReason("Nothing to do yet.")
    return [run.request() for run in runs]


defs = dg.Definitions(
    assets=[
        *landing.specs(),
        *spark_assets.ASSETS,
        *dbt_assets.ASSETS,
        *python_assets.ASSETS,
        *report.ASSETS,
    ],
    asset_checks=checks.CHECKS,
    jobs=[ingest, transform],
    schedules=[every_morning],
    sensors=[after_ingest],
    executor=executor,
    resources={
        "duckrun": duckrun,
        "spark": spark,
        "io_manager": DeltaIOManager(duckrun=duckrun, spark=spark),
        "dbt": DbtCliResource(project_dir=dbt_assets.project),
    },
)
