"""Checks that need to see every asset at once, and so are made when definitions load."""

from __future__ import annotations

from collections import defaultdict

from dagster import AssetKey, AssetsDefinition, Definitions

from duckrun.errors import InvalidConfig
from duckrun.storage import normalise_root
from duckrun_dagster.io_managers import DeltaIOManager
from duckrun_dagster.table_config import is_relative, parse_table

_DBT_MANIFEST = "dagster_dbt/manifest"


def check_definitions(definitions: Definitions) -> Definitions:
    """The same definitions, checked. Opens no table, starts no Spark.

    Raises InvalidConfig if two assets would write one table (two engines that write one table included), if an asset's
    metadata holds an error, or if the lake is that of a dbt profile that cannot be read.

    Example: ``defs = check_definitions(Definitions(assets=[...], resources={...}))``.
    """
    writers: dict[str, list[AssetKey]] = defaultdict(list)
    lakes: dict[str, tuple[str | None, str]] = {}
    for asset in definitions.assets or []:
        if isinstance(asset, AssetsDefinition) and asset.is_executable:
            for key in asset.keys:
                place = _place(definitions, asset, key, lakes)
                if place is not None:
                    writers[place].append(key)
    for place, keys in sorted(writers.items()):
        if len(keys) > 1:
            names = " and ".join(sorted(key.to_user_string() for key in keys))
            raise InvalidConfig(
                f"Assets {names} both write {place}. One table has one asset: give one of them another key, "
                "or another 'schema', 'table' or 'location' in its metadata."
            )
    return definitions


def _place(
    definitions: Definitions, asset: AssetsDefinition, key: AssetKey, lakes: dict[str, tuple[str | None, str]]
) -> str | None:
    """Where an asset is written, as one text; None if we do not write it. ``lakes`` keeps the address of each IO manager's."""
    metadata = asset.metadata_by_key.get(key, {})
    resources = definitions.resources or {}
    if _DBT_MANIFEST in metadata:
        table = metadata.get("dagster/table_name")
        return None if table is None else f"table {getattr(table, 'value', table)}"
    manager_key = asset.get_io_manager_key_for_asset_key(key)
    manager = resources.get(manager_key)
    if not isinstance(manager, DeltaIOManager):
        return None
    output = asset.node_def.output_def_named(asset.get_output_name_for_asset_key(key))
    if output.dagster_type.is_nothing:
        return None
    if manager_key not in lakes:
        lakes[manager_key] = manager.duckrun.address()
    root, schema = lakes[manager_key]
    config = parse_table(key, metadata, default_schema=manager.schema_ or schema)
    return f"table {config.name}" if config.location is None else _folder(config.location, root)


def _folder(location: str, root: str | None) -> str:
    """A folder as one text, however it is written: one that the name of a table gives too is that table."""
    if not is_relative(location):
        location = normalise_root(location)
        lake = None if root is None else f"{normalise_root(root)}/"
        if lake is None or not location.startswith(lake):
            return f"location {location}"
        location = location.removeprefix(lake)
    parts = location.strip("/").split("/")
    return f"table {'.'.join(parts)}" if len(parts) == 2 else f"location {'/'.join(parts)} of the lake"
