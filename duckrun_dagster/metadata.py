"""A Commit and the table's log as Dagster metadata: the same for what the IO manager and what dbt wrote.

Figures come from the commit and the log; no table is read to count its rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from dagster import (
    MetadataValue,
    TableColumn,
    TableColumnConstraints,
    TableConstraints,
    TableRecord,
    TableSchema,
    TimeWindowPartitionsDefinition,
)

from duckrun.lake.lake import Lake
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
_MOST_COLUMNS = 32  # as many as most writers have figures of
_CHECK = "delta.constraints."


def commit_metadata(commit: Commit) -> Metadata:
    """What a write did. A count that the log does not have is left out, not shown as zero."""
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
    """The same metadata in the order in which a page shows it: the count of rows, then the rest."""
    return {key: values[key] for key in ("dagster/row_count",) if key in values} | values


def beside_the_assets_own(values: Metadata, own: Mapping[str, Any]) -> Metadata:
    """Metadata of a write under names that the asset has not used itself: ``duckrun/version`` where it has a ``version``.

    A word that says how this run writes, such as ``mode``, is not the asset's own: what was done stands in its place.
    """
    taken = own.keys() - set(RUN_KEYS)
    renamed = {f"duckrun/{key.rpartition('/')[2]}" if key in taken else key: value for key, value in values.items()}
    return row_count_first(renamed)


def table_metadata(snapshot: Snapshot, descriptions: Mapping[str, str] | None = None) -> Metadata:
    """What the table is now, in Dagster's own names; ``descriptions`` of columns that the log has no comment on."""
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
    return {key: value for key, value in values.items() if value is not None}


def _statistics(snapshot: Snapshot) -> MetadataValue | None:
    """NULLs and bounds of the first columns, where the log has any."""
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
    """The table's name and address; the same from the IO manager and from dbt, so the UI knows the storage is one."""
    if ref.format == DUCKLAKE:  # whose tables have no folders
        return {"dagster/table_name": str(ref), "dagster/storage_kind": DUCKLAKE}
    return {
        "dagster/table_name": str(ref),
        "dagster/uri": ref.url,
        "dagster/storage_kind": "deltalake",
    }


def lake_metadata(lake: Lake, snapshot: Snapshot, commit: Commit | None = None) -> Metadata:
    """What only a lake with a catalog has: the number of its snapshot, which is the table's version, and where both lie; and what the ``commit`` that
    made it did to the table's files, which the catalog is not asked for by the commit itself.
    """
    if not lake.format.transacts:
        return {}
    rows = lake.format.row_count(snapshot)  # those that lie in the catalog too
    return {
        "snapshot_id": snapshot.version,
        "catalog": lake.address,
        "location": MetadataValue.path(f"{lake.root}/data"),
        **({} if rows is None else {"dagster/row_count": rows}),
        **({} if commit is None else _commit_files(lake, snapshot, commit)),
    }


def _commit_files(lake: Lake, snapshot: Snapshot, commit: Commit) -> Metadata:
    if lake.format.whole is None or commit.writer == "none":
        return {}
    files = lake.format.whole.commit_files(snapshot, commit.version)
    if files is None:
        return {}
    return {
        "files_added": files.added,
        "files_removed": files.removed,
        "files_marked": files.marked,
        "bytes_added": files.bytes_added,
    }


def _column_type(snapshot: Snapshot, field: pa.Field) -> str:
    """A column's type in Delta's words; VARIANT and GEOMETRY by their names, whatever Arrow has for them."""
    own = (snapshot.sql_types or {}).get(field.name, "").lower()
    if field.name in snapshot.variants:
        return "variant"
    return own if own in ("variant", "geometry") else type_name(field.type)


def column_schema(snapshot: Snapshot, descriptions: Mapping[str, str] | None = None) -> TableSchema:
    """The columns with Delta's type, comment and whether they may be NULL; partition columns and CHECK constraints are said too."""
    checks = {
        name.removeprefix(_CHECK): text for name, text in sorted(snapshot.properties.items()) if name.startswith(_CHECK)
    }
    return TableSchema(
        columns=[
            TableColumn(
                name=field.name,
                type=_column_type(snapshot, field),
                description=(field.metadata or {}).get(b"comment", b"").decode()
                or (descriptions or {}).get(field.name),
                constraints=TableColumnConstraints(
                    nullable=field.nullable, other=["partition"] if field.name in snapshot.partition_columns else None
                ),
            )
            for field in snapshot.schema
        ],
        constraints=TableConstraints(other=[f"{name}: {text}" for name, text in checks.items()]) if checks else None,
    )


def declared_descriptions(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The descriptions of columns in an asset's own ``dagster/column_schema``, and in its ``column_descriptions``."""
    declared = metadata.get("dagster/column_schema")
    declared = declared.value if isinstance(declared, MetadataValue) else declared
    columns = declared.columns if isinstance(declared, TableSchema) else ()
    found = {column.name: column.description for column in columns if column.description}
    return {**found, **column_descriptions(metadata)}


def partition_row_counts(snapshot: Snapshot, partitions: PartitionSlice, column: str | None) -> dict[str, int]:
    """The rows of each partition, where the table is laid out by the partition column; else nothing."""
    name = next((c for c in snapshot.partition_columns if column is not None and c.lower() == column.lower()), None)
    if name is None:
        return {}
    counts: dict[str, int] = dict.fromkeys(partitions.keys, 0)
    key_of = key_finder(partitions, snapshot.schema.field(name).type)
    try:
        for file in snapshot.files():
            if name not in file.partition_values:  # written before the table was laid out so
                return {}
            key = key_of(file.partition_values.get(name))
            if key is not None:
                if file.live_rows is None:
                    return {}
                counts[key] += file.live_rows
    except ValueError:  # a value that is no partition key, such as a day in a table of months: the log cannot tell
        return {}
    return counts


def preview(table: pa.Table) -> MetadataValue:
    """The first rows as a Markdown table."""
    names = [_cell(name) for name in table.column_names]
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    for row in table.to_pylist():
        lines.append(f"| {' | '.join(_cell(value) for value in row.values())} |")
    return MetadataValue.md("\n".join(lines))


def key_finder(partitions: PartitionSlice, kind: pa.DataType) -> Callable[[str | None], str | None]:
    """A function from the partition value of a file, of a column of that type, to the Dagster partition that holds it."""
    definition = partitions.definition
    if not isinstance(definition, TimeWindowPartitionsDefinition):
        wanted = {typed(key, kind): key for key in partitions.keys}
        return lambda value: wanted.get(typed(value, kind))
    plain = pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None)
    windows = sorted(
        (w.start.replace(tzinfo=None), w.end.replace(tzinfo=None), key)
        for key, w in _windows(definition, partitions.keys)
    )
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
    """A day or a time without zone, as any writer spells it. Raises ValueError."""
    count = typed(value, kind)
    if not isinstance(count, int):
        raise ValueError(f"{value!r} is no {kind}")
    try:
        return datetime(1970, 1, 1) + (
            timedelta(days=count) if pa.types.is_date(kind) else timedelta(microseconds=count)
        )
    except OverflowError as error:
        raise ValueError(f"{value!r} is too far") from error


def _windows(definition: TimeWindowPartitionsDefinition, keys: Sequence[str]) -> list[tuple[str, Any]]:
    return [(key, definition.time_window_for_partition_key(key)) for key in keys]


def _megabytes(size: int | None) -> float | None:
    return None if size is None else round(size / _MB, 1)


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    text = text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
