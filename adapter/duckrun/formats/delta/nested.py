"""A field of a struct that is added, goes, or gets another name or type; the struct may lie in a list or a map.

Source: Delta protocol, Column Mapping, Type Widening (the ``fieldPath`` of a type change).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.formats.definitions import refuse_known
from duckrun.formats.delta import types
from duckrun.formats.delta.definition import DeltaDefinition, field_of
from duckrun.formats.delta.properties import TYPE_CHANGES
from duckrun.formats.delta.types import DeltaType
from duckrun.values.tables import AddColumn, ChangeType, DropColumn, InStruct, RenameColumn

Field = dict[str, Any]
_INSIDE = {"array": {"element": "elementType"}, "map": {"key": "keyType", "value": "valueType"}}


def changed_inside(now: DeltaDefinition, asked: InStruct, dialect: str) -> DeltaDefinition:
    """A definition after one change of a field. Raises SchemaMismatch, InvalidConfig, UnsupportedFeature."""
    column = now.column(asked.path[0])
    where = ".".join(asked.path)
    change = asked.change
    if not isinstance(change, AddColumn) and (readers := now.generated_from(column["name"])):
        raise InvalidConfig(
            f"{where}.{change.name} cannot change: {column['name']} is used by {' and by '.join(readers)}"
        )
    if isinstance(change, DropColumn | RenameColumn) and (readers := now.checks_of((*asked.path, change.name))):
        raise InvalidConfig(f"{where}.{change.name} cannot change: it is used by {' and by '.join(readers)}")
    if isinstance(change, DropColumn | RenameColumn) and not now.is_mapped:
        raise UnsupportedFeature(
            f"{where}.{change.name} cannot go or get another name: the files of the table know fields by their names. Let it map them first "
            "(ALTER TABLE … SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')), or write the table anew"
        )

    def at(fields: list[Field]) -> list[Field]:
        return _changed(now, fields, change, where, dialect)

    kind = _within(column["type"], asked.path[1:], at, where)
    return now.with_column(column["name"], type=kind)


def _within(
    kind: DeltaType, path: Sequence[str], change: Callable[[list[Field]], list[Field]], where: str
) -> DeltaType:
    """A type in which the fields of the struct at the end of a path have changed."""
    if isinstance(kind, str):
        raise SchemaMismatch(f"{where} is {types.spelled(kind)}, which has no fields")
    if kind["type"] == "struct":
        if not path:
            return {**kind, "fields": change(list(kind["fields"]))}
        found = _field(kind["fields"], path[0], where)
        inner = _within(found["type"], path[1:], change, where)
        return {**kind, "fields": [{**f, "type": inner} if f is found else f for f in kind["fields"]]}
    sides = _INSIDE[kind["type"]]
    if not path or path[0].lower() not in sides:
        raise SchemaMismatch(f"{where}: what is in {types.spelled(kind)} is called {' and '.join(sides)}")
    side = sides[path[0].lower()]
    return {**kind, side: _within(kind[side], path[1:], change, where)}


def _field(fields: Sequence[Field], name: str, where: str) -> Field:
    for found in fields:
        if found["name"].lower() == name.lower():
            return found
    raise SchemaMismatch(
        f"there is no field {name!r} in {where}; the fields are {', '.join(f['name'] for f in fields)}"
    )


def _changed(
    now: DeltaDefinition,
    fields: list[Field],
    change: AddColumn | DropColumn | RenameColumn | ChangeType,
    where: str,
    dialect: str,
) -> list[Field]:
    names = [f["name"] for f in fields]
    if isinstance(change, AddColumn):
        refuse_known(change.column.name, names)
        if not change.column.nullable:
            raise SchemaMismatch(f"{where}.{change.column.name} is to be NOT NULL, and the rows of the table have none")
        return [*fields, field_of(change.column, dialect)]
    old = _field(fields, change.name, where)
    if isinstance(change, DropColumn):
        if len(fields) == 1:
            raise InvalidConfig(f"{where}.{old['name']} is the last field of its struct")
        return [f for f in fields if f is not old]
    if isinstance(change, RenameColumn):
        refuse_known(change.to, [name for name in names if name != old["name"]])
        return [{**f, "name": change.to} if f is old else f for f in fields]
    kind = types.delta_type(change.type, dialect, f"{where}.{change.name}")
    if kind == old["type"]:
        return fields
    if not types.widens(old["type"], kind):
        raise SchemaMismatch(
            f"{where}.{old['name']} is {types.spelled(old['type'])} and cannot become {types.spelled(kind)}, which does not hold all its "
            f"values; it can become {types.widenings(old['type'])}"
        )
    said = dict(old["metadata"])
    if now.is_widening:
        said[TYPE_CHANGES] = [*said.get(TYPE_CHANGES, ()), {"toType": kind, "fromType": old["type"]}]
    return [{**f, "type": kind, "metadata": said} if f is old else f for f in fields]
