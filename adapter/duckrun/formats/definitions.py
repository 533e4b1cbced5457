"""What a table is apart from its rows, and how that changes: what every format's definition has."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Self

from duckrun.errors import SchemaMismatch
from duckrun.values.tables import sort_order

if TYPE_CHECKING:
    import pyarrow as pa


class TableDefinition(Protocol):
    """Columns, partitions, properties and constraints of a table.

    ``fields`` are the columns as ``name``, ``type``, ``nullable`` and ``metadata``, with types as Spark's JSON has them;
    ``checks`` maps the name of a constraint to its condition in Spark SQL.
    """

    @property
    def fields(self) -> tuple[dict[str, Any], ...]: ...
    @property
    def partition_columns(self) -> tuple[str, ...]: ...
    @property
    def properties(self) -> Mapping[str, str]: ...
    @property
    def description(self) -> str | None: ...
    @property
    def names(self) -> list[str]: ...
    @property
    def schema(self) -> pa.Schema: ...
    @property
    def schema_json(self) -> str: ...
    @property
    def sort_by(self) -> tuple[str, ...]: ...
    @property
    def checks(self) -> Mapping[str, str]: ...

    @property
    def sql_types(self) -> Mapping[str, str] | None: ...
    @property
    def variants(self) -> frozenset[str]: ...

    def column(self, name: str) -> dict[str, Any]:
        """A column by its name in any case. Raises SchemaMismatch."""


@dataclass(frozen=True)
class OfColumns:
    """What every definition answers from its columns and its properties alone."""

    fields: tuple[dict[str, Any], ...]

    if TYPE_CHECKING:

        @property
        def properties(self) -> Mapping[str, str]: ...

    @property
    def names(self) -> list[str]:
        return [f["name"] for f in self.fields]

    @property
    def schema_json(self) -> str:
        return json.dumps({"type": "struct", "fields": list(self.fields)}, ensure_ascii=False)

    @property
    def sort_by(self) -> tuple[str, ...]:
        return sort_order(self.properties)

    def column(self, name: str) -> dict[str, Any]:
        """A column by its name in any case. Raises SchemaMismatch."""
        for found in self.fields:
            if found["name"].lower() == name.lower():
                return found
        raise SchemaMismatch(f"there is no column {name!r}; the columns are {', '.join(self.names)}")

    def with_column(self, name: str, /, **changes: Any) -> Self:
        old = self.column(name)
        return replace(self, fields=tuple({**f, **changes} if f is old else f for f in self.fields))


def refuse_known(name: str, names: Iterable[str]) -> None:
    if not name:
        raise SchemaMismatch("a column has no name")
    for known in names:
        if known.lower() == name.lower():
            raise SchemaMismatch(
                f"there is a column {known!r} already" + ("" if known == name else f", so not {name!r}")
            )


@dataclass(frozen=True)
class Alteration:
    """A definition after some changes. ``columns`` says how the columns are filled: new name -> old one, or None; those in
    ``grown`` have structs with new fields, which are NULL where a file has none of them.
    """

    before: TableDefinition
    after: TableDefinition
    columns: Mapping[str, str | None]
    grown: frozenset[str] = frozenset()

    @property
    def changed(self) -> bool:
        return self.before != self.after

    @property
    def rewrites(self) -> bool:
        """True if the data files do not hold the rows in their new form: Parquet files know columns by name and type."""
        if set(self.before.names) - set(self.columns.values()):
            return True
        return any(
            old is not None and (old != new or self.before.column(old)["type"] != self.after.column(new)["type"])
            for new, old in self.columns.items()
            if new not in self.grown
        )

    def tests(self) -> list[tuple[str, str]]:
        """What must hold of every row of the table, as (condition in Spark SQL, what it means)."""
        found = []
        for column in self.after.fields:
            old = self.columns[column["name"]]
            if not column["nullable"] and (old is None or self.before.column(old)["nullable"]):
                name = "`" + column["name"].replace("`", "``") + "`"
                found.append((f"{name} IS NOT NULL", f"column {column['name']} is to be NOT NULL"))
        for name, condition in self.after.checks.items():
            if self.before.checks.get(name) != condition:
                found.append((condition, f"the constraint {name} is {condition}"))
        return found
