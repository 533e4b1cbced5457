"""A dbt project on a lake, in YAML: dagster-dbt's component with the lake's keys and metadata."""

# No "from __future__ import annotations" here: Dagster resolves YAML by the classes of fields.

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dagster as dg
from dagster.components.utils.translation import ComponentTranslator, create_component_translator_cls
from dagster_dbt import DagsterDbtTranslator, DbtCliResource, DbtProject, DbtProjectComponent

from duckrun_dagster.dbt.cli import DuckrunDbtCliResource
from duckrun_dagster.dbt.private import DAGSTER_DBT_TRANSLATOR_METADATA_KEY, DbtProjectComponentScaffolder
from duckrun_dagster.dbt.translator import DuckrunDbtTranslator


@dg.scaffold_with(DbtProjectComponentScaffolder)
@dataclass
class DuckrunDbtProjectComponent(DbtProjectComponent):
    """A dbt project on a lake: DbtProjectComponent for a profile of ``type: duckrun``.

    It has all attributes of DbtProjectComponent.

    Example::

        type: duckrun_dagster.DuckrunDbtProjectComponent
        attributes:
          project: "{{ project_root }}/dbt"
    """

    @cached_property
    def translator(self) -> DagsterDbtTranslator:
        return _Translator(self, self.translation_settings)

    @cached_property
    def _base_translator(self) -> DagsterDbtTranslator:
        return DuckrunDbtTranslator(self.translation_settings)

    def get_asset_spec(self, manifest: Mapping[str, Any], unique_id: str, project: DbtProject | None) -> dg.AssetSpec:
        """Return the spec of a node, as DbtProjectComponent.get_asset_spec does.

        A subclass may override it.
        """
        translator: Any = self.translator
        return DuckrunDbtTranslator.get_asset_spec(translator, manifest, unique_id, project)

    def execute(self, context: dg.AssetExecutionContext, dbt: DbtCliResource) -> Iterator[Any]:
        """Run dbt as DbtProjectComponent.execute does.

        The events of the models contain their commits.
        """
        yield from super().execute(context, DuckrunDbtCliResource(project_dir=self._project_of(dbt)))

    def _project_of(self, dbt: DbtCliResource) -> DbtProject:
        """Return the prepared project, which may lie elsewhere than its source."""
        project = self.dbt_project
        return project if str(project.project_dir) == str(dbt.project_dir) else DbtProject(dbt.project_dir)


class _Translator(
    create_component_translator_cls(DuckrunDbtProjectComponent, DuckrunDbtTranslator),  # type: ignore[misc]
    ComponentTranslator[DuckrunDbtProjectComponent],
):
    def __init__(self, component: DuckrunDbtProjectComponent, settings: Any) -> None:
        self._component = component
        super().__init__(settings)

    def get_asset_spec(self, manifest: Mapping[str, Any], unique_id: str, project: DbtProject | None) -> dg.AssetSpec:
        spec = super().get_asset_spec(manifest, unique_id, project)
        if self.component.translation is not None:
            spec = self.component.translation(spec, self.component.get_resource_props(manifest, unique_id))
        return spec.merge_attributes(metadata={DAGSTER_DBT_TRANSLATOR_METADATA_KEY: self})
