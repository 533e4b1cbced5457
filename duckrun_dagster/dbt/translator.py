"""dbt models as assets whose keys the IO manager can load, with dagster-dbt's own ``@dbt_assets``.

@dbt_assets(manifest=project.manifest_path, dagster_dbt_translator=DuckrunDbtTranslator())
def models(context, dbt: DuckrunDbtCliResource):
    yield from dbt.cli(["build"], context=context).stream()
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dagster import AssetCheckSpec, AssetKey, AssetSpec
from dagster_dbt import DagsterDbtTranslator, DagsterDbtTranslatorSettings, DbtProject

from duckrun.errors import InvalidConfig
from duckrun.values.choices import ENGINES, EngineName
from duckrun.values.lake_format import DUCKLAKE, FORMATS, FormatName
from duckrun.values.nearest import did_you_mean
from duckrun_dagster.config_values import partition_expr
from duckrun_dagster.dbt.private import group_from_dbt_resource_props_fallback_to_directory
from duckrun_dagster.dbt.twin_sources import TwinSources
from duckrun_dagster.resources.arguments import refuse_word


class DuckrunDbtTranslator(DagsterDbtTranslator):
    """Translator whose asset keys are [schema, table], as the keys of the IO manager are.

    This holds for models, seeds, snapshots and sources. So a Python asset with key ``["marts",
    "daily"]`` may be a dbt source, and a dbt model may be the input of a Python asset. A key in the
    node's own ``meta.dagster.asset_key`` wins. A source that is the table of one of the project's
    nodes, such as a seed, is that node's asset. A model's group is its dbt group, else its first
    folder.

    Args:
        settings: dagster-dbt's settings.
        engine: The engine of models that name none, for the icons in the graph.
        format: The format of the profile's lake, for the icons in the graph.

    Example::

        translator = DuckrunDbtTranslator(engine="spark")

        @dbt_assets(manifest="target/manifest.json", dagster_dbt_translator=translator)
        def shop(context: dg.AssetExecutionContext, dbt: DuckrunDbtCliResource):
            yield from dbt.cli(["build"], context=context).stream()
    """

    _format: FormatName = "delta"
    _engine: EngineName = "duckdb"  # a subclass may leave out super().__init__(), as dagster-dbt allows

    def __init__(
        self,
        settings: DagsterDbtTranslatorSettings | None = None,
        *,
        engine: EngineName = "duckdb",
        format: FormatName = "delta",
    ) -> None:
        super().__init__(settings)
        refuse_word("DuckrunDbtTranslator: engine", engine, ENGINES)
        refuse_word("DuckrunDbtTranslator: format", format, FORMATS)
        self._engine, self._format = engine, format

    def get_asset_key(self, dbt_resource_props: Mapping[str, Any]) -> AssetKey:
        """Return [schema, alias] of a node, [schema, identifier] of a source."""
        chosen = _meta(dbt_resource_props).get("asset_key")
        if chosen:
            return AssetKey(chosen)
        table = _table(dbt_resource_props)
        return AssetKey(table) if table is not None else super().get_asset_key(dbt_resource_props)

    def get_group_name(self, dbt_resource_props: Mapping[str, Any]) -> str | None:
        """Return the dbt group, else the folder, with ``_`` for characters that Dagster refuses."""
        group = group_from_dbt_resource_props_fallback_to_directory(dict(dbt_resource_props))
        return None if group is None else _NOT_IN_GROUPS.sub("_", group)

    def get_metadata(self, dbt_resource_props: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return dagster-dbt's metadata, the node's own, and the IO manager's name of the table.

        The node's own is ``meta.dagster.metadata``. ``partition_expr``, the column that holds the
        partitions, may also stand in ``meta`` itself or in ``meta.dagster``.

        Raises:
            InvalidConfig: ``partition_expr`` is not a name, or ``meta.dagster`` has a misspelt key.
        """
        node_metadata = _meta(dbt_resource_props).get("metadata") or {}
        metadata = {**super().get_metadata(dbt_resource_props), **_partition_expr(dbt_resource_props), **node_metadata}
        table = _table(dbt_resource_props)
        if table is not None:
            metadata["dagster/table_name"] = ".".join(table)
        return metadata

    def get_asset_spec(self, manifest: Mapping[str, Any], unique_id: str, project: DbtProject | None) -> AssetSpec:
        """Return dagster-dbt's spec with the kinds for the icons, and nodes for twin sources."""
        spec = self._twin_sources(manifest).applied(unique_id, super().get_asset_spec(manifest, unique_id, project))
        config = self.get_resource_props(manifest, unique_id).get("config", {})
        kinds = {"dbt", config.get("engine") or self._engine}
        stored = "ducklake" if self._format == DUCKLAKE else "deltalake"
        kinds.add("view" if config.get("materialized") == "view" else stored)
        return spec.replace_attributes(kinds=kinds, metadata={**spec.metadata, "dagster/storage_kind": stored})

    def get_asset_check_spec(
        self, asset_spec: AssetSpec, manifest: Mapping[str, Any], unique_id: str, project: DbtProject | None
    ) -> AssetCheckSpec | None:
        """Return a test's spec, described; None if it tests a source that is a node's table."""
        # Such a test becomes an observation of the node's asset.
        if asset_spec.key in self._twin_sources(manifest).unseen:
            return None
        spec = super().get_asset_check_spec(asset_spec, manifest, unique_id, project)
        if spec is None or spec.description:
            return spec
        return spec._replace(description=_tested(self.get_resource_props(manifest, unique_id)))

    def _twin_sources(self, manifest: Mapping[str, Any]) -> TwinSources:
        known = self.__dict__.setdefault("_twins", {})  # a subclass may leave out super().__init__()
        if id(manifest) not in known:
            # The manifest is stored too: the id of a collected object may be reused.
            known[id(manifest)] = (manifest, TwinSources.of(manifest, self.get_asset_key))
        return known[id(manifest)][1]


