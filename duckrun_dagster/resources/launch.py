"""The configuration of one run: values that it leaves out stay as the resource has them.

A name in it that nothing would read is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagster import AssetKey, Field, Shape

from duckrun.errors import InvalidConfig
from duckrun.values.nearest import did_you_mean
from duckrun_dagster.config import RUN_KEYS
from duckrun_dagster.private import ConfigurableResourceFactory, DefinitionConfigSchema, StepExecutionContext


def configured_by_field(resource: ConfigurableResourceFactory[Any]) -> None:
    """Let a run's configuration override single fields of a resource, and leave the others."""
    # For fields that the configuration leaves out, Dagster would take the defaults of the class, so
    # another root or schema would be another table. In 1.13, ``_curry_config_schema`` sets a
    # default for the resource as a whole, none for each field.
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
    """Return the part of ``writes`` in a run's configuration that is about an asset.

    Raises:
        InvalidConfig: A name is not an asset, or is stored by another IO manager, or a key cannot
            be overridden by a run. Raised before anything is written.
    """
    if step is not None:
        # A run of some of the job's assets knows only those, while a retry from failure has the
        # configuration of the whole run. So the repository's assets are looked up. (A
        # reconstructable job has a repository too, made for it and without assets.)
        repository = step.job.get_repository_definition()
        graph = step.job_def.asset_layer.asset_graph
        if repository is not None and repository.asset_graph.has(asset):
            graph = repository.asset_graph
        known = {key.to_user_string(): key for key in graph.materializable_asset_keys}
        manager = graph.get(asset).io_manager_key
        for name in writes:
            if name not in known:
                raise InvalidConfig(
                    f"This run's configuration of {manager} ('writes') names {name!r}, "
                    f"which is no asset that can be written here.{did_you_mean(name.replace('.', '/'), known)}"
                )
            other = graph.get(known[name]).io_manager_key
            if other != manager:
                raise InvalidConfig(
                    f"This run's configuration of {manager} ('writes') names {name!r}, which {other} writes. "
                    f"Set resources.{other}.config, or leave it out."
                )
    overrides = writes.get(asset.to_user_string(), {})
    for key in overrides:
        if key not in RUN_KEYS:
            otherwise = f" A run may say {', '.join(RUN_KEYS)}; the rest is metadata of the asset."
            hint = did_you_mean(key, RUN_KEYS, otherwise)
            raise InvalidConfig(f"Asset {asset.to_user_string()}, for this run: unknown metadata key {key!r}.{hint}")
    return overrides
