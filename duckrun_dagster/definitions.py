"""Checks that need to see every asset at once, made when definitions load."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from dagster import (
    AssetKey,
    AssetsDefinition,
    AssetSpec,
    Definitions,
    EnvVar,
    MaterializeResult,
    MetadataValue,
    ResourceDefinition,
)

from duckrun.errors import InvalidConfig
from duckrun.storage.roots import normalise_root
from duckrun.values.names import folder_of
from duckrun.values.nearest import did_you_mean
from duckrun.values.snapshot import TableRef
from duckrun_dagster.config import TableConfig, is_relative, parse_changes, parse_table, refuse_to_replace
from duckrun_dagster.io_managers import DeltaIOManager
from duckrun_dagster.io_managers.incremental import several_outputs, several_partitions
from duckrun_dagster.io_managers.together import publish_together
from duckrun_dagster.metadata import name_metadata
from duckrun_dagster.private import DecoratedOpFunction
from duckrun_dagster.resources import DuckrunResource
from duckrun_dagster.resources.duckrun_resource import KnownLakes
from duckrun_dagster.resources.profile import NoLake, lake_of_profile
from duckrun_dagster.resources.run_worker import FOR_SEVERAL, second_process

_DBT_MANIFEST, _DBT_PROJECT = "dagster_dbt/manifest", "dagster_dbt/project"
_Place = tuple[str, Any]
"""A table or location as one text, and its lake: an address, a dbt project, None if unknown."""


def check_definitions(definitions: Definitions) -> Definitions:
    """Return the same definitions, checked. Opens no table and starts no Spark.

    Assets that a DeltaIOManager stores get the name, the address and the kind of their table as
    metadata and tag. The asset's page shows them as its storage. Assets whose metadata has
    ``publish: together`` are published so (see ``publish_together``).

    Raises:
        InvalidConfig: Two assets would write one table, also with two engines. Tables of one name
            in two lakes are two tables. Also if an asset's metadata holds an error, or if the dbt
            profile of the lake cannot be read.

    Example: ``defs = check_definitions(Definitions(assets=[...], resources={...}))``.
    """
    writers: dict[str, list[tuple[AssetKey, Any]]] = defaultdict(list)
    lakes: dict[int, KnownLakes] = {}
    together = set()
    stored: dict[AssetKey, Mapping[str, Any]] = {}
    for asset in definitions.assets or []:
        if isinstance(asset, AssetsDefinition) and asset.is_executable:
            reads_changes = _check_changes(asset)
            for key in asset.keys:
                table_and_lake = _table(definitions, asset, key, lakes)
                if reads_changes and table_and_lake is not None:
                    refuse_to_replace(table_and_lake[0], f"Asset {key.to_user_string()}")
                place = _place(asset, key, table_and_lake)
                if place is not None:
                    # Names of tables are compared without letter case, folders with it.
                    name = place[0].lower() if place[0].startswith("table ") else place[0]
                    writers[name].append((key, place[1]))
                if _is_together(asset, key):
                    together.add(id(asset))
                storage = None if table_and_lake is None else _stored(*table_and_lake)
                if storage is not None:
                    stored[key] = storage
    for table, assets_and_lakes in sorted(writers.items()):
        keys = _in_one_lake(assets_and_lakes) if len(assets_and_lakes) > 1 else []
        if keys:
            names = " and ".join(sorted(key.to_user_string() for key in keys))
            raise InvalidConfig(
                f"Assets {names} both write {table}. One table has one asset: give one of them another key, "
                "or another 'schema', 'table' or 'location' in its metadata."
            )
    _check_processes(definitions, lakes.values(), [lake for each in writers.values() for _, lake in each])
    return _with_storage(definitions, stored, together) if stored else definitions


def _is_together(asset: AssetsDefinition, key: AssetKey) -> bool:
    value = asset.metadata_by_key.get(key, {}).get("publish")
    return (value.value if isinstance(value, MetadataValue) else value) == "together"


def _with_storage(
    definitions: Definitions, stored: Mapping[AssetKey, Mapping[str, Any]], together: set[int]
) -> Definitions:
    """Return the definitions with the metadata and tags that an asset's page shows as its storage.

    Assets in ``together`` publish all tables at once.
    """

    def told(spec: AssetSpec) -> AssetSpec:
        if spec.key not in stored:
            return spec
        metadata = stored[spec.key]
        tags = {key: str(value) for key, value in metadata.items() if key == "dagster/storage_kind"}
        return spec.replace_attributes(metadata={**metadata, **spec.metadata}, tags={**tags, **spec.tags})

    assets = []
    for each in definitions.assets or []:
        if isinstance(each, AssetsDefinition) and each.keys & stored.keys():
            each, publishes = each.map_asset_specs(told), id(each) in together
            each = publish_together(each) if publishes else each
        assets.append(each)
    same = ("schedules", "sensors", "jobs", "resources", "executor", "loggers", "asset_checks", "metadata")
    return Definitions(
        assets=assets, component_tree=definitions.component_tree, **{name: getattr(definitions, name) for name in same}
    )


def _check_processes(definitions: Definitions, known: Iterable[KnownLakes], written: Iterable[Any]) -> None:
    """Refuse a catalog in a DuckDB file that several processes would open. Raises InvalidConfig."""
    # The processes are those of an executor, or dbt's process beside that of the IO manager.
    files = {
        lake.form.catalog.place: lake
        for each in known
        for lake in each.lakes.values()
        if lake is not None and lake.form.catalog is not None and lake.form.catalog.kind == "duckdb"
    }
    if not files:
        return
    lake = next(iter(files.values()))
    executors = [definitions.executor, *(getattr(job, "executor_def", None) for job in definitions.jobs or [])]
    if any(getattr(each, "name", None) == "multiprocess" for each in executors):
        how = f"Use in_process_executor, or {FOR_SEVERAL}"
        raise second_process(lake.root_path, f"an executor has a process for each step. {how}")
    for project in {id(each): each for each in written if hasattr(each, "project_dir")}.values():
        try:
            other = lake_of_profile(project.project_dir, project.profile, project.target, project.profiles_dir)
        except NoLake:
            continue
        if other.form.catalog is not None and other.form.catalog.place in files:
            why = f"dbt ({project.project_dir}) is another process beside the IO manager's; {FOR_SEVERAL}"
            raise second_process(other.root_path, why)


def _check_changes(asset: AssetsDefinition) -> bool:
    """Return True for an asset with inputs of changes.

    Raises InvalidConfig if it does not write one table, or writes several partitions in a run.
    """
    reads_changes = bool(parse_changes(asset.node_def))
    if reads_changes:
        outputs = {key: asset.node_def.output_def_named(asset.get_output_name_for_asset_key(key)) for key in asset.keys}
        keys = [key for key, output in outputs.items() if not output.dagster_type.is_nothing]
        if len(keys) != 1:
            raise InvalidConfig(several_outputs(asset.node_def.name, keys))
        policy = asset.backfill_policy
        if asset.partitions_def is not None and policy is not None and policy.max_partitions_per_run != 1:
            raise InvalidConfig(several_partitions(keys[0], "its backfill policy puts several of them into one run"))
    return reads_changes


def _in_one_lake(assets_and_lakes: list[tuple[AssetKey, Any]]) -> list[AssetKey]:
    """Return the assets that share their lake with another asset."""
    placed = [(key, _address(lake)) for key, lake in assets_and_lakes]
    # An unknown lake may be any lake, so it counts as shared.
    return [
        key
        for i, (key, lake) in enumerate(placed)
        if any(i != j and (lake is None or other is None or lake == other) for j, (_, other) in enumerate(placed))
    ]


def _address(lake: Any) -> str | None:
    """Return the address of a lake; None if it is unknown."""
    if lake is None or isinstance(lake, str):
        return lake
    # The lake of a dbt project is in its profile, which is read only if names alone do not decide.
    try:
        return normalise_root(lake_of_profile(lake.project_dir, lake.profile, lake.target, lake.profiles_dir).root_path)
    except NoLake:
        return f"a database of the dbt project {lake.project_dir}"


def _place(
    asset: AssetsDefinition, key: AssetKey, config_and_lake: tuple[TableConfig, KnownLakes] | None
) -> _Place | None:
    """Return the place of an asset's table; None if neither dbt nor a DeltaIOManager writes it."""
    metadata = asset.metadata_by_key.get(key, {})
    if _DBT_MANIFEST in metadata:
        table, project = metadata.get("dagster/table_name"), metadata.get(_DBT_PROJECT)
        project = getattr(project, "instance", project)
        known = project if hasattr(project, "profiles_dir") and hasattr(project, "project_dir") else None
        return None if table is None else (f"table {getattr(table, 'value', table)}", known)
    if config_and_lake is None:
        return None
    config, lake = config_and_lake
    if asset.partitions_def is not None:
        config.refuse_partitions(f"Asset {key.to_user_string()}: ")
    root = _checked_root(lake, config, f"Asset {key.to_user_string()}")
    table = f"table {config.schema}.{config.table}"
    return (table, root) if config.location is None else _folder(config.location, root)


