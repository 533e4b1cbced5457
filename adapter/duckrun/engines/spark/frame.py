"""Spark DataFrame as a source of lazy rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from duckrun.engines.frame import without_arrow_form
from duckrun.engines.spark.errors import errors_about
from duckrun.engines.spark.sql import quote
from duckrun.errors import InvalidConfig
from duckrun.run.pins import Reads
from duckrun.values.any_case import AnyCase

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SparkFrame:
    """Methods that LazyRows needs of a Spark DataFrame."""

    def __init__(self, native: DataFrame, named: AnyCase[Reads], what: str) -> None:
        self.native = native
        self._named = named
        self._what = what

    @property
    def bound(self) -> DataFrame:
        return self.native

    def schema(self) -> pa.Schema:
        return arrow_schema(self.native)

    def reader(self) -> pa.RecordBatchReader:
        for field in self.native.schema.fields:
            if "variant" in field.dataType.simpleString():
                raise without_arrow_form(field.name, field.dataType.simpleString())
        with self._errors():
            return self.native.toArrow().to_reader()

    def _errors(self) -> AbstractContextManager[None]:
        return errors_about(self._what, analysis=InvalidConfig, writes=False)

    def polars(self) -> None:
        """Spark alone has the rows."""

    def polars_lazy(self, check: Callable[[], None]) -> Any:
        import polars

        return polars.DataFrame(self.reader().read_all()).lazy()

    def count(self) -> int:
        with self._errors():
            return self.native.count()

    def limit(self, rows: int) -> SparkFrame:
        return SparkFrame(self.native.limit(rows), self._named, self._what)

    def renamed(self, columns: Sequence[tuple[Sequence[str], str]]) -> SparkFrame:
        from pyspark.sql import functions as F

        named = [F.col(quote(*path)).alias(name) for path, name in columns]
        with self._errors():
            return SparkFrame(self.native.select(*named), self._named, self._what)

    def named(self, names: Sequence[str]) -> SparkFrame:
        return SparkFrame(self.native.toDF(*names), self._named, self._what)

    def create_view(self, name: str, reads: Reads) -> None:
        self.native.createOrReplaceTempView(name)
        self._named[name] = reads


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """Return the Arrow schema of a Spark DataFrame."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema)
