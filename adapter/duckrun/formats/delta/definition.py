"""What a Delta table is apart from its rows: columns, partitions, properties, constraints.

Source: Delta protocol, Change Metadata.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

import pyarrow as pa
from deltalake import Schema

from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.formats.definitions import OfColumns, refuse_known
from duckrun.formats.delta import clustering, computed, mapping, row_tracking, types
from duckrun.formats.delta.properties import (
    CHECK,
    CHECKPOINTS,
    FEATURES_OF,
    GIVEN,
    VECTORS,
    WIDENING,
    WORDS_OF,
    canonical,
    checks_of,
    property_value,
    with_canonical_names,
)
from duckrun.formats.delta.protocol import FEATURE, asked_of
from duckrun.formats.format import SpecT
from duckrun.sql import char_types
from duckrun.sql.char_types import is_limited
from duckrun.sql.names import columns_of, paths_of, transpile
from duckrun.sql.scalar import why_not_in_definition
from duckrun.values.columns import is_required
from duckrun.values.layout import COMPRESSION, Layout
from duckrun.values.partition_values import refuse_partition_type
from duckrun.values.rows import DeleteInsertSpec, MergeSpec, TableConstraints, WriteSpec
from duckrun.values.snapshot import TableRef
from duckrun.values.tables import SORT_BY, AddCheck, AlterSpec, ColumnSpec, CreateSpec, SetProperties, UnsetProperties


@dataclass(frozen=True)
class DeltaDefinition(OfColumns):
    """The ``metaData`` action of a table, as a value. ``fields`` are columns as the log's schema has them."""

    fields: tuple[dict[str, Any], ...]
    partition_columns: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    name: str | None = None
    created_time: int | None = None
    asked: frozenset[str] = frozenset()
    """Table features beside those that it needs."""
    versions: tuple[int, int] = (1, 1)
    """The least version of the protocol for readers and for writers."""
    cluster_by: tuple[tuple[str, ...], ...] | None = None
    """The columns of liquid clustering, each the names on the way to it; None for a table without."""

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow form of the columns."""
        return pa.schema(Schema.from_json(self.schema_json).to_arrow())

    @property
    def sql_types(self) -> None:
        """The schema says them."""

    @property
    def checks(self) -> dict[str, str]:
        """The CHECK constraints: name -> Spark SQL."""
        return checks_of(self.properties)

    def action(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self.schema_json,
            "partitionColumns": list(self.partition_columns),
            "configuration": dict(self.properties),
            "createdTime": self.created_time or int(time.time() * 1000),
        }

    @property
    def variants(self) -> frozenset[str]:
        """The columns of VARIANT. Source: Delta protocol, Variant Data Type."""
        return frozenset(f["name"] for f in self.fields if f["type"] == "variant")

    @property
    def variants_inside(self) -> frozenset[str]:
        """The columns that have VARIANT inside of a list, a map or a struct."""
        return frozenset(f["name"] for f in self.fields if types.holds(f["type"], "variant")) - self.variants

    @property
    def is_mapped(self) -> bool:
        """True if the files have names of their own for the columns."""
        return mapping.is_mapped(self.properties)

    @property
    def is_widening(self) -> bool:
        """True if a column whose type gets wider leaves the files as they are. Source: Delta protocol, Type Widening."""
        return self.properties.get(WIDENING, "").lower() == "true"

    def features(self) -> set[str]:
        """The table features without which this definition would mean something else."""
        needed = {
            name
            for key, names in FEATURES_OF.items()
            if self.properties.get(key, "").lower() == "true"
            for name in names
        }
        if self.is_mapped:
            needed.add("columnMapping")
        needed |= computed.features(self.fields)
        if self.cluster_by is not None:
            needed |= clustering.FEATURES
        if self.properties.get(CHECKPOINTS, "").lower() == "v2":
            needed.add("v2Checkpoint")
        if self.checks:
            needed.add("checkConstraints")
        if any(not f["nullable"] or types.is_required(f["type"]) for f in self.fields):
            needed.add("invariants")
        for kind, feature in (("timestamp_ntz", "timestampNtz"), ("variant", "variantType")):
            if any(types.holds(f["type"], kind) for f in self.fields):
                needed.add(feature)
        return needed | self.asked

    def in_place_of(self, other: DeltaDefinition, *, keep: bool) -> Self:
        """This definition for the table that another one was of; with ``keep`` what only that one says stays."""
        properties = {**other.properties, **self.properties} if keep else self.properties
        description = self.description if self.description is not None or not keep else other.description
        return replace(
            self,
            id=other.id,
            name=other.name,
            created_time=other.created_time,
            properties=properties,
            description=description,
        )

    # -- columns

    def users_of(self, name: str) -> list[str]:
        """What would not be there without a column: partitions, the sort order, constraints."""
        name = name.lower()
        clustered = any(name == path[0].lower() for path in self.cluster_by or ())
        users = ["the clustering"] if clustered else []
        users += ["the partitioning"] if name in (c.lower() for c in self.partition_columns) else []
        users += ["the sort order"] if name in (c.lower() for c in self.sort_by) else []
        return users + self.checks_of((name,)) + self.generated_from(name)

    def checks_of(self, path: Sequence[str]) -> list[str]:
        """The constraints that read a column, or a field by its path, each with its condition."""
        wanted = [name.lower() for name in path]
        return [
            f"the constraint {check} ({condition})"
            for check, condition in self.checks.items()
            if any(
                all(a == b.lower() for a, b in zip(wanted, names, strict=False))
                for names in paths_of(condition, "spark")
            )
        ]

    def generated_from(self, name: str) -> list[str]:
        """The generated columns whose values are computed from a column, each with its expression."""
        return [
            f"the generated column {field['name']} ({expression})"
            for field in self.fields
            if (expression := field["metadata"].get(computed.GENERATED)) is not None
            and name.lower() in computed.columns_read(expression)
        ]


# -- making a table


def with_properties(spec: SpecT, table: TableRef) -> SpecT:
    """The spec with the properties that its own words ask of a table that it makes. Raises InvalidConfig where its
    ``table_properties`` say otherwise.
    """
    try:
        spec = _with_canonical_names(spec)
    except InvalidConfig as error:
        raise InvalidConfig(
            f"{getattr(spec, 'mode', 'write')} on table {table}: {error} Nothing was written."
        ) from error
    if not isinstance(spec, WriteSpec | MergeSpec | DeleteInsertSpec | CreateSpec):
        return spec
    transforms = [key for key in spec.partition_by or () if "(" in key]  # no name of Delta's has a bracket
    if transforms:
        raise UnsupportedFeature(
            f"{spec.mode} on table {table}: {', '.join(transforms)} is a partition transform, which tables of format ducklake have and Delta's have not: add "
            "a column with that value, in the SELECT, and partition by it. Nothing was written."
        )
    asked = {}
    if spec.merge_mode == "deletion_vectors":
        asked["merge_mode"] = VECTORS, "true"
    if spec.compression is not None:
        asked["compression"] = COMPRESSION, spec.compression
    for word, (name, value) in asked.items():
        given = str(spec.table_properties.get(name, value))
        if given.lower() != value:
            raise InvalidConfig(
                f"{spec.mode} on table {table}: {word} is {getattr(spec, word)}, and table_properties say {name} = {given}. "
                "Nothing was written; leave one of them out."
            )
    return replace(spec, table_properties={**spec.table_properties, **dict(asked.values())}) if asked else spec


def _with_canonical_names(spec: SpecT) -> SpecT:
    """The spec with Delta's spelling of the table properties that it names."""
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
    """The definition that a CreateSpec asks for. Raises SchemaMismatch, InvalidConfig, UnsupportedFeature."""
    fields: list[dict[str, Any]] = []
    for column in spec.columns:
        refuse_known(column.name, [f["name"] for f in fields])
        fields.append(field_of(column, spec.dialect))
    made, partition_by = DeltaDefinition(tuple(fields)), spec.partition_by or ()
    made = computed.with_computed(made, spec.columns, spec.dialect)
    for what, columns in (("partition_by", partition_by), ("sort_by", spec.sort_by)):
        unknown = [c for c in columns if c not in made.names]
        if unknown:
            raise SchemaMismatch(f"{what} names {', '.join(unknown)}; the columns are {', '.join(made.names)}")
    for name in partition_by:
        refuse_partition_type(name, types.spelled(next(f["type"] for f in fields if f["name"] == name)))
    if len(set(partition_by)) == len(fields):
        raise SchemaMismatch("every column is a partition column; a table needs one that it is not partitioned by")
    made = _with_properties(made, spec.table_properties)
    if spec.sort_by:
        made = replace(
            made, properties={**made.properties, SORT_BY: json.dumps(list(spec.sort_by), ensure_ascii=False)}
        )
    made = replace(made, partition_columns=partition_by, description=spec.description)
    for name, condition in spec.checks.items():
        made = with_check(made, AddCheck(name, condition), spec.dialect)
    return numbered(_clustered(made, spec))


