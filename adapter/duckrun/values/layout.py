"""How the rows of a table lie in its files: one value, which each spec that can make a table is too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, Literal, get_args

from duckrun.errors import InvalidConfig
from duckrun.values.checked import Listed, Positive, spec

Codec = Literal["snappy", "zstd"]
CODECS: tuple[Codec, ...] = get_args(Codec)
COMPRESSION = "duckrun.compression"
"""The table property that holds how the data files are compressed: one of CODECS. Delta itself has none for this (DeltaConfigs of
delta-spark 4.4), and Spark refuses a ``delta.`` property that it does not know.
"""
CHANGE_FEED = "delta.enableChangeDataFeed"
"""The table property that has each commit keep a change feed. Source: Delta protocol, Change Data Files."""
TARGET_FILE_SIZE = "delta.targetFileSize"
"""The table property that holds how large a file should be, as ``128MB`` or a number of bytes."""


@spec(kw_only=True)
class Layout:
    """The partitions, order, clustering, properties, file size (bytes) and compression of a table that a write makes or overwrites.

    ``partition_by`` and ``cluster_by`` (liquid clustering) exclude each other; with None a table that exists
    stays as it is, and an empty tuple ends them. ``sort_by`` orders the rows of each file. ``compression`` holds for the files of the
    write, and becomes the property of a table that it makes or overwrites; with None they are compressed as the table says.

    Example: ``MergeSpec(("id",), **Layout(partition_by=("day",)).layout)``.
    """

    partition_by: Listed[str] | None = None
    sort_by: Listed[str] = ()
    cluster_by: Listed[str] | None = None
    table_properties: Mapping[str, str] = field(default_factory=dict)
    target_file_size: Positive | None = None
    compression: Codec | None = None

    def __post_init__(self) -> None:
        """Raise InvalidConfig for a table with partitions and clustering (Delta protocol, Clustered Table)."""
        if self.partition_by and self.cluster_by:
            raise InvalidConfig(
                f"A table is partitioned (partition_by: {', '.join(self.partition_by)}) or clustered (cluster_by: "
                f"{', '.join(self.cluster_by)}), not both."
            )

    @property
    def layout(self) -> dict[str, Any]:
        """The layout as keywords, from which another value gets the same."""
        return {each.name: getattr(self, each.name) for each in fields(Layout)}


def with_feed(properties: Mapping[str, str], feed: bool | None) -> Mapping[str, str]:
    """Table properties with a change feed, or with none; None leaves them as they are."""
    return properties if feed is None else {**properties, CHANGE_FEED: str(feed).lower()}


def codec_of(properties: Mapping[str, str]) -> Codec | None:
    """How a table's files are compressed by its properties; None where they do not say. Raises InvalidConfig for what is no codec of ours."""
    asked = properties.get(COMPRESSION)
    for codec in CODECS:
        if asked is not None and str(asked).lower() == codec:
            return codec
    if asked is None:
        return None
    raise InvalidConfig(f"{asked!r} is no compression; there are {', '.join(CODECS)}.")
