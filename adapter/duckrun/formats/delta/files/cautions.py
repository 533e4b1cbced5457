"""Columns of a snapshot that mislead some readers, found once per version.

The bounds of a column may be rounded, or its lists may have an old layout. Only tables whose types
allow these are inspected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from duckrun.formats.delta.definition.mapping import physical
from duckrun.formats.delta.definition.statistics import EXACT_DIGITS
from duckrun.formats.delta.files.bounds import statistic
from duckrun.formats.delta.files.dataset import filesystem, footer
from duckrun.formats.delta.files.logged import OpenVersion, listed
from duckrun.libraries import pa
from duckrun.sql.char_types import padded_columns
from duckrun.storage.parallel import at_once
from duckrun.storage.storage import Storage
from duckrun.values.columns import fields_with, leaves
from duckrun.values.data_files import is_absolute, place_of
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot

MarkOf = Callable[[Snapshot], str | None]
"""Function that returns the identity of a version's commit; None if the log lacks it."""
Paths = tuple[str, ...]
"""Paths of the values in a Parquet file, with dots between their parts."""

TYPE_CHANGES = b"delta.typeChanges"
OURS = re.compile(
    r"(?:^|/)part-(?:[0-9a-f]{12}-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:_\d+)?-c000[^/]*\.parquet$"
)
"""Pattern of the files of Duckrun's own writer.

They have no bounds for long decimals, nor for floats with NaN. Their lists have the layout that
Parquet specifies.
"""

_known: dict[tuple[str, str, int, str], frozenset[str]] = {}
_layouts: dict[tuple[str, int], Paths] = {}
"""Layout of each data file, by path and size. Files of one layout share it (``_same``)."""
_same: dict[Paths, Paths] = {}
_KEPT = 100_000


def rounded(open_version: OpenVersion, mark_of: MarkOf, snapshot: Snapshot) -> frozenset[str]:
    """Return the columns with possible values outside their bounds in the log or in a file."""
    schema = snapshot.stored_schema
    fields = [f for f in schema if f.name not in snapshot.partition_columns]
    long = fields_with(fields, _is_long)
    floats = [f.name for f in fields if pa.types.is_floating(f.type)]
    always = frozenset(f.name for f in fields if _was_float(f) or _has_float(f.type))
    always = always.union(padded_columns(schema))  # bounds lack the padding
    # deltalake parses numbers as doubles and rounds them, or truncates them to 64-bit integers. A
    # missing bound may exist in the log in a logs that cannot be read. Parquet bounds leave out
    # NaN, which DuckDB and Spark order above every number. So only Duckrun's files are trusted for
    # float columns: with NaN they have no bounds. For floats inside structs, not even those are.
    if not long and not floats:
        return always

    def look() -> frozenset[str]:
        columns = set[str]()
        if long:
            adds = listed(open_version(snapshot))
            columns.update(f.name for f in long if any(_is_rounded(*leaf, adds) for leaf in _long_leaves(f, ())))
        if floats and not all(map(OURS.search, snapshot.files().paths())):
            columns.update(floats)
        return frozenset(columns)

    return always | _once("rounded", mark_of(snapshot), snapshot, look)


def legacy(storage: Storage, mark_of: MarkOf, snapshot: Snapshot) -> frozenset[str]:
    """Return the columns with lists that some file stores in a layout before Parquet's standard.

    Writers of such files are Spark's writeLegacyFormat, Hive and Avro.
    Source: Parquet's LogicalTypes.md, Lists, Backward-compatibility rules.

    Raises:
        StorageError: A data file cannot be opened.
    """
    lists = fields_with(snapshot.stored_schema, _is_list)
    if not lists:
        return frozenset()
    return _once("legacy", mark_of(snapshot), snapshot, lambda: _legacy(storage, snapshot, lists))


def _once(what: str, mark: str | None, snapshot: Snapshot, look: Callable[[], frozenset[str]]) -> frozenset[str]:
    """Return a result of ``look`` for a version, cached by the identity of its commit.

    If the log no longer has that commit, nothing is cached.
    """
    if mark is None:
        return look()
    # A copy of the table with as many versions may have replaced it, so the version number is not
    # enough.
    key = (what, snapshot.ref.location, snapshot.version, mark)
    columns = _known.get(key)
    if columns is None:
        if len(_known) > 1000:
            _known.clear()
        columns = _known[key] = look()
    return columns


def _is_long(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind)) and kind.precision > EXACT_DIGITS


