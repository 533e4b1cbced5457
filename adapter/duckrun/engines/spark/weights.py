"""Rows of data files with their multiplicity: files of any versions, in the columns of one version.

Spark reads the files directly, since no version needs to contain all of them. It reads columns by
their physical names, and partition values from the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from duckrun.engines.spark.sql import quote
from duckrun.sql.quoting import fresh_name
from duckrun.values.changes import FEED_WEIGHTS, Step, Weighed, WeighedRead
from duckrun.values.columns import holds
from duckrun.values.data_files import place
from duckrun.values.rows import ScanFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from duckrun.engines.spark.engine import SparkEngine

_CHANGE_TYPE = "_change_type"
_PATTERN = re.compile(r"([*?{}\[\]\\])")


def weighed_rows(engine: SparkEngine, read: WeighedRead) -> DataFrame:
    """Return the rows of a WeighedRead."""
    parts = _Parts(engine, read)
    frames = [*parts.whole(), *parts.single(), *parts.feed()]
    return reduce(lambda one, other: one.unionAll(other), frames) if frames else parts.nothing()


class _Parts:
    def __init__(self, engine: SparkEngine, read: WeighedRead) -> None:
        self._engine, self._read = engine, read
        taken = [*read.schema.names, *read.stored.names, read.weight, read.step, *read.same.values()]
        names = (
            "file",
            "row",
            "f_step",
            "f_weight",
            "f_first",
            "f_commit",
            "p_step",
            "p_row",
            "p_weight",
            "f_file",
            "p_file",
        )
        self._name = {name: fresh_name(f"__duckrun_{name}", taken) for name in names}
        self._partitions = [i for i, field in enumerate(read.schema) if field.name in read.partition_columns]

    def nothing(self) -> DataFrame:
        """Return no row, with all columns."""
        read = self._read
        fields = [
            *(pa.field(f.name, f.type) for f in read.schema),
            pa.field(read.weight, pa.int64()),
            pa.field(read.step, pa.int64()),
        ]
        fields += [] if read.fed is None else [pa.field(read.fed, pa.string())]
        fields += [pa.field(name, pa.int64()) for name in (read.row_id, read.row_commit) if name is not None]
        frame = self._engine.spark.createDataFrame([], self._types(fields))
        kinds = {field.name: field.type for field in read.schema}
        same = [f"{_one_spelling(quote(name), kinds[name])} AS {quote(other)}" for name, other in read.same.items()]
        return frame.selectExpr("*", *same)

    def whole(self) -> Iterator[DataFrame]:
        """Yield the rows of files whose rows all count, some with another multiplicity."""
        files = [(step, file) for step in self._read.steps for file in step.files if file.base]
        if not files:
            return
        listed = self._listed([(step, file.file, file.base, file) for step, file in files])
        frame = self._read_files([file.file for _, file in files], feed=False).join(listed, self._same_file("f"))
        rows, weight = self._rows(files), quote(self._name["f_weight"])
        if rows is not None:
            name = {key: quote(value) for key, value in self._name.items()}
            on = (
                f"{name['p_file']} = {name['file']} AND {name['p_row']} = {name['row']} AND {name['p_step']} = "
                f"{name['f_step']}"
            )
            frame = frame.join(rows, self._expr(on), "left")
            weight = f"{name['f_weight']} + coalesce({name['p_weight']}, 0)"
        yield self._selected(frame.where(f"{weight} <> 0"), weight)

    def single(self) -> Iterator[DataFrame]:
        """Yield the single rows that count, of files whose other rows do not."""
        files = [(step, file) for step in self._read.steps for file in step.files if not file.base]
        rows = self._rows(files)
        if rows is None:
            return
        listed = self._listed([(step, file.file, 0, file) for step, file in files])
        name = {key: quote(value) for key, value in self._name.items()}
        on = (
            f"{name['p_file']} = {name['file']} AND {name['p_row']} = {name['row']} AND {name['p_step']} = "
            f"{name['f_step']}"
        )
        frame = self._read_files([file.file for _, file in files], feed=False).join(listed, self._same_file("f"))
        yield self._selected(frame.join(rows, self._expr(on)), name["p_weight"])

    def feed(self) -> Iterator[DataFrame]:
        """Yield the rows of change feed files; each row tells its own multiplicity."""
        files = [(step, file) for step in self._read.steps for file in step.feed]
        if not files:
            return
        frame = self._read_files([file for _, file in files], feed=True)
        frame = frame.join(self._listed([(step, file, 0, None) for step, file in files]), self._same_file("f"))
        kinds = " ".join(f"WHEN '{kind}' THEN {weight}" for kind, weight in FEED_WEIGHTS.items())
        yield self._selected(frame, f"CASE {quote(_CHANGE_TYPE)} {kinds} END")

    # -- parts of the frames

    def _expr(self, text: str) -> Any:
        from pyspark.sql import functions as F

        return F.expr(text)

    def _same_file(self, prefix: str) -> Any:
        return self._expr(f"{quote(self._name[f'{prefix}_file'])} = {quote(self._name['file'])}")

    def _read_files(self, files: Sequence[ScanFile], *, feed: bool) -> DataFrame:
        """Read files by physical column names, with the file and the number of each row."""
        places = sorted({self._place(file) for file in files})
        frame = self._engine.spark.read.schema(self._schema(feed)).parquet(
            *(_PATTERN.sub(r"\\\1", each) for each in places)
        )
        # Spark returns the encoded URI of a file.
        uri = "regexp_replace(url_decode(replace(_metadata.file_path, '+', '%2B')), '^file:/+', '/')"
        return frame.selectExpr(
            "*", f"{uri} AS {quote(self._name['file'])}", f"_metadata.row_index AS {quote(self._name['row'])}"
        )

    def _schema(self, feed: bool) -> StructType:
        from pyspark.sql.types import LongType, StringType

        read = self._read
        schema = self._types(read.stored, but=self._partitions)
        if feed:
            schema = schema.add(_CHANGE_TYPE, StringType())
        else:
            for name in filter(None, (read.stored_row_id, read.stored_row_commit)):
                schema = schema.add(name, LongType())
        return schema

    def _types(self, fields: Iterable[pa.Field], but: Sequence[int] = ()) -> StructType:
        """Return the Spark schema of fields that begin with the table's columns.

        Args:
            but: Positions of columns to leave out.
        """
        from pyspark.sql.pandas.types import from_arrow_schema
        from pyspark.sql.types import VariantType

        schema = from_arrow_schema(pa.schema(fields), prefer_timestamp_ntz=True)
        for at, field in enumerate(self._read.schema):
            if field.name in self._read.variants:
                schema.fields[at].dataType = VariantType()
        return type(schema)([field for at, field in enumerate(schema.fields) if at not in but])

    def _place(self, file: ScanFile) -> str:
        return re.sub(r"^file:/+", "/", self._engine.location_of(place(self._read.ref, file)))

    def _selected(self, frame: DataFrame, weight: str) -> DataFrame:
        from pyspark.sql import functions as F

        read = self._read
        wanted = self._types(read.schema)
        columns, there = [], set(frame.columns)
        for i, (field, stored) in enumerate(zip(read.schema, read.stored, strict=True)):
            value = quote(f"{self._name['f_file']}_{i}") if i in self._partitions else quote(stored.name)
            # Spark casts a struct by position, which gives its fields the table's names.
            columns.append(F.expr(value).cast(wanted[i].dataType).alias(field.name))
        if read.fed is not None:
            fed = quote(_CHANGE_TYPE) if _CHANGE_TYPE in there else "CAST(NULL AS STRING)"
            columns.append(F.expr(fed).alias(read.fed))
        if read.row_id is not None:
            number = f"{quote(self._name['f_first'])} + {quote(self._name['row'])}"
            if read.stored_row_id in there:
                number = f"coalesce({quote(read.stored_row_id)}, {number})"
            columns.append(F.expr(number).alias(read.row_id))
        if read.row_commit is not None:
            commit = quote(self._name["f_commit"])
            if read.stored_row_commit in there:
                commit = f"coalesce({quote(read.stored_row_commit)}, {commit})"
            columns.append(F.expr(commit).alias(read.row_commit))
        columns.append(F.expr(f"CAST({weight} AS BIGINT)").alias(read.weight))
        columns.append(F.expr(quote(self._name["f_step"])).alias(read.step))
        selected = frame.select(*columns)
        kinds = {field.name: field.type for field in read.schema}
        same = [f"{_one_spelling(quote(name), kinds[name])} AS {quote(other)}" for name, other in read.same.items()]
        return selected.selectExpr("*", *same) if same else selected

    def _listed(self, files: Sequence[tuple[Step, ScanFile, int, Weighed | None]]) -> DataFrame:
        """Return the files with their path, step, multiplicity and partition values."""
        from pyspark.sql import functions as F

        read = self._read
        table = pa.table(
            {
                self._name["f_file"]: pa.array([self._place(file) for _, file, _, _ in files], pa.string()),
                self._name["f_step"]: pa.array([step.number for step, _, _, _ in files], pa.int64()),
                self._name["f_weight"]: pa.array([base for _, _, base, _ in files], pa.int64()),
                self._name["f_first"]: pa.array(
                    [weighed and weighed.first_row_id for *_, weighed in files], pa.int64()
                ),
                self._name["f_commit"]: pa.array([weighed and weighed.row_commit for *_, weighed in files], pa.int64()),
                **{
                    f"{self._name['f_file']}_{i}": pa.array(
                        [
                            _partition_text(file.partition_values.get(read.stored.names[i]), read.schema.field(i).type)
                            for _, file, _, _ in files
                        ],
                        pa.binary() if pa.types.is_binary(read.schema.field(i).type) else pa.string(),
                    )
                    for i in self._partitions
                },
            }
        )
        return F.broadcast(self._engine.local(table).native)

    def _rows(self, files: Sequence[tuple[Step, Any]]) -> DataFrame | None:
        """Return single rows by file and number, with their step and multiplicity."""
        chosen = [(step, file) for step, file in files if len(file.rows)]
        if not chosen:
            return None
        each = pa.array(np.repeat(np.arange(len(chosen)), [len(file.rows) for _, file in chosen]))
        table = pa.table(
            {
                self._name["p_file"]: pa.array([self._place(file.file) for _, file in chosen]).take(each),
                self._name["p_step"]: pa.array([step.number for step, _ in chosen], pa.int64()).take(each),
                self._name["p_row"]: pa.chunked_array([pa.array(file.rows) for _, file in chosen]).cast(pa.int64()),
                self._name["p_weight"]: pa.chunked_array([pa.array(file.weights) for _, file in chosen]),
            }
        )
        return self._engine.local(table).native


def _partition_text(value: str | None, kind: pa.DataType) -> Any:
    """Return a partition value of the log in a form that Spark casts to its type."""
    if value is None:
        return None
    if pa.types.is_binary(kind):
        return value.encode("latin-1")
    if pa.types.is_timestamp(kind) and kind.tz and "+" not in value and not value.endswith("Z"):
        return value + "+00:00"
    return value


def _one_spelling(value: str, kind: pa.DataType, depth: int = 0) -> str:
    """Return SQL of a canonical form that is equal for equal maps, in any order of entries."""
    if not holds(kind, pa.types.is_map):
        return value
    name = f"e{depth}"
    if pa.types.is_map(kind):
        key = _one_spelling(f"{name}.key", kind.key_type, depth + 1)
        item = _one_spelling(f"{name}.value", kind.item_type, depth + 1)
        return f"array_sort(transform(map_entries({value}), {name} -> named_struct('k', {key}, 'v', {item})))"
    if pa.types.is_struct(kind):
        fields = (f"'f{i}', {_one_spelling(f'{value}.{quote(c.name)}', c.type, depth)}" for i, c in enumerate(kind))
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE named_struct({', '.join(fields)}) END"
    return f"transform({value}, {name} -> {_one_spelling(name, kind.value_type, depth + 1)})"
