"""pandas DataFrames. The index is not written, as with every columnar store; reset it to keep it."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from duckrun_dagster.io_managers.handler import TableScan, TypeHandler


class PandasHandler(TypeHandler[pd.DataFrame]):
    """pandas frames, through Arrow: a column of Python objects gets the Arrow type of what it holds."""

    def to_source(self, value: pd.DataFrame) -> Any:
        return pa.Table.from_pandas(value, preserve_index=False).replace_schema_metadata(None)

    def from_scan(self, scan: TableScan, as_type: type) -> pd.DataFrame:
        return scan.frame().toPandas()
