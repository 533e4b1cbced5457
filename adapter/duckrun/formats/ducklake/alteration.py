"""A DuckLake table's definition after some changes: those that a spec names, or those that follow the rows being written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.formats.definitions import Alteration, refuse_known
from duckrun.formats.ducklake.definition import DuckLakeDefinition, field_of, kept, refuse_names
from duckrun.formats.ducklake.types import type_in, widens
from duckrun.values.rows import SchemaMode
from duckrun.values.tables import (
    SORT_BY,
    AddCheck,
    AddColumn,
    AlterSpec,
    ChangeType,
    ClusterBy,
    DropCheck,
    DropColumn,
    DropNotNull,
    RenameColumn,
    SetComment,
    SetNotNull,
    SetProperties,
    UnsetProperties,
)


@dataclass(frozen=True)
class DuckLakeAlteration(Alteration):
    """An alteration that no data file is written anew for; ``renames`` are (old, new) in their order."""

    renames: tuple[tuple[str, str], ...] = ()

    @property
    def rewrites(self) -> bool:
        return False

    def tests(self) -> list[tuple[str, str]]:
        """DuckLake tests the rows itself."""
        return []


def altered(before: DuckLakeDefinition, spec: AlterSpec) -> DuckLakeAlteration:
    """The definition after some changes, in their order. Raises SchemaMismatch, InvalidConfig, UnsupportedFeature."""
    now, renames = before, []
    columns: dict[str, str | None] = {name: name for name in before.names}
    for change in spec.changes:
        match change:
            case AddColumn(column):
                refuse_known(column.name, now.names)
                if not column.nullable and column.default is None:
                    raise SchemaMismatch(
                        f"column {column.name} is to be NOT NULL, and rows that are there would have a NULL in it; give it a default, or add it "
                        "first and set NOT NULL once it is filled"
                    )
                refuse_names([column.name])
                now = replace(now, fields=(*now.fields, field_of(column, spec.dialect)))
                columns[column.name] = None
            case DropColumn(name):
                found = now.column(name)
                if users := now.users_of(name):
                    raise InvalidConfig(f"column {found['name']} cannot go: {' and '.join(users)} needs it")
                if len(now.fields) == 1:
                    raise InvalidConfig(f"column {found['name']} cannot go: it is the only one")
                now = replace(now, fields=tuple(f for f in now.fields if f is not found))
                columns.pop(found["name"])
            case RenameColumn(name, to):
                found = now.column(name)
                refuse_known(to, [n for n in now.names if n != found["name"]])
                refuse_names([to])
                renames.append((found["name"], to))
                columns = {(to if new == found["name"] else new): old for new, old in columns.items()}
                keys = tuple(replace(k, column=to) if k.column == found["name"] else k for k in now.partition_by)
                order = [to if c == found["name"] else c for c in now.sort_by]
                properties = {**now.properties, **({SORT_BY: json.dumps(order)} if order else {})}
                now = replace(now.with_column(name, name=to), partition_by=keys, properties=properties)
            case ChangeType(name, kind):
                found = now.column(name)
                new = type_in(kind, spec.dialect, name)
                if new != found["type"] and not widens(found["type"], new):
                    raise SchemaMismatch(
                        f"column {found['name']} cannot become {new}: DuckLake only widens types, and {found['type']} holds values that it does not"
                    )
                now = now.with_column(name, type=new)
            case SetNotNull(name):
                now = now.with_column(name, nullable=False)
            case DropNotNull(name):
                now = now.with_column(name, nullable=True)
            case SetComment(comment, None):
                now = replace(now, description=comment)
            case SetComment(comment, name):
                now = now.with_column(str(name), metadata={} if comment is None else {"comment": comment})
            case SetProperties(asked):
                now = replace(now, properties={**now.properties, **kept(asked)})
            case UnsetProperties(names, if_exists):
                absent = [name for name in names if name not in now.properties]
                if absent and not if_exists:
                    raise InvalidConfig(f"there is no property {', '.join(absent)}")
                now = replace(now, properties={n: v for n, v in now.properties.items() if n not in names})
            case AddCheck() | DropCheck():
                raise UnsupportedFeature(
                    "DuckLake has no CHECK constraints; check the rows before they are written (a dbt test, a Dagster check)"
                )
            case ClusterBy():
                raise UnsupportedFeature("cluster_by is Delta's liquid clustering; a DuckLake table has sort_by")
    return DuckLakeAlteration(before, now, columns, renames=tuple(renames))


def evolved(before: DuckLakeDefinition, fields: Sequence[Mapping[str, Any]], mode: SchemaMode) -> DuckLakeAlteration:
    """The definition that takes the columns of a source."""
    there = {f["name"].lower(): f for f in before.fields}
    incoming = {f["name"].lower(): dict(f) for f in fields}
    columns: dict[str, str | None] = {}
    now: list[dict[str, Any]] = []
    for lower, old in there.items():
        new = incoming.get(lower)
        if mode == "sync_all_columns" and new is None:
            if users := before.users_of(old["name"]):
                raise InvalidConfig(f"column {old['name']} cannot go: {' and '.join(users)} needs it")
            continue
        kept_field = dict(old)
        if mode == "sync_all_columns" and new is not None and new["type"] != old["type"]:
            kept_field["type"] = new["type"]
        now.append(kept_field)
        columns[old["name"]] = old["name"]
    for lower, new in incoming.items():
        if lower not in there:
            refuse_names([new["name"]])
            now.append({**new, "nullable": True})
            columns[new["name"]] = None
    return DuckLakeAlteration(before, replace(before, fields=tuple(now)), columns)
