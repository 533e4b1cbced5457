"""A definition after some changes: those that a spec names, or those that follow the rows being written.

Engine-free. Rows are looked at by an engine, which gets from here what must hold of them and how old columns fill new ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.formats.definitions import Alteration, refuse_known
from duckrun.formats.delta import clustering, computed, mapping, statistics, types
from duckrun.formats.delta.definition import DeltaDefinition, field_of, numbered, with_check
from duckrun.formats.delta.nested import changed_inside
from duckrun.formats.delta.properties import CHECK, PLAIN, TYPE_CHANGES, property_value
from duckrun.formats.delta.protocol import asked_of
from duckrun.formats.delta.types import DeltaType
from duckrun.sql import char_types
from duckrun.values.rows import SchemaMode
from duckrun.values.tables import (
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


@dataclass(frozen=True)
class DeltaAlteration(Alteration):
    """An alteration of which files with names of their own for the columns see less."""

    before: DeltaDefinition
    after: DeltaDefinition

    @property
    def rewrites(self) -> bool:
        if not self.after.is_mapped and set(self.before.names) - set(self.columns.values()):
            return True
        pairs = [
            (self.before.column(old), self.after.column(new)) for new, old in self.columns.items() if old is not None
        ]
        return any(
            (old["name"] != new["name"] and not self.after.is_mapped)
            or not (
                _keeps_files(self.after, new, old["type"]) or types.spelled(old["type"]) == types.spelled(new["type"])
            )
            for old, new in pairs
            if new["name"] not in self.grown
        )


def altered(before: DeltaDefinition, spec: AlterSpec) -> DeltaAlteration:
    """A definition after the changes of a spec, in their order. Raises SchemaMismatch, InvalidConfig, UnsupportedFeature."""
    after = before
    columns: dict[str, str | None] = {name: name for name in before.names}
    inside = set()
    for change in spec.changes:
        after, columns = _apply(after, columns, change, spec.dialect)
        after = _with_statistics(numbered(after), change)
        if isinstance(change, InStruct) and not (isinstance(change.change, ChangeType) and not after.is_widening):
            inside.add(after.column(change.path[0])["name"])
    return DeltaAlteration(before, after, columns, frozenset(inside))


def _with_statistics(now: DeltaDefinition, change: Change) -> DeltaDefinition:
    """The list of columns with statistics follows a column or field that is renamed or dropped, as Spark has it do."""
    path: tuple[str, ...] = change.path if isinstance(change, InStruct) else ()
    inner = change.change if isinstance(change, InStruct) else change
    named = now.properties.get(statistics.COLUMNS)
    if named is None or not isinstance(inner, RenameColumn | DropColumn):
        return now
    new = inner.to if isinstance(inner, RenameColumn) else None
    listed = statistics.names_after(named, (*path, inner.name), new)
    return replace(now, properties={**now.properties, statistics.COLUMNS: listed})


def _apply(
    now: DeltaDefinition, columns: dict[str, str | None], change: Change, dialect: str
) -> tuple[DeltaDefinition, dict[str, str | None]]:
    match change:
        case AddColumn(column):
            refuse_known(column.name, now.names)
            if column.default is not None:
                raise UnsupportedFeature(
                    f"column {column.name!r} cannot come with a default: the rows that are there would have none (Delta protocol, Default Columns). "
                    "Add the column, then give it a default (ALTER COLUMN … SET DEFAULT)"
                )
            return replace(now, fields=(*now.fields, field_of(column, dialect))), {**columns, column.name: None}
        case DropColumn(name):
            return _drop(now, columns, name)
        case RenameColumn(name, to):
            old = now.column(name)
            _refuse_used(now, old["name"], "renamed", {"the partitioning", "the clustering"} if now.is_mapped else ())
            refuse_known(to, [n for n in now.names if n != old["name"]])
            renamed = {(to if new == old["name"] else new): source for new, source in columns.items()}
            parts = tuple(to if each == old["name"] else each for each in now.partition_columns)
            clustered = now.cluster_by and tuple((to, *p[1:]) if p[0] == old["name"] else p for p in now.cluster_by)
            renaming = replace(now.with_column(name, name=to), partition_columns=parts, cluster_by=clustered)
            return renaming, renamed
        case ChangeType(name, kind):
            return _relimited(_retype(now, name, types.delta_type(kind, dialect, name)), name, kind, dialect), columns
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
        case ClusterBy(cluster_by):
            return replace(now, cluster_by=clustering.chosen(now, cluster_by)), columns
        case PartitionBy():
            raise UnsupportedFeature(
                "the partitions of a Delta table are those that it was written with: write it anew, CREATE OR REPLACE TABLE … PARTITIONED BY (…) AS "
                "SELECT * FROM it; tables of format ducklake change theirs"
            )
        case SetDefault(name, default):
            return computed.with_default(now, name, default, dialect), columns
        case InStruct():
            return changed_inside(now, change, dialect), columns
        case SetProperties(properties):
            features, versions, properties = asked_of(properties)
            now = replace(now, asked=now.asked | features, versions=max(versions, now.versions))
            new = {name: value for name, value in properties.items() if now.properties.get(name) != str(value)}
            added = {name: property_value(name, value) for name, value in new.items()}
            if mapping.MODE in added:
                now = mapping.turned_on(now, added[mapping.MODE].lower())
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
                    if name == mapping.MODE:
                        mapping.turned_on(now, "none")
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


def _refuse_used(now: DeltaDefinition, name: str, done: str, but: Collection[str] = ()) -> None:
    users = [user for user in now.users_of(name) if user not in but]
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
    if readers := now.generated_from(old["name"]):
        raise InvalidConfig(f"column {old['name']!r} cannot get another type: it is used by {' and by '.join(readers)}")
    if not types.widens(old["type"], kind):
        raise SchemaMismatch(
            f"column {old['name']!r} is {types.spelled(old['type'])} and cannot become {types.spelled(kind)}, which "
            f"does not hold all its values; it can become {types.widenings(old['type'])}"
        )
    if not _keeps_files(now, old, kind):
        return now.with_column(name, type=kind)
    changed = [*old["metadata"].get(TYPE_CHANGES, ()), {"toType": kind, "fromType": old["type"]}]
    return now.with_column(name, type=kind, metadata={**old["metadata"], TYPE_CHANGES: changed})


def _relimited(now: DeltaDefinition, name: str, kind: str, dialect: str) -> DeltaDefinition:
    """A column of CHAR(n) or VARCHAR(n) that gets another limit, or none. Raises SchemaMismatch for one that values may break."""
    old, limits = now.column(name), char_types.declared(kind, dialect)
    before = old["metadata"].get(char_types.TYPE)
    if limits is not None and limits != before and not char_types.holds_all(before, limits):
        raise SchemaMismatch(
            f"column {old['name']!r} is {before or types.spelled(old['type'])} and cannot become {limits}, which does not hold all its values"
        )
    metadata = {key: value for key, value in old["metadata"].items() if key != char_types.TYPE}
    return now.with_column(name, metadata=metadata if limits is None else {**metadata, char_types.TYPE: limits})


def _keeps_files(table: DeltaDefinition, column: Mapping[str, Any], other: DeltaType) -> bool:
    """True if the files of a table stay where a column changes between its type and another one.

    The log has partition values as texts, and readers that parse a date as a timestamp, or a decimal of another scale, fail.
    """
    pair = (column["type"], other)
    same_text = all(isinstance(kind, str) and (types.is_integer(kind) or kind == "double") for kind in pair)
    return table.is_widening and (column["name"] not in table.partition_columns or same_text)


# -- following the rows that are written


def evolved(before: DeltaDefinition, source: Sequence[Mapping[str, Any]], mode: SchemaMode) -> DeltaAlteration:
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
            if found is None and computed.fills(before.column(name)):
                continue
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
    return DeltaAlteration(before, mapping.assigned(after), columns, frozenset(grown))
