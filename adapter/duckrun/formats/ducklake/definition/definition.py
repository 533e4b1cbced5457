"""Definition of a DuckLake table: columns, partitioning, sort order and properties."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa

from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.formats.definitions import TableDefinition
from duckrun.formats.ducklake.definition.partitions import Partition
from duckrun.formats.ducklake.definition.types import arrow_types, type_in
from duckrun.sql.names import transpile
from duckrun.values.columns import DEFAULT
from duckrun.values.frozen import frozen
from duckrun.values.layout import CHANGE_FEED, COMPRESSION, TARGET_FILE_SIZE, codec_of
from duckrun.values.nearest import did_you_mean
from duckrun.values.tables import SORT_BY, ColumnSpec

_OPTIONS = {COMPRESSION: "parquet_compression", TARGET_FILE_SIZE: "target_file_size"}
"""Table property -> DuckLake's option of the table."""
_NO_OPTIONS = {CHANGE_FEED}
"""Properties that a DuckLake always meets, since its catalog records all changes."""


@frozen
class DuckLakeDefinition(TableDefinition):
    """Definition of a DuckLake table."""

    fields: tuple[dict[str, Any], ...]
    """Columns as ``name``, ``type`` and ``default`` (DuckDB SQL), ``nullable`` and ``metadata``."""
    partition_by: tuple[Partition, ...] = ()

    @cached_property
    def partition_columns(self) -> tuple[str, ...]:
        """Columns that partition the table by their own values."""
        return tuple(key.column for key in self.partition_by if key.transform == "identity")

    @cached_property
    def sql_types(self) -> dict[str, str]:
        return {f["name"]: f["type"] for f in self.fields}

    @cached_property
    def schema(self) -> pa.Schema:
        """Arrow schema of the columns. Comments are field metadata."""
        kinds = arrow_types(tuple(f["type"] for f in self.fields))
        return pa.schema(
            [
                pa.field(f["name"], kind, f["nullable"], _metadata(f) or None)
                for f, kind in zip(self.fields, kinds, strict=True)
            ]
        )


def _metadata(f: Mapping[str, Any]) -> dict[str, str]:
    """Comment and default of a column. The default is in Spark SQL, as for any table format."""
    default = f.get("default")
    metadata = {} if default is None else {DEFAULT: transpile(default, "duckdb", "spark", is_definition=True)}
    return {**f["metadata"], **metadata}


_RESERVED = {
    "rowid": "that is the name of its row ids",
    "_ducklake_internal_row_id": "DuckLake's files keep row ids under that name",
    "_ducklake_internal_snapshot_id": "DuckLake's files keep the snapshots of rows under that name",
}


def refuse_names(names: Iterable[str]) -> None:
    """Raise SchemaMismatch for a column name that DuckLake uses itself to identify rows."""
    for name in names:
        if (why := _RESERVED.get(name.lower())) is not None:
            raise SchemaMismatch(f"a DuckLake table has no column {name}: {why}; choose another name")


# -- properties


def kept(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that the catalog stores.

    Raises:
        InvalidConfig: A property is unknown, or the compression codec is.
    """
    for name in properties:
        if name in _OPTIONS or name in (SORT_BY, *_NO_OPTIONS):
            continue
        if name.lower().startswith("delta."):
            raise InvalidConfig(
                f"{name} is a property of Delta tables, and this lake is of format ducklake: leave it out"
            )
        raise InvalidConfig(
            f"a DuckLake table keeps no property {name}; it knows "
            f"{', '.join((*_OPTIONS, SORT_BY))}.{did_you_mean(name, (*_OPTIONS, SORT_BY))}"
        )
    codec_of(properties)
    return {name: str(value) for name, value in properties.items() if name not in _NO_OPTIONS}


# -- definitions


def field(
    name: str, kind: str, nullable: bool, comment: str | None = None, default: str | None = None
) -> dict[str, Any]:
    """Return a column in the form of a definition's ``fields``."""
    metadata = {} if comment is None else {"comment": comment}
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata, "default": default}


def field_of(column: ColumnSpec, dialect: str) -> dict[str, Any]:
    """Convert a column spec to a field of a definition.

    Raises:
        UnsupportedFeature: The column is generated or an identity column.
    """
    if column.generated is not None or column.identity is not None:
        raise UnsupportedFeature(f"column {column.name} is {column.computed}, which DuckLake does not have")
    kind = type_in(column.type, dialect, column.name)
    return field(column.name, kind, column.nullable, column.comment, default_in(column.default, dialect))


def default_in(default: str | None, dialect: str) -> str | None:
    """Translate a default expression from a SQL dialect to DuckDB."""
    return None if default is None else transpile(default, dialect, "duckdb")


def options_of(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Return DuckLake's table options that change: name -> value."""
    changed = {name: after[name] for name in _OPTIONS if name in after and before.get(name) != after[name]}
    if (size := changed.get(TARGET_FILE_SIZE, "")).isdigit():
        changed[TARGET_FILE_SIZE] = f"{size}B"  # DuckLake rejects a number without a unit.
    return {_OPTIONS[name]: value for name, value in changed.items()}


def properties_of(options: Mapping[str, str]) -> dict[str, str]:
    """Return the table properties that DuckLake's options stand for."""
    return {name: options[option] for name, option in _OPTIONS.items() if option in options}
