"""Parquet files that Spark's workers write for a DuckLake: of a table, or of rows that DuckDB is to apply to one."""

from __future__ import annotations

import re
import shutil
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from duckrun.engines.data_files import file_size
from duckrun.engines.spark.errors import errors_about
from duckrun.errors import DuckrunError, SchemaMismatch
from duckrun.values.layout import codec_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from duckrun.engines.spark.engine import SparkEngine
    from duckrun.storage.storage import Storage

_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
"""DuckLake refuses INT96, which Spark writes else."""
_GATHERING = {
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "{size}b",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
}
"""By which Spark makes as few tasks of what it shuffles as there are to be files."""
_TOO_LARGE = 1.25
"""Times the size that is asked for: a larger file is written anew as several."""
_OPTIONS = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
"""A lake's data folder holds nothing but data."""
_PATTERN = re.compile(r"([*?{}\[\]\\])")
_PART = re.compile(r"([^/=]+)=([^/]*)/")
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
NO_VALUES = (NO_PARTITION, "NULL")
"""What DuckDB takes for NULL in a path, in any case."""


@dataclass(frozen=True)
class Written:
    """Files below a folder: their paths, and of each the values in its path."""

    folder: str
    paths: tuple[str, ...]

    def values(self, columns: Sequence[str]) -> list[tuple[str | None, ...]]:
        """The different values of some columns that stand in the paths; None for NULL."""
        found: dict[tuple[str | None, ...], None] = {}
        for path in self.paths:
            said = {name: unquote(value) for name, value in _PART.findall(path[len(self.folder) :])}
            found[tuple(None if said[name] == NO_PARTITION else said[name] for name in columns)] = None
        return list(found)


@contextmanager
def written(
    engine: SparkEngine,
    storage: Storage,
    frame: DataFrame,
    parent: str,
    what: str,
    *,
    properties: Mapping[str, str],
    partition_by: Sequence[str] = (),
    kept: Callable[[str], bool] = lambda folder: False,
) -> Iterator[Written]:
    """Files with the rows of a frame, in a folder of their own below ``parent``. If the block raises nothing of it stays, unless ``kept`` says of
    the folder that it is in use. ``what`` says what the files are for, to begin a message. Files are about as large as ``properties`` say.
    """
    folder = f"{parent.rstrip('/')}/spark-{uuid.uuid4().hex}"
    size, options = file_size(properties), dict(_OPTIONS)
    if codec := codec_of(properties):
        options["compression"] = codec
    gathering = {} if size is None else {key: value.format(size=size) for key, value in _GATHERING.items()}
    try:
        with errors_about(what, analysis=SchemaMismatch), engine.settings({**_SETTINGS, **gathering}):
            writer = frame.write.mode("error").options(**options)
            if partition_by:
                writer = writer.partitionBy(*partition_by)
            writer.parquet(engine.location_of(folder))
            if size is not None:
                _cut(engine, storage, folder, size, options)
        paths = _paths(storage, folder)
        yield Written(folder, paths)
    except BaseException:
        if not kept(folder):
            remove(storage, folder)
        raise


def _cut(engine: SparkEngine, storage: Storage, folder: str, size: int, options: Mapping[str, str]) -> None:
    """Write the files of a folder anew, each in its place, that are much larger than asked for. How many rows fit into a file only those that are
    written say.
    """
    large: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for each in storage.keys(folder):
        path, found = str(each["path"]), int(each["size"])
        if _is_data(path) and found > _TOO_LARGE * size:
            large[path.rpartition("/")[0]].append((path, found))
    for place, files in large.items():
        rows = engine.spark.read.parquet(*(exactly(engine.location_of(f"{folder}/{path}")) for path, _ in files))
        count = rows.count()
        each_has = max(1, count * size // sum(found for _, found in files))
        if each_has < count:
            written_to = engine.location_of(f"{folder}/{place}" if place else folder)
            rows.write.mode("append").options(**options, maxRecordsPerFile=each_has).parquet(written_to)
            storage.remove_files(folder, [path for path, _ in files])


def exactly(place: str) -> str:
    """A path for Spark's reader, which takes some characters for patterns."""
    return _PATTERN.sub(r"\\\1", place)


def _paths(storage: Storage, folder: str) -> tuple[str, ...]:
    """The data files of a folder, in which nothing else is left."""
    there = [str(each["path"]) for each in storage.keys(folder)]
    data = [path for path in there if _is_data(path)]
    others = [path for path in there if not _is_data(path)]
    storage.remove_files(folder, others)
    return tuple(f"{folder}/{path}" for path in sorted(data))


def _is_data(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith(".parquet") and not name.startswith(("_", "."))


def remove(storage: Storage, folder: str) -> None:
    """Remove a folder of files that no table has. What cannot be removed is an orphan, which the lake's maintenance takes away."""
    with suppress(DuckrunError, OSError):
        if storage.is_local:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            storage.remove_below(folder, [str(each["path"]) for each in storage.keys(folder)])
