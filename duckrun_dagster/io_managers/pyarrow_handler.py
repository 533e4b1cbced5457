"""PyArrow: a Table in memory, or a RecordBatchReader that streams."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from duckrun.frame import Frame
from duckrun_dagster.io_managers.handler import TypeHandler


class PyArrowHandler(TypeHandler[pa.Table | pa.RecordBatchReader]):
    """A RecordBatchReader is never held as a whole, in either direction."""

    names = {"pyarrow": pa.Table, "pyarrow_reader": pa.RecordBatchReader}

    def to_source(self, value: pa.Table | pa.RecordBatchReader) -> Any:
        return value

    def from_scan(self, frame: Frame, as_type: type) -> pa.Table | pa.RecordBatchReader:
        return frame.reader() if issubclass(as_type, pa.RecordBatchReader) else frame.toArrow()
