"""Tables whose few Parquet files all have exactly the table's columns.

A plain read of these files returns the table's rows. DuckDB then needs no log, which delta_scan()
opens again for each query.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from duckrun.formats.delta.definition.mapping import is_mapped
from duckrun.formats.delta.files.cautions import OURS, TYPE_CHANGES
from duckrun.libraries import pa
from duckrun.sql.typed import sql_type
from duckrun.values.data_files import is_absolute, place_of
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import FileColumns, Snapshot

MOST = 8
"""Maximum number of files that a query reads by name.

DuckDB opens the footer of each file for each query, where delta_scan() may skip files by the log.
"""
_MANY = 100
"""Minimum number of files from which on a query's conditions choose among them by the log's bounds.

delta_scan() does so too, but it reads the log again for each query.
"""
FilesNear = Callable[[Snapshot, int], Sequence[ScanFile] | None]
"""Function that returns files of a version, up to a number; None if there are more."""
_FEATURES = frozenset({"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""Reader features without effect on files that pass the other conditions."""
UNIQUE = re.compile(r"(?:^|/)part-\d{5}-[0-9a-f-]{36}[^/]*\.parquet\Z|" + OURS.pattern)
"""Names that Spark, delta_rs and Duckrun give to data files. Each contains a UUID."""


def plain_files(
    snapshot: Snapshot, footers: FileColumns, most: int = MOST, near: FilesNear | None = None
) -> Sequence[str] | None:
    """Return the places of a table's files if a plain read of them returns the table's rows.

    Args:
        footers: Function that reads the columns in the footers of files.
        most: Maximum number of files.
        near: Function that returns the files that a query needs, of a table with many.

    Returns:
        None if the rows may differ, or if the files are too many or none.
    """
    if snapshot.partition_columns or is_mapped(snapshot.properties) or not snapshot.reader_features <= _FEATURES:
        return None
    types = {field.name: _type_of(field) for field in snapshot.stored_schema}
    if None in types.values():
        return None
    count = snapshot.files().weight()[0]
    if 0 < count <= most:
        files: Sequence[ScanFile] | None = list(snapshot.files())
    else:
        files = near(snapshot, most) if near is not None and count >= _MANY else None
    if not files or not all(map(_is_whole, files)):
        return None
    places = [place_of(snapshot.ref.location, file) for file in files]
    columns = footers(places)
    return places if all(columns.get(each) == types for each in places) else None


def is_scalar(kind: pa.DataType) -> bool:
    """Return True for a type that DuckDB reads from a Parquet file as from the table."""
    of = pa.types
    plain = (
        of.is_integer, of.is_floating, of.is_decimal, of.is_boolean, of.is_string, of.is_binary, of.is_date,
        of.is_timestamp, of.is_null,
    )  # fmt: skip
    return any(fits(kind) for fits in plain)


def _is_whole(file: ScanFile) -> bool:
    """True for a file of the table's folder, with a unique name and no deleted rows."""
    return not file.deletion_vector and not is_absolute(file.path) and UNIQUE.search(file.path) is not None


def _type_of(field: pa.Field) -> str | None:
    """Return DuckDB's type of a column; None for a type that a footer does not fully describe."""
    if not is_scalar(field.type) or pa.types.is_null(field.type) or TYPE_CHANGES in (field.metadata or {}):
        return None
    # DuckDB's Delta scan takes a name with a dot for a path.
    return None if "." in field.name else sql_type(field.type).replace(", ", ",")