def _clustered(made: DeltaDefinition, spec: Layout) -> DeltaDefinition:
    return made if not spec.cluster_by else replace(made, cluster_by=clustering.chosen(made, spec.cluster_by))


def _with_properties(
    made: DeltaDefinition, asked: Mapping[str, Any], present: Mapping[str, str] = MappingProxyType({})
) -> DeltaDefinition:
    """A definition with the properties that a spec names, and the features that some of them ask for.

    Those that a table has already, ``present``, are as they are: other writers may have set what no commit of ours sets.
    """
    asked = with_canonical_names(asked)
    new = {name: value for name, value in asked.items() if present.get(name) != str(value)}
    features, versions, rest = asked_of({name: str(value) for name, value in new.items()})
    properties = {name: property_value(name, new[name]) for name in rest}
    return replace(made, properties=properties, asked=features, versions=versions)


def numbered(made: DeltaDefinition) -> DeltaDefinition:
    """A definition with the names and numbers that its files are to have, where it asks for any that it lacks."""
    return row_tracking.assigned(mapping.assigned(made))


def overwritten(
    spec: WriteSpec, fields: Iterable[dict[str, Any]], partition_by: tuple[str, ...], before: DeltaDefinition | None
) -> DeltaDefinition:
    """The definition of a table whose rows are all written anew. Raises InvalidConfig, SchemaMismatch, UnsupportedFeature."""
    made = DeltaDefinition(tuple(fields), partition_by, description=spec.description)
    present = {} if before is None or spec.redefine else before.properties
    made = _commented(_with_properties(made, spec.table_properties, present), spec.column_comments)
    if before is not None:
        made = made.in_place_of(before, keep=not spec.redefine)
        if not spec.redefine:
            made = computed.carried(made, before)
            made = _as_before(made, before, None if spec.constraints is None else _given(before.properties))
    made = numbered(made if before is None else mapping.carried(made, before))
    made = _clustered_anew(made, spec, before)
    if not spec.constraints:
        return made
    for name in spec.constraints.not_null:
        made = made.with_column(name, nullable=False)
    for name, condition in spec.constraints.checks.items():
        made = with_check(made, AddCheck(name, condition), spec.dialect)
    names = {"not_null": list(spec.constraints.not_null), "checks": list(spec.constraints.checks)}
    return replace(made, properties={**made.properties, GIVEN: json.dumps(names, ensure_ascii=False)})


