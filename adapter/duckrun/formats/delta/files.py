"""The data files of a version, as the log lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from duckrun.errors import StorageError
from duckrun.formats.delta.adds import adds_of
from duckrun.formats.delta.data_paths import decoded
from duckrun.formats.delta.log import partition_string
from duckrun.formats.delta.newest import Opened
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot

if TYPE_CHECKING:
    from duckrun.formats.delta.delta import DeltaFormat


def files_of(form: DeltaFormat, snapshot: Snapshot, table: DeltaTable | None = None) -> tuple[ScanFile, ...]:
    """The data files of a version, with what their deletion vectors delete; no data file is opened."""
    known = snapshot.opened.known if table is None and isinstance(snapshot.opened, Opened) else None
    if known is not None:
        return known.files(lambda: _read(form, snapshot, form.handle_of(snapshot)))
    return _read(form, snapshot, table or form.handle_of(snapshot))


def _read(form: DeltaFormat, snapshot: Snapshot, table: DeltaTable) -> tuple[ScanFile, ...]:
    rows = _without_statistics(pa.table(table.get_add_actions(flatten=False))).to_pylist()
    marked = "deletionVectors" in snapshot.reader_features
    deleted = _deleted(form, snapshot, table, [row["path"] for row in rows]) if marked else {}
    return tuple(
        ScanFile(
            path=(path := decoded(row["path"])),
            size=row["size_bytes"],
            partition_values={k: partition_string(v) for k, v in (row.get("partition") or {}).items()},
            rows=row["num_records"],
            deletion_vector=path in deleted,
            deleted_rows=deleted.get(path, 0),
            spelled=row["path"],
        )
        for row in rows
    )


def _deleted(form: DeltaFormat, snapshot: Snapshot, table: DeltaTable, paths: list[str]) -> dict[str, int]:
    try:
        return _deleted_rows(table, {decoded(path) for path in paths})
    except DeltaError:
        # deltalake does not read the vectors of a table with features that it could not write (type widening).
        adds = adds_of(form, snapshot, set(paths))
        vectors = {path: add.get("deletionVector") for path, add in adds.items()}
        return {decoded(path): int(vector["cardinality"]) for path, vector in vectors.items() if vector}


def _without_statistics(adds: pa.Table) -> pa.Table:
    """The add actions without the bounds of columns, among which may be years that Python has no date for."""
    return adds.drop_columns([name for name in ("min", "max", "null_count") if name in adds.column_names])


def _deleted_rows(table: DeltaTable, paths: set[str]) -> dict[str, int]:
    """How many rows the deletion vector of a file deletes, by the file's path; files without one are left out."""
    vectors = pa.RecordBatchReader.from_stream(table.deletion_vectors()).read_all()
    location = table.table_uri.removeprefix("file://").rstrip("/") + "/"
    found = {}
    for uri, kept in zip(vectors.column("filepath"), vectors.column("selection_vector"), strict=True):
        whole = decoded(str(uri.as_py()).removeprefix("file://"))
        beyond = (
            whole.removeprefix(decoded(location)),
            whole.removeprefix(location),
            whole,
            f"file:{whole}",
            f"file://{whole}",
        )
        path = next((path for path in beyond if path in paths), None)
        if path is None:
            raise StorageError(
                f"The table at {table.table_uri} has a deletion vector of {uri}, which is none of its files."
            )
        found[path] = int(pc.sum(pc.invert(kept.values)).as_py() or 0)
    return found
