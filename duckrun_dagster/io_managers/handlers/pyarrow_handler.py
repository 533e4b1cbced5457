"""PyArrow values.

A Table and a RecordBatch are in memory, a RecordBatchReader streams, a Dataset is read when
scanned.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from duckrun.errors import InvalidConfig
from duckrun_dagster.io_managers.arrow_predicate import arrow_predicate
from duckrun_dagster.io_managers.handlers.handler import TableScan, TypeHandler


class PyArrowHandler(TypeHandler[pa.Table | pa.RecordBatch | pa.RecordBatchReader | ds.Dataset]):
    """Handler of PyArrow values; a RecordBatchReader and a Dataset are never loaded as a whole."""

    def to_source(self, value: pa.Table | pa.RecordBatch | pa.RecordBatchReader | ds.Dataset) -> Any:
        if isinstance(value, pa.RecordBatch):
            return pa.Table.from_batches([value])
        return _stream(value) if isinstance(value, ds.Dataset) else value

    def from_scan(
        self, scan: TableScan, as_type: type
    ) -> pa.Table | pa.RecordBatch | pa.RecordBatchReader | ds.Dataset:
        if issubclass(as_type, ds.Dataset):
            return _dataset(scan)
        if issubclass(as_type, pa.RecordBatchReader):
            return scan.frame().reader()
        table = scan.frame().toArrow()
        return _batch(table) if issubclass(as_type, pa.RecordBatch) else table

    def nothing(self, as_type: type) -> pa.Table | pa.RecordBatch | pa.RecordBatchReader | ds.Dataset:
        table = pa.table({})
        if issubclass(as_type, ds.Dataset):
            return ds.dataset(table)
        if issubclass(as_type, pa.RecordBatchReader):
            return table.to_reader()
        return _batch(table) if issubclass(as_type, pa.RecordBatch) else table

    def is_lazy(self, as_type: type) -> bool:
        return issubclass(as_type, ds.Dataset | pa.RecordBatchReader)


def _batch(table: pa.Table) -> pa.RecordBatch:
    columns = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def _stream(dataset: ds.Dataset) -> pa.RecordBatchReader:
    """Return a dataset's rows as a stream."""
    # pyarrow's read-ahead has no limit in bytes: for 1.4 GB of rows it held 500 MB, without it 70
    # MB.
    options: dict[str, Any] = {}
    if isinstance(dataset, ds.FileSystemDataset) and isinstance(dataset.format, ds.ParquetFileFormat):
        options["fragment_scan_options"] = ds.ParquetFragmentScanOptions(pre_buffer=False)
    scanner = dataset.scanner(batch_size=50_000, batch_readahead=0, fragment_readahead=0, use_threads=False, **options)
    return scanner.to_reader()


def _dataset(scan: TableScan) -> ds.Dataset:
    """Return the table's files, filtered and pruned by the scan's predicate."""
    snapshot = scan.snapshot("pyarrow.dataset.Dataset")
    dataset = scan.logs(snapshot).arrow_dataset(snapshot)
    if scan.spec.predicate is not None:
        dataset = dataset.filter(arrow_predicate(scan.spec.predicate, dataset.schema, snapshot.rounded()))
    if scan.spec.columns is None:
        return dataset
    raise InvalidConfig(
        f"a pyarrow.dataset.Dataset of table {scan.ref} has all of its columns; leave metadata 'columns' out, "
        "and name them "
        "where it is scanned: dataset.to_table(columns=[…])."
    )
