"""Spark's part of the query over data files with multiplicities: ``engines/weights.py``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from duckrun.engines.dialect import Dialect
from duckrun.engines.spark.access import SparkAccess
from duckrun.engines.spark.ducklake.files import exactly
from duckrun.engines.spark.sql import quote
from duckrun.engines.spark.structs import type_text
from duckrun.engines.weights import CHANGE_TYPE, WeighedQuery
from duckrun.libraries import pa
from duckrun.values.changes import WeighedRead
from duckrun.values.data_files import place_of
from duckrun.values.rows import ScanFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


SPARK = Dialect(
    quote,
    each=lambda items, item, value: f"transform({items}, {item} -> {value})",
    struct=lambda fields: f"named_struct({', '.join(f'{name!r}, {value}' for name, value in fields.items())})",
)


def weighed_rows(access: SparkAccess, read: WeighedRead) -> DataFrame:
    """Return the rows of a WeighedRead."""
    from pyspark.sql import functions as F

    def location(file: ScanFile) -> str:
        return re.sub(r"^file:/+", "/", access.location_of(place_of(read.ref.location, file)))

    types = {field.name: type_text(field.dataType) for field in _types(read, read.schema)}
    query = WeighedQuery(read, SPARK, location, types)

    def value(field: pa.Field, stored: pa.Field) -> str:
        # Spark casts a struct by position, which gives its fields the table's names.
        return f"CAST(r.{quote(stored.name)} AS {types[field.name]})"

    frames: dict[str, Any] = {}

    def named(frame: DataFrame) -> str:
        frames[f"__duckrun_frame_{len(frames)}"] = frame
        return list(frames)[-1]

    selects = []
    for part in query.parts():
        schema = _file_schema(read, is_feed=part.is_feed)
        places = sorted({exactly(location(file)) for file in part.files})
        # Spark returns the encoded URI of a file.
        uri = "regexp_replace(url_decode(replace(_metadata.file_path, '+', '%2B')), '^file:/+', '/')"
        numbered = (f"{uri} AS {quote(query.file)}", f"_metadata.row_index AS {quote(query.row)}")
        source = named(access.spark.read.schema(schema).parquet(*places).selectExpr("*", *numbered))
        listed = named(F.broadcast(access.from_arrow(part.listed)))
        rows = None if part.rows is None else named(access.from_arrow(part.rows))
        selects.append(query.select(part, source, listed, rows, value, schema.names))
    text = (" UNION ALL ".join(selects) or query.nothing()).replace("{", "{{").replace("}", "}}")
    for name in frames:
        text = re.sub(rf"\b{name}\b", f"{{{name}}}", text)
    return access.sql(text, **frames)


def _file_schema(read: WeighedRead, *, is_feed: bool) -> StructType:
    """Return the columns of data files to read, by their physical names."""
    from pyspark.sql.types import LongType, StringType

    schema = _types(read, read.stored, [i for i, f in enumerate(read.schema) if f.name in read.partition_columns])
    if is_feed:
        return schema.add(CHANGE_TYPE, StringType())
    for name in filter(None, (read.stored_row_id, read.stored_row_commit)):
        schema = schema.add(name, LongType())
    return schema


def _types(read: WeighedRead, fields: Iterable[pa.Field], but: Sequence[int] = ()) -> Any:
    """Return the Spark schema of the table's columns, under the names of ``fields``.

    Args:
        read: The read, which knows the variants.
        fields: The columns.
        but: Positions of columns to leave out.
    """
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import VariantType

    schema = from_arrow_schema(pa.schema(fields), prefer_timestamp_ntz=True)
    for at, field in enumerate(read.schema):
        if field.name in read.variants:
            schema.fields[at].dataType = VariantType()
    return type(schema)([field for at, field in enumerate(schema.fields) if at not in but])
