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

from duckrun.formats.delta.adds import listed
from duckrun.formats.delta.dataset import filesystem, footer
from duckrun.formats.delta.mapping import physical
from duckrun.formats.delta.newest import known_of
from duckrun.formats.delta.statistics import EXACT_DIGITS
from duckrun.sql.char_types import is_padded
from duckrun.values.columns import holds, leaves
from duckrun.values.data_files import is_absolute, place
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot

if TYPE_CHECKING:
    from duckrun.formats.delta.delta import DeltaFormat

Paths = tuple[str, ...]
"""The ways to the values in a Parquet file, each with dots between its parts."""

_CHANGES = b"delta.typeChanges"
OURS = re.compile(
    r"(?:^|/)part-(?:[0-9a-f]{12}-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:_\d+)?-c000[^/]*\.parquet$"
)
"""Files of our own writer, which have no bounds of long decimals nor of floats where one is NaN, and whose lists are laid out as Parquet
says."""

_known: dict[tuple[str, str, int, str], frozenset[str]] = {}
_layouts: dict[tuple[str, int], Paths] = {}
"""How each data file is laid out, by its place and its size; files of one layout share it (``_same``)."""
_same: dict[Paths, Paths] = {}
_AT_ONCE, _KEPT = 16, 100_000


def rounded(form: DeltaFormat, snapshot: Snapshot) -> frozenset[str]:
    """The columns that may have values outside the bounds that the log, or a file, has of them.

    A writer that takes a number for a double (deltalake) rounds it, and cuts it off where it takes it for an integer of
    64 bits. A reader that gets no bound does not say whether the log has one in a form that it cannot read.

    The bounds of Parquet leave NaN out, which is above every number to DuckDB and Spark: of columns of floats those of our own files
    alone are asked, which have none where there is NaN, and of a float inside of a struct not those either.
    """
    fields = [f for f in snapshot.stored_schema if f.name not in snapshot.partition_columns]
    long = [f for f in fields if holds(f.type, _is_long)]
    floats = [f.name for f in fields if pa.types.is_floating(f.type)]
    always = frozenset(f.name for f in fields if _was_float(f) or _has_float(f.type))
    always |= frozenset(f.name for f in snapshot.stored_schema if is_padded(f))  # bounds are of values without padding
    if not long and not floats:
        return always

    def look() -> frozenset[str]:
        found = set[str]()
        if long:
            adds = listed(form.handle_of(snapshot))
            found.update(f.name for f in long if _is_rounded(f, adds))
        if floats and not all(map(OURS.search, snapshot.files().paths())):
            found.update(floats)
        return frozenset(found)

    return always | _once("rounded", form, snapshot, look)


def legacy(form: DeltaFormat, snapshot: Snapshot) -> frozenset[str]:
    """The columns with lists that lie in some file as they did before Parquet said how (Spark's writeLegacyFormat, Hive, Avro).
    Raises StorageError where a data file cannot be opened.

    Source: Parquet's LogicalTypes.md, Lists, Backward-compatibility rules.
    """
    lists = [f for f in snapshot.stored_schema if holds(f.type, _is_list)]
    return _once("legacy", form, snapshot, lambda: _legacy(form, snapshot, lists)) if lists else frozenset()


def _once(what: str, form: DeltaFormat, snapshot: Snapshot, look: Callable[[], frozenset[str]]) -> frozenset[str]:
    """What was found of a version, kept under what tells its commit from any other: a copy of the table with as many versions may
    have come to its place. Looked for each time where the log no longer has that commit.
    """
    known = known_of(snapshot)
    mark = known.mark if known else snapshot.long_log or form.fingerprint(snapshot.ref, snapshot.version)
    if mark is None:
        return look()
    key = (what, snapshot.ref.location, snapshot.version, mark)
    found = _known.get(key)
    if found is None:
        if len(_known) > 1000:
            _known.clear()
        found = _known[key] = look()
    return found


def _is_long(kind: pa.DataType) -> bool:
    return pa.types.is_decimal(kind) and kind.precision > EXACT_DIGITS


def _has_float(kind: pa.DataType) -> bool:
    """True for a struct with a float in it, or in a struct of it. Elements of lists have no bounds that a filter could ask for."""
    return pa.types.is_struct(kind) and any(pa.types.is_floating(leaf) for _, leaf in leaves(kind))


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
    """Those of some columns with lists. In a file that lies elsewhere, as in a shallow clone, all are taken for such."""
    files = [f for f in snapshot.files() if not OURS.search(f.path)]
    if any(is_absolute(file.path) for file in files):
        return frozenset(field.name for field in columns)
    layouts = _layouts_of(form, snapshot, files)
    return frozenset(field.name for field in columns if any(_is_strange(field, layout) for layout in layouts))


def _layouts_of(form: DeltaFormat, snapshot: Snapshot, files: Sequence[ScanFile]) -> set[Paths]:
    """How files are laid out: each is opened once, whatever columns the versions that have it know of."""
    where = {(place(snapshot.ref, file), file.size): file for file in files}
    found = {key: layout for key in where if (layout := _layouts.get(key)) is not None}
    missing = [key for key in where if key not in found]
    if missing:
        opened = filesystem(form, snapshot.ref, snapshot.files())
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found |= zip(missing, pool.map(lambda key: _layout(opened, where[key], snapshot), missing), strict=True)
        if len(_layouts) > _KEPT:
            _layouts.clear()
            _same.clear()
        _layouts.update((key, _same.setdefault(found[key], found[key])) for key in missing)
    return set(found.values())


def _layout(opened: Any, file: ScanFile, snapshot: Snapshot) -> Paths:
    schema = footer(opened, snapshot.ref, file).schema
    return tuple(schema.column(i).path for i in range(len(schema)))


def _is_strange(field: pa.Field, layout: Paths) -> bool:
    """True if a column's values do not lie in a file as Parquet says."""
    name, pattern = physical(field), re.compile(f"(?:{'|'.join(_paths(field))})\\Z")
    return any((p == name or p.startswith(name + ".")) and not pattern.match(p) for p in layout)


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
