"""Column statistics of a version from its log: number of NULLs, and bounds of the other values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from duckrun.formats.delta.definition.mapping import is_renamed, physical_names
from duckrun.formats.delta.files.logged import OpenVersion, listed
from duckrun.libraries import pa, pc
from duckrun.values.data_files import decoded
from duckrun.values.rows import ColumnFigures, Range, Ranges, ScanFile
from duckrun.values.snapshot import Snapshot

Numbers = Sequence[int | None]
"""One statistic of all files; None where the log has none."""


def column_figures(open_version: OpenVersion, snapshot: Snapshot) -> dict[str, ColumnFigures]:
    """Return the statistics of each column that is not a partition column.

    No value but NaN is outside the bounds; a time may be outside by up to a millisecond. A bound is
    None if a file lacks it in the log, or may have rounded it. The number of NULLs is None if
    deletion vectors delete rows.

    Source: Delta protocol, Per-file Statistics.
    """
    adds = listed(open_version(snapshot))
    rounded = snapshot.rounded()
    marked = "deletionVectors" in snapshot.reader_features  # otherwise the files need no check
    vectors = marked and any(file.deletion_vector for file in snapshot.files())
    figures_of, schema = {}, snapshot.stored_schema
    stored = physical_names(schema)
    for field in schema:
        if field.name in snapshot.partition_columns:
            continue
        low, high, nulls = (statistic(adds, part, stored[field.name]) for part in ("min", "max", "null_count"))
        # The log counts NULLs per field of a struct, not of the struct.
        counted = nulls is not None and pa.types.is_integer(nulls.type) and not nulls.null_count
        # Files with only NULLs have no bounds.
        without = pc.equal(nulls, adds.column("num_records")) if counted else None
        plain = _has_bounds(field.type) and field.name not in rounded
        figures_of[field.name] = ColumnFigures(
            _bound(low, without, pc.min) if plain else None,
            _bound(high, without, pc.max) if plain else None,
            int(pc.sum(nulls, min_count=0).as_py()) if counted and not vectors else None,
        )
    return figures_of


def _has_bounds(kind: pa.DataType) -> bool:
    """Return True for a type whose bounds in the log are exact."""
    of = pa.types
    plain = of.is_integer, of.is_floating, of.is_decimal, of.is_date, of.is_timestamp, of.is_string
    return any(fits(kind) for fits in plain)


def file_bounds(open_version: OpenVersion, snapshot: Snapshot, column: str) -> pa.Table | None:
    """See Format. The bounds of a partition column are its value.

    Source: Delta protocol, Per-file Statistics.
    """
    if column in snapshot.rounded() or is_renamed(snapshot.stored_schema):
        return None
    adds = listed(open_version(snapshot))
    if column in snapshot.partition_columns:
        low = high = statistic(adds, "partition", column)
    else:
        low, high = (statistic(adds, part, column) for part in ("min", "max"))
    if low is None or high is None or not low.type.equals(snapshot.stored_schema.field(column).type):
        return None
    return pa.table({"name": adds.column("path").cast(pa.string()), "low": low, "high": high})


def files_near(open_version: OpenVersion, snapshot: Snapshot, most: int, ranges: Ranges) -> Sequence[ScanFile] | None:
    """Return the files of an unmapped table that may have rows in ranges, by the log's bounds.

    If there is none, the result is any file, none of whose rows is in the ranges.

    Returns:
        None if there are more than ``most``, or if the bounds do not tell.
    """
    adds = listed(open_version(snapshot))
    rows: Iterable[int] | None = None
    for field in snapshot.stored_schema:
        if field.name.lower() not in ranges or not pa.types.is_integer(field.type):
            continue
        ends = [_numbers(adds, end, field.name) for end in ("min", "max")]
        if ends[0] is None or ends[1] is None:
            continue
        rows = _rows_near(range(len(adds)) if rows is None else rows, ends[0], ends[1], ranges[field.name.lower()])
    if rows is None or len(chosen := list(islice(rows, most + 1))) > most:
        return None
    paths = [adds.column("path")[row].as_py() for row in chosen or range(min(1, len(adds)))]
    if "deletionVectors" in snapshot.reader_features:
        return list(snapshot.files().named(paths).values())
    return [ScanFile(decoded(path), 0, spelled=path) for path in paths]


def _rows_near(rows: Iterable[int], low: Numbers, high: Numbers, wanted: Range) -> Iterator[int]:
    """Yield the rows whose bounds overlap a range."""
    least, greatest = wanted
    for row in rows:
        first, last = low[row], high[row]
        if (
            first is None
            or last is None
            or ((greatest is None or first <= greatest) and (least is None or last >= least))
        ):
            yield row


def _numbers(adds: pa.Table, part: str, name: str) -> Numbers | None:
    """Return one statistic of a column of whole numbers, for all files; None without any."""
    # Not by pyarrow.compute, which takes 60 ms of processor time to import.
    numbers = list[int | None]()
    for chunk in adds.column(part).chunks if part in adds.column_names else ():
        at = chunk.type.get_field_index(name) if pa.types.is_struct(chunk.type) else -1
        if at < 0 or not pa.types.is_integer(chunk.type.field(at).type):
            return None
        # flatten() makes NULL what is in a NULL struct: a file without statistics has one.
        values = chunk.flatten()[at] if chunk.null_count else chunk.field(at)
        if values.null_count or values.type != pa.int64():
            numbers += values.to_pylist()
        else:
            whole = memoryview(values.buffers()[1] or b"").cast("q")
            numbers += whole[values.offset : values.offset + len(values)].tolist()
    return numbers if len(numbers) == len(adds) else None


def statistic(adds: pa.Table, part: str, *path: str) -> pa.ChunkedArray | None:
    """Return one statistic of a column or field, by its physical path, for all files."""
    values = adds.column(part) if part in adds.column_names else None
    for name in path:
        at = values.type.get_field_index(name) if values is not None and pa.types.is_struct(values.type) else -1
        values = None if at < 0 else pc.struct_field(values, [at])
    return values


def _bound(values: pa.ChunkedArray | None, without: Any, of: Any) -> str | None:
    """Return the minimum or the maximum as text.

    Returns:
        None if a file with values lacks a bound, or if no file has one.
    """
    if values is None:
        return None
    lacks = values.is_null()
    if without is not None:
        lacks = pc.and_not(lacks, without)
    if pc.any(lacks).as_py():
        return None
    bound = of(values)
    return None if not bound.is_valid else str(bound.cast(pa.string()).as_py())
