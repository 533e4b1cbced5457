"""pandas frames, and a Series as a table of one column.

An index other than a plain row count is written as a column, as to_parquet() does.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from duckrun.engines.tabular.pandas_values import arrow_of_pandas
from duckrun.errors import SchemaMismatch
from duckrun_dagster.io_managers.handlers.handler import TableScan, TypeHandler


class PandasHandler(TypeHandler[pd.DataFrame | pd.Series]):
    """Handler of pandas frames, through Arrow: Python objects get the type of their values."""

    def to_source(self, value: pd.DataFrame | pd.Series) -> Any:
        if not isinstance(value, pd.Series):
            return arrow_of_pandas(value)
        if value.name is None:
            raise SchemaMismatch(
                "a pandas Series without a name has no column to be stored in; name it: series.rename('amount')"
            )
        return arrow_of_pandas(value.to_frame())

    def from_scan(self, scan: TableScan, as_type: type) -> pd.DataFrame | pd.Series:
        if issubclass(as_type, pd.Series):
            return scan.one_column("pandas.Series").toPandas().iloc[:, 0]
        return scan.frame().toPandas()

    def is_untyped(self, kind: pa.DataType) -> bool:
        # pandas gives a column without values the type float64: pd.DataFrame({"day": []})
        return super().is_untyped(kind) or pa.types.is_float64(kind)

    def nothing(self, as_type: type) -> pd.DataFrame | pd.Series:
        return pd.Series(dtype=object) if issubclass(as_type, pd.Series) else pd.DataFrame()
