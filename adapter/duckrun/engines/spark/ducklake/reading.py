"""A DuckLake table at a version as a Spark DataFrame, read from the same files as DuckDB reads.

Files with the same columns are read together, by field id or by name. Columns added later get their
default. Deleted rows and rows of later snapshots are removed. Rows in the catalog are sent along.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from duckrun.engines.spark.access import SparkAccess
from duckrun.engines.spark.ducklake.files import NO_VALUES, exactly
from duckrun.engines.spark.ducklake.kinds import FIELD_ID, as_shown, is_read, kind_in_file, placeholder, refuse
from duckrun.engines.spark.foreign_servers import refuse_other_server
from duckrun.engines.spark.sql import quote
from duckrun.values.lake_files import IN_CATALOG, SNAPSHOT_COLUMN, SNAPSHOT_FIELD, LakeColumn, LakeFile, LakeFiles

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from duckrun.values.snapshot import Snapshot

BY_FIELD_ID = "spark.sql.parquet.fieldId.read.enabled"
_SCHEME = re.compile(r"^[A-Za-z0-9]+:/+")
_BROADCAST = 200_000
"""Number of deleted positions up to which each task gets all of them: some 40 MB."""
_FILE, _ROW, _SNAPSHOT = "__duckrun_file", "__duckrun_row", "__duckrun_snapshot"


def rows_of(
    access: SparkAccess,
    snapshot: Snapshot,
    *,
    columns: Collection[str] | None = None,
    paths: Collection[str] | None = None,
) -> DataFrame:
    """Return the lazy rows of a snapshot.

    Args:
        columns: Columns to return. Other columns that Spark cannot read are left out.
        paths: Files to read; None reads all.

    Raises:
        UnsupportedFeature: The lake is encrypted, Spark lacks the type of a column, or the Connect
            server is not Apache Spark.
    """
    refuse_other_server(
        access.spark,
        f"Table {snapshot.ref} is a DuckLake table, and",
        ", which does not know the rows of its files by their numbers",
    )
    read: LakeFiles = snapshot.parts()
    wanted = None if columns is None else {name.lower() for name in columns}
    taken = []
    for column in read.columns:
        if wanted is None or column.name.lower() in wanted:
            refuse(column, str(snapshot.ref))
        if is_read(column):
            taken.append(column)
    access.spark.conf.set(BY_FIELD_ID, "true")
    return _Rows(access, read, taken, paths).frame()


class _Rows:
    def __init__(
        self, access: SparkAccess, read: LakeFiles, columns: Sequence[LakeColumn], paths: Collection[str] | None
    ) -> None:
        self.access, self.read, self.columns = access, read, columns
        self.files = [file for file in read.files if paths is None or file.path in paths]
        self.inlined = read.inlined if paths is None or IN_CATALOG in paths else None

    def frame(self) -> DataFrame:
        from pyspark.sql.types import StructField, StructType

        groups: dict[Any, list[LakeFile]] = defaultdict(list)
        for file in self.files:
            groups[_is_marked(file), file.mapping, file.bound, file.absent, file.stored].append(file)
        frames = [self._group(files) for (marked, *_), files in groups.items() if not marked]
        marked = [self._group(files) for (marked, *_), files in groups.items() if marked]
        if marked:
            frames.append(self._without_deleted(_all(marked)))
        if self.inlined is not None:
            frames.append(self._in_catalog(self.inlined))
        if not frames:
            fields = [StructField(column.name, kind_in_file(column, shown=True)) for column in self.columns]
            return self.access.spark.createDataFrame([], StructType(fields))
        return _all(frames)

    # -- files

    def _group(self, files: Sequence[LakeFile]) -> DataFrame:
        """Return the rows of files with the same columns."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import LongType, StructField, StructType

        first = files[0]
        names = None if first.mapping is None else self.read.mappings[first.mapping]
        stored = dict(first.stored)
        fields, values = [], []
        for column in self.columns:
            shown = kind_in_file(column, shown=True)
            named = None if names is None else names.get(column.id)
            if column.id in first.absent:
                value = F.lit(self.read.defaults.get(column.id)).cast(shown)
            elif named is not None and named.in_path:
                value = in_path(named.source).cast(shown)
            else:
                at = placeholder(column) if named is None else named.source
                kind = kind_in_file(column, named, by_name=named is not None, stored=stored)
                fields.append(StructField(at, kind, True, {FIELD_ID: column.id} if named is None else {}))
                # With another stored type, rows of later snapshots may not fit this one's type.
                value = F.expr(as_shown(quote(at), column, kind))
                value = value.try_cast(shown) if stored else value.cast(shown)
            values.append(value.alias(column.name))
        if first.bound:
            fields.append(
                StructField(SNAPSHOT_COLUMN, LongType(), True, {FIELD_ID: SNAPSHOT_FIELD} if names is None else {})
            )
        rows = self._parquet(StructType(fields), [file.path for file in files])
        if first.bound:
            rows = rows.where(F.col(SNAPSHOT_COLUMN) <= self.read.version)
        if _is_marked(first):
            values += [path_of_row().alias(_FILE), F.col("_metadata.row_index").alias(_ROW)]
        return rows.select(*values)

    def _parquet(self, schema: Any, paths: Sequence[str]) -> DataFrame:
        places = [exactly(self.access.location_of(path)) for path in paths]
        return self.access.spark.read.schema(schema).parquet(*places)

    # -- rows that are gone

    def _without_deleted(self, rows: DataFrame) -> DataFrame:
        """Return the rows of files with deletes, without their deleted rows."""
        from pyspark.sql import functions as F

        files = [file for file in self.files if _is_marked(file)]
        gone = self._deleted(files).withColumnsRenamed({_FILE: f"{_FILE}_", _ROW: f"{_ROW}_"})
        if sum(len(file.deleted) + sum(each.count for each in file.deletes) for file in files) <= _BROADCAST:
            gone = F.broadcast(gone)
        same = (F.col(_FILE) == F.col(f"{_FILE}_")) & (F.col(_ROW) == F.col(f"{_ROW}_"))
        return rows.join(gone, same, "left_anti").drop(_FILE, _ROW)

    def _deleted(self, files: Sequence[LakeFile]) -> DataFrame:
        """Return the files and the numbers of deleted rows."""
        from pyspark.sql import functions as F

        frames = []
        listed = [(self._key(file.path), position) for file in files for position in file.deleted]
        if listed:
            paths, positions = zip(*listed, strict=True)
            frames.append(self._local({_FILE: pa.array(paths, pa.string()), _ROW: pa.array(positions, pa.int64())}))
        marked = [(file, delete) for file in files for delete in file.deletes]
        if marked:
            rows = self._parquet(f"pos BIGINT, {SNAPSHOT_COLUMN} BIGINT", [delete.path for _, delete in marked])
            rows = rows.select(
                path_of_row().alias("place"), F.col("pos").alias(_ROW), F.col(SNAPSHOT_COLUMN).alias(_SNAPSHOT)
            )
            of = self._local(
                {
                    "place_": pa.array([self._key(delete.path) for _, delete in marked], pa.string()),
                    _FILE: pa.array([self._key(file.path) for file, _ in marked], pa.string()),
                }
            )
            rows = rows.join(F.broadcast(of), F.col("place") == F.col("place_"))
            rows = rows.where(F.col(_SNAPSHOT).isNull() | (F.col(_SNAPSHOT) <= self.read.version))
            frames.append(rows.select(_FILE, _ROW))
        return _all(frames)

    def _local(self, columns: dict[str, Any]) -> DataFrame:
        return self.access.spark.createDataFrame(pa.table(columns))

    def _key(self, path: str) -> str:
        """Return a file's path in the form of ``path_of_row()``."""
        return _SCHEME.sub("/", self.access.location_of(path))

    # -- rows in the catalog

    def _in_catalog(self, rows: pa.Table) -> DataFrame:
        from pyspark.sql import functions as F

        frame = self.access.from_arrow(rows.select([column.name for column in self.columns]))
        return frame.select(
            *[
                F.col(quote(column.name)).cast(kind_in_file(column, shown=True)).alias(column.name)
                for column in self.columns
            ]
        )


def _is_marked(file: LakeFile) -> bool:
    return bool(file.deletes or file.deleted)


def _all(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of several frames with the same columns."""
    return reduce(lambda one, other: one.unionAll(other), frames)


def path_of_row() -> Column:
    """Return the file of a row, decoded and without its scheme."""
    from pyspark.sql import functions as F

    return F.expr("regexp_replace(url_decode(replace(_metadata.file_path, '+', '%2B')), '^[A-Za-z0-9]+:/+', '/')")


def in_path(name: str) -> Column:
    """Return the text of a column in the path of a row's file; NULL if the path says so."""
    from pyspark.sql import functions as F

    text = F.regexp_extract(path_of_row(), f"^.*/{re.escape(name)}=([^/]*)/", 1)
    decoded = F.url_decode(F.replace(text, F.lit("+"), F.lit("%2B")))
    return F.when(~F.upper(text).isin(*NO_VALUES), decoded)
