"""A DuckLake table's definition after some changes: those that a spec names, or those that follow the rows being written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.formats.definitions import Alteration, refuse_known
from duckrun.formats.ducklake.definition import DuckLakeDefinition, default_in, field_of, kept, refuse_names
from duckrun.formats.ducklake.nested import with_field_changed
from duckrun.formats.ducklake.partitions import partitions
from duckrun.formats.ducklake.types import refuse_narrowing, type_in, widens, with_new_fields
from duckrun.sql.names import quote_identifier
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
class DuckLakeAlteration(Alteration):
    """An alteration that no data file is written anew for. ``steps`` are the changes that name what they change, as DDL behind ALTER TABLE, in their
    order; ``reached`` is the definition that they make, from which the rest follows.
    """

    steps: tuple[str, ...] = ()
    reached: DuckLakeDefinition | None = None

    @property
    def rewrites(self) -> bool:
        return False

    def tests(self) -> list[tuple[str, str]]:
        """DuckLake tests the rows itself."""
        return []


def altered(before: DuckLakeDefinition, spec: AlterSpec) -> DuckLakeAlteration:
    """The definition after some changes, in their order. Raises SchemaMismatch, InvalidConfig, UnsupportedFeature."""
    now, reached, steps = before, before, []
    columns: dict[str, str | None] = {name: name for name in before.names}
    for change in spec.changes:
        match change:
            case AddColumn(column):
                refuse_known(column.name, now.names)
                if not column.nullable:
                    raise SchemaMismatch(
                        f"column {column.name} is to be NOT NULL, which DuckLake sets on no column that comes to a table with rows: overwrite the "
                        "table with a SELECT that fills it"
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
                steps.append(f"RENAME COLUMN {quote_identifier(found['name'])} TO {quote_identifier(to)}")
                columns = {(to if new == found["name"] else new): old for new, old in columns.items()}
                keys = tuple(replace(k, column=to) if k.column == found["name"] else k for k in now.partition_by)
                order = [to if c == found["name"] else c for c in now.sort_by]
                properties = {**now.properties, **({SORT_BY: json.dumps(order)} if order else {})}
                now = replace(now.with_column(name, name=to), partition_by=keys, properties=properties)
                parts = tuple(replace(k, column=to) if k.column == found["name"] else k for k in reached.partition_by)
                reached = replace(reached.with_column(found["name"], name=to), partition_by=parts)
            case InStruct(path):
                found = now.column(path[0])
                kind, step = with_field_changed(found["name"], found["type"], change, spec.dialect)
                now = now.with_column(path[0], type=kind)
                if step is not None and found["name"] in reached.names:
                    was = reached.column(found["name"])["type"]
                    made, _ = with_field_changed(found["name"], was, change, spec.dialect)
                    reached = reached.with_column(path[0], type=made)
                    steps.append(step)
            case SetDefault(name, default):
                now = now.with_column(name, default=default_in(default, spec.dialect))
            case PartitionBy(wanted):
                now = replace(now, partition_by=partitions(wanted, now.fields))
            case ChangeType(name, kind):
                found = now.column(name)
                new = type_in(kind, spec.dialect, name)
                refuse_narrowing(found["name"], found["type"], new)
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
                properties = kept(asked)
                order = [now.column(name)["name"] for name in sort_order(properties)]
                properties |= {SORT_BY: json.dumps(order)} if SORT_BY in properties else {}
                now = replace(now, properties={**now.properties, **properties})
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
    return DuckLakeAlteration(before, now, columns, steps=tuple(steps), reached=reached)


def evolved(before: DuckLakeDefinition, fields: Sequence[Mapping[str, Any]], mode: SchemaMode) -> DuckLakeAlteration:
    """The definition that takes the columns of a source, as ``evolved`` of a Delta table does: ``append_new_columns`` adds the new ones, and new
    fields of structs; ``sync_all_columns`` also drops those that the source has not and that have no default, and widens those whose type in the source holds more.
    """
    there = {f["name"].lower(): f for f in before.fields}
    incoming = {f["name"].lower(): dict(f) for f in fields}
    columns: dict[str, str | None] = {}
    now: list[dict[str, Any]] = []
    for lower, old in there.items():
        new = incoming.get(lower)
        if mode == "sync_all_columns" and new is None and old.get("default") is None:
            if users := before.users_of(old["name"]):
                raise InvalidConfig(f"column {old['name']} cannot go: {' and '.join(users)} needs it")
            continue
        kept_field = dict(old)
        if mode == "sync_all_columns" and new is not None and widens(old["type"], new["type"]):
            kept_field["type"] = new["type"]
        if new is not None:
            kept_field["type"] = with_new_fields(kept_field["type"], new["type"])
        now.append(kept_field)
        columns[old["name"]] = old["name"]
    for lower, new in incoming.items():
        if lower not in there:
            refuse_names([new["name"]])
            now.append({**new, "nullable": True})
            columns[new["name"]] = None
    return DuckLakeAlteration(before, replace(before, fields=tuple(now)), columns)
