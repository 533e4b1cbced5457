"""What the configuration of one run says of our resources: read as it was resolved, and refused where nothing would read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagster import AssetKey, Field, Shape
from dagster._config.pythonic_config.resource import ConfigurableResourceFactory
from dagster._core.definitions.definition_config_schema import DefinitionConfigSchema
from dagster._core.execution.context.system import StepExecutionContext

from duckrun.errors import InvalidConfig
from duckrun.values.nearest import did_you_mean
from duckrun_dagster.config import RUN_KEYS


def configured_by_field(resource: ConfigurableResourceFactory[Any]) -> None:
    """Let a run's configuration of a resource change what it names, and leave the rest as the resource was resolved it.

    Dagster takes the defaults of the class for all that such a configuration does not name (1.13: ``_curry_config_schema``
    sets a default for the resource as a whole, none for each field), so that another root or schema would be another table.
    """
    state = resource._state__internal__
    resolved = state.resolved_config_dict
    fields = {
        name: Field(field.config_type, default_value=resolved[name], description=field.description)
        if name in resolved
        else field
        for name, field in state.schema.config_type.fields.items()  # type: ignore[attr-defined]
    }
    schema = DefinitionConfigSchema(Field(Shape(fields), default_value=resolved, description=state.schema.description))
    resource._state__internal__ = state._replace(config_schema=schema)


def written_otherwise(
    writes: Mapping[str, Mapping[str, Any]], asset: AssetKey, step: StepExecutionContext | None
) -> Mapping[str, Any]:
    """What ``writes`` of a run's configuration says of an asset.

    Raises InvalidConfig, before anything is written, for a name in it that is no asset, or one of another IO
    manager, and for a key that a run cannot say otherwise.
    """
    if step is not None:
        # a run of some of the job's assets knows those alone, and a retry of what failed has the configuration of the whole
        # (a reconstructable job has a repository too, which is made for it and has no assets)
        repository = step.job.get_repository_definition()
        graph = step.job_def.asset_layer.asset_graph
        if repository is not None and repository.asset_graph.has(asset):
            graph = repository.asset_graph
        known = {key.to_user_string(): key for key in graph.materializable_asset_keys}
        manager = graph.get(asset).io_manager_key
        for name in writes:
            if name not in known:
                raise InvalidConfig(
                    f"This run's configuration of {manager} ('writes') names {name!r}, which is no asset that can be written here.{did_you_mean(name.replace('.', '/'), known)}"
                )
            other = graph.get(known[name]).io_manager_key
            if other != manager:
                raise InvalidConfig(
                    f"This run's configuration of {manager} ('writes') names {name!r}, which {other} writes. "
                    f"Set resources.{other}.config, or leave it out."
                )
    own = writes.get(asset.to_user_string(), {})
    for key in own:
        if key not in RUN_KEYS:
            otherwise = f" A run may say {', '.join(RUN_KEYS)}; the rest is metadata of the asset."
            hint = did_you_mean(key, RUN_KEYS, otherwise)
            raise InvalidConfig(f"Asset {asset.to_user_string()}, for this run: unknown metadata key {key!r}.{hint}")
    return own
