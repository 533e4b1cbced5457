"""Fewer, larger files with the same rows, by DuckDB: it reads some files and writes them as one, sorted where they should be.
Rows that a deletion vector marks stay behind.

DuckDB's memory limit holds, and it spills; delta_rs's own compaction keeps no sort order and takes no SQL predicate. The
commit says dataChange=false: readers that follow the changes of a table see none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import duckdb

from duckrun.engines.data_files import file_size
from duckrun.engines.duckdb.change import counted, whole_files
from duckrun.engines.duckdb.row_ids import with_ids
from duckrun.engines.duckdb.rows_to_write import types_of
from duckrun.engines.duckdb.source import Rows, order_by
from duckrun.engines.duckdb.writers import staged
from duckrun.engines.duckdb.writers.reads import NOTHING
from duckrun.errors import InvalidConfig
from duckrun.formats.commits import NewCommit
from duckrun.formats.format import Format
from duckrun.run.transaction import Transaction
from duckrun.sql.names import fresh_name, quote_identifier, transpile
from duckrun.values.layout import TARGET_FILE_SIZE
from duckrun.values.partition_values import partition_key
from duckrun.values.rows import Commit, ScanFile, StagedFile
from duckrun.values.snapshot import Snapshot
from duckrun.values.tables import OptimizeSpec, PurgeSpec, order_of

_TARGET = 128 * 1024 * 1024
_SMALL = 0.75  # a file of this share of the target is large enough
_MARKED = 0.05  # of a file's rows; with more of them deleted it is written anew (Spark's optimize.maxDeletedRowsRatio)
_ROW_GROUP, _SMALLEST_GROUP = 122_880, 2048  # rows: DuckDB's own, and its least
_BITS = 12  # of each column's rank: 4096 ranges


def optimize(
    spec: OptimizeSpec | PurgeSpec, snapshot: Snapshot, transaction: Transaction, cursor: duckdb.DuckDBPyConnection
) -> Commit:
    """Write small files together, or all in z-order, or those with deletion vectors, partition by partition: one commit that
    changes no row.

    Raises InvalidConfig for a predicate that is not over partition columns.
    """
    form = transaction.lake.format
    form.refuse_unknown_features(snapshot)
    chosen = _chosen(spec, snapshot, cursor)
    target = file_size(snapshot.properties) or _TARGET
    z_order_by: tuple[str, ...] = ()
    if isinstance(spec, PurgeSpec):
        groups = _groups([file for file in chosen if file.deletion_vector], snapshot, target, least=1)
        none = "no row is marked as deleted"
    else:
        _check_columns(spec, snapshot)
        target, z_order_by = spec.target_file_size or target, spec.z_order_by
        clustered = tuple(path[0] for path in snapshot.cluster_by if len(path) == 1)
        fresh = {file.path for file in form.unclustered(snapshot, chosen)} if clustered else set()
        worth = [
            file
            for file in chosen
            if z_order_by or file.path in fresh or file.size < target * _SMALL or _is_marked(file)
        ]
        if clustered and (fresh or len(worth) > 1):
            groups, z_order_by = iter([worth]), clustered
        else:
            groups = _groups(worth, snapshot, target, whole=bool(z_order_by))
        none = "no two files are small enough to be written together"
    added: list[StagedFile] = []
    gone: list[ScanFile] = []
    for group in groups:
        added += _together(group, snapshot, z_order_by, cursor, target, form)
        gone += group
    if not gone:
        return transaction.nothing(snapshot, none)
    reason = f"{len(gone)} files were written as {len(added)}" + (", in z-order" if z_order_by else "")
    new = NewCommit(spec, None, added, gone, writer="staged", reason=reason, data_change=False, blind=True)
    return staged.commit(transaction, snapshot, new, NOTHING)


def _chosen(
    spec: OptimizeSpec | PurgeSpec, snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection
) -> Sequence[ScanFile]:
    if spec.predicate is None:
        return snapshot.files()
    found = whole_files(snapshot, cursor, transpile(spec.predicate, spec.dialect, "duckdb"))
    if found is None:
        raise InvalidConfig(
            f"{spec.mode} of table {snapshot.ref}: {spec.predicate} is not over its partition columns "
            f"({', '.join(snapshot.partition_columns) or 'it has none'}); nothing was changed."
        )
    return found


def _check_columns(spec: OptimizeSpec, snapshot: Snapshot) -> None:
    if spec.z_order_by and snapshot.cluster_by:
        raise InvalidConfig(
            f"optimize of table {snapshot.ref}: it is clustered by {', '.join('.'.join(path) for path in snapshot.cluster_by)}, which is how "
            "OPTIMIZE orders its rows; z_order_by is for tables without clustering."
        )
    for column in spec.z_order_by:
        if column not in snapshot.schema.names:
            raise InvalidConfig(
                f"optimize of table {snapshot.ref}: there is no column {column!r} to order by; the columns are "
                f"{', '.join(snapshot.schema.names)}."
            )
        if column in snapshot.partition_columns:
            raise InvalidConfig(
                f"optimize of table {snapshot.ref}: rows lie by the partition column {column!r} already."
            )
    if len(spec.z_order_by) * _BITS > 120:
        raise InvalidConfig(f"optimize of table {snapshot.ref}: z-order is for {120 // _BITS} columns at most.")


def _is_marked(file: ScanFile) -> bool:
    """True for a file that is worth writing anew for the rows of it that are deleted."""
    return file.deleted_rows > _MARKED * (file.rows or 0)


def _groups(
    files: Sequence[ScanFile], snapshot: Snapshot, target: int, *, least: int = 2, whole: bool = False
) -> Iterator[list[ScanFile]]:
    """Files to write together: of one partition, and no more bytes than the target; ``whole``: all of a partition. ``least`` files
    make a group, and one by itself that is worth it.
    """
    schema, columns = snapshot.schema, snapshot.partition_columns
    partitions: dict[Any, list[ScanFile]] = {}
    for file in sorted(files, key=lambda f: (f.size, f.path)):
        partitions.setdefault(partition_key(file.partition_values, schema, columns), []).append(file)
    for members in partitions.values():
        if whole:
            yield members
            continue
        groups: list[list[ScanFile]] = [[]]
        for file in members:
            if sum(f.size for f in groups[-1]) + file.size > target:
                groups.append([])
            groups[-1].append(file)
        yield from (group for group in groups if len(group) >= least or (group and _is_marked(group[0])))


def _together(
    files: Sequence[ScanFile],
    snapshot: Snapshot,
    z_order_by: Sequence[str],
    cursor: duckdb.DuckDBPyConnection,
    target: int,
    form: Format,
) -> tuple[StagedFile, ...]:
    """The rows of some files of one partition, in new ones."""
    kept = {n: k for n, k in types_of(snapshot, cursor).items() if n not in snapshot.partition_columns}
    source = snapshot.scan_sql(files=files)
    read, numbers, stored = with_ids(form, snapshot, files, list(kept), cursor)
    read = read or f"SELECT {', '.join(map(quote_identifier, kept))} FROM {source}"
    rows = Rows(cursor, _in_order(read, [*kept, *numbers], z_order_by, snapshot), {**kept, **numbers})
    stored = (*form.stored_columns(snapshot.schema), *stored)
    size = sum(f.size for f in files)
    if size <= target:
        # no target: what is written together is one file, also where the rows take more room than they did
        only = {k: v for k, v in snapshot.properties.items() if k != TARGET_FILE_SIZE}
        return staged.stage(rows, snapshot.ref, properties=only, beside=files[0], stored=stored)
    per_file = counted(cursor, source) * target // size
    return staged.stage(
        rows,
        snapshot.ref,
        properties={**snapshot.properties, TARGET_FILE_SIZE: str(target)},
        beside=files[0],
        stored=stored,
        row_group_size=max(_SMALLEST_GROUP, min(_ROW_GROUP, per_file // 2048 * 2048)),
    )


def _in_order(rows: str, columns: Sequence[str], z_order_by: Sequence[str], snapshot: Snapshot) -> str:
    if not z_order_by:
        return rows + order_by(tuple(c for c in order_of(snapshot) if c in columns))
    names = ", ".join(map(quote_identifier, columns))
    ranks = [fresh_name(f"__duckrun_rank_{i}", snapshot.schema.names) for i in range(len(z_order_by))]
    ranked = f"SELECT {names}, {_ranks(z_order_by, ranks)} FROM ({rows})"
    return f"SELECT {names} FROM ({ranked}) ORDER BY {_z_value(ranks)}"


def _ranks(columns: Sequence[str], names: Sequence[str]) -> str:
    """Each column's rank among the rows, in 4096 steps: it holds for any type, for NULL and for skewed values."""
    return ", ".join(
        f"CAST(percent_rank() OVER (ORDER BY {quote_identifier(c)}) * {(1 << _BITS) - 1} AS HUGEINT) AS {name}"
        for c, name in zip(columns, names, strict=True)
    )


def _z_value(ranks: Sequence[str]) -> str:
    """The bits of the ranks, taken in turn."""
    return " | ".join(
        f"((({rank} >> {bit}) & 1) << {bit * len(ranks) + place})"
        for bit in range(_BITS)
        for place, rank in enumerate(ranks)
    )