def _clustered_anew(made: DeltaDefinition, spec: WriteSpec, before: DeltaDefinition | None) -> DeltaDefinition:
    """What a table is clustered by once it is overwritten: what the write says, else what it was."""
    if before is None or before.cluster_by is None:
        return _clustered(made, spec)
    if spec.cluster_by is not None or spec.redefine or spec.partition_by:
        return replace(made, cluster_by=clustering.chosen(made, spec.cluster_by or ()))
    return replace(made, cluster_by=clustering.chosen(made, [".".join(path) for path in before.cluster_by]))


def _commented(made: DeltaDefinition, comments: Mapping[str, str]) -> DeltaDefinition:
    names = {field["name"].lower(): field["name"] for field in made.fields}
    for name, comment in comments.items():
        if name.lower() not in names:
            raise SchemaMismatch(f"a comment is for the column {name!r}, which the data does not have")
        column = made.column(names[name.lower()])
        made = made.with_column(column["name"], metadata={**column["metadata"], "comment": comment})
    return made


def constrained_anew(properties: Mapping[str, str], schema: pa.Schema, spec: WriteSpec) -> bool:
    """True if only a definition of ours keeps or changes the constraints of a table that is overwritten: other writers
    take the columns of the rows, which may all be NULL.
    """
    return any(is_required(f) or is_limited(f) for f in schema) or (
        spec.constraints is not None and GIVEN in properties
    )