def _table(
    definitions: Definitions, asset: AssetsDefinition, key: AssetKey, lakes: dict[int, KnownLakes]
) -> tuple[TableConfig, KnownLakes] | None:
    """Return the table of an asset and its lake; None if no DeltaIOManager stores it.

    ``lakes`` caches the lake of each IO manager.
    """
    metadata = asset.metadata_by_key.get(key, {})
    if _DBT_MANIFEST in metadata:
        return None
    manager_key = asset.get_io_manager_key_for_asset_key(key)
    manager = _manager(asset.resource_defs.get(manager_key) or (definitions.resources or {}).get(manager_key))
    if manager is None:
        return None
    output = asset.node_def.output_def_named(asset.get_output_name_for_asset_key(key))
    if output.dagster_type.is_nothing or _stores_nothing(asset):
        return None
    if id(manager) not in lakes:
        lakes[id(manager)] = _lake(manager.duckrun)
    lake = lakes[id(manager)]
    manager_schema = f"${manager.schema_.env_var_name}" if isinstance(manager.schema_, EnvVar) else manager.schema_
    config = parse_table(key, metadata, default_schema=manager_schema or lake.schema, defaults=manager.table_defaults())
    return config, lake


def _stored(config: TableConfig, known: KnownLakes) -> Mapping[str, Any] | None:
    """Return the metadata of a table's storage, if known; None if an EnvVar decides its name."""
    if config.schema.startswith("$"):
        return None
    lake = known.lakes.get(config.lake)
    if lake is None:  # an EnvVar decides its address or its format
        return {"dagster/table_name": config.name}
    folder = config.location or f"{folder_of(config.schema)}/{folder_of(config.table)}"
    location = normalise_root(f"{lake.root_path}/{folder}" if is_relative(folder) else folder)
    return name_metadata(TableRef(config.schema, config.table, location, lake.form.name, config.lake))


