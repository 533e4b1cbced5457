"""Changes of a DuckLake table for Spark.

DuckDB on the driver computes them from the catalog, and the workers read the result as Parquet.
Only DuckLake knows which rows of a file count at a snapshot, so nothing else computes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duckrun.engines.frame import projected
from duckrun.engines.spark.access import SparkAccess
from duckrun.engines.spark.frame import SparkFrame
from duckrun.engines.spark.process.checks import check_workers_see
from duckrun.engines.spark.types import storable_arrow
from duckrun.errors import UnsupportedFeature
from duckrun.sql.quoting import quoted_names, select_list
from duckrun.sql.typed import with_parts
from duckrun.storage.scratch import scratch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from duckrun.engines.frame import LazyRows
    from duckrun.run.pins import Reads
    from duckrun.values.any_case import AnyCase
    from duckrun.values.changes import WeighedRead

_WIDER = {
    "utinyint": "SMALLINT",
    "usmallint": "INTEGER",
    "uinteger": "BIGINT",
    "ubigint": "DECIMAL(20, 0)",
    "uuid": "VARCHAR",
    "timestamp_s": "TIMESTAMP",
    "timestamp_ms": "TIMESTAMP",
}
"""Types of DuckDB that Spark lacks, and the types in which it reads them, also from the table."""
_NONE = {"time", "time with time zone", "interval", "timestamp_ns", "hugeint", "uhugeint", "bit", "variant", "geometry"}
"""Types that have no counterpart in Spark."""


class ComputedFrame(SparkFrame):
    """Result of a DuckDB query as a Spark DataFrame.

    DuckDB computes it when its rows are needed, into a file.

    Args:
        named: Temporary names of the session, with what their rows were read from.
        until: Closes the file's folder. None sends the rows through the driver.

    Raises:
        UnsupportedFeature: Spark lacks the type of a column.
    """

    def __init__(
        self, access: SparkAccess, named: AnyCase[Reads], read: WeighedRead, rows: LazyRows, until: ExitStack | None
    ) -> None:
        self._access, self._named, self._until = access, named, until
        self._rows = _as_spark_reads(rows, str(read.ref))
        self._what = f"changes of table {read.ref}"

    @cached_property
    def native(self) -> DataFrame:  # type: ignore[override]
        from pyspark.sql.pandas.types import from_arrow_schema

        access, storage = self._access, self._access.storage
        if self._until is None:
            return access.from_arrow(self._rows.toArrow())
        check_workers_see(access.spark, storage)
        folder = self._until.enter_context(scratch(storage))
        file = f"{folder}/changes.parquet"
        if storage.is_local:
            Path(folder).mkdir(parents=True, exist_ok=True)
        self._rows.source.write_parquet(file)  # type: ignore[attr-defined]
        schema = from_arrow_schema(self.schema(), prefer_timestamp_ntz=True)
        with self._errors():
            return access.spark.read.schema(schema).parquet(access.location_of(file))

    def schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([pa.field(f.name, storable_arrow(f.name, f.type)) for f in self._rows.schema])


def _as_spark_reads(rows: LazyRows, table: str) -> LazyRows:
    """Return the rows with each column cast to a type of Spark's."""
    relation = rows.native
    kinds = {
        name: _type(kind, f"Table {table}: Spark has no type for column {name}")
        for name, kind in zip(relation.columns, relation.types, strict=True)
    }
    return cast_by_duckdb(rows, {name: kind for name, kind in kinds.items() if kind is not None})


def cast_by_duckdb(rows: LazyRows, kinds: Mapping[str, str]) -> LazyRows:
    """Return rows of DuckDB with some columns cast to types of its SQL."""
    if not kinds:
        return rows
    quoted = quoted_names(rows.columns)
    casts = {name: f"CAST({quoted[name]} AS {kind})" for name, kind in kinds.items()}
    other = projected(rows, rows.columns, [select_list(quoted | casts)])
    assert other is not None, "rows of DuckDB"
    return other


def _type(kind: Any, wrong: str) -> str | None:
    """Return the SQL type that Spark reads for one of DuckDB's; None if it is the same."""
    word = str(kind.id)
    if word in ("list", "map", "struct"):
        is_same = all(_type(inner, wrong) is None for _, inner in kind.children)
        return None if is_same else with_parts(kind, lambda _, inner: _type(inner, wrong) or str(inner))
    if str(kind).lower() in _NONE or word in _NONE:
        raise UnsupportedFeature(
            f"{wrong}, which is {kind}: ask with engine: duckdb, or name the other columns in columns=."
        )
    return _WIDER.get(word)
