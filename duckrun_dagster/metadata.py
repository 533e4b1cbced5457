"""A Commit and the table's log as Dagster metadata, the same for the IO manager and for dbt.

Figures come from the commit and the log; no table is read to count its rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from dagster import (
    MetadataValue,
    TableColumn,
    TableColumnConstraints,
    TableConstraints,
    TableRecord,
    TableSchema,
    TimeWindowPartitionsDefinition,
)

from duckrun.formats.transactions import TransactionalLake
from duckrun.lake.lake import Lake
from duckrun.libraries import pa
from duckrun.values.columns import comment_of
from duckrun.values.lake_format import DUCKLAKE
from duckrun.values.partition_values import typed
from duckrun.values.rows import Commit, counted_rows
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.type_names import type_name
from duckrun_dagster.config import RUN_KEYS, column_descriptions
from duckrun_dagster.partitions.partitions import PartitionSlice

Metadata = dict[str, Any]

_MB = 1024 * 1024
_ROWS = ("rows_inserted", "rows_updated", "rows_deleted")
_FIGURES = (
    "version",
    "mode",
    "engine",
    "writer",
    *_ROWS,
    "files_added",
    "files_removed",
    "files_marked",
    "files_pruned",
    "bytes_added",
)
_LONGEST_CELL = 60
_MOST_COLUMNS = 32  # most writers collect statistics of the first 32 columns
_CHECK = "delta.constraints."


def commit_metadata(commit: Commit) -> Metadata:
    """Return the figures of a write. A count that the log lacks is left out, not shown as zero."""
    memory, retracted = commit.memory, commit.retracted
    values: Metadata = {
        **{name: getattr(commit, name) for name in _FIGURES},
        "location": MetadataValue.path(commit.location),
        "reason": commit.reason or None,
        "seconds": float(commit.seconds),
        "peak_memory_mb": _megabytes(commit.peak_bytes),
        "memory_limit_mb": _megabytes(memory.limit) if memory else None,
        "memory_duckdb_mb": _megabytes(memory.duckdb) if memory else None,
        "memory_spill_mb": _megabytes(memory.spill) if memory and memory.spill else None,
        "replayed": commit.replayed,
        "retracted_version": retracted.version if retracted else None,
        "retracted_rows": retracted.rows if retracted else None,
    }
    return {key: value for key, value in values.items() if value is not None}


def row_count_first(values: Metadata) -> Metadata:
    """Return the metadata with the row count first, as a page shows it."""
    return {key: values[key] for key in ("dagster/row_count",) if key in values} | values


def beside_the_assets_own(values: Metadata, asset_metadata: Mapping[str, Any]) -> Metadata:
    """Return metadata of a write under names that the asset does not use itself.

    Where the asset has a ``version``, the write's becomes ``duckrun/version``.
    """
    # A key that says how this run writes, such as ``mode``, is replaced by the mode of the commit.
    taken = asset_metadata.keys() - set(RUN_KEYS)
    renamed = {f"duckrun/{key.rpartition('/')[2]}" if key in taken else key: value for key, value in values.items()}
    return row_count_first(renamed)


def table_metadata(
    lake: Lake, snapshot: Snapshot, descriptions: Mapping[str, str] | None = None, commit: Commit | None = None
) -> Metadata:
    """Return the state of the table and its lake, in Dagster's own names.

    Args:
        lake: The lake of the table.
        snapshot: The table.
        descriptions: Descriptions of columns without a comment in the log.
        commit: The commit that made the snapshot, if its figures belong to the metadata.
    """
    files = snapshot.files()
    values: Metadata = {
        **name_metadata(snapshot.ref),
        "dagster/column_schema": column_schema(snapshot, descriptions),
        "dagster/row_count": counted_rows(files),
        "table_files": len(files),
        "table_bytes": sum(file.size for file in files),
        "table_description": snapshot.description or None,
        "column_statistics": _statistics(snapshot),
    }
    of_table = {key: value for key, value in values.items() if value is not None}
    of_commit = {} if commit is None else commit_metadata(commit)
    return {**of_commit, **of_table, **branch_metadata(lake), **_lake_metadata(lake, snapshot, commit)}


def branch_metadata(lake: Lake) -> Metadata:
    """Return the name of a branch; empty for a lake itself."""
    return {} if lake.branch_name is None else {"branch": lake.branch_name}


def _statistics(snapshot: Snapshot) -> MetadataValue | None:
    """Return NULL counts and bounds of the first columns; None if the log has none."""
    named = list(snapshot.column_figures().items())[:_MOST_COLUMNS]
    records = [
        TableRecord({"column": name, "nulls": each.nulls, "at_least": each.low, "at_most": each.high})
        for name, each in named
        if (each.nulls, each.low, each.high) != (None, None, None)
    ]
    if not records:
        return None
    kinds = {"column": "string", "nulls": "int", "at_least": "string", "at_most": "string"}
    return MetadataValue.table(records, TableSchema([TableColumn(name, kind) for name, kind in kinds.items()]))


def name_metadata(ref: TableRef) -> Metadata:
    """Return the table's name and address."""
    # The IO manager and dbt use the same values, so the UI knows that the storage is one.
    if ref.format == DUCKLAKE:  # its tables have no folders
        return {"dagster/table_name": str(ref), "dagster/storage_kind": DUCKLAKE}
    return {
        "dagster/table_name": str(ref),
        "dagster/uri": ref.url,
        "dagster/storage_kind": "deltalake",
    }


