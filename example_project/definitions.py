"""The asset graph: `dagster dev -m example_project.definitions` shows it, the demo runs it."""

import dagster as dg

from duckrun_dagster import DeltaIOManager, DuckrunDbtCliResource, DuckrunResource, SparkResource, check_definitions
from example_project import checks, dbt_assets, landing, live_assets, python_assets, report, settings, spark_assets
from example_project.runner import plan

# The lake is named once, in dbt's profile.
duckrun = DuckrunResource(project_dir=str(settings.DBT_FOLDER))
spark = SparkResource(master="local[2]", conf={"spark.sql.shuffle.partitions": "4"})
# Every job runs its steps in its own process, one after the other, so a run starts Spark at most
# once. Dagster's default is a process for each step. Each PySpark asset would then start its own
# Spark, and two of them would need the machine's memory at once.
executor = dg.in_process_executor

ingest = dg.define_asset_job(
    plan.INGEST,
    selection=dg.AssetSelection.groups("ingest"),
    executor_def=executor,
    description="The landing folder into raw tables, and the enriched flights, by Spark.",
)
transform = dg.define_asset_job(
    plan.TRANSFORM,
    selection=dg.AssetSelection.groups("warehouse", "marts", "live", "analytics", "report"),
    executor_def=executor,
    description="dbt's models, the Python assets and the report.",
)


@dg.schedule(cron_schedule="0 6 * * *", job=ingest, execution_timezone="America/New_York")
def every_morning(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
    """Ingest the files that landed since yesterday; `after_ingest` continues from there."""
    landing.report(context.instance)
    runs = plan.plan(context.instance, defs, duckrun.lake())
    requests = [run.request() for run in runs if run.job == plan.INGEST]
    return requests or dg.SkipReason("Nothing has landed that is not in the lake.")


@dg.run_status_sensor(
    run_status=dg.DagsterRunStatus.SUCCESS,
    monitored_jobs=[ingest],
    request_job=transform,
)
def after_ingest(context: dg.RunStatusSensorContext) -> list[dg.RunRequest] | dg.SkipReason:
    """Run the rest of the graph after the ingest job."""
    runs = plan.plan(context.instance, defs, duckrun.lake())
    if not runs or runs[0].job != plan.TRANSFORM:
        return dg.SkipReason("Nothing to do yet.")
    return [run.request() for run in runs]


# Refuses two assets on one table.
defs = check_definitions(
    dg.Definitions(
        assets=[
            *landing.specs(),
            *spark_assets.ASSETS,
            *dbt_assets.ASSETS,
            *python_assets.ASSETS,
            *live_assets.ASSETS,
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
            "io_manager": DeltaIOManager(duckrun=duckrun, spark=spark, engine=settings.ENGINE),
            "dbt": DuckrunDbtCliResource(project_dir=dbt_assets.project),
        },
    )
)
