"""Config that a lake's format does not support, refused by name before the node writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dbt.adapters.duckrun.model.config import ModelConfig

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.values.lake_format import DUCKLAKE, FORMATS


def refuse_other_format(node: str, config: Mapping[str, Any], lake: str, format_name: str) -> None:
    """Refuse a node that names another format than its lake's.

    All tables of a lake have one format.

    Args:
        node: The unique id of the node.
        config: The node's config.
        lake: The lake, for the error text.
        format_name: The format of the lake.

    Raises:
        InvalidConfig: The formats differ.
    """
    format_in_config = config.get("format")
    if (
        config.get("materialized") == "external"
        or not isinstance(format_in_config, str)
        or format_in_config.lower() not in FORMATS
    ):
        return
    if format_in_config.lower() != format_name:
        raise InvalidConfig(
            f"{node}: format is {format_in_config!r}, and {lake} is of format {format_name}, "
            "which is that of all of its tables. Leave format out, or put the "
            f"model into a lake of format {format_in_config.lower()} by +database (the profile's lakes:)."
        )


def refuse_words(config: ModelConfig, model: Mapping[str, Any], lake: str, format_name: str) -> None:
    """Refuse config that only tables of another format have. ``lake`` names the lake in the error.

    Raises:
        InvalidConfig: The node names another format.
        UnsupportedFeature: A key is Delta's, and the lake is a DuckLake.
    """
    model_config: Mapping[str, Any] = model.get("config") or {}
    refuse_other_format(config.node, model_config, lake, format_name)
    if format_name != DUCKLAKE:
        return
    for word, (is_set, instead) in _of_delta(config, model_config).items():
        if is_set:
            raise UnsupportedFeature(f"{config.node}: {word} is Delta's, and {lake} is of format ducklake: {instead}")


def _of_delta(config: ModelConfig, model_config: Mapping[str, Any]) -> dict[str, tuple[bool, str]]:
    """Return Delta's keys: True if the config sets the key, and the alternative in a DuckLake."""
    external = model_config.get("materialized") == "external"
    of_delta = [name for name in config.table_properties if name.lower().startswith("delta.")]
    of_delta = [name for name in of_delta if name != "delta.enableChangeDataFeed"]
    return {
        "materialized: delta": (
            model_config.get("materialized") == "delta",
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
