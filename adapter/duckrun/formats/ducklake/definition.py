"""What a DuckLake table is apart from its rows: columns, partitions, order, properties."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.formats.definitions import OfColumns
from duckrun.formats.ducklake.partitions import Partition
from duckrun.formats.ducklake.types import arrow_types, type_in
from duckrun.sql.names import transpile
from duckrun.values.columns import DEFAULT
from duckrun.values.layout import CHANGE_FEED, COMPRESSION, TARGET_FILE_SIZE, codec_of
from duckrun.values.nearest import did_you_mean
from duckrun.values.tables import SORT_BY, ColumnSpec

_OPTIONS = {COMPRESSION: "parquet_compression", TARGET_FILE_SIZE: "target_file_size"}
"""Table property -> DuckLake's option of the table."""
_NO_OPTIONS = {CHANGE_FEED}
"""Words that a DuckLake fulfils without being told: its catalog knows all changes."""


@dataclass(frozen=True)
class DuckLakeDefinition(OfColumns):
    """``fields`` are columns as ``name``, ``type`` (DuckDB's SQL), ``nullable``, ``metadata`` and ``default`` (SQL, or None)."""

    fields: tuple[dict[str, Any], ...]
    partition_by: tuple[Partition, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns by whose own values rows are parted."""
        return tuple(key.column for key in self.partition_by if key.transform == "identity")

    @property
    def variants(self) -> frozenset[str]:
        """``sql_types`` say them."""
        return frozenset()

    @property
    def sql_types(self) -> dict[str, str]:
        return {f["name"]: f["type"] for f in self.fields}

    @property
    def schema(self) -> pa.Schema:
        """The Arrow form of the columns, comments as field metadata."""
        kinds = arrow_types(tuple(f["type"] for f in self.fields))
        return pa.schema(
            [
                pa.field(f["name"], kind, f["nullable"], _metadata(f) or None)
                for f, kind in zip(self.fields, kinds, strict=True)
            ]
        )

    @property
    def checks(self) -> dict[str, str]:
        return {}

    def users_of(self, name: str) -> list[str]:
        """What would not be there without a column."""
        lower = name.lower()
        users = ["the partitioning"] if lower in (key.column.lower() for key in self.partition_by) else []
        return users + (["the sort order"] if lower in (c.lower() for c in self.sort_by) else [])


def _metadata(f: Mapping[str, Any]) -> dict[str, str]:
    """A column's comment, and its default in Spark's SQL, as the fields of any table have them."""
    default = f.get("default")
    said = {} if default is None else {DEFAULT: transpile(default, "duckdb", "spark")}
    return {**f["metadata"], **said}


_RESERVED = {
    "rowid": "that is the name of its row ids",
    "_ducklake_internal_row_id": "DuckLake's files keep row ids under that name",
    "_ducklake_internal_snapshot_id": "DuckLake's files keep the snapshots of rows under that name",
}


def refuse_names(names: Iterable[str]) -> None:
    """Raise SchemaMismatch for a column that would hide one of DuckLake's own, by which it knows its rows."""
    for name in names:
        if (why := _RESERVED.get(name.lower())) is not None:
            raise SchemaMismatch(f"a DuckLake table has no column {name}: {why}; choose another name")


# -- properties


def refuse_properties(properties: Mapping[str, str]) -> None:
    """Raise InvalidConfig for properties that a DuckLake table has not."""
    for name in properties:
        if name in _OPTIONS or name in (SORT_BY, *_NO_OPTIONS):
            continue
        if name.lower().startswith("delta."):
            raise InvalidConfig(
                f"{name} is a property of Delta tables, and this lake is of format ducklake: leave it out"
            )
        raise InvalidConfig(
            f"a DuckLake table keeps no property {name}; it knows {', '.join((*_OPTIONS, SORT_BY))}.{did_you_mean(name, (*_OPTIONS, SORT_BY))}"
        )


def kept(properties: Mapping[str, str]) -> dict[str, str]:
    """Those that the catalog holds."""
    refuse_properties(properties)
    codec_of(properties)
    return {name: str(value) for name, value in properties.items() if name not in _NO_OPTIONS}


# -- definitions


def field_of(column: ColumnSpec, dialect: str) -> dict[str, Any]:
    """A column to make. Raises UnsupportedFeature for one that is computed."""
    if column.generated is not None or column.identity is not None:
        raise UnsupportedFeature(f"column {column.name} is {column.computed}, which DuckLake does not have")
    return {
        "name": column.name,
        "type": type_in(column.type, dialect, column.name),
        "nullable": column.nullable,
        "metadata": {} if column.comment is None else {"comment": column.comment},
        "default": default_in(column.default, dialect),
    }


def default_in(default: str | None, dialect: str) -> str | None:
    """A default of some dialect's SQL in DuckDB's."""
    return None if default is None else transpile(default, dialect, "duckdb")


def options_of(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """DuckLake's options of the table that change: name -> value."""
    changed = {name: after[name] for name in _OPTIONS if name in after and before.get(name) != after[name]}
    if (size := changed.get(TARGET_FILE_SIZE, "")).isdigit():
        changed[TARGET_FILE_SIZE] = f"{size}B"  # DuckLake takes no number without a unit
    return {_OPTIONS[name]: value for name, value in changed.items()}


def properties_of(options: Mapping[str, str]) -> dict[str, str]:
    """The table properties that options stand for."""
    return {name: options[option] for name, option in _OPTIONS.items() if option in options}
