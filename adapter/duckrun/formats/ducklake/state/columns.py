"""Columns of a DuckLake table across snapshots.

A renamed column keeps its id. A later column has its default in older rows. Source: the DuckLake
specification 1.0, ducklake_column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import duckdb

from duckrun.errors import SchemaMismatch
from duckrun.formats.ducklake.catalog.bounds import bounds_sql, unbucketed_sql
from duckrun.formats.ducklake.catalog.catalog import Catalog
from duckrun.formats.ducklake.definition.types import widens
from duckrun.formats.ducklake.state.state import TableState, hide, state_of
from duckrun.sql.nested import list_of, map_of, part_of, struct_of
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.values.snapshot import Snapshot


@dataclass(frozen=True)
class Column:
    """Column, or nested field, at a snapshot."""

    number: int
    """Id of the column, which survives a rename."""
    name: str
    kind: str
    """Type in the catalog's spelling."""
    default: str | None
    """Value for rows that are older than the column."""
    fields: tuple[Column, ...]
    narrow: bool = False
    """True if DuckLake's statistics for the column may be wrong (see ``TableState.columns``).

    That is so if the column, or a field of it, was widened later.
    """

    @property
    def shape(self) -> tuple[Any, ...]:
        """Value that is equal for two versions of a column whose values need no conversion."""
        return self.number, self.kind, tuple((field.name, field.shape) for field in self.fields)


class Columns:
    """Columns of one table at all snapshots in the catalog."""

    def __init__(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self._rows = rows

    @classmethod
    def of(cls, catalog: Catalog, state: TableState) -> Self:
        """Read the columns of a table from the catalog."""
        return cls(
            catalog.ask(
                "SELECT column_id, column_name, column_type, initial_default, parent_column, begin_snapshot, "
                f"end_snapshot, coalesce(untrue, false) OR column_id IN {unbucketed_sql(catalog, None, state.id)} "
                f"FROM (FROM {catalog.meta('ducklake_column')} WHERE table_id = {state.id}) "
                f"LEFT JOIN {bounds_sql(catalog, None, state.id)} "
                "USING (table_id, column_id) ORDER BY column_order"
            )
        )

    @property
    def ever_named(self) -> set[str]:
        """Current and former names of the table's columns, in lower case."""
        return {str(row[1]).lower() for row in self._rows if row[4] is None}

    def at(self, snapshot: int) -> tuple[Column, ...]:
        """Return the columns at a snapshot, in order."""
        there = [row for row in self._rows if row[5] <= snapshot and (row[6] is None or row[6] > snapshot)]
        later = {(row[0], row[2]) for row in self._rows if row[5] > snapshot}

        def widened(number: int, kind: str) -> bool:
            return any(other == number and another != kind for other, another in later)

        def below(parent: int | None) -> Iterator[Column]:
            for number, name, kind, default, above, *_, untrue in there:
                if above == parent:
                    fields = tuple(below(number))
                    is_narrow = untrue or kind == "float32" or widened(number, kind)
                    narrow = is_narrow or any(each.narrow for each in fields)
                    yield Column(int(number), name, kind, default, fields, narrow)

        return tuple(below(None))

    def converted(self, snapshot: int, to: Snapshot, names: Sequence[str]) -> Mapping[str, str]:
        """Return columns of ``to`` as SQL over the table's columns at another snapshot."""
        state = state_of(to)
        new = {column.name: column for column in self.at(state.at if state.at >= 0 else state.version)}
        old = {column.number: column for column in self.at(snapshot)}
        kinds = {field["name"]: field["type"] for field in state.definition.fields}
        return {name: _value(old.get(new[name].number), new[name], kinds[name]) for name in names}


def by_name(then: TableState, to: Snapshot, names: Sequence[str], version: int) -> Mapping[str, str]:
    """Return columns of ``to`` as SQL over another table, which had the same name at ``version``.

    Raises:
        SchemaMismatch: A type of that table does not widen to the current one.
    """
    kinds = {field["name"]: field for field in state_of(to).definition.fields}
    there, kinds_then = then.columns(), then.definition.sql_types
    spelled = {name.lower(): name for name in there}
    converted = {}
    for name in names:
        kind, old = kinds[name]["type"], spelled.get(name.lower())
        if old is None:
            default = kinds[name].get("default")
            converted[name] = f"CAST({'NULL' if default is None else default} AS {kind})"
            continue
        was = kinds_then[old]
        if was != kind and not widens(was, kind):
            raise SchemaMismatch(
                f"changes of table {to.ref}: the column {name} was {was} at version {version} and is {kind} at "
                f"version {to.version}, so that its values cannot be "
                "compared. Begin at a later version, or leave it out by columns=."
            )
        converted[name] = there[old] if was == kind else f"CAST({hide(quote_identifier(old))} AS {kind})"
    return converted


def _value(old: Column | None, new: Column, kind: str) -> str:
    if old is None:
        return _default(new, kind)
    value = quote_identifier(old.name)
    if old.narrow:  # see TableState.columns
        value = hide(value)
    return _converted(value, old, new, duckdb.type(kind))


def _default(column: Column, kind: Any) -> str:
    """SQL for a column's value in rows that are older than the column."""
    return f"CAST({'NULL' if column.default is None else quote_literal(column.default)} AS {kind})"


def _converted(value: str, old: Column, new: Column, kind: Any, depth: int = 0) -> str:
    """Convert an old value of a column to the column's current form."""
    if old.shape == new.shape:
        return value
    name = f"e{depth}"
    if kind.id == "struct":
        # Fields match by id, since they may have been renamed.
        there = {field.number: field for field in old.fields}
        inner = dict(kind.children)
        fields = {}
        for field in new.fields:
            was, now = there.get(field.number), inner[field.name]
            fields[field.name] = (
                _default(field, now) if was is None else _converted(part_of(value, was.name), was, field, now, depth)
            )
        return struct_of(value, fields)
    if kind.id in ("list", "array"):
        inside = _converted(name, old.fields[0], new.fields[0], dict(kind.children)["child"], depth + 1)
        return list_of(value, name, inside)
    if kind.id == "map":
        parts = dict(kind.children)
        key, item = (
            _converted(f"{name}.{part}", old.fields[i], new.fields[i], parts[part], depth + 1)
            for i, part in enumerate(("key", "value"))
        )
        return map_of(value, name, key, item)
    return f"CAST({value} AS {kind})"
