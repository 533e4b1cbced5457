"""Values for columns that a statement omits or sets to DEFAULT.

Source: Delta protocol, Default Columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from duckrun.errors import UnsupportedFeature
from duckrun.sql.dialects import tree_in
from duckrun.sql.scalar import why_not_scalar_in_spark
from duckrun.statements.parse.from_dml import DEFAULT
from duckrun.values.snapshot import Snapshot


def defaults_of(snapshot: Snapshot) -> dict[str, str]:
    """Return the defaults of a table's columns in Spark SQL, by column."""
    return {
        name: _harmless(snapshot, name, column.default, is_default=True)
        for name, column in snapshot.computed().items()
        if column.default is not None
    }


def _harmless(snapshot: Snapshot, name: str, expression: str, *, is_default: bool) -> str:
    """Return an expression of a table's log that is safe to use in a statement.

    Raises:
        UnsupportedFeature: for an expression that depends on more than one row.
    """
    why = why_not_scalar_in_spark(expression, is_default=is_default)
    if why is not None:
        raise UnsupportedFeature(
            f"Table {snapshot.ref}: column {name} is computed by {expression}, which has {why}: only columns of "
            "the row and scalar functions are computed",
            remedy=f"ALTER TABLE … ALTER COLUMN {name} DROP DEFAULT, or name the column with a value",
        )
    return expression


def default_of(name: str, defaults: Mapping[str, str]) -> exp.Expr:
    """Return a column's default, or NULL."""
    default = {column.lower(): text for column, text in defaults.items()}.get(name.lower())
    return exp.null() if default is None else tree_in(default, "spark")


def computed_of(snapshot: Snapshot) -> dict[str, exp.Expr | None]:
    """Return the computed columns of a table, in lower case.

    The value is the expression of a generated column, and None for an identity column.
    """
    return {
        name.lower(): None
        if column.generated is None
        else tree_in(_harmless(snapshot, name, column.generated, is_default=False), "spark")
        for name, column in snapshot.computed().items()
        if column.default is None
    }


def with_defaults(
    assigned: Sequence[tuple[str, exp.Expr]], snapshot: Snapshot, *, inserts: bool = False
) -> list[tuple[str, exp.Expr]]:
    """Replace DEFAULT by the columns' defaults, in SET or in rows that a merge inserts.

    Columns that the table computes are omitted.

    Args:
        assigned: column and value pairs.
        snapshot: the table.
        inserts: True for rows to insert.
    """
    defaults, computed = defaults_of(snapshot), computed_of(snapshot)
    values = []
    for name, value in assigned:
        if not is_default(value):
            values.append((name, value))
        elif name.lower() not in computed:
            values.append((name, default_of(name, defaults)))
        elif not inserts and computed[name.lower()] is None:
            values.append((name, exp.null()))  # the engine reports that identity columns stay
    if not values:  # at least one assignment is needed, and this one changes nothing
        generated = [(name, computed[name.lower()]) for name, _ in assigned if name.lower() in computed]
        first = next((each for each in snapshot.schema.names if each.lower() not in computed), None)
        if not inserts:
            values = [(name, value) for name, value in generated if value is not None]
        elif first is not None:
            values = [(first, default_of(first, defaults))]
    return values


def is_default(value: exp.Expr) -> bool:
    """Return True for the word DEFAULT in the place of a value."""
    return isinstance(value, exp.Var) and value.name == DEFAULT
