"""pandas DataFrames. An index is written as a column where it is more than a count of the rows, as by to_parquet()."""

from __future__ import annotations

from typing import Any

import pandas as pd

from duckrun.engines.tabular.pandas_values import arrow_of_pandas
from duckrun_dagster.io_managers.handlers.handler import TableScan, TypeHandler


class PandasHandler(TypeHandler[pd.DataFrame]):
    """pandas frames, through Arrow: a column of Python objects gets the Arrow type of what it holds."""

    def to_source(self, value: pd.DataFrame) -> Any:
        return arrow_of_pandas(value)

    def from_scan(self, scan: TableScan, as_type: type) -> pd.DataFrame:
        return scan.frame().toPandas()
