"""Definitions of DuckLake tables from specs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.formats.changes import evolved
from duckrun.formats.definitions import Alteration
from duckrun.formats.ducklake.definition import definition as definitions
from duckrun.formats.ducklake.definition.definition import DuckLakeDefinition
from duckrun.formats.ducklake.definition.partitions import partitions
from duckrun.formats.ducklake.definition.rules import NO_CHECKS, DuckLakeAlteration, DuckLakeRules, altered
from duckrun.formats.ducklake.definition.types import in_spark, refuse_type
from duckrun.formats.format import SpecT
from duckrun.sql.typed import sql_types
from duckrun.values.choices import SchemaMode
from duckrun.values.layout import COMPRESSION, TARGET_FILE_SIZE, Layout
from duckrun.values.partition_values import partition_columns
from duckrun.values.rows import WriteSpec
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.tables import SORT_BY, AlterSpec, CreateSpec


class Defining:
    """Part of DuckLakeFormat that builds definitions from specs, independent of a lake."""

    # -- definitions

    def with_properties(self, spec: SpecT, table: TableRef) -> SpecT:
        if not isinstance(spec, Layout):
            return spec
        if spec.cluster_by:
            raise UnsupportedFeature(
                f"{spec.mode} on table {table}: cluster_by is Delta's liquid clustering; a DuckLake table has sort_by."
            )
        properties = definitions.kept(spec.table_properties)
        if spec.compression is not None:
            properties[COMPRESSION] = spec.compression
        if spec.target_file_size is not None:
            properties[TARGET_FILE_SIZE] = str(spec.target_file_size)
        return replace(spec, table_properties=properties)

    def created(self, spec: CreateSpec, snapshot: Snapshot | None) -> DuckLakeDefinition:
        if spec.checks:
            raise UnsupportedFeature(NO_CHECKS)
        definitions.refuse_names(column.name for column in spec.columns)
        fields = tuple(definitions.field_of(column, spec.dialect) for column in spec.columns)
        return self._defined(spec, fields, None)

    def _defined(
        self, spec: CreateSpec | WriteSpec, fields: tuple[dict[str, Any], ...], before: DuckLakeDefinition | None
    ) -> DuckLakeDefinition:
        """Return columns with the layout and description of a spec, or else of the old table."""
        names = [f["name"] for f in fields]
        if spec.partition_by is None:
            keys = () if before is None else tuple(key for key in before.partition_by if key.column in names)
        else:
            keys = partitions(spec.partition_by, fields)
        properties = dict(before.properties) if before is not None else {}
        properties |= definitions.kept(spec.table_properties)
        if spec.sort_by:
            unknown = [c for c in spec.sort_by if c not in names]
            if unknown:
                raise InvalidConfig(f"sort_by names {', '.join(unknown)}, which is no column")
            if variants := [f["name"] for f in fields if f["name"] in spec.sort_by and f["type"] == "VARIANT"]:
                raise InvalidConfig(f"sort_by names {', '.join(variants)}, which is VARIANT: its values have no order")
            properties[SORT_BY] = json.dumps(list(spec.sort_by))
        description = before.description if before is not None and spec.description is None else spec.description
        return DuckLakeDefinition(fields, keys, properties=properties, description=description)

    def overwritten(
        self,
        spec: WriteSpec,
        fields: Sequence[Mapping[str, Any]],
        partition_by: Sequence[str],
        snapshot: Snapshot | None,
    ) -> DuckLakeDefinition:
        before = None if snapshot is None or spec.redefine else self.definition(snapshot)
        constraints = spec.constraints
        if constraints is not None and constraints.checks:
            raise UnsupportedFeature(NO_CHECKS)
        definitions.refuse_names(f["name"] for f in fields)
        old = {} if before is None else {f["name"]: f for f in before.fields}
        # partitions() checks transforms, such as month(at).
        partition_columns((key for key in spec.partition_by or () if key.isidentifier()), [f["name"] for f in fields])
        fields_after = []
        for f in fields:
            was = old.get(f["name"], {})
            nullable = constraints is not None or was.get("nullable", True)
            metadata = dict(was.get("metadata", {}))
            fields_after.append({**f, "nullable": nullable, "metadata": metadata, "default": was.get("default")})
        definition = self._defined(spec, tuple(fields_after), before).commented(spec.column_comments)
        for name in () if constraints is None else constraints.not_null:
            definition = definition.with_column(name, nullable=False)
        return definition

    def altered(self, snapshot: Snapshot, spec: AlterSpec) -> DuckLakeAlteration:
        return altered(self.definition(snapshot), spec)

    def evolved(self, snapshot: Snapshot, fields: Sequence[Mapping[str, Any]], mode: SchemaMode) -> Alteration:
        return evolved(self.definition(snapshot), list(map(dict, fields)), mode, DuckLakeRules(), DuckLakeAlteration)

    def definition(self, snapshot: Snapshot) -> DuckLakeDefinition:
        definition: DuckLakeDefinition = snapshot.format_state.definition
        return definition

    def fields_of(self, schema: pa.Schema, types: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        types = sql_types(schema) if types is None else types
        for name, kind in types.items():
            refuse_type(name, duckdb.type(kind))
        return [definitions.field(f.name, str(duckdb.type(types[f.name])), f.nullable) for f in schema]

    def computed_columns(self, snapshot: Snapshot) -> set[str]:
        return {f["name"] for f in self.definition(snapshot).fields if f.get("default") is not None}

    def spelled(self, kind: Any) -> str:
        return in_spark(kind)