def _tested(props: Mapping[str, Any]) -> str | None:
    """Return a test's description, else its kind, column and arguments; None if it has neither."""
    test = props.get("test_metadata")
    if props.get("description") or not test:
        return props.get("description") or None
    arguments = {name: value for name, value in test["kwargs"].items() if name not in ("model", "column_name")}
    column = f" of {props['column_name']}" if props.get("column_name") else ""
    return f"dbt's test {test['name']}{column}" + "".join(f"; {name}: {value}" for name, value in arguments.items())


_NOT_IN_GROUPS = re.compile("[^A-Za-z0-9_/]")


def _table(props: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the schema and table of a node; None if it has none (ephemeral models have both)."""
    name = props.get("identifier") if props.get("resource_type") == "source" else props.get("alias")
    name = name or props.get("name")
    schema = props.get("schema")
    return (str(schema), str(name)) if schema and name else None


def _meta(props: Mapping[str, Any]) -> Mapping[str, Any]:
    return _whole_meta(props).get("dagster") or {}


def _whole_meta(props: Mapping[str, Any]) -> Mapping[str, Any]:
    return props.get("config", {}).get("meta") or props.get("meta") or {}


# Keys of ``meta.dagster`` that dagster-dbt or this module reads.
_META_KEYS = (
    "asset_key",
    "auto_materialize_policy",
    "freshness_check",
    "group",
    "has_self_dependency",
    "metadata",
    "owners",
    "partition_expr",
    "ref",
)


def _partition_expr(props: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``partition_expr`` of a node's ``meta`` in the form that the IO manager reads."""
    node, ours = props.get("unique_id") or props.get("name"), _meta(props)
    for key in set(ours) - set(_META_KEYS):
        meant = did_you_mean(str(key), _META_KEYS, cutoff=0.8)
        if meant:
            raise InvalidConfig(f"{node}: unknown key {key!r} in meta.dagster.{meant}")
    expression = ours.get("partition_expr", _whole_meta(props).get("partition_expr"))
    if expression is None:
        return {}
    partition_expr(expression, f"{node}: partition_expr in meta")
    return {"partition_expr": expression}
