"""Fields of structs, also of structs in lists and maps: a type with one of them added, dropped, renamed or widened.

A path names the column and what is inside it: the fields of a struct by their names, the element of a list ``element``, the two sides of
a map ``key`` and ``value``. Source: the DuckLake specification 1.0, ducklake_column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import duckdb

from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.formats.definitions import refuse_known
from duckrun.formats.ducklake.types import refuse_narrowing, type_in
from duckrun.sql.names import quote_identifier
from duckrun.values.tables import AddColumn, ChangeType, DropColumn, InStruct, RenameColumn

Fields = list[tuple[str, str]]
"""The names and types of a struct's fields, in their order."""


def with_field_changed(column: str, kind: str, change: InStruct, dialect: str) -> tuple[str, str | None]:
    """The type of a column after a change of a field in it, and the DDL behind ALTER TABLE that names the field; None for that where the
    column as a whole gets the type. Raises SchemaMismatch, InvalidConfig, UnsupportedFeature.
    """
    place = ".".join((column, *change.path[1:]))
    spelled: list[str] = [column]

    def edited(fields: Fields) -> Fields:
        return _edited(fields, place, change, dialect)

    made = str(duckdb.type(_inside(duckdb.type(kind), change.path[1:], spelled, edited)))
    path = quote_identifier(*spelled)
    match change.change:
        case AddColumn(field):
            return made, f"ADD COLUMN {path}.{quote_identifier(field.name)} {type_in(field.type, dialect, place)}"
        case DropColumn(name):
            return made, f"DROP COLUMN {path}.{quote_identifier(name)}"
        case RenameColumn(name, to):
            return made, f"RENAME COLUMN {path}.{quote_identifier(name)} TO {quote_identifier(to)}"
        case ChangeType():
            return made, None


def _inside(kind: Any, path: Sequence[str], spelled: list[str], edit: Callable[[Fields], Fields]) -> str:
    """A type whose struct at a path has other fields; ``spelled`` gets the path as the type spells it."""
    if not path and kind.id == "struct":
        fields = edit([(name, str(inner)) for name, inner in kind.children])
        return _struct(fields)
    parts = {"list": ("element",), "map": ("key", "value")}.get(kind.id)
    if kind.id != "struct" and parts is None:
        raise SchemaMismatch(f"{'.'.join(spelled)} is {kind}, which has no fields")
    if not path:
        assert parts is not None, "a struct was edited"
        raise SchemaMismatch(
            f"{'.'.join(spelled)} is a {kind.id}, which has no fields; those inside are named by {'.'.join((*spelled, parts[-1]))}"
        )
    names = parts or tuple(name for name, _ in kind.children)
    found = next((at for at, name in enumerate(names) if name.lower() == path[0].lower()), None)
    if found is None:
        raise SchemaMismatch(f"there is no {'.'.join((*spelled, path[0]))}; {'.'.join(spelled)} has {', '.join(names)}")
    spelled.append(names[found])
    inner = [str(child) for _, child in kind.children]
    inner[found] = _inside(kind.children[found][1], path[1:], spelled, edit)
    if kind.id == "list":
        return f"{inner[0]}[]"
    return f"MAP({inner[0]}, {inner[1]})" if kind.id == "map" else _struct(list(zip(names, inner, strict=True)))


def _struct(fields: Fields) -> str:
    return f"STRUCT({', '.join(f'{quote_identifier(name)} {kind}' for name, kind in fields)})"


def _edited(fields: Fields, place: str, change: InStruct, dialect: str) -> Fields:
    names = [name for name, _ in fields]

    def at(name: str) -> int:
        found = next((i for i, each in enumerate(names) if each.lower() == name.lower()), None)
        if found is None:
            raise SchemaMismatch(f"there is no field {place}.{name}; {place} has {', '.join(names)}")
        return found

    match change.change:
        case AddColumn(field):
            if field.default is not None or not field.nullable or field.comment is not None:
                raise UnsupportedFeature(
                    f"field {place}.{field.name} cannot have a default, NOT NULL or a comment: DuckLake has them of columns alone; leave it out"
                )
            refuse_known(field.name, names)
            return [*fields, (field.name, type_in(field.type, dialect, f"{place}.{field.name}"))]
        case DropColumn(name):
            gone = at(name)
            if len(fields) == 1:  # DuckLake drops it, and no table of the lake can be read any more (duckdb 1.5.5)
                raise InvalidConfig(
                    f"field {place}.{name} cannot go: it is the only one; drop the column, or add another field first"
                )
            return [field for i, field in enumerate(fields) if i != gone]
        case RenameColumn(name, to):
            old = at(name)
            refuse_known(to, [each for i, each in enumerate(names) if i != old])
            return [(to if i == old else each, kind) for i, (each, kind) in enumerate(fields)]
        case ChangeType(name, kind):
            old = at(name)
            new = type_in(kind, dialect, f"{place}.{name}")
            refuse_narrowing(f"{place}.{names[old]}", fields[old][1], new)
            return [(each, new if i == old else was) for i, (each, was) in enumerate(fields)]
