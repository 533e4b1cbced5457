"""What columns are filled with that a statement does not name, or says DEFAULT for. Source: Delta protocol, Default Columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from duckrun.errors import UnsupportedFeature
from duckrun.sql.dialects import tree_in
from duckrun.sql.scalar import why_not_scalar_in_spark
from duckrun.statements.parse.from_dml import DEFAULT
from duckrun.values.snapshot import Snapshot


def defaults_of(snapshot: Snapshot) -> dict[str, str]:
    """The columns of a table that have a default, with it in Spark SQL."""
    return {
        name: _harmless(snapshot, name, column.default, is_default=True)
        for name, column in snapshot.computed().items()
        if column.default is not None
    }


def _harmless(snapshot: Snapshot, name: str, expression: str, *, is_default: bool) -> str:
    """An expression of a table's log, before it becomes a part of a statement. Raises UnsupportedFeature for one that reads more."""
    why = why_not_scalar_in_spark(expression, is_default=is_default)
    if why is not None:
        raise UnsupportedFeature(
            f"Table {snapshot.ref}: column {name} is computed by {expression}, which has {why}: only columns of the row and scalar functions "
            f"are computed. Nothing was written; ALTER TABLE … ALTER COLUMN {name} DROP DEFAULT, or name the column with a value."
        )
    return expression


def default_of(name: str, defaults: Mapping[str, str]) -> exp.Expr:
    """A column's default, or NULL."""
    found = {column.lower(): text for column, text in defaults.items()}.get(name.lower())
    return exp.null() if found is None else tree_in(found, "spark")


def computed_of(snapshot: Snapshot) -> dict[str, exp.Expr | None]:
    """The columns that a table computes, in small letters: the expression of a generated one, None for an identity column."""
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
    """Values of SET, or of the rows that a merge inserts, with a column's default for the word. What the table computes is left to it."""
    defaults, computed = defaults_of(snapshot), computed_of(snapshot)
    found = []
    for name, value in assigned:
        if not is_default(value):
            found.append((name, value))
        elif name.lower() not in computed:
            found.append((name, default_of(name, defaults)))
        elif not inserts and computed[name.lower()] is None:
            found.append((name, exp.null()))  # the engine says why numbers stay
    if not found:  # something must be said, and this changes nothing
        own = [(name, computed[name.lower()]) for name, _ in assigned if name.lower() in computed]
        first = next((each for each in snapshot.schema.names if each.lower() not in computed), None)
        if not inserts:
            found = [(name, value) for name, value in own if value is not None]
        elif first is not None:
            found = [(first, default_of(first, defaults))]
    return found


def is_default(value: exp.Expr) -> bool:
    """True for the word DEFAULT in the place of a value."""
    return isinstance(value, exp.Var) and value.name == DEFAULT
