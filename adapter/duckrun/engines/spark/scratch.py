"""Scratch copy of a table in its new form; one commit makes its files the table's.

Spark cannot drop, rename or widen a column of a plain Delta table, nor commit at a given version.
So it writes a Delta table inside the table's folder, which no reader knows. Delta enforces the new
definition there and computes statistics. The commit that adds the files is fenced, also on object
stores, and holds the whole definition, including NOT NULL.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from duckrun.engines.spark.access import SparkAccess
from duckrun.engines.spark.foreign_servers import other_implementation
from duckrun.engines.spark.sql import quote
from duckrun.engines.spark.structs import by_name
from duckrun.formats.definitions import Alteration, TableDefinition
from duckrun.formats.format import logs_of
from duckrun.formats.logs import ScratchCopy
from duckrun.lake.lake import Lake
from duckrun.values.layout import codec_of
from duckrun.values.snapshot import Snapshot, TableRef

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def scratch(access: SparkAccess, lake: Lake, snapshot: Snapshot, alteration: Alteration) -> Iterator[ScratchCopy]:
    """Yield a copy with all rows in their new form; remove it if the block raises."""
    with filled(access, lake, snapshot.ref, alteration.after, altered_rows(access, snapshot, alteration)) as copy:
        yield copy


@contextmanager
def filled(
    access: SparkAccess,
    lake: Lake,
    owner: TableRef,
    definition: TableDefinition,
    frame: DataFrame,
    *,
    sort_by: tuple[str, ...] = (),
    size: int | None = None,
) -> Iterator[ScratchCopy]:
    """Yield a copy with a new definition and the rows of a frame; remove it if the block raises.

    Args:
        owner: Table whose folder holds the copy.
        size: Write few large files of this size in bytes.
    """
    with logs_of(lake.format).scratch(owner, definition) as copy:
        sort_by = sort_by or definition.sort_by
        frame = arranged(frame, definition.partition_columns, sort_by, gather=size is not None)
        with access.frame_with(frame, file_size_setting(size)) as rows:
            writer = rows.write.format("delta").mode("append").options(**file_options(definition.properties, size))
            writer.save(access.location_of(copy.ref.location))
        yield copy


def file_size_setting(size: int | None) -> dict[str, str]:
    """Return the setting of the size of the files that Delta's optimizeWrite makes."""
    return {} if size is None else {"spark.databricks.delta.optimizeWrite.binSize": f"{size}b"}


def file_options(properties: Mapping[str, str], size: int | None) -> dict[str, str]:
    """Return the options of a DataFrame writer for files with a table's codec, of a size if any."""
    codec = codec_of(properties)
    gathers = {} if size is None else {"optimizeWrite": "true"}
    return gathers if codec is None else {"compression": codec, **gathers}


def altered_rows(access: SparkAccess, snapshot: Snapshot, alteration: Alteration) -> DataFrame:
    """Return all rows of a snapshot in their new form."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    schema = StructType.fromJson(json.loads(alteration.after.schema_json))
    frame = access.read(snapshot)
    columns = []
    for new, old in alteration.columns.items():
        kind = schema[new].dataType
        value = F.lit(None).cast(kind) if old is None else F.expr(by_name(quote(old), frame.schema[old].dataType, kind))
        columns.append(value.alias(new))
    return frame.select(*columns)


def arranged(
    frame: DataFrame, partition_by: Sequence[str], sort_by: Sequence[str], *, gather: bool = False
) -> DataFrame:
    """Return rows sorted within each file and clustered by partition.

    Args:
        gather: Leave the distribution to Delta's optimizeWrite.
    """
    from pyspark.sql import functions as F

    partitions = [F.col(quote(column)) for column in partition_by]
    if sort_by:
        order = [*partitions, *[F.col(quote(column)) for column in sort_by]]
        return frame.repartition(*partitions).sortWithinPartitions(*order) if partitions else frame.orderBy(*order)
    if gather or not partitions or other_implementation(frame.sparkSession) is not None:
        return frame
    # "rebalance" uses the sizes that Spark measures: small partitions share a task, and a large one
    # gets several. Delta's optimizeWrite makes a task of each small partition, which takes twice
    # the time for 365 of them. Batches of a stream lack adaptive execution, and then Spark ignores
    # the hint.
    adaptive = str(frame.sparkSession.conf.get("spark.sql.adaptive.enabled", "true")).lower() == "true"
    return frame.hint("rebalance", *partitions) if adaptive else frame.repartition(*partitions)
