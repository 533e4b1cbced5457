"""Computed columns of a table: generated, identity and default columns.

Source: Delta protocol, Generated Columns, Identity Columns, Default Columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.formats.definitions import TableDefinition
from duckrun.sql.quoting import quote_identifier
from duckrun.values.computed import NumberedBy
from duckrun.values.frozen import frozen
from duckrun.values.snapshot import Snapshot, TableRef

if TYPE_CHECKING:
    from duckrun.formats.format import Format


@frozen
class Computed:
    """SQL of the computed columns of one table, each cast to the column's type."""

    ref: TableRef
    generated: Mapping[str, str] = field(default_factory=dict)
    """Column -> expression over the table's columns."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Column -> expression without columns."""
    numbered: Mapping[str, NumberedBy] = field(default_factory=dict)
    """Identity column -> its next number and step."""

    @classmethod
    def of(
        cls, form: Format, ref: TableRef, table: TableDefinition | Snapshot, kinds: Mapping[str, object]
    ) -> Computed:
        """Computed columns of a table whose columns have these DuckDB types.

        Raises:
            UnsupportedFeature: DuckDB may evaluate an expression otherwise than Spark.
        """

        def sql(name: str, expression: str) -> str:
            text = form.in_duckdb(expression, table.schema)
            if text is None:
                raise UnsupportedFeature(
                    f"Table {ref}: column {name} is computed by {expression}, of which it is not known that DuckDB "
                    "and Spark give the same",
                    remedy="Run this with engine: spark",
                )
            return f"CAST({text} AS {kinds[name]})"

        columns = form.computing(table.schema)
        return cls(
            ref,
            {name: sql(name, each.generated) for name, each in columns.items() if each.generated is not None},
            {name: sql(name, each.default) for name, each in columns.items() if each.default is not None},
            {name: each.numbered for name, each in columns.items() if each.numbered is not None},
        )

    @property
    def optional(self) -> list[str]:
        """Columns that incoming rows may lack."""
        return [*self.generated, *self.numbered, *self.defaults]

    def filled(self, name: str) -> str | None:
        """SQL of the values of a column that the rows lack; None for NULL."""
        if name in self.numbered:
            by = self.numbered[name]
            return f"CAST({by.next} + {by.step} * (row_number() OVER () - 1) AS BIGINT)"
        return self.generated.get(name, self.defaults.get(name))

    def anew(self, columns: Iterable[str], own_value_conditions: Mapping[str, str]) -> list[str]:
        """SELECT list of changed rows, with the generated columns computed again.

        ``given`` maps a column to the condition under which the row brings its own value, which is
        checked instead. A missing column never does.
        """
        expressions = []
        for name in columns:
            column, condition = quote_identifier(name), own_value_conditions.get(name, "false")
            if name not in self.generated or condition == "true":
                expressions.append(column)
            else:
                expressions.append(f"CASE WHEN {condition} THEN {column} ELSE {self.generated[name]} END AS {column}")
        return expressions

    def numbering(self, filled: Mapping[str, tuple[str | None, str]]) -> dict[str, NumberedBy]:
        """Identity columns that number rows which lack them.

        Raises:
            InvalidConfig: The rows bring values for a column that is GENERATED ALWAYS.
        """
        for name in self.numbered:
            if name in filled and filled[name][0] is not None:
                self.refuse_given(name)
        return {name: by for name, by in self.numbered.items() if name in filled and filled[name][0] is None}

    def refuse_given(self, name: str) -> None:
        """Raise InvalidConfig if rows bring values for a column that is GENERATED ALWAYS."""
        if name in self.numbered and self.numbered[name].always:
            raise InvalidConfig(
                f"Table {self.ref}: column {name} is GENERATED ALWAYS AS IDENTITY, and the rows bring values for it",
                remedy="leave the column out",
            )


def gives_numbers(snapshot: Snapshot) -> bool:
    """True for a table with an identity column."""
    return any(column.numbered for column in snapshot.computed().values())


def numbers_of(marks: Mapping[str, NumberedBy], rows: int | None) -> dict[str, int]:
    """High-water marks of identity columns after so many rows were numbered."""
    return {name: by.after(rows) for name, by in marks.items()} if rows else {}
