"""A snapshot as a pyarrow Dataset: its files, each with its partition values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from duckrun.errors import StorageError, UnsupportedFeature
from duckrun.libraries import pa, pc, pq
from duckrun.sql.char_types import padded_columns
from duckrun.storage.storage import Storage
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot, TableRef

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from pyarrow import fs


# Reader features that leave the files as exactly the rows, with the table's names and types.
_PLAIN = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}


def arrow_dataset(storage: Storage, snapshot: Snapshot) -> ds.Dataset:
    """Return the files of a snapshot as a Dataset; no data file is opened.

    Partition values prune files. Row groups are pruned by the statistics in the files.

    Raises:
        UnsupportedFeature: The Parquet files alone do not show the table: they have deletion
            vectors, physical column names or values of CHAR.
    """
    import pyarrow.dataset as ds  # deferred, since it imports pandas

    files = snapshot.files()
    refuse_features(snapshot, files)
    inside = filesystem(storage, snapshot.ref, files)
    parquet = ds.ParquetFileFormat(
        # Spark stores instants as INT96. pyarrow's default of nanoseconds would change years before
        # 1678 and after 2261.
        read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us"),
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=True),
    )
    # The log's statistics do not prune: deltalake's own dataset takes a missing minimum for NULL,
    # and skips the rows of that file.
    fragments = [
        parquet.make_fragment(file.path, filesystem=inside, partition_expression=_values(file, snapshot))
        for file in files
    ]
    return ds.FileSystemDataset(fragments, snapshot.schema.remove_metadata(), parquet, inside)


def filesystem(storage: Storage, ref: TableRef, files: Sequence[ScanFile]) -> fs.FileSystem:
    """Return a pyarrow file system of a table's folder."""
    from deltalake.fs import DeltaStorageHandler  # deferred: both import pyarrow
    from pyarrow import fs

    if storage.is_local and "://" not in ref.location:
        return fs.SubTreeFileSystem(ref.location, fs.LocalFileSystem())
    sizes = {file.path: file.size for file in files}
    return fs.PyFileSystem(DeltaStorageHandler(ref.url, storage.delta_options(), sizes))


def footer(opened: fs.FileSystem, ref: TableRef, file: ScanFile) -> pq.FileMetaData:
    """Return the Parquet footer of a data file in the table's folder.

    Raises:
        StorageError: The file cannot be opened.
    """
    try:
        with opened.open_input_file(file.path) as raw:
            return pq.read_metadata(raw)
    except (OSError, pa.ArrowException) as error:
        raise StorageError(
            f"Table {ref}: its data file {file.path} cannot be opened: {error}. If it was removed, RESTORE the table "
            "to a version that has all of its files."
        ) from error


def refuse_features(snapshot: Snapshot, files: Sequence[ScanFile]) -> None:
    """Raise UnsupportedFeature unless the files alone show the table."""
    marked = sum(file.deletion_vector for file in files)
    strange = sorted(snapshot.reader_features - _PLAIN - {"deletionVectors"})
    if snapshot.properties.get("delta.columnMapping.mode", "none") != "none":
        strange.append("columnMapping")
    if marked:
        why = f"deletion vectors ({marked} of its files hold rows that are deleted)"
    elif strange:
        why = f"the table features {', '.join(sorted(set(strange)))}"
    elif padded := padded_columns(snapshot.stored_schema):
        why = f"values of CHAR in column {', '.join(padded)}, which are read with spaces that the files do not have"
    else:
        return
    raise UnsupportedFeature(
        f"Table {snapshot.ref} at version {snapshot.version} has {why}, which a pyarrow.dataset.Dataset cannot "
        "represent. Read it as a pyarrow.RecordBatchReader or a polars.LazyFrame."
    )


def _values(file: ScanFile, snapshot: Snapshot) -> pc.Expression | None:
    """Return the partition values of a file as a condition that all its rows meet."""
    parts = []
    for name in snapshot.partition_columns:
        text, kind = file.partition_values.get(name), snapshot.schema.field(name).type
        # Source: Delta protocol, Partition Value Serialization: an empty text means NULL.
        known = text not in (None, "")
        parts.append(pc.field(name) == _scalar(str(text), kind) if known else pc.field(name).is_null())
    return reduce(lambda one, other: one & other, parts) if parts else None


def _scalar(text: str, kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_timestamp(kind):
        plain = pa.scalar(text.removesuffix("Z").replace("T", " ")).cast(pa.timestamp(kind.unit))
        return pc.assume_timezone(plain, kind.tz) if kind.tz is not None else plain
    return pa.scalar(text).cast(kind)
