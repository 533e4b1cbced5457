"""Rewrites of files by DuckDB: compaction, and all rows of a table after an ALTER TABLE.

Compaction drops rows that a deletion vector marks, and sorts by the table's order. DuckDB obeys its
memory limit and spills, whereas delta_rs's compaction keeps no sort order and takes no SQL
predicate. The commit has dataChange=false: readers that follow the table's changes see none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import duckdb

from duckrun.display.progress import tracked
from duckrun.engines.data_files import file_size
from duckrun.engines.decisions import clustered_by
from duckrun.engines.duckdb.rows.fitted import types_of
from duckrun.engines.duckdb.rows.places import counted
from duckrun.engines.duckdb.rows.pruning import whole_files
from duckrun.engines.duckdb.rows.reads import NOTHING
from duckrun.engines.duckdb.rows.row_ids import with_ids
from duckrun.engines.duckdb.rows.source import Rows, order_by
from duckrun.engines.duckdb.rows.target import altered, rows_of
from duckrun.engines.duckdb.writers import staged
from duckrun.errors import InvalidConfig
from duckrun.formats.commits import NewCommit
from duckrun.formats.definitions import Alteration
from duckrun.formats.format import logs_of
from duckrun.formats.logs import LogTables
from duckrun.run.transaction import Transaction
from duckrun.sql.on_demand import sql_names
from duckrun.sql.quoting import fresh_name, quote_identifier
from duckrun.values.layout import ROW_GROUP, TARGET_FILE_SIZE
from duckrun.values.partition_values import partition_key
from duckrun.values.rows import Commit, ScanFile, StagedFile
from duckrun.values.snapshot import Snapshot
from duckrun.values.tables import OptimizeSpec, PurgeSpec, order_of

_TARGET = 128 * 1024 * 1024
_SMALL = 0.75
"""Share of the target size from which a file is large enough."""
_MARKED = 0.05
"""Share of deleted rows above which a file is rewritten (Spark's optimize.maxDeletedRowsRatio)."""
_SMALLEST_GROUP = 2048
"""Rows of a row group: DuckDB's minimum."""
_BITS = 12
"""Bits of each column's rank in a z-value: 4096 ranges."""


def optimize(
    spec: OptimizeSpec | PurgeSpec, snapshot: Snapshot, transaction: Transaction, cursor: duckdb.DuckDBPyConnection
) -> Commit:
    """Compact, z-order or purge files, partition by partition, in one commit that changes no row.

    Raises:
        InvalidConfig: The predicate uses other columns than partition columns, or a column is
            unknown.
    """
    logs = logs_of(transaction.lake.format)
    logs.refuse_unknown_features(snapshot)
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
        fresh = {file.path for file in logs.unclustered(snapshot, chosen)} if clustered else set()
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
    for group in tracked(list(groups), f"{spec.mode} {snapshot.ref}", "files", size=len):
        added += _together(group, snapshot, z_order_by, cursor, target, logs)
        gone += group
    if not gone:
        return transaction.nothing(snapshot, none)
    reason = f"{len(gone)} files were written as {len(added)}" + (", in z-order" if z_order_by else "")
    new = NewCommit(spec, None, added, gone, writer="staged", reason=reason, data_change=False, blind=True)
    return staged.commit(transaction, snapshot, new, lambda: NOTHING)


def _chosen(
    spec: OptimizeSpec | PurgeSpec, snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection
) -> Sequence[ScanFile]:
    if spec.predicate is None:
        return snapshot.files()
    files = whole_files(snapshot, cursor, sql_names.transpile(spec.predicate, spec.dialect, "duckdb"))
    if files is None:
        raise InvalidConfig(
            f"{spec.mode} of table {snapshot.ref}: {spec.predicate} is not over its partition columns "
            f"({', '.join(snapshot.partition_columns) or 'it has none'})"
        )
    return files


def _check_columns(spec: OptimizeSpec, snapshot: Snapshot) -> None:
    if spec.z_order_by and snapshot.cluster_by:
        raise InvalidConfig(
            f"optimize of table {snapshot.ref}: it is clustered by "
            f"{', '.join(clustered_by(snapshot))}, which is how OPTIMIZE orders its rows; "
            "z_order_by is for tables without clustering."
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
    """True if the file has enough deleted rows to be worth a rewrite."""
    return file.deleted_rows > _MARKED * (file.rows or 0)


def _groups(
    files: Sequence[ScanFile], snapshot: Snapshot, target: int, *, least: int = 2, whole: bool = False
) -> Iterator[list[ScanFile]]:
    """Groups of files of one partition to rewrite together, up to the target size.

    ``whole`` puts all files of a partition into one group. A group has ``least`` files, or a single
    file that is worth a rewrite.
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
    logs: LogTables,
) -> tuple[StagedFile, ...]:
    """Rewrite some files of one partition as new ones."""
    types = {n: k for n, k in types_of(snapshot).items() if n not in snapshot.partition_columns}
    source = snapshot.scan_sql(files=files)
    read, numbers, stored = with_ids(logs, snapshot, files, list(types))
    read = read or f"SELECT {', '.join(map(quote_identifier, types))} FROM {source}"
    rows = Rows(cursor, _in_order(read, [*types, *numbers], z_order_by, snapshot), {**types, **numbers})
    stored = (*logs.stored_columns(snapshot.schema), *stored)
    size, folder = sum(f.size for f in files), logs.files_folder(snapshot.ref)
    # Without a target the group becomes a single file, even if the rows now take more space.
    options: dict[str, Any] = {"properties": {k: v for k, v in snapshot.properties.items() if k != TARGET_FILE_SIZE}}
    if size > target:
        per_file = counted(cursor, source) * target // size
        options["properties"] |= {TARGET_FILE_SIZE: str(target)}
        options["row_group_size"] = max(_SMALLEST_GROUP, min(ROW_GROUP, per_file // 2048 * 2048))
    return staged.stage_in(folder, rows, snapshot.ref, beside=files[0], stored=stored, **options)


def _in_order(rows: str, columns: Sequence[str], z_order_by: Sequence[str], snapshot: Snapshot) -> str:
    if not z_order_by:
        return rows + order_by(tuple(c for c in order_of(snapshot) if c in columns))
    names = ", ".join(map(quote_identifier, columns))
    # The rank of a value in 4096 steps works for any type, NULL, and skewed values. The bits of the
    # ranks are interleaved.
    steps = (1 << _BITS) - 1
    ranks = {fresh_name(f"__duckrun_rank_{i}", snapshot.schema.names): c for i, c in enumerate(z_order_by)}
    ranked = ", ".join(
        f"CAST(percent_rank() OVER (ORDER BY {quote_identifier(c)}) * {steps} AS HUGEINT) AS {rank}"
        for rank, c in ranks.items()
    )
    z_value = " | ".join(
        f"((({rank} >> {bit}) & 1) << {bit * len(ranks) + place})"
        for bit in range(_BITS)
        for place, rank in enumerate(ranks)
    )
    return f"SELECT {names} FROM (SELECT {names}, {ranked} FROM ({rows})) ORDER BY {z_value}"


# -- ALTER TABLE


def count_breaking(
    snapshot: Snapshot, alteration: Alteration, condition: str, cursor: duckdb.DuckDBPyConnection
) -> int:
    """Number of altered rows that do not satisfy a condition in Spark SQL (false or NULL)."""
    test = sql_names.transpile(condition, "spark", "duckdb")
    rows = rows_of(altered(snapshot, alteration))
    return counted(cursor, f"({rows})", f"({test}) IS NOT TRUE")


def rewritten(
    logs: LogTables, snapshot: Snapshot, alteration: Alteration, cursor: duckdb.DuckDBPyConnection
) -> tuple[StagedFile, ...]:
    """Stage files with all altered rows; no reader sees them before they are committed."""
    target, after = altered(snapshot, alteration), alteration.after
    kinds = types_of(target)
    read, numbers, ids = with_ids(logs, target, list(snapshot.files()), list(kinds))
    rows = Rows(cursor, read or rows_of(target), {**kinds, **numbers}, order=tuple(after.sort_by))
    stored = (*logs.stored_columns(after.schema), *ids)
    folder, properties = logs.files_folder(snapshot.ref), after.properties
    return staged.stage_in(folder, rows, snapshot.ref, after.partition_columns, properties=properties, stored=stored)
