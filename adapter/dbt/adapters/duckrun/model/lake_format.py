"""What a node's config may say in a lake of some format: refused by name, before anything of the node is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dbt.adapters.duckrun.model.config import ModelConfig

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.values.lake_format import DUCKLAKE, FORMATS


def refuse_other_format(node: str, config: Mapping[str, Any], lake: str, format_name: str) -> None:
    """Raise InvalidConfig for a node that names another format than its lake's: all tables of a lake have one. ``lake`` says which."""
    asked = config.get("format")
    if config.get("materialized") == "external" or not isinstance(asked, str) or asked.lower() not in FORMATS:
        return
    if asked.lower() != format_name:
        raise InvalidConfig(
            f"{node}: format is {asked!r}, and {lake} is of format {format_name}, which is that of all of its tables. Leave format out, or put the "
            f"model into a lake of format {asked.lower()} by +database (the profile's lakes:)."
        )


def refuse_words(config: ModelConfig, model: Mapping[str, Any], lake: str, format_name: str) -> None:
    """Raise for what only tables of another format have. ``lake`` says which lake it is."""
    said: Mapping[str, Any] = model.get("config") or {}
    refuse_other_format(config.node, said, lake, format_name)
    if format_name != DUCKLAKE:
        return
    for word, (given, instead) in _of_delta(config, said).items():
        if given:
            raise UnsupportedFeature(
                f"{config.node}: {word} is Delta's, and {lake} is of format ducklake: {instead}. Nothing was written."
            )


def _of_delta(config: ModelConfig, said: Mapping[str, Any]) -> dict[str, tuple[bool, str]]:
    """Words of a config, whether they are given, and what a DuckLake has in their place."""
    external = said.get("materialized") == "external"
    of_delta = [name for name in config.table_properties if name.lower().startswith("delta.")]
    of_delta = [name for name in of_delta if name != "delta.enableChangeDataFeed"]
    return {
        "materialized: delta": (
            said.get("materialized") == "delta",
            "use table, whose files lie where the catalog says",
        ),
        "location": (
            config.location is not None and not external,
            "leave it out, as the catalog says where the files of a table lie",
        ),
        "cluster_by": (config.cluster_by is not None, "use sort_by"),
        "z_order_by": (bool(config.z_order_by), "use sort_by"),
        "writer": (config.writer != "auto", "leave it out, as its tables have one writer"),
        "merge_mode": (config.merge_mode == "copy_on_write", "leave it out, as its deletes are always marks"),
        f"table_properties: {', '.join(of_delta)}": (bool(of_delta), "leave it out"),
    }
