"""What a reader has to mind of a snapshot, since its log or its files mislead some readers: found once for each version.

Both are looked for in tables whose types can have them, and in no others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from duckrun.errors import StorageError
from duckrun.formats.delta.adds import listed
from duckrun.formats.delta.dataset import filesystem
from duckrun.formats.delta.mapping import physical
from duckrun.formats.delta.statistics import EXACT_DIGITS
from duckrun.values.columns import holds
from duckrun.values.data_files import is_absolute, place
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot

if TYPE_CHECKING:
    from duckrun.formats.delta.delta import DeltaFormat

_CHANGES = b"delta.typeChanges"
OURS = re.compile(
    r"(?:^|/)part-(?:[0-9a-f]{12}-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:_\d+)?-c000[^/]*\.parquet$"
)
"""Files of our own writer, whose log entries have no bounds of long decimals, and whose lists are laid out as Parquet says."""

_known: dict[tuple[str, str, str, int], frozenset[str]] = {}
_laid_out: dict[str, frozenset[str]] = {}
_AT_ONCE, _KEPT = 16, 100_000


def rounded(form: DeltaFormat, snapshot: Snapshot) -> frozenset[str]:
    """The columns that may have values outside the bounds that the log has of them.

    A writer that takes a number for a double (deltalake) rounds it, and cuts it off where it takes it for an integer of
    64 bits. A reader that gets no bound does not say whether the log has one in a form that it cannot read.
    """
    long = [f for f in snapshot.stored_schema if f.name not in snapshot.partition_columns and holds(f.type, _is_long)]
    widened = frozenset(f.name for f in snapshot.stored_schema if _was_float(f))
    if not long:
        return widened

    def look() -> frozenset[str]:
        adds = listed(form.handle_of(snapshot))
        return frozenset(f.name for f in long if _is_rounded(f, adds))

    return widened | _once("rounded", snapshot, look)


def legacy(form: DeltaFormat, snapshot: Snapshot) -> frozenset[str]:
    """The columns with lists that lie in some file as they did before Parquet said how (Spark's writeLegacyFormat, Hive, Avro).
    Raises StorageError where a data file cannot be opened.

    Source: Parquet's LogicalTypes.md, Lists, Backward-compatibility rules.
    """
    lists = [f for f in snapshot.stored_schema if holds(f.type, _is_list)]
    return _once("legacy", snapshot, lambda: _legacy(form, snapshot, lists)) if lists else frozenset()


def _once(what: str, snapshot: Snapshot, look: Callable[[], frozenset[str]]) -> frozenset[str]:
    key = (what, snapshot.ref.location, snapshot.table_id, snapshot.version)
    if key not in _known:
        if len(_known) > 1000:
            _known.clear()
        _known[key] = look()
    return _known[key]


def _is_long(kind: pa.DataType) -> bool:
    return pa.types.is_decimal(kind) and kind.precision > EXACT_DIGITS


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


# -- bounds of long decimals, and of floats that became doubles


def _was_float(field: pa.Field) -> bool:
    """True for a double that was a float: the log has 3.4 as the bound of what is 3.4000000953674316 now."""
    inner = list(field.type) if pa.types.is_struct(field.type) else []
    return b'"fromType":"float"' in (field.metadata or {}).get(_CHANGES, b"").replace(b" ", b"") or any(
        map(_was_float, inner)
    )


def _is_rounded(field: pa.Field, adds: pa.Table) -> bool:
    bounds = {name: _inside(adds, name, [physical(field)]) for name in ("min", "max", "null_count")}
    return any(_leaf_is_rounded(kind, path, adds, bounds) for kind, path in _leaves(field.type, ()))


def _leaves(kind: pa.DataType, path: tuple[str, ...]) -> Iterator[tuple[pa.DataType, tuple[str, ...]]]:
    if pa.types.is_struct(kind):
        for child in kind:
            yield from _leaves(child.type, (*path, physical(child)))
    elif _is_long(kind):
        yield kind, path


def _leaf_is_rounded(
    kind: pa.DataType, path: tuple[str, ...], adds: pa.Table, bounds: dict[str, list[Any] | None]
) -> bool:
    low, high, nulls = (_deeper(bounds[name], path) for name in ("min", "max", "null_count"))
    for i, (name, rows) in enumerate(zip(adds.column("path"), adds.column("num_records"), strict=True)):
        found = [values[i] for values in (low, high) if values is not None and values[i] is not None]
        if len(found) < 2 and not OURS.search(name.as_py()):
            all_null = nulls is not None and rows.as_py() is not None and nulls[i] == rows.as_py()
            if not all_null and rows.as_py() != 0:
                return True
        if any(not _is_exact(value, kind.scale) for value in found):
            return True
    return False


def _inside(adds: pa.Table, name: str, path: Sequence[str]) -> list[Any] | None:
    if name not in adds.column_names:
        return None
    return _deeper(adds.column(name).to_pylist(), path)


def _deeper(values: list[Any] | None, path: Sequence[str]) -> list[Any] | None:
    for part in path:
        values = None if values is None else [v.get(part) if isinstance(v, dict) else None for v in values]
    return values


def _is_exact(bound: Decimal, scale: int) -> bool:
    """False for what a double may have been that stood for other digits, and for the ends of a 64-bit integer.

    >>> _is_exact(Decimal("5.00"), 2), _is_exact(Decimal("123456789012345680"), 2), _is_exact(Decimal("123456789012345678.91"), 2)
    (True, False, True)
    """
    if abs(bound.scaleb(scale)) < 10**EXACT_DIGITS:
        return True
    return Decimal(repr(float(bound))) != bound and abs(bound) not in (2**63 - 1, 2**63)


# -- lists in the layouts of older writers


def _legacy(form: DeltaFormat, snapshot: Snapshot, columns: Sequence[pa.Field]) -> frozenset[str]:
    known = {physical(field): field for field in columns}
    patterns = {name: re.compile(f"(?:{'|'.join(_paths(field))})\\Z") for name, field in known.items()}
    found: set[str] = set()
    for strange in _strange(form, snapshot, patterns):
        found |= strange
    return frozenset(known[name].name for name in found)


def _strange(form: DeltaFormat, snapshot: Snapshot, patterns: dict[str, re.Pattern[str]]) -> Iterator[frozenset[str]]:
    files = [f for f in snapshot.files() if not OURS.search(f.path)]
    where = {place(snapshot.ref, f): f for f in files}
    if len(_laid_out) > _KEPT:
        _laid_out.clear()
    missing = [place for place in where if place not in _laid_out]
    if missing:
        opened = filesystem(form, snapshot.ref, snapshot.files())

        def look(place: str) -> frozenset[str]:
            return _strange_columns(opened, where[place], snapshot, patterns)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            _laid_out.update(zip(missing, pool.map(look, missing), strict=True))
    return (_laid_out[place] for place in where)


def _strange_columns(
    opened: Any, file: ScanFile, snapshot: Snapshot, patterns: dict[str, re.Pattern[str]]
) -> frozenset[str]:
    """The columns of one file whose lists are not laid out as Parquet says. Those of a file that lies elsewhere, as in a
    shallow clone, are taken for such.
    """
    if is_absolute(file.path):
        return frozenset(patterns)
    try:
        with opened.open_input_file(file.path) as raw:
            layout = pq.read_metadata(raw).schema
    except (OSError, pa.ArrowException) as error:
        raise StorageError(
            f"Table {snapshot.ref}: its data file {file.path} cannot be opened: {error}. If it was removed, RESTORE the table to a version "
            "that has all of its files."
        ) from error
    paths = [layout.column(i).path for i in range(len(layout))]
    return frozenset(
        name
        for name, pattern in patterns.items()
        if any((p == name or p.startswith(name + ".")) and not pattern.match(p) for p in paths)
    )


def _paths(field: pa.Field) -> Iterator[str]:
    """What the paths of a column's values look like in a file, as regular expressions."""
    for tail in _tails(field.type):
        yield re.escape(physical(field)) + tail


def _tails(kind: pa.DataType) -> Iterator[str]:
    if pa.types.is_struct(kind):
        for child in kind:
            yield from (rf"\.{re.escape(physical(child))}{tail}" for tail in _tails(child.type))
        known = "|".join(re.escape(physical(child)) for child in kind)
        yield rf"\.(?!(?:{known})(?:\.|\Z))[^.]+(?:\..*)?"  # a field that the table has no more
    elif pa.types.is_map(kind):
        for name, inner in (("key", kind.key_type), ("value", kind.item_type)):
            yield from (rf"\.[^.]+\.{name}{tail}" for tail in _tails(inner))
    elif _is_list(kind):
        # As Parquet says, as Arrow calls it, and as DuckDB does in the stream that delta_rs writes: delta_scan() reads all three.
        yield from (rf"\.list\.(?:element|item|l){tail}" for tail in _tails(kind.value_type))
    else:
        yield ""
