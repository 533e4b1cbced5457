"""Definitions of tables that a spec creates or overwrites."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.formats.definitions import refuse_known
from duckrun.formats.delta.definition import column_ids, expressions, types
from duckrun.formats.delta.definition.definition import DeltaDefinition
from duckrun.formats.delta.definition.properties import (
    CHECK,
    GIVEN,
    VECTORS,
    WORDS_OF,
    canonical,
    property_value,
    with_canonical_names,
)
from duckrun.formats.delta.definition.protocol import FEATURE, asked_of
from duckrun.formats.format import SpecT
from duckrun.formats.nested import part_of
from duckrun.sql import char_types
from duckrun.values.layout import COMPRESSION, Layout
from duckrun.values.partition_values import refuse_partition_type
from duckrun.values.rows import DeleteInsertSpec, MergeSpec, TableConstraints, WriteSpec
from duckrun.values.snapshot import TableRef
from duckrun.values.tables import SORT_BY, AddCheck, AlterSpec, CreateSpec, SetProperties, UnsetProperties


def with_properties(spec: SpecT, table: TableRef) -> SpecT:
    """Return the spec with the properties that its other options imply for a new table.

    Raises:
        InvalidConfig: ``table_properties`` contradict such an option.
        UnsupportedFeature: The spec partitions by a transform.
    """
    try:
        spec = _with_canonical_names(spec)
    except InvalidConfig as error:
        raise InvalidConfig(f"{getattr(spec, 'mode', 'write')} on table {table}: {error}") from error
    if not isinstance(spec, WriteSpec | MergeSpec | DeleteInsertSpec | CreateSpec):
        return spec
    transforms = [key for key in spec.partition_by or () if "(" in key]  # no column name of Delta has a bracket
    if transforms:
        raise UnsupportedFeature(
            f"{spec.mode} on table {table}: {', '.join(transforms)} is a partition transform, which tables of "
            "format ducklake have and Delta's have not: add a column with that value, in the SELECT, and "
            "partition by it"
        )
    implied = {}
    if spec.merge_mode == "deletion_vectors":
        implied["merge_mode"] = VECTORS, "true"
    if spec.compression is not None:
        implied["compression"] = COMPRESSION, spec.compression
    for word, (name, value) in implied.items():
        stated = str(spec.table_properties.get(name, value))
        if stated.lower() != value:
            raise InvalidConfig(
                f"{spec.mode} on table {table}: {word} is {getattr(spec, word)}, and table_properties say {name} "
                f"= {stated}",
                remedy="leave one of them out",
            )
    return replace(spec, table_properties={**spec.table_properties, **dict(implied.values())}) if implied else spec


def _with_canonical_names(spec: SpecT) -> SpecT:
    """Return the spec with Delta's spelling of its table properties."""
    if isinstance(spec, Layout):
        return replace(spec, table_properties=with_canonical_names(spec.table_properties))
    if not isinstance(spec, AlterSpec):
        return spec
    changes = []
    for change in spec.changes:
        if isinstance(change, SetProperties):
            change = SetProperties(with_canonical_names(change.properties))
        elif isinstance(change, UnsetProperties):
            change = replace(change, names=tuple(dict.fromkeys(map(canonical, change.names))))
        changes.append(change)
    return replace(spec, changes=tuple(changes))


def created(spec: CreateSpec) -> DeltaDefinition:
    """Return the definition of the table that a CreateSpec describes.

    Raises:
        SchemaMismatch: A column is missing or of the wrong type, or all columns are partition
            columns.
        InvalidConfig: A property, constraint or expression is invalid.
        UnsupportedFeature: The table needs a feature that is not supported.
    """
    fields: list[dict[str, Any]] = []
    for column in spec.columns:
        refuse_known(column.name, [f["name"] for f in fields])
        fields.append(types.stored(types.opened_field(column, spec.dialect)))
    definition, partition_by = DeltaDefinition(tuple(fields)), spec.partition_by or ()
    definition = expressions.with_computed(definition, spec.columns, spec.dialect)
    for what, columns in (("partition_by", partition_by), ("sort_by", spec.sort_by)):
        unknown = [c for c in columns if c not in definition.names]
        if unknown:
            raise SchemaMismatch(f"{what} names {', '.join(unknown)}; the columns are {', '.join(definition.names)}")
    for name in partition_by:
        refuse_partition_type(name, types.spelled(definition.column(name)["type"]))
    # Data files do not hold partition columns, and a Parquet file has at least one column.
    if len(set(partition_by)) == len(fields):
        raise SchemaMismatch("every column is a partition column; a table needs one that it is not partitioned by")
    definition = _with_properties(definition, spec.table_properties)
    order = {SORT_BY: json.dumps(list(spec.sort_by), ensure_ascii=False)} if spec.sort_by else {}
    properties = {**definition.properties, **order}
    definition = replace(
        definition, partition_columns=partition_by, description=spec.description, properties=properties
    )
    for name, condition in spec.checks.items():
        definition = expressions.with_check(definition, AddCheck(name, condition), spec.dialect)
    return column_ids.numbered(definition.clustered(spec.cluster_by) if spec.cluster_by else definition)