def _given(properties: Mapping[str, str]) -> TableConstraints:
    found = json.loads(properties.get(GIVEN, "{}"))
    return TableConstraints(tuple(found.get("not_null", ())), dict.fromkeys(found.get("checks", ()), ""))


def _as_before(made: DeltaDefinition, before: DeltaDefinition, less: TableConstraints | None) -> DeltaDefinition:
    """The comments, the NOT NULL and the limits (CHAR, VARCHAR) of the columns that were there already, and all constraints less some."""
    gone = less or TableConstraints()
    given = {name.lower() for name in gone.not_null}
    for old in before.fields:
        same = next((f for f in made.fields if f["name"].lower() == old["name"].lower()), None)
        if same is None:
            continue
        stays = (
            ("comment", char_types.TYPE) if types.spelled(same["type"]) == types.spelled(old["type"]) else ("comment",)
        )
        before_it = {k: v for k, v in old["metadata"].items() if k in stays}
        nullable = old["nullable"] or old["name"].lower() in given
        kind = types.required_as(same["type"], old["type"])
        made = made.with_column(same["name"], nullable=nullable, metadata={**before_it, **same["metadata"]}, type=kind)
    dropped = {GIVEN, *(CHECK + name.lower() for name in gone.checks)} if less is not None else set()
    return replace(made, properties={k: v for k, v in made.properties.items() if k not in dropped})


def field_of(column: ColumnSpec, dialect: str) -> dict[str, Any]:
    kind = types.delta_type(column.type, dialect, column.name)
    made = types.field(column.name, kind, column.nullable, column.comment)
    limits = char_types.declared(column.type, dialect)
    return made if limits is None else {**made, "metadata": {**made["metadata"], char_types.TYPE: limits}}


def asked_features(properties: Mapping[str, Any]) -> list[str]:
    """The table features that properties of a new table turn on, in words, each with its property."""
    return [
        f"{WORDS_OF.get(name, 'a table feature')} ({name})"
        for name, value in properties.items()
        if name.startswith(FEATURE) or DeltaDefinition((), properties={name: str(value)}).features()
    ]


def with_check(now: DeltaDefinition, change: AddCheck, dialect: str) -> DeltaDefinition:
    key = CHECK + change.name.lower()
    if not change.name or key in now.properties:
        raise InvalidConfig(
            f"there is a constraint {change.name} already" if change.name else "a constraint has no name"
        )
    condition = transpile(change.expression, dialect, "spark")
    why = why_not_in_definition(condition, [field["name"] for field in now.fields])
    if why is not None:
        raise InvalidConfig(
            f"the constraint {change.name} ({change.expression}) has {why}: a CHECK is over the columns of one row, by their bare names, and "
            "deterministic scalar functions of them"
        )
    for _, column in sorted(columns_of(condition, "spark")):
        now.column(column)
    return replace(now, properties={**now.properties, key: condition})


def fields_of(schema: pa.Schema, types: Mapping[str, str] = MappingProxyType({})) -> list[dict[str, Any]]:
    """Arrow columns as the log would have them; ``types`` are their types in DuckDB's SQL, where Arrow has none for one."""
    fields = json.loads(Schema.from_arrow(schema).to_json())["fields"]
    return [{**f, "type": "variant"} if types.get(f["name"]) == "VARIANT" else f for f in fields]
