"""How the rows of a table lie in its files: one value, which each spec that can make a table is too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from duckrun.errors import InvalidConfig


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The partitions, order, clustering, properties and file size (bytes) of a table that a write makes or overwrites.

    ``partition_by`` and ``cluster_by`` (liquid clustering, Spark only) exclude each other; with None a table that exists
    stays as it is, and an empty tuple ends them. ``sort_by`` orders the rows of each file.

    Example: ``MergeSpec(("id",), **Layout(partition_by=("day",)).layout)``.
    """

    partition_by: tuple[str, ...] | None = None
    sort_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] | None = None
    table_properties: Mapping[str, str] = field(default_factory=dict)
    target_file_size: int | None = None

    def __post_init__(self) -> None:
        """Raise InvalidConfig for a table with partitions and clustering. Source: Delta protocol, Clustered Table."""
        if self.partition_by and self.cluster_by:
            raise InvalidConfig(
                f"A table is partitioned (partition_by: {', '.join(self.partition_by)}) or clustered (cluster_by: "
                f"{', '.join(self.cluster_by)}), not both."
            )
        getattr(super(), "__post_init__", lambda: None)()  # the checks of a spec that has a layout

    @property
    def layout(self) -> dict[str, Any]:
        """The layout as keywords, from which another value gets the same."""
        return {each.name: getattr(self, each.name) for each in fields(Layout)}
