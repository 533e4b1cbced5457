"""What the log of a version says of its columns: how many values are NULL, and between which bounds the others lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from duckrun.formats.delta.adds import listed
from duckrun.formats.delta.mapping import physical
from duckrun.values.rows import ColumnFigures
from duckrun.values.snapshot import Snapshot

if TYPE_CHECKING:
    from duckrun.formats.delta.delta import DeltaFormat

_PLAIN = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_string,
)


def column_figures(form: DeltaFormat, snapshot: Snapshot) -> dict[str, ColumnFigures]:
    """Of each column that is no partition: no value is outside its bounds (times: by more than a millisecond), NaN aside. None is
    what the log does not have for every file, or may have rounded; NULLs are not known where rows were deleted by vectors.

    Source: Delta protocol, Per-file Statistics.
    """
    adds = listed(form.handle_of(snapshot))
    rounded = snapshot.rounded()
    marked = "deletionVectors" in snapshot.reader_features  # only then another look at the files tells more
    vectors = marked and any(file.deletion_vector for file in snapshot.files())
    found = {}
    for field in snapshot.stored_schema:
        if field.name in snapshot.partition_columns:
            continue
        low, high, nulls = (_values(adds, part, physical(field)) for part in ("min", "max", "null_count"))
        # Of a struct the log counts the NULLs of its fields.
        counted = nulls is not None and pa.types.is_integer(nulls.type) and not nulls.null_count
        without = (
            pc.equal(nulls, adds.column("num_records")) if counted else None
        )  # files with nothing but NULL have no bounds
        plain = any(fits(field.type) for fits in _PLAIN) and field.name not in rounded
        found[field.name] = ColumnFigures(
            _bound(low, without, pc.min) if plain else None,
            _bound(high, without, pc.max) if plain else None,
            int(pc.sum(nulls, min_count=0).as_py()) if counted and not vectors else None,
        )
    return found


def file_bounds(form: DeltaFormat, snapshot: Snapshot, column: str) -> pa.Table | None:
    """See Format. Of a partition column the bounds are its value. Source: Delta protocol, Per-file Statistics."""
    if column in snapshot.rounded() or any(physical(field) != field.name for field in snapshot.stored_schema):
        return None
    adds = listed(form.handle_of(snapshot))
    if column in snapshot.partition_columns:
        low = high = _values(adds, "partition", column)
    else:
        low, high = (_values(adds, part, column) for part in ("min", "max"))
    if low is None or high is None or not low.type.equals(snapshot.stored_schema.field(column).type):
        return None
    return pa.table({"name": adds.column("path").cast(pa.string()), "low": low, "high": high})


def _values(adds: pa.Table, part: str, column: str) -> pa.ChunkedArray | None:
    """What the adds say of one column."""
    if part not in adds.column_names:
        return None
    kind = adds.schema.field(part).type
    at = kind.get_field_index(column) if pa.types.is_struct(kind) else -1
    return None if at < 0 else pc.struct_field(adds.column(part), [at])


def _bound(values: pa.ChunkedArray | None, without: Any, of: Any) -> str | None:
    """The least or the greatest as text; None where a file that has values has no bound, or no file has any."""
    if values is None:
        return None
    lacks = values.is_null()
    if without is not None:
        lacks = pc.and_not(lacks, without)
    if pc.any(lacks).as_py():
        return None
    bound = of(values)
    return None if not bound.is_valid else str(bound.cast(pa.string()).as_py())
