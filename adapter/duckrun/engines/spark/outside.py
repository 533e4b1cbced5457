"""Check of rows outside the part that a write may touch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duckrun.engines.decisions import rows_outside
from duckrun.engines.spark.sql import to_spark
from duckrun.values.rows import RowSpec
from duckrun.values.snapshot import TableRef

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def refuse_outside(spec: RowSpec, ref: TableRef, rows: DataFrame, written: str) -> None:
    """Raise RowsOutsidePartition, with three rows, if rows violate a predicate.

    Args:
        written: Predicate in the spec's dialect.
    """
    outside = rows.where(f"NOT coalesce(({to_spark(written, spec.dialect)}), false)")
    examples = "; ".join(str(row.asDict()) for row in outside.limit(3).collect())
    if examples:
        raise rows_outside(ref, outside.count(), written, examples)