def _lake_metadata(lake: Lake, snapshot: Snapshot, commit: Commit | None) -> Metadata:
    """Return the metadata of a lake with a catalog; empty for other lakes.

    The catalog holds the commit's figures of files.
    """
    transactions = lake.format.transactions
    if transactions is None:
        return {}
    rows = lake.format.row_count(snapshot)  # with the rows that are inlined in the catalog
    return {
        "snapshot_id": snapshot.version,
        "catalog": lake.address,
        "location": MetadataValue.path(f"{lake.root}/data"),
        **({} if rows is None else {"dagster/row_count": rows}),
        **({} if commit is None else _commit_files(transactions, snapshot, commit)),
    }


def _commit_files(transactions: TransactionalLake, snapshot: Snapshot, commit: Commit) -> Metadata:
    if commit.writer == "none":
        return {}
    files = transactions.commit_files(snapshot, commit.version)
    if files is None:
        return {}
    return {
        "files_added": files.added,
        "files_removed": files.removed,
        "files_marked": files.marked,
        "bytes_added": files.bytes_added,
    }


def _column_type(snapshot: Snapshot, field: pa.Field) -> str:
    """Return a column's Delta type; VARIANT and GEOMETRY by name, whatever their Arrow type is."""
    sql_type = (snapshot.sql_types or {}).get(field.name, "").lower()
    if field.name in snapshot.variants:
        return "variant"
    return sql_type if sql_type in ("variant", "geometry") else type_name(field.type)


def column_schema(snapshot: Snapshot, descriptions: Mapping[str, str] | None = None) -> TableSchema:
    """Return the columns with their Delta type, comment and nullability.

    Partition columns and CHECK constraints are marked too.
    """
    checks = {
        name.removeprefix(_CHECK): text for name, text in sorted(snapshot.properties.items()) if name.startswith(_CHECK)
    }
    return TableSchema(
        columns=[
            TableColumn(
                name=field.name,
                type=_column_type(snapshot, field),
                description=comment_of(field) or (descriptions or {}).get(field.name),
                constraints=TableColumnConstraints(
                    nullable=field.nullable, other=["partition"] if field.name in snapshot.partition_columns else None
                ),
            )
            for field in snapshot.schema
        ],
        constraints=TableConstraints(other=[f"{name}: {text}" for name, text in checks.items()]) if checks else None,
    )


def declared_descriptions(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the column descriptions of an asset.

    They stand in its own ``dagster/column_schema`` and in ``column_descriptions``.
    """
    declared = metadata.get("dagster/column_schema")
    declared = declared.value if isinstance(declared, MetadataValue) else declared
    columns = declared.columns if isinstance(declared, TableSchema) else ()
    described = {column.name: column.description for column in columns if column.description}
    return {**described, **column_descriptions(metadata)}


def partition_row_counts(snapshot: Snapshot, partitions: PartitionSlice, column: str | None) -> dict[str, int]:
    """Return the rows of each partition if the table is partitioned by ``column``, else nothing."""
    name = next((c for c in snapshot.partition_columns if column is not None and c.lower() == column.lower()), None)
    if name is None:
        return {}
    counts: dict[str, int] = dict.fromkeys(partitions.keys, 0)
    key_of = key_finder(partitions, snapshot.schema.field(name).type)
    try:
        for file in snapshot.files():
            if name not in file.partition_values:  # written before the table was partitioned by this column
                return {}
            key = key_of(file.partition_values.get(name))
            if key is not None:
                if file.live_rows is None:
                    return {}
                counts[key] += file.live_rows
    except ValueError:  # not a partition key, such as a day in a table of months: the log cannot tell
        return {}
    return counts


def preview(table: pa.Table) -> MetadataValue:
    """Return the first rows as a Markdown table."""
    names = [_cell(name) for name in table.column_names]
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    lines += [f"| {' | '.join(_cell(value) for value in row.values())} |" for row in table.to_pylist()]
    return MetadataValue.md("\n".join(lines))


def key_finder(partitions: PartitionSlice, kind: pa.DataType) -> Callable[[str | None], str | None]:
    """Return a function from the partition value of a file to its Dagster partition.

    ``kind`` is the type of the partition column.
    """
    definition = partitions.definition
    if not isinstance(definition, TimeWindowPartitionsDefinition):
        wanted = {typed(key, kind): key for key in partitions.keys}
        return lambda value: wanted.get(typed(value, kind))
    plain = pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None)
    by_key = {key: definition.time_window_for_partition_key(key) for key in partitions.keys}
    windows = sorted((w.start.replace(tzinfo=None), w.end.replace(tzinfo=None), key) for key, w in by_key.items())
    starts = [start for start, _, _ in windows]

    def find(value: str | None) -> str | None:
        if value is None:
            return None
        if not plain and value in partitions.keys:
            return value
        moment = _moment(value, kind) if plain else datetime.strptime(value, definition.fmt)
        at = bisect_right(starts, moment) - 1
        return windows[at][2] if at >= 0 and moment < windows[at][1] else None

    return find


def _moment(value: str, kind: pa.DataType) -> datetime:
    """Parse a day or a time without zone, as any writer formats it. Raises ValueError."""
    count = typed(value, kind)
    if not isinstance(count, int):
        raise ValueError(f"{value!r} is no {kind}")
    try:
        return datetime(1970, 1, 1) + (
            timedelta(days=count) if pa.types.is_date(kind) else timedelta(microseconds=count)
        )
    except OverflowError as error:
        raise ValueError(f"{value!r} is too far") from error


def _megabytes(size: int | None) -> float | None:
    return None if size is None else round(size / _MB, 1)


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    text = text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
