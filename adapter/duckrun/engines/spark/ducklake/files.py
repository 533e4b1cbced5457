"""Parquet files that Spark's workers write for a DuckLake."""

from __future__ import annotations

import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from duckrun.engines.data_files import file_size
from duckrun.engines.spark.access import SparkAccess
from duckrun.engines.spark.errors import errors_about
from duckrun.errors import SchemaMismatch
from duckrun.storage.scratch import remove_folder
from duckrun.values.layout import codec_of
from duckrun.values.partition_values import NO_VALUE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from duckrun.storage.storage import Storage

_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
"""DuckLake refuses INT96, Spark's default for timestamps."""
_GATHERING = {
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "{size}b",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
}
"""Settings that make as few shuffle tasks as there should be files."""
_TOO_LARGE = 1.25
"""Factor of the requested size above which a file is split."""
_OPTIONS = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
"""A lake's data folder contains only data."""
_PATTERN = re.compile(r"([*?{}\[\]\\])")
_PART = re.compile(r"([^/=]+)=([^/]*)/")
NO_VALUES = (NO_VALUE, "NULL")
"""Texts that DuckDB reads as NULL in a path, in any letter case."""


@dataclass(frozen=True)
class Written:
    """Files below a folder."""

    folder: str
    paths: tuple[str, ...]

    def values(self, columns: Sequence[str]) -> list[tuple[str | None, ...]]:
        """Return the distinct partition values in the paths, for some columns; None for NULL."""
        distinct: dict[tuple[str | None, ...], None] = {}
        for path in self.paths:
            by_name = {name: unquote(value) for name, value in _PART.findall(path[len(self.folder) :])}
            distinct[tuple(None if by_name[name] == NO_VALUE else by_name[name] for name in columns)] = None
        return list(distinct)


@contextmanager
def written(
    access: SparkAccess,
    storage: Storage,
    frame: DataFrame,
    parent: str,
    what: str,
    *,
    properties: Mapping[str, str],
    partition_by: Sequence[str] = (),
    in_use: Callable[[str], bool] = lambda folder: False,
) -> Iterator[Written]:
    """Write the rows of a frame into files of a new folder below ``parent``, and yield them.

    If the block raises, the folder is removed.

    Args:
        what: Purpose of the files, which begins a message.
        properties: Table properties, which set the size and the codec of the files.
        in_use: Tells whether a folder is in use and must stay even if the block raises.
    """
    folder = f"{parent.rstrip('/')}/spark-{uuid.uuid4().hex}"
    size, options = file_size(properties), dict(_OPTIONS)
    if codec := codec_of(properties):
        options["compression"] = codec
    gathering = {} if size is None else {key: value.format(size=size) for key, value in _GATHERING.items()}
    try:
        with errors_about(what, analysis=SchemaMismatch), access.frame_with(frame, {**_SETTINGS, **gathering}) as rows:
            writer = rows.write.mode("error").options(**options)
            if partition_by:
                writer = writer.partitionBy(*partition_by)
            writer.parquet(access.location_of(folder))
            if size is not None:
                _cut(rows.sparkSession, storage, folder, size, options)
        paths = _paths(storage, folder)
        yield Written(folder, paths)
    except BaseException:
        if not in_use(folder):
            remove_folder(storage, folder)  # what stays is for the lake's maintenance
        raise


def _cut(session: SparkSession, storage: Storage, folder: str, size: int, options: Mapping[str, str]) -> None:
    """Split the files of a folder that are much larger than requested."""
    # Only written files tell how many rows fit into a file.
    large: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for each in storage.keys(folder):
        path, length = str(each["path"]), int(each["size"])
        if _is_data(path) and length > _TOO_LARGE * size:
            large[path.rpartition("/")[0]].append((path, length))
    for subfolder, files in large.items():
        rows = session.read.parquet(*(exactly(storage.spark_location(f"{folder}/{path}")) for path, _ in files))
        count = rows.count()
        each_has = max(1, count * size // sum(length for _, length in files))
        if each_has < count:
            written_to = storage.spark_location(f"{folder}/{subfolder}" if subfolder else folder)
            rows.write.mode("append").options(**options, maxRecordsPerFile=each_has).parquet(written_to)
            storage.remove_files(folder, [path for path, _ in files])


def exactly(place: str) -> str:
    """Escape a path for Spark's reader, which treats some characters as patterns."""
    return _PATTERN.sub(r"\\\1", place)


def _paths(storage: Storage, folder: str) -> tuple[str, ...]:
    """Return the data files of a folder, and remove everything else."""
    present = [str(each["path"]) for each in storage.keys(folder)]
    data = [path for path in present if _is_data(path)]
    others = [path for path in present if not _is_data(path)]
    storage.remove_files(folder, others)
    return tuple(f"{folder}/{path}" for path in sorted(data))


def _is_data(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith(".parquet") and not name.startswith(("_", "."))
