"""Tabular Python values as Arrow tables."""

from __future__ import annotations

from typing import Any

import duckdb

from duckrun.engines.frame import LazyRows
from duckrun.engines.tabular.pandas_values import arrow_of_pandas
from duckrun.errors import InvalidConfig, SchemaMismatch
from duckrun.libraries import pa


def is_dataset(value: Any) -> bool:
    """True for a pyarrow Dataset, without importing its module."""
    return type(value).__module__ == "pyarrow._dataset" and hasattr(value, "to_table")


def is_of_spark(value: Any) -> bool:
    """True for rows that Spark holds and writes itself.

    These are a PySpark DataFrame (classic or Connect) and a Frame of that engine.
    """
    if isinstance(value, LazyRows):
        return value.engine == "spark"
    return type(value).__module__.startswith("pyspark.sql") and type(value).__name__ == "DataFrame"


def is_pattern(name: str) -> bool:
    """True for a column's name that polars takes for a pattern of names: ``*``, or ``^…$``."""
    return name == "*" or (name.startswith("^") and name.endswith("$"))


def exactly(rows: pa.Table | pa.RecordBatch, schema: pa.Schema) -> pa.Table | pa.RecordBatch:
    """Return rows cast to the types of a schema with the same columns.

    Raises:
        SchemaMismatch: A cast would change a value. The error names the column.
    """
    columns = []
    for field, column in zip(schema, rows.columns, strict=True):
        try:
            columns.append(column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaMismatch(f"column {field.name!r} has a value that Delta cannot store: {error}") from error
    return type(rows).from_arrays(columns, schema=schema)


def arrow_table(value: Any) -> pa.Table:
    """Return a tabular value of this process as an Arrow table.

    Raises:
        InvalidConfig: The value is not tabular.
        SchemaMismatch: A pandas column has no Arrow type.
    """
    module = type(value).__module__.partition(".")[0]
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if module == "pandas" and type(value).__name__ != "Series":
        return arrow_of_pandas(value)
    if isinstance(value, duckdb.DuckDBPyRelation):
        return value.to_arrow_table()
    if is_dataset(value):
        return value.to_table()
    if module == "polars" and hasattr(value, "collect"):
        value = value.collect()
    if module == "polars" and hasattr(value, "to_arrow") and hasattr(value, "columns"):
        from polars import CompatLevel

        # Without string_view: DuckDB pushes a query's filters down to pyarrow, which cannot filter
        # that type.
        return value.to_arrow(compat_level=CompatLevel.oldest())
    if hasattr(value, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(value).read_all()
    raise InvalidConfig(
        f"A {type(value).__module__}.{type(value).__qualname__} cannot be written as a table; give a pyarrow Table, "
        "RecordBatchReader or Dataset, a pandas or polars frame, a DuckDB relation, a PySpark DataFrame, a Frame "
        "or duckrun.SQL."
    )
