"""What columns are filled with that a statement does not name, or says DEFAULT for. Source: Delta protocol, Default Columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from duckrun.engines.engine import Engine
from duckrun.sql.dialects import tree_in
from duckrun.statements.parse.from_dml import DEFAULT
from duckrun.values.snapshot import Snapshot


def defaults_of(snapshot: Snapshot, engine: Engine) -> dict[str, str]:
    """The columns of a table that have a default, with it in Spark SQL. An engine that has none does not write such a table."""
    if not engine.column_defaults and snapshot.sql_types is None:
        return {}
    said = {field.name: (field.metadata or {}).get(b"CURRENT_DEFAULT") for field in snapshot.schema}
    return {name: text.decode() for name, text in said.items() if text is not None}


def default_of(name: str, defaults: Mapping[str, str]) -> exp.Expr:
    """A column's default, or NULL."""
    found = {column.lower(): text for column, text in defaults.items()}.get(name.lower())
    return exp.null() if found is None else tree_in(found, "spark")


def with_defaults(
    assigned: Sequence[tuple[str, exp.Expr]], snapshot: Snapshot, engine: Engine
) -> list[tuple[str, exp.Expr]]:
    """Values of SET, with a column's default for the word."""
    defaults = defaults_of(snapshot, engine)
    return [
        (name, default_of(name, defaults) if isinstance(value, exp.Var) and value.name == DEFAULT else value)
        for name, value in assigned
    ]
