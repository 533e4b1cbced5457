"""A definition after some changes: those that a spec names, or those that follow the rows being written.

Engine-free. Rows are looked at by an engine, which gets from here what must hold of them and how old columns fill new ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.formats.definitions import Alteration, refuse_known
from duckrun.formats.delta import types
from duckrun.formats.delta.definition import (
    CHECK,
    PLAIN,
    DeltaDefinition,
    field_of,
    property_value,
    with_check,
)
from duckrun.formats.delta.protocol import asked_of
from duckrun.formats.delta.types import DeltaType
from duckrun.values.rows import SchemaMode
from duckrun.values.tables import (
    CLUSTERING,
    AddCheck,
    AddColumn,
    AlterSpec,
    Change,
    ChangeType,
    ClusterBy,
    DropCheck,
    DropColumn,
    DropNotNull,
    InStruct,
    PartitionBy,
    RenameColumn,
    SetComment,
    SetDefault,
    SetNotNull,
    SetProperties,
    UnsetProperties,
    sort_order,
)

DEFAULTS = (
    "a default comes to a Delta table when it is made (CREATE TABLE, engine: spark), not by ALTER: say the value in the INSERT; tables of format "
    "ducklake take one at any time"
)


def altered(before: DeltaDefinition, spec: AlterSpec) -> Alteration:
    """A definition after the changes of a spec, in their order. Raises SchemaMismatch, InvalidConfig, UnsupportedFeature."""
    after = before
    columns: dict[str, str | None] = {name: name for name in before.names}
    for change in spec.changes:
        after, columns = _apply(after, columns, change, spec.dialect)
    return Alteration(before, after, columns)


def _apply(
    now: DeltaDefinition, columns: dict[str, str | None], change: Change, dialect: str
) -> tuple[DeltaDefinition, dict[str, str | None]]:
    match change:
        case AddColumn(column):
            refuse_known(column.name, now.names)
            if column.default is not None:
                raise UnsupportedFeature(DEFAULTS)
            return replace(now, fields=(*now.fields, field_of(column, dialect))), {**columns, column.name: None}
        case DropColumn(name):
            return _drop(now, columns, name)
        case RenameColumn(name, to):
            old = now.column(name)
            _refuse_used(now, old["name"], "renamed")
            refuse_known(to, [n for n in now.names if n != old["name"]])
            renamed = {(to if new == old["name"] else new): source for new, source in columns.items()}
            return now.with_column(name, name=to), renamed
        case ChangeType(name, kind):
            return _retype(now, name, types.delta_type(kind, dialect, name)), columns
        case SetNotNull(name):
            return now.with_column(name, nullable=False), columns
        case DropNotNull(name):
            return now.with_column(name, nullable=True), columns
        case AddCheck():
            return with_check(now, change, dialect), columns
        case DropCheck(name, if_exists):
            key = CHECK + name.lower()
            if key not in now.properties and not if_exists:
                known = ", ".join(now.checks) or "none"
                raise InvalidConfig(f"there is no constraint {name}; the constraints are: {known}")
            return _without(now, (key,)), columns
        case ClusterBy():
            raise UnsupportedFeature(CLUSTERING)
        case PartitionBy():
            raise UnsupportedFeature(
                "the partitions of a Delta table are those that it was written with: write it anew, CREATE OR REPLACE TABLE … PARTITIONED BY (…) AS "
                "SELECT * FROM it; tables of format ducklake change theirs"
            )
        case SetDefault():
            raise UnsupportedFeature(DEFAULTS)
        case InStruct(path):
            raise UnsupportedFeature(
                f"a field of column {path[0]} cannot be changed by itself in a Delta table: write the table anew, CREATE OR REPLACE TABLE … AS SELECT, or let "
                "rows bring new fields (schema_mode append_new_columns); tables of format ducklake change theirs"
            )
        case SetProperties(properties):
            features, versions, properties = asked_of(properties)
            now = replace(now, asked=now.asked | features, versions=max(versions, now.versions))
            added = {name: property_value(name, value) for name, value in properties.items()}
            for column_name in sort_order(added):
                now.column(column_name)
            return replace(now, properties={**now.properties, **added}), columns
        case UnsetProperties(names, if_exists):
            for name in names:
                if name.startswith("delta.") and name in now.properties:
                    if name.startswith(CHECK):
                        raise InvalidConfig(f"{name} is a constraint: drop it as one")
                    if name not in PLAIN:
                        property_value(name, "")
            missing = [name for name in names if name not in now.properties]
            if missing and not if_exists:
                raise InvalidConfig(f"there is no table property {', '.join(missing)}")
            return _without(now, names), columns
        case SetComment(comment, None):
            return replace(now, description=comment), columns
        case SetComment(comment, str(name)):
            metadata = {k: v for k, v in now.column(name)["metadata"].items() if k != "comment"}
            return now.with_column(name, metadata=metadata | ({"comment": comment} if comment else {})), columns
    raise InvalidConfig(f"{change!r} is no change of a table")


def _without(now: DeltaDefinition, properties: Iterable[str]) -> DeltaDefinition:
    return replace(now, properties={k: v for k, v in now.properties.items() if k not in set(properties)})


def _refuse_used(now: DeltaDefinition, name: str, done: str) -> None:
    users = now.users_of(name)
    if users:
        raise InvalidConfig(f"column {name!r} cannot be {done}: it is used by {' and by '.join(users)}")


def _drop(
    now: DeltaDefinition, columns: dict[str, str | None], name: str
) -> tuple[DeltaDefinition, dict[str, str | None]]:
    old = now.column(name)
    _refuse_used(now, old["name"], "dropped")
    if len(now.fields) - 1 <= len(now.partition_columns):
        raise SchemaMismatch(f"column {old['name']!r} is the last one that the table is not partitioned by")
    kept = tuple(f for f in now.fields if f is not old)
    return replace(now, fields=kept), {new: source for new, source in columns.items() if new != old["name"]}


def _retype(now: DeltaDefinition, name: str, kind: DeltaType) -> DeltaDefinition:
    old = now.column(name)
    if old["type"] == kind:
        return now
    if not types.widens(old["type"], kind):
        raise SchemaMismatch(
            f"column {old['name']!r} is {types.spelled(old['type'])} and cannot become {types.spelled(kind)}, which "
            f"does not hold all its values; it can become {types.widenings(old['type'])}"
        )
    return now.with_column(name, type=kind)


# -- following the rows that are written


def evolved(before: DeltaDefinition, source: Sequence[Mapping[str, Any]], mode: SchemaMode) -> Alteration:
    """A definition that takes the columns of a source, given as the log would have them.

    ``append_new_columns`` adds the new ones, and new fields of structs; ``sync_all_columns`` also drops those that the source has not, and widens
    those whose type in the source holds more. Raises SchemaMismatch, InvalidConfig for a column that must stay.
    """
    after = before
    columns: dict[str, str | None] = {name: name for name in before.names}
    incoming = {f["name"].lower(): f for f in source}
    grown = set()
    if mode == "sync_all_columns":
        for name in before.names:
            found = incoming.get(name.lower())
            if found is None:
                after, columns = _drop(after, columns, name)
            elif types.widens(before.column(name)["type"], found["type"]):
                after = _retype(after, name, found["type"])
    if mode != "fail":
        for old in after.fields:
            found = incoming.get(old["name"].lower())
            kind = old["type"] if found is None else types.with_new_fields(old["type"], found["type"])
            if kind != old["type"]:
                after = after.with_column(old["name"], type=kind)
                grown.add(old["name"])
        known = {name.lower() for name in before.names}
        for name, found in incoming.items():
            if name not in known:
                added = types.field(found["name"], found["type"])
                after, columns = replace(after, fields=(*after.fields, added)), {**columns, found["name"]: None}
    return Alteration(before, after, columns, frozenset(grown))