def _has_float(kind: pa.DataType) -> bool:
    """True for a struct that contains a float, at any depth.

    Elements of lists have no bounds that a filter could use.
    """
    return pa.types.is_struct(kind) and any(pa.types.is_floating(leaf) for _, leaf in leaves(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


# -- bounds of long decimals, and of floats that became doubles


def _was_float(field: pa.Field) -> bool:
    """True for a double that was a float.

    The log then has 3.4 as the bound of a value that reads as 3.4000000953674316.
    """
    inner = list(field.type) if pa.types.is_struct(field.type) else []
    return b'"fromType":"float"' in (field.metadata or {}).get(TYPE_CHANGES, b"").replace(b" ", b"") or any(
        map(_was_float, inner)
    )


def _long_leaves(field: pa.Field, above: tuple[str, ...]) -> Iterator[tuple[pa.DataType, tuple[str, ...]]]:
    path = (*above, physical(field))
    if pa.types.is_struct(field.type):
        for child in field.type:
            yield from _long_leaves(child, path)
    elif _is_long(field.type):
        yield field.type, path


def _is_rounded(kind: pa.DataType, path: tuple[str, ...], adds: pa.Table) -> bool:
    columns = [statistic(adds, part, *path) for part in ("min", "max", "null_count")]
    low, high, nulls = ([None] * len(adds) if values is None else values.to_pylist() for values in columns)
    for i, (name, rows) in enumerate(zip(adds.column("path"), adds.column("num_records"), strict=True)):
        present: list[Any] = [values[i] for values in (low, high) if values[i] is not None]
        if len(present) < 2 and not OURS.search(name.as_py()):
            all_null = rows.as_py() is not None and nulls[i] == rows.as_py()
            if not all_null and rows.as_py() != 0:
                return True
        if any(not _is_exact(value, kind.scale) for value in present):
            return True
    return False


def _is_exact(bound: Decimal, scale: int) -> bool:
    """False for a bound that may be a rounded double, or a limit of 64-bit integers.

    >>> bounds = "5.00", "123456789012345680", "123456789012345678.91"
    >>> [_is_exact(Decimal(bound), 2) for bound in bounds]
    [True, False, True]
    """
    if abs(bound.scaleb(scale)) < 10**EXACT_DIGITS:
        return True
    return Decimal(repr(float(bound))) != bound and abs(bound) not in (2**63 - 1, 2**63)


# -- lists in the layouts of older writers


def _legacy(storage: Storage, snapshot: Snapshot, columns: Sequence[pa.Field]) -> frozenset[str]:
    """Return the list columns that some file stores in an older layout.

    If a file lies elsewhere, as in a shallow clone, all columns count as such.
    """
    files = [f for f in snapshot.files() if not OURS.search(f.path)]
    if any(is_absolute(file.path) for file in files):
        return frozenset(field.name for field in columns)
    layouts = _layouts_of(storage, snapshot, files)
    return frozenset(field.name for field in columns if any(_is_strange(field, layout) for layout in layouts))


def _layouts_of(storage: Storage, snapshot: Snapshot, files: Sequence[ScanFile]) -> set[Paths]:
    """Return the layouts of the files. Each file is opened once, for all versions and columns."""
    where = {(place_of(snapshot.ref.location, file), file.size): file for file in files}
    layouts = {key: layout for key in where if (layout := _layouts.get(key)) is not None}
    missing = [key for key in where if key not in layouts]
    if missing:
        opened = filesystem(storage, snapshot.ref, snapshot.files())
        layouts |= zip(missing, at_once(lambda key: _layout(opened, where[key], snapshot), missing), strict=True)
        if len(_layouts) > _KEPT:
            _layouts.clear()
            _same.clear()
        _layouts.update((key, _same.setdefault(layouts[key], layouts[key])) for key in missing)
    return set(layouts.values())


def _layout(opened: Any, file: ScanFile, snapshot: Snapshot) -> Paths:
    schema = footer(opened, snapshot.ref, file).schema
    return tuple(schema.column(i).path for i in range(len(schema)))


def _is_strange(field: pa.Field, layout: Paths) -> bool:
    """True if a column's values do not have the layout that Parquet specifies."""
    name, pattern = physical(field), re.compile(f"{re.escape(physical(field))}(?:{'|'.join(_tails(field.type))})\\Z")
    return any((p == name or p.startswith(name + ".")) and not pattern.match(p) for p in layout)


def _tails(kind: pa.DataType) -> Iterator[str]:
    """Return regular expressions for the paths of a column's values in a file, after its name."""
    if pa.types.is_struct(kind):
        for child in kind:
            yield from (rf"\.{re.escape(physical(child))}{tail}" for tail in _tails(child.type))
        known = "|".join(re.escape(physical(child)) for child in kind)
        yield rf"\.(?!(?:{known})(?:\.|\Z))[^.]+(?:\..*)?"  # a field that the table has dropped
    elif pa.types.is_map(kind):
        for name, inner in (("key", kind.key_type), ("value", kind.item_type)):
            yield from (rf"\.[^.]+\.{name}{tail}" for tail in _tails(inner))
    elif _is_list(kind):
        # Names by Parquet's standard, by Arrow, and by DuckDB in the stream to delta_rs.
        # delta_scan() reads all three.
        yield from (rf"\.list\.(?:element|item|l){tail}" for tail in _tails(kind.value_type))
    else:
        yield ""