def _with_properties(
    definition: DeltaDefinition, requested: Mapping[str, Any], present: Mapping[str, str] = MappingProxyType({})
) -> DeltaDefinition:
    """Return a definition with a spec's properties and the features that some of them request.

    Args:
        present: Properties of the existing table. They stay unchanged, since other writers may have
            set properties that Duckrun never sets.
    """
    requested = with_canonical_names(requested)
    # A value that the table has already needs no check: Spark may set properties that are refused
    # here.
    new = {name: value for name, value in requested.items() if present.get(name) != str(value)}
    features, versions, rest = asked_of({name: str(value) for name, value in new.items()})
    properties = {name: property_value(name, new[name]) for name in rest}
    return replace(definition, properties=properties, requested=features, versions=versions)


def overwritten(
    spec: WriteSpec, fields: Iterable[dict[str, Any]], partition_by: tuple[str, ...], before: DeltaDefinition | None
) -> DeltaDefinition:
    """Return the definition of a table whose rows are all rewritten.

    Raises:
        InvalidConfig: A property or constraint is invalid.
        SchemaMismatch: A named column is missing.
        UnsupportedFeature: The table needs a feature that is not supported.
    """
    definition = DeltaDefinition(tuple(fields), partition_by, description=spec.description)
    present = {} if before is None or spec.redefine else before.properties
    definition = _with_properties(definition, spec.table_properties, present).commented(spec.column_comments)
    if before is not None:
        definition = definition.in_place_of(before, keep=not spec.redefine)
        if not spec.redefine:
            definition = expressions.carried(definition, before)
            definition = _as_before(definition, before, None if spec.constraints is None else _given(before.properties))
    definition = column_ids.numbered(definition if before is None else column_ids.carried(definition, before))
    definition = _clustered_anew(definition, spec, before)
    if not spec.constraints:
        return definition
    for name in spec.constraints.not_null:
        definition = definition.with_column(name, nullable=False)
    for name, condition in spec.constraints.checks.items():
        definition = expressions.with_check(definition, AddCheck(name, condition), spec.dialect)
    names = {"not_null": list(spec.constraints.not_null), "checks": list(spec.constraints.checks)}
    return replace(definition, properties={**definition.properties, GIVEN: json.dumps(names, ensure_ascii=False)})


def _clustered_anew(definition: DeltaDefinition, spec: WriteSpec, before: DeltaDefinition | None) -> DeltaDefinition:
    """Return the definition with the clustering of the write, or else that of the old table."""
    if before is None or before.cluster_by is None:
        return definition.clustered(spec.cluster_by) if spec.cluster_by else definition
    if spec.cluster_by is not None or spec.redefine or spec.partition_by:
        return definition.clustered(spec.cluster_by or ())
    return definition.clustered([".".join(path) for path in before.cluster_by])


def _given(properties: Mapping[str, str]) -> TableConstraints:
    names = json.loads(properties.get(GIVEN, "{}"))
    return TableConstraints(tuple(names.get("not_null", ())), dict.fromkeys(names.get("checks", ()), ""))


def _as_before(definition: DeltaDefinition, before: DeltaDefinition, less: TableConstraints | None) -> DeltaDefinition:
    """Return the definition with the old columns' comments, NOT NULL and CHAR or VARCHAR limits.

    It also keeps all old constraints except those in ``less``.
    """
    gone = less or TableConstraints()
    no_longer_required = {name.lower() for name in gone.not_null}
    for old in before.fields:
        same = part_of(definition.fields, old["name"])
        if same is None:
            continue
        stays = (
            ("comment", char_types.TYPE) if types.spelled(same["type"]) == types.spelled(old["type"]) else ("comment",)
        )
        before_it = {k: v for k, v in old["metadata"].items() if k in stays}
        nullable = old["nullable"] or old["name"].lower() in no_longer_required
        kind = types.required_as(same["type"], old["type"])
        definition = definition.with_column(
            same["name"], nullable=nullable, metadata={**before_it, **same["metadata"]}, type=kind
        )
    dropped = {GIVEN, *(CHECK + name.lower() for name in gone.checks)} if less is not None else set()
    return replace(definition, properties={k: v for k, v in definition.properties.items() if k not in dropped})


def asked_features(properties: Mapping[str, Any]) -> list[str]:
    """Return the table features that properties of a new table enable, for a message."""
    return [
        f"{WORDS_OF.get(name, 'a table feature')} ({name})"
        for name, value in properties.items()
        if name.startswith(FEATURE) or DeltaDefinition((), properties={name: str(value)}).features()
    ]
