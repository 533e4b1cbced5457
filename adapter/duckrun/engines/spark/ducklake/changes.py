"""What changed in a DuckLake table, for Spark: DuckDB on the driver computes the answer from the catalog, and the workers read it as Parquet.

Which rows of which files count at which snapshots is DuckLake's own to say, in the catalog as in its files, so that nobody else computes it twice.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duckrun.engines.spark.frame import SparkFrame
from duckrun.engines.spark.process.checks import check_workers_see
from duckrun.engines.spark.types import storable_arrow
from duckrun.errors import UnsupportedFeature
from duckrun.formats.ducklake.scratch import scratch
from duckrun.sql.names import quote_identifier

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from duckrun.engines.frame import LazyRows
    from duckrun.engines.spark.engine import SparkEngine
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
"""DuckDB's types that Spark has not -> those as which it reads them, also out of the table itself."""
_NONE = {"time", "time with time zone", "interval", "timestamp_ns", "hugeint", "uhugeint", "bit", "variant", "geometry"}
"""Types that have no form in Spark."""


class ComputedFrame(SparkFrame):
    """The answer of DuckDB's as a Spark DataFrame. DuckDB computes it when its rows are asked for, into a file that stays until ``until`` is closed."""

    def __init__(self, engine: SparkEngine, read: WeighedRead, rows: LazyRows, until: ExitStack) -> None:
        self._engine, self._read, self._until = engine, read, until
        self._rows = _as_spark_reads(rows, str(read.ref))
        self._named = engine.temp_names
        self._what = f"changes of table {read.ref}"

    @cached_property
    def native(self) -> DataFrame:  # type: ignore[override]
        from pyspark.sql.pandas.types import from_arrow_schema

        engine = self._engine
        if engine.lake.read_only:  # nothing may be written there, and Spark's workers may see no other place
            return engine.local(self._rows.toArrow()).native
        check_workers_see(engine.spark, engine.lake.storage)
        folder = self._until.enter_context(scratch(engine.lake.storage))
        file = f"{folder}/changes.parquet"
        if engine.lake.storage.is_local:
            Path(folder).mkdir(parents=True, exist_ok=True)
        self._rows.source.write_parquet(file)  # type: ignore[attr-defined]
        schema = from_arrow_schema(self.schema(), prefer_timestamp_ntz=True)
        with self._errors():
            return engine.spark.read.schema(schema).parquet(engine.location_of(file))

    def schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([pa.field(f.name, storable_arrow(f.name, f.type)) for f in self._rows.schema])


def answered(engine: SparkEngine, read: WeighedRead, query: Callable[[str], str], until: ExitStack) -> ComputedFrame:
    """The answer of a query over rows of a DuckLake table, with how often each counts. Raises UnsupportedFeature for a column of a type that Spark has
    not, and where no engine of this process is there.
    """
    if engine.driver is None:
        raise UnsupportedFeature(
            f"Table {read.ref} is a DuckLake table: DuckDB computes on the driver what changed in it, which a session does: ask by "
            "session.table(…).changes()."
        )
    return ComputedFrame(engine, read, engine.driver().weighed(read, query), until)


def _as_spark_reads(rows: LazyRows, table: str) -> LazyRows:
    """The rows with each column as one of Spark's types."""
    relation = rows.native
    listed, changed = [], False
    for name, kind in zip(relation.columns, relation.types, strict=True):
        wanted = _type(kind, f"Table {table}: Spark has no type for column {name}")
        quoted = quote_identifier(name)
        changed = changed or wanted is not None
        listed.append(quoted if wanted is None else f"CAST({quoted} AS {wanted}) AS {quoted}")
    if not changed:
        return rows
    other: LazyRows = rows._with(rows.source.selected(listed))  # type: ignore[attr-defined]
    return other


def _type(kind: Any, wrong: str) -> str | None:
    """The type in SQL as which Spark takes one of DuckDB's; None for the same."""
    word = str(kind.id)
    if word in ("list", "map", "struct"):
        inner = [(name, each, _type(each, wrong)) for name, each in kind.children]
        if all(made is None for _, _, made in inner):
            return None
        parts = [(name, str(each) if made is None else made) for name, each, made in inner]
        if word == "list":
            return f"{parts[0][1]}[]"
        if word == "map":
            return f"MAP({parts[0][1]}, {parts[1][1]})"
        return f"STRUCT({', '.join(f'{quote_identifier(name)} {made}' for name, made in parts)})"
    if str(kind).lower() in _NONE or word in _NONE:
        raise UnsupportedFeature(
            f"{wrong}, which is {kind}: ask with engine: duckdb, or name the other columns in columns=."
        )
    return _WIDER.get(word)
