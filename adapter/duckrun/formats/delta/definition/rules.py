"""Changes of Delta definitions: the rules that are Delta's own, and the files to rewrite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.formats.changes import Path, Rules
from duckrun.formats.definitions import Alteration
from duckrun.formats.delta.definition import column_ids, computed, expressions, mapping, statistics, types
from duckrun.formats.delta.definition.definition import DeltaDefinition
from duckrun.formats.delta.definition.properties import CHECK, PLAIN, TYPE_CHANGES, property_value
from duckrun.formats.delta.definition.protocol import asked_of
from duckrun.formats.delta.definition.types import DeltaType
from duckrun.formats.nested import Field
from duckrun.values.frozen import frozen
from duckrun.values.tables import (
    AddCheck,
    AddColumn,
    Change,
    ColumnSpec,
    DropCheck,
    DropColumn,
    RenameColumn,
    sort_order,
)


@frozen
class DeltaAlteration(Alteration):
    """Alteration that rewrites fewer files if the files have physical column names."""

    before: DeltaDefinition
    after: DeltaDefinition

    @property
    def rewrites(self) -> bool:
        if not self.after.is_mapped and set(self.before.names) - set(self.columns.values()):
            return True
        for name, source in self.columns.items():
            if source is None or name in self.grown:
                continue
            old, new = self.before.column(source)["type"], self.after.column(name)["type"]
            if source != name and not self.after.is_mapped:
                return True
            if types.spelled(old) != types.spelled(new) and not _keeps_files(self.after, name, old, new):
                return True
        return False


def _keeps_files(table: DeltaDefinition, name: str, old: DeltaType, new: DeltaType) -> bool:
    """True if files need no rewrite when a column changes between two types."""
    # The log has partition values as text. Readers fail if they parse a date as a timestamp, or a
    # decimal of another scale.
    same_text = all(isinstance(kind, str) and (types.is_integer(kind) or kind == "double") for kind in (old, new))
    return table.is_widening and (name not in table.partition_columns or same_text)


class DeltaRules(Rules[DeltaDefinition]):
    """Rules of Delta tables.

    Source: Delta protocol, Column Mapping, Type Widening, Default Columns.
    """

    types = types.TYPES

    # -- columns and fields

    def type_of(self, text: str, where: str) -> DeltaType:
        return types.limited_type(text, self.dialect, where)

    def new_field(self, column: ColumnSpec, path: Path) -> Field:
        where = ".".join((*path, column.name))
        if path and not column.nullable:
            raise SchemaMismatch(f"{where} is to be NOT NULL, and the rows of the table have none")
        if path and column.default is not None:
            raise UnsupportedFeature(f"field {where} cannot have a default: only columns have them; leave it out")
        if column.default is not None:
            raise UnsupportedFeature(
                f"column {column.name!r} cannot come with a default: the rows that are there would have none "
                "(Delta protocol, Default Columns). Add the column, then give it a default (ALTER COLUMN … SET "
                "DEFAULT)"
            )
        return types.opened_field(column, self.dialect)

    def widens(self, old: DeltaType, new: DeltaType) -> bool:
        return types.widens(old, new)

    def why_narrower(self, old: DeltaType) -> str:
        return f"{types.spelled(old)} holds values that it does not; it can become {types.widenings(old)}"

    def retyped(self, now: DeltaDefinition, path: Path, field: Field, kind: DeltaType) -> Field:
        old, new = types.without_limits(field["type"]), types.without_limits(kind)
        field = {**field, "type": kind}
        if old == new:
            return field
        _refuse_read(now, path)
        keeps = now.is_widening if len(path) > 1 else _keeps_files(now, path[0], old, new)
        if not keeps:
            return field
        changed = [*field["metadata"].get(TYPE_CHANGES, ()), {"toType": new, "fromType": old}]
        return {**field, "metadata": {**field["metadata"], TYPE_CHANGES: changed}}

    def opened(self, field: Field) -> Field:
        return types.with_limits(field)

    def closed(self, field: Field) -> Field:
        return types.stored(field)

    def refuse_inside(self, now: DeltaDefinition, path: Path, change: Change) -> None:
        if not isinstance(change, AddColumn):
            _refuse_read(now, path)
        if isinstance(change, DropColumn | RenameColumn) and not now.is_mapped:
            raise UnsupportedFeature(
                f"{'.'.join((*path, change.name))} cannot go or get another name: the files of the table know fields "
                "by their names. Let it map them first (ALTER TABLE … SET TBLPROPERTIES "
                "('delta.columnMapping.mode' = 'name')), or write the table anew"
            )

    def fills(self, column: Field) -> bool:
        return computed.fills(column)

    def refuse_last(self, now: DeltaDefinition, name: str) -> None:
        if len(now.fields) - 1 <= len(now.partition_columns):
            raise SchemaMismatch(f"column {name!r} is the last one that the table is not partitioned by")

    def followers(self, now: DeltaDefinition) -> set[str]:
        # Files, partition values and clustering of a mapped table use physical names.
        return {"the partitioning", "the clustering"} if now.is_mapped else set()

    def following(self, now: DeltaDefinition, path: Path, to: str | None) -> DeltaDefinition:
        properties = dict(now.properties)
        # Spark renames and drops in the list of statistics columns, too.
        if statistics.COLUMNS in properties:
            properties[statistics.COLUMNS] = statistics.names_after(properties[statistics.COLUMNS], path, to)
        if to is None:
            return replace(now, properties=properties)
        partitions = tuple(to if (name,) == tuple(path) else name for name in now.partition_columns)
        clustered = now.cluster_by and tuple(statistics.path_after(each, path, to) for each in now.cluster_by)
        return replace(now, properties=properties, partition_columns=partitions, cluster_by=clustered)

    def finished(self, now: DeltaDefinition) -> DeltaDefinition:
        return column_ids.numbered(now)

    # -- the other parts of a definition

    def with_default(self, now: DeltaDefinition, column: Field, default: str | None) -> DeltaDefinition:
        return expressions.with_default(now, column["name"], default, self.dialect)

    def with_check(self, now: DeltaDefinition, change: AddCheck | DropCheck) -> DeltaDefinition:
        if isinstance(change, AddCheck):
            return expressions.with_check(now, change, self.dialect)
        key = CHECK + change.name.lower()
        if key not in now.properties and not change.if_exists:
            known = ", ".join(now.checks) or "none"
            raise InvalidConfig(f"there is no constraint {change.name}; the constraints are: {known}")
        return replace(now, properties={name: text for name, text in now.properties.items() if name != key})

    def clustered(self, now: DeltaDefinition, columns: Sequence[str]) -> DeltaDefinition:
        return now.clustered(columns)

    def partitioned(self, now: DeltaDefinition, keys: Sequence[str]) -> DeltaDefinition:
        raise UnsupportedFeature(
            "the partitions of a Delta table are those that it was written with: write it anew, CREATE OR REPLACE "
            "TABLE … PARTITIONED BY (…) AS SELECT * FROM it; tables of format ducklake change theirs"
        )

    def with_properties(self, now: DeltaDefinition, properties: Mapping[str, str]) -> DeltaDefinition:
        features, versions, properties = asked_of(properties)
        now = replace(now, requested=now.requested | features, versions=max(versions, now.versions))
        # Other writers may have set properties that property_value() refuses.
        new = {name: value for name, value in properties.items() if now.properties.get(name) != str(value)}
        added = {name: property_value(name, value) for name, value in new.items()}
        if mapping.MODE in added:
            now = column_ids.turned_on(now, added[mapping.MODE].lower())
        for column_name in sort_order(added):
            now.column(column_name)
        return replace(now, properties={**now.properties, **added})

    def refuse_unset(self, now: DeltaDefinition, name: str) -> None:
        if not name.startswith("delta."):
            return
        if name.startswith(CHECK):
            raise InvalidConfig(f"{name} is a constraint: drop it as one")
        if name not in PLAIN:
            property_value(name, "")
        if name == mapping.MODE:
            column_ids.turned_on(now, "none")


def _refuse_read(now: DeltaDefinition, path: Path) -> None:
    if readers := now.generated_from(path[0]):
        raise InvalidConfig(f"column {'.'.join(path)!r} cannot change: it is used by {' and by '.join(readers)}")
