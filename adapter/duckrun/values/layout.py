"""Layout of a table's rows in files. Each spec that can create a table is a Layout too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, Literal, get_args

from duckrun.errors import InvalidConfig
from duckrun.values.checked import Listed, Positive, spec

Codec = Literal["snappy", "zstd"]
CODECS: tuple[Codec, ...] = get_args(Codec)
ROW_GROUP = 122_880
"""Rows of a row group, in files of every writer: DuckDB's default."""
COMPRESSION = "duckrun.compression"
"""Table property with the compression of data files: one of CODECS.

Delta has none for this (DeltaConfigs of delta-spark 4.4), and Spark refuses an unknown ``delta.``
property.
"""
CHANGE_FEED = "delta.enableChangeDataFeed"
"""Table property that makes commits write a change feed.

Source: Delta protocol, Change Data Files.
"""
TARGET_FILE_SIZE = "delta.targetFileSize"
"""Table property with the target size of files, as ``128MB`` or a number of bytes."""


@spec(kw_only=True)
class Layout:
    """Layout of a table that a write creates or overwrites.

    Args:
        partition_by: Partition columns; excludes ``cluster_by``. None leaves those of an existing
            table unchanged, and an empty tuple removes them.
        sort_by: Columns that order the rows of each file.
        cluster_by: Columns of liquid clustering, None and empty as in ``partition_by``.
        target_file_size: Bytes.
        compression: Codec for the files of the write, stored as a property of a table that it
            creates or overwrites. None takes the table's codec.

    Example: ``MergeSpec(("id",), **Layout(partition_by=("day",)).layout)``.
    """

    partition_by: Listed[str] | None = None
    sort_by: Listed[str] = ()
    cluster_by: Listed[str] | None = None
    table_properties: Mapping[str, str] = field(default_factory=dict)
    target_file_size: Positive | None = None
    compression: Codec | None = None

    def __post_init__(self) -> None:
        """Refuse partitions together with clustering (Delta protocol, Clustered Table)."""
        if self.partition_by and self.cluster_by:
            raise InvalidConfig(
                f"A table is partitioned (partition_by: {', '.join(self.partition_by)}) or clustered (cluster_by: "
                f"{', '.join(self.cluster_by)}), not both."
            )

    @property
    def layout(self) -> dict[str, Any]:
        """The layout as keyword arguments for another spec."""
        return {each.name: getattr(self, each.name) for each in fields(Layout)}


def with_feed(properties: Mapping[str, str], feed: bool | None) -> Mapping[str, str]:
    """Return table properties with the change feed on or off; None leaves them unchanged."""
    return properties if feed is None else {**properties, CHANGE_FEED: str(feed).lower()}


def codec_of(properties: Mapping[str, str]) -> Codec | None:
    """Return the codec that a table's properties name; None if they name none.

    Raises:
        InvalidConfig: The codec is unknown.
    """
    word = properties.get(COMPRESSION)
    for codec in CODECS:
        if word is not None and str(word).lower() == codec:
            return codec
    if word is None:
        return None
    raise InvalidConfig(f"{word!r} is no compression; there are {', '.join(CODECS)}.")
