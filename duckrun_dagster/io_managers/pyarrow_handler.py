"""PyArrow: a Table in memory, a RecordBatchReader that streams, a Dataset that is read when it is scanned."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from duckrun.errors import InvalidConfig
from duckrun.formats.delta_dataset import arrow_dataset
from duckrun_dagster.io_managers.arrow_predicate import arrow_predicate
from duckrun_dagster.io_managers.handler import TableScan, TypeHandler


class PyArrowHandler(TypeHandler[pa.Table | pa.RecordBatchReader | ds.Dataset]):
    """A RecordBatchReader and a Dataset are never held as a whole, in either direction."""

    def to_source(self, value: pa.Table | pa.RecordBatchReader | ds.Dataset) -> Any:
        return value.scanner().to_reader() if isinstance(value, ds.Dataset) else value

    def from_scan(self, scan: TableScan, as_type: type) -> pa.Table | pa.RecordBatchReader | ds.Dataset:
        if issubclass(as_type, ds.Dataset):
            return _dataset(scan)
        return scan.frame().reader() if issubclass(as_type, pa.RecordBatchReader) else scan.frame().toArrow()


def _dataset(scan: TableScan) -> ds.Dataset:
    """The table's files, filtered by the scan's predicate, which prunes them too."""
    snapshot = scan.snapshot("pyarrow.dataset.Dataset")
    dataset = arrow_dataset(scan.session.lake.format, snapshot)
    if scan.spec.predicate is not None:
        dataset = dataset.filter(arrow_predicate(scan.spec.predicate, dataset.schema))
    if scan.spec.columns is None:
        return dataset
    raise InvalidConfig(
        f"a pyarrow.dataset.Dataset of table {scan.ref} has all of its columns; leave metadata 'columns' out, and name them "
        "where it is scanned: dataset.to_table(columns=[…])."
    )
