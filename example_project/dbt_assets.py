"""The dbt models as assets: tables without a time, and tables that arrive by month."""

import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import dagster as dg
from dagster_dbt import DagsterDbtTranslatorSettings, DbtProject, dbt_assets

from duckrun_dagster import DuckrunDbtCliResource, DuckrunDbtTranslator, partition_vars
from example_project import landing, settings

project = DbtProject(project_dir=settings.DBT_FOLDER)


def prepare() -> None:
    """Prepare the dbt manifest, unless it is newer than the project's files."""
    # Parsing dbt on every load of the code location would take seconds each time.
    files = [
        *settings.DBT_FOLDER.glob("*.yml"),
        *(file for folder in ("models", "macros", "seeds") for file in (settings.DBT_FOLDER / folder).rglob("*")),
    ]
    newest = max(file.stat().st_mtime for file in files)
    if not project.manifest_path.exists() or project.manifest_path.stat().st_mtime < newest:
        project.preparer.prepare(project)


prepare()

MONTHLY = "fqn:flights.staging.stg_flights fqn:flights.marts.*"


class Translator(DuckrunDbtTranslator):
    """Translator that groups by layer, and sets a freshness policy for the fact."""

    def get_group_name(self, dbt_resource_props: Mapping[str, Any]) -> str:
        return "marts" if dbt_resource_props["fqn"][1] == "marts" else "warehouse"

    def get_asset_spec(self, manifest: Mapping[str, Any], unique_id: str, project: DbtProject | None) -> dg.AssetSpec:
        spec = super().get_asset_spec(manifest, unique_id, project)
        if spec.key == dg.AssetKey(["marts", "fct_flights"]):
            policy = dg.FreshnessPolicy.time_window(fail_window=timedelta(days=45), warn_window=timedelta(days=35))
            return spec.replace_attributes(freshness_policy=policy)
        return spec


translator = Translator(DagsterDbtTranslatorSettings(enable_code_references=True), format=settings.FORMAT)


@dbt_assets(manifest=project.manifest_path, project=project, dagster_dbt_translator=translator, exclude=MONTHLY)
def warehouse(context: dg.AssetExecutionContext, dbt: DuckrunDbtCliResource) -> Iterator[Any]:
    """Seeds, staging views and dimensions: whole tables."""
    yield from dbt.cli(["build"], context=context).stream()


@dbt_assets(
    manifest=project.manifest_path,
    project=project,
    dagster_dbt_translator=translator,
    select=MONTHLY,
    partitions_def=landing.MONTHS,
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def marts(context: dg.AssetExecutionContext, dbt: DuckrunDbtCliResource) -> Iterator[Any]:
    """The fact and its monthly marts: dbt gets the months of the run as variables."""
    months = json.dumps(partition_vars(context))
    yield from dbt.cli(["build", "--vars", months], context=context).stream()


ASSETS = [warehouse, marts]
