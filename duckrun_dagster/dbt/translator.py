"""dbt models as assets whose keys the IO manager can load; dagster-dbt's own ``@dbt_assets`` stays as it is.

@dbt_assets(manifest=project.manifest_path, dagster_dbt_translator=DuckrunDbtTranslator())
def models(context, dbt: DuckrunDbtCliResource):
    yield from dbt.cli(["build"], context=context).stream()
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagster import AssetKey, AssetSpec
from dagster_dbt import DagsterDbtTranslator, DagsterDbtTranslatorSettings, DbtProject
from dagster_dbt.asset_utils import group_from_dbt_resource_props_fallback_to_directory

from duckrun.errors import InvalidConfig
from duckrun.values.rows import EngineName
from duckrun_dagster.config import ENGINES
from duckrun_dagster.dbt.cli import DuckrunDbtCliInvocation, DuckrunDbtCliResource
from duckrun_dagster.dbt.vars import partition_vars

__all__ = ["DuckrunDbtCliInvocation", "DuckrunDbtCliResource", "DuckrunDbtTranslator", "partition_vars"]


class DuckrunDbtTranslator(DagsterDbtTranslator):
    """Asset keys are [schema, table], for models, seeds, snapshots and sources, as the IO manager's are.

    So a Python asset with key ``["marts", "daily"]`` may be a dbt source, and a dbt model a Python asset's input. A key
    in the node's own ``meta.dagster.asset_key`` wins. ``engine`` is what models run on that do not say, for the icon in
    the graph; a model's group is its dbt group, else the first folder it is in.

    Example::

        @dbt_assets(manifest="target/manifest.json", dagster_dbt_translator=DuckrunDbtTranslator(engine="spark"))
        def shop(context: dg.AssetExecutionContext, dbt: DuckrunDbtCliResource):
            yield from dbt.cli(["build"], context=context).stream()
    """

    _engine: EngineName = "duckdb"  # a subclass may leave out super().__init__(), as dagster-dbt allows

    def __init__(self, settings: DagsterDbtTranslatorSettings | None = None, *, engine: EngineName = "duckdb") -> None:
        super().__init__(settings)
        if engine not in ENGINES:
            raise InvalidConfig(f"DuckrunDbtTranslator: engine is {engine!r}; it takes one of {', '.join(ENGINES)}.")
        self._engine = engine

    def get_asset_key(self, dbt_resource_props: Mapping[str, Any]) -> AssetKey:
        """[schema, alias] of a node, [schema, identifier] of a source."""
        chosen = _meta(dbt_resource_props).get("asset_key")
        if chosen:
            return AssetKey(chosen)
        table = _table(dbt_resource_props)
        return AssetKey(table) if table is not None else super().get_asset_key(dbt_resource_props)

    def get_group_name(self, dbt_resource_props: Mapping[str, Any]) -> str | None:
        """The dbt group, else the folder."""
        return group_from_dbt_resource_props_fallback_to_directory(dict(dbt_resource_props))

    def get_metadata(self, dbt_resource_props: Mapping[str, Any]) -> Mapping[str, Any]:
        """dagster-dbt's own and the node's ``meta.dagster.metadata``, with the table named as the IO manager names it."""
        own = _meta(dbt_resource_props).get("metadata") or {}
        metadata = {**super().get_metadata(dbt_resource_props), **own}
        table = _table(dbt_resource_props)
        if table is not None:
            metadata["dagster/table_name"] = ".".join(table)
        return metadata

    def get_asset_spec(self, manifest: Mapping[str, Any], unique_id: str, project: DbtProject | None) -> AssetSpec:
        """dagster-dbt's own, with the kinds that draw its icons."""
        spec = super().get_asset_spec(manifest, unique_id, project)
        props = self.get_resource_props(manifest, unique_id)
        config = props.get("config", {})
        kinds = {"dbt", config.get("engine") or self._engine}
        kinds.add("view" if config.get("materialized") == "view" else "delta")
        return spec.replace_attributes(kinds=kinds, metadata={**spec.metadata, "dagster/storage_kind": "delta"})


def _table(props: Mapping[str, Any]) -> tuple[str, str] | None:
    """The schema and table of a node; None for one that has none (a test, an ephemeral model has both all the same)."""
    name = props.get("identifier") if props.get("resource_type") == "source" else props.get("alias")
    name = name or props.get("name")
    schema = props.get("schema")
    return (str(schema), str(name)) if schema and name else None


def _meta(props: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = props.get("config", {}).get("meta") or props.get("meta") or {}
    return meta.get("dagster") or {}
