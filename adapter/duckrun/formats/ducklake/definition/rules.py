"""Changes of DuckLake definitions: DuckLake's own rules, and the DDL of named parts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.formats import changes, nested
from duckrun.formats.changes import Path, Rules
from duckrun.formats.definitions import Alteration
from duckrun.formats.ducklake.definition.definition import DuckLakeDefinition, default_in, field_of, kept, refuse_names
from duckrun.formats.ducklake.definition.partitions import partitions
from duckrun.formats.ducklake.definition.types import TYPES, type_in, widens
from duckrun.formats.nested import Field
from duckrun.sql.quoting import quote_identifier
from duckrun.values.frozen import frozen
from duckrun.values.tables import (
    SORT_BY,
    AddCheck,
    AddColumn,
    AlterSpec,
    Change,
    ColumnSpec,
    DropCheck,
    DropColumn,
    InStruct,
    RenameColumn,
    sort_order,
)

NO_CHECKS = "DuckLake has no CHECK constraints; check the rows before they are written (a dbt test, a Dagster check)"


@frozen
class DuckLakeAlteration(Alteration):
    """Alteration that rewrites no data file."""

    steps: tuple[str, ...] = ()
    """Changes of named parts, as DDL behind ALTER TABLE, in their order."""
    reached: DuckLakeDefinition | None = None
    """Definition after the ``steps``. The remaining changes start from it."""

    @property
    def rewrites(self) -> bool:
        return False

    def tests(self) -> list[tuple[str, str]]:
        """Return no conditions: DuckLake checks the rows itself."""
        return []


def altered(before: DuckLakeDefinition, spec: AlterSpec) -> DuckLakeAlteration:
    """Return the alteration by a spec; raises what ``changes.apply()`` does."""
    rules = DuckLakeRules(spec.dialect)
    alteration = changes.altered(before, spec.changes, rules, DuckLakeAlteration)
    now, reached, steps = before, before, []
    for index, change in enumerate(spec.changes):
        step = _step(now, change, spec.changes[index + 1 :], rules)
        now = changes.apply(now, change, rules)
        # A column that the spec adds comes with its last name and type.
        if step is not None and step[0] in reached.names:
            reached = changes.apply(reached, change, rules)
            steps.append(step[1])
    return replace(alteration, steps=tuple(steps), reached=reached)


def _step(
    now: DuckLakeDefinition, change: Change, later: Sequence[Change], rules: DuckLakeRules
) -> tuple[str, str] | None:
    """Return the column of a change that names a part, and its DDL; None for any other change."""
    match change:
        case RenameColumn(name, to):
            column = now.column(name)["name"]
            return column, f"RENAME COLUMN {quote_identifier(column)} TO {quote_identifier(to)}"
        case DropColumn(name) if name.lower() in map(str.lower, _new_names(later)):
            column = now.column(name)["name"]
            return column, f"DROP COLUMN {quote_identifier(column)}"
        case InStruct():
            path = nested.spelled_path(TYPES, now.column(change.path[0]), change.path[1:])
            match change.change:
                case AddColumn(field):
                    kind = rules.type_of(field.type, field.name)
                    return path[0], f"ADD COLUMN {quote_identifier(*path, field.name)} {kind}"
                case DropColumn(name):
                    return path[0], f"DROP COLUMN {quote_identifier(*path, name)}"
                case RenameColumn(name, to):
                    return path[0], f"RENAME COLUMN {quote_identifier(*path, name)} TO {quote_identifier(to)}"
    return None


def _new_names(later: Sequence[Change]) -> list[str]:
    """Return the names that columns get by some changes."""
    named = [change.column.name for change in later if isinstance(change, AddColumn)]
    return named + [change.to for change in later if isinstance(change, RenameColumn)]


class DuckLakeRules(Rules[DuckLakeDefinition]):
    """Rules of DuckLake tables. Source: the DuckLake specification 1.0, ducklake_column."""

    types = TYPES

    # -- columns and fields

    def type_of(self, text: str, where: str) -> str:
        return type_in(text, self.dialect, where)

    def new_field(self, column: ColumnSpec, path: Path) -> Field:
        if path and (column.default is not None or not column.nullable or column.comment is not None):
            raise UnsupportedFeature(
                f"field {'.'.join((*path, column.name))} cannot have a default, NOT NULL or a comment: "
                "DuckLake has them of columns alone; leave it out"
            )
        if not column.nullable:
            raise SchemaMismatch(
                f"column {column.name} is to be NOT NULL, which DuckLake sets on no column that comes to a "
                "table with rows: overwrite the table with a SELECT that fills it"
            )
        return field_of(column, self.dialect)

    def widens(self, old: str, new: str) -> bool:
        return widens(old, new)

    def why_narrower(self, old: str) -> str:
        return f"DuckLake only widens types, and {old} holds values that it does not"

    def refuse_name(self, name: str) -> None:
        refuse_names([name])

    def fills(self, column: Field) -> bool:
        return column.get("default") is not None

    def refuse_last(self, now: DuckLakeDefinition, name: str) -> None:
        if len(now.fields) == 1:
            raise InvalidConfig(f"column {name} cannot be dropped: it is the only one")

    def followers(self, now: DuckLakeDefinition) -> set[str]:
        return {"the partitioning", "the sort order"}

    def following(self, now: DuckLakeDefinition, path: Path, to: str | None) -> DuckLakeDefinition:
        if to is None or len(path) > 1:
            return now
        keys = tuple(replace(key, column=to) if key.column == path[0] else key for key in now.partition_by)
        order = [to if name == path[0] else name for name in now.sort_by]
        return replace(
            now, partition_by=keys, properties={**now.properties, **({SORT_BY: json.dumps(order)} if order else {})}
        )

    # -- the other parts of a definition

    def with_default(self, now: DuckLakeDefinition, column: Field, default: str | None) -> DuckLakeDefinition:
        return now.with_column(column["name"], default=default_in(default, self.dialect))

    def with_check(self, now: DuckLakeDefinition, change: AddCheck | DropCheck) -> DuckLakeDefinition:
        raise UnsupportedFeature(NO_CHECKS)

    def clustered(self, now: DuckLakeDefinition, columns: Sequence[str]) -> DuckLakeDefinition:
        raise UnsupportedFeature("cluster_by is Delta's liquid clustering; a DuckLake table has sort_by")

    def partitioned(self, now: DuckLakeDefinition, keys: Sequence[str]) -> DuckLakeDefinition:
        return replace(now, partition_by=partitions(keys, now.fields))

    def with_properties(self, now: DuckLakeDefinition, properties: Mapping[str, str]) -> DuckLakeDefinition:
        added = kept(properties)
        order = [now.column(name)["name"] for name in sort_order(added)]
        added |= {SORT_BY: json.dumps(order)} if SORT_BY in added else {}
        return replace(now, properties={**now.properties, **added})