def _stores_nothing(asset: AssetsDefinition) -> bool:
    """Return True for a function annotated to return a MaterializeResult without a value."""
    compute = getattr(asset.node_def, "compute_fn", None)
    return isinstance(compute, DecoratedOpFunction) and compute.get_output_annotation() is MaterializeResult


def _checked_root(known: KnownLakes, config: TableConfig, what: str) -> str | None:
    """Return the address of the lake of a table.

    Raises InvalidConfig or UnsupportedFeature for metadata that its format does not support.
    """
    if known.lakes and config.lake not in known.lakes:
        names = [name for name in known.lakes if name is not None]
        hint = did_you_mean(str(config.lake), names, f" There are {', '.join(names) or 'none'}.")
        raise InvalidConfig(
            f"{what}: metadata 'lake' names {config.lake!r}, which is none of the resource's lakes.{hint}"
        )
    lake = known.lakes.get(config.lake)
    if lake is not None:
        config.refuse_of_other_format(lake.form.name, what)
    if config.lake is None:
        return known.root
    return f"lake {config.lake} of {known.root}" if lake is None else normalise_root(lake.root_path)


def _manager(resource: Any) -> DeltaIOManager | None:
    """Return the DeltaIOManager that a resource is or wraps; None for any other resource."""
    if isinstance(resource, ResourceDefinition):
        resource = getattr(resource.resource_fn, "__self__", None)
    return resource if isinstance(resource, DeltaIOManager) else None


def _lake(duckrun: Any) -> KnownLakes:
    """Return the known facts about the lakes of a resource."""
    if isinstance(duckrun, DuckrunResource):
        return duckrun.known()
    fields = getattr(duckrun, "data", {})  # of a resource that is configured at launch
    return KnownLakes(f"lake {id(duckrun)}", fields.get("schema") or "main")


def _folder(location: str, root: str | None) -> _Place:
    """Return a folder as one text, however it is written."""
    if not is_relative(location):
        location = normalise_root(location)
        lake = None if root is None else f"{root}/"
        if lake is None or not location.startswith(lake):
            return f"location {location}", "anywhere"
        location = location.removeprefix(lake)
    parts = location.strip("/").split("/")
    # A folder <schema>/<table> of the lake is the table of that name.
    return (f"table {'.'.join(parts)}" if len(parts) == 2 else f"location {'/'.join(parts)} of the lake"), root
