"""Table definitions, which are everything but the rows, and alterations of them.

Common to all formats.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Protocol, Self

from duckrun.errors import SchemaMismatch
from duckrun.formats.nested import part_of
from duckrun.values.frozen import frozen
from duckrun.values.tables import sort_order

if TYPE_CHECKING:
    import pyarrow as pa


class PartitionKey(Protocol):
    """Partition key: a column, or a transform of one."""

    @property
    def column(self) -> str: ...
    @property
    def transform(self) -> str: ...


@frozen
class TableDefinition(ABC):
    """Columns, partitioning, properties and constraints of a table."""

    fields: tuple[dict[str, Any], ...]
    """Columns as ``name``, ``type``, ``nullable`` and ``metadata``, with types of the format."""
    properties: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    description: str | None = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def partition_columns(self) -> tuple[str, ...]:
        """Columns that partition the table by their own values."""

    @property
    def partition_by(self) -> Sequence[PartitionKey]:
        """Partition keys, if they may be transforms of columns."""
        return ()

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Columns as an Arrow schema. Comments are field metadata."""

    @property
    def sql_types(self) -> Mapping[str, str] | None:
        """Types of the columns in DuckDB's SQL; None if the schema has them."""
        return None

    @property
    def variants(self) -> frozenset[str]:
        """VARIANT columns, unless ``sql_types`` tells them."""
        return frozenset()

    @property
    def checks(self) -> Mapping[str, str]:
        """CHECK constraints: name -> condition in Spark SQL."""
        return {}

    def users_of(self, path: Sequence[str]) -> list[str]:
        """Return the uses of a column or field that prevent its removal, in words."""
        wanted = [name.lower() for name in path]
        keys = [key.column for key in self.partition_by] or self.partition_columns
        users = ["the partitioning"] if wanted in ([name.lower()] for name in keys) else []
        return users + (["the sort order"] if wanted in ([name.lower()] for name in self.sort_by) else [])

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
        """Return a column by its name, ignoring case.

        Raises:
            SchemaMismatch: The table has no such column.
        """
        column = part_of(self.fields, name)
        if column is None:
            raise self.no_column(name)
        return column

    def no_column(self, name: str) -> SchemaMismatch:
        """Return the error that the table has no column of a name."""
        return SchemaMismatch(f"there is no column {name!r}; the columns are {', '.join(self.names)}")

    def with_column(self, name: str, /, **changes: Any) -> Self:
        """Return the definition with keys of one column replaced."""
        old = self.column(name)
        return replace(self, fields=tuple({**f, **changes} if f is old else f for f in self.fields))

    def described(self, description: str | None, column_comments: Mapping[str, str]) -> Self | None:
        """Return the definition with other descriptions; None if nothing differs."""
        after = self if description is None else replace(self, description=description)
        after = after.commented({name: text for name, text in column_comments.items() if part_of(self.fields, name)})
        return None if after == self else after

    def commented(self, comments: Mapping[str, str]) -> Self:
        """Return the definition with comments of some columns.

        Raises:
            SchemaMismatch: The table has no such column.
        """
        after = self
        for name, comment in comments.items():
            column = part_of(self.fields, name)
            if column is None:
                raise SchemaMismatch(f"a comment is for the column {name!r}, which the data does not have")
            after = after.with_column(name, metadata={**column["metadata"], "comment": comment})
        return after


def refuse_known(name: str, names: Iterable[str]) -> None:
    """Raise SchemaMismatch if a column name is empty or already used, ignoring case."""
    if not name:
        raise SchemaMismatch("a column has no name")
    for known in names:
        if known.lower() == name.lower():
            raise SchemaMismatch(
                f"there is a column {known!r} already" + ("" if known == name else f", so not {name!r}")
            )


@frozen
class Alteration(ABC):
    """Definition of a table before and after some changes."""

    before: TableDefinition
    after: TableDefinition
    columns: Mapping[str, str | None]
    """Source of each column: new name -> old name, or None for a new column."""
    grown: frozenset[str] = frozenset()
    """Columns whose structs gained fields. These are NULL for rows of files that lack them."""

    @property
    def changed(self) -> bool:
        return self.before != self.after

    @property
    @abstractmethod
    def rewrites(self) -> bool:
        """True if the data files must be rewritten: Parquet files know columns by name and type."""

    def tests(self) -> list[tuple[str, str]]:
        """Conditions that every row must meet, as (condition in Spark SQL, meaning)."""
        tests = []
        for column in self.after.fields:
            old = self.columns[column["name"]]
            if not column["nullable"] and (old is None or self.before.column(old)["nullable"]):
                name = "`" + column["name"].replace("`", "``") + "`"
                tests.append((f"{name} IS NOT NULL", f"column {column['name']} is to be NOT NULL"))
        for name, condition in self.after.checks.items():
            if self.before.checks.get(name) != condition:
                tests.append((condition, f"the constraint {name} is {condition}"))
        return tests
