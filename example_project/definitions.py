"""The asset graph: `dagster dev -m example_project.definitions` shows it, the demo runs it."""

from typing import Any

import dagster as dg

from duckrun_dagster import (
    DeltaIOManager,
    DuckrunDbtCliResource,
    DuckrunResource,
    SparkResource,
    check_definitions,
    publish_after_checks,
)
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


def _of_transform() -> tuple[list[Any], Any]:
    """Return the assets of transform and its job, which publishes them if the lake has branches."""
    assets: list[Any] = [*dbt_assets.ASSETS, *python_assets.ASSETS, *live_assets.ASSETS]
    words: dict[str, Any] = {"executor_def": executor, "description": "dbt's models and the Python assets."}
    if not settings.PUBLISHES:
        return assets, dg.define_asset_job(plan.TRANSFORM, dg.AssetSelection.assets(*assets), **words)
    publishing = publish_after_checks(plan.TRANSFORM, assets, **words)
    (job,) = publishing.jobs or ()
    return [*assets, *(publishing.assets or ())], job


transformed, transform = _of_transform()
report_job = dg.define_asset_job(
    plan.REPORT,
    selection=dg.AssetSelection.groups("report"),
    executor_def=executor,
    description="The report, of the tables that transform has published.",
)


@dg.schedule(
    cron_schedule="0 6 * * *",
    job=ingest,
    execution_timezone="America/New_York",
    description="Every morning: the files that landed since yesterday. Its sensors run the jobs after ingest.",
)
def every_morning(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
    """Ingest the files that landed since yesterday; `after_ingest` continues from there."""
    landing.report(context.instance)
    due = [run for run in _can_start(context.instance) if run.job == plan.INGEST]
    requests = [run.request(f"{context.scheduled_execution_time}, {number}") for number, run in enumerate(due)]
    return requests or dg.SkipReason("Nothing has landed that is not in the lake.")


def _can_start(instance: dg.DagsterInstance) -> list[plan.Run]:
    return plan.can_start(defs, plan.plan(instance, defs, duckrun.lake()))


def _after(job: Any, following: Any) -> dg.SensorDefinition:
    """Return a sensor that requests the next runs of a job, or of the job that follows it."""

    @dg.run_status_sensor(
        name=f"after_{job.name}",
        run_status=dg.DagsterRunStatus.SUCCESS,
        monitored_jobs=[job],
        request_jobs=[job, following],
        description=f"After each run of {job.name}: the rest of it that is due, then {following.name}.",
    )
    def after(context: dg.RunStatusSensorContext) -> list[dg.RunRequest] | dg.SkipReason:
        ended = context.dagster_run
        if other := plan.continued_by(context.instance, ended):
            return dg.SkipReason(f"Run {other} of {job.name} continues when it succeeds. If it is gone, terminate it.")
        due = [run for run in _can_start(context.instance) if run.job in (job.name, following.name)]
        # An asset that stays due after its run would be requested for ever.
        return [run.request() for run in due if not run.is_of(ended)] or dg.SkipReason("Nothing to do yet.")

    return after


def _with_owner(spec: dg.AssetSpec) -> dg.AssetSpec:
    """Return the asset with the team that answers for it."""
    return spec.merge_attributes(owners=["team:platform" if spec.group_name in PLATFORM else "team:analysts"])


PLATFORM = (landing.GROUP, "ingest")

# Refuses two assets on one table.
defs = check_definitions(
    dg.Definitions(
        # Each asset's page links to its code, here files of this machine. Dagster's
        # link_code_references_to_git() makes them links of a repository.
        assets=dg.with_source_code_references(
            [
                *landing.specs(),
                *spark_assets.ASSETS,
                *transformed,
                *report.ASSETS,
            ]
        ),
        asset_checks=checks.CHECKS,
        jobs=[ingest, transform, report_job],
        schedules=[every_morning],
        sensors=[_after(ingest, transform), _after(transform, report_job)],
        executor=executor,
        resources={
            "duckrun": duckrun,
            "spark": spark,
            "io_manager": DeltaIOManager(duckrun=duckrun, spark=spark, engine=settings.ENGINE),
            "dbt": DuckrunDbtCliResource(project_dir=dbt_assets.project),
        },
    ).map_asset_specs(func=_with_owner)
)
