"""Generated columns (GENERATED ALWAYS AS (…)) and identity columns."""

from __future__ import annotations

from sqlglot import exp

from duckrun.errors import InvalidConfig
from duckrun.values.tables import Identity


def is_generated(kind: exp.Expr) -> bool:
    """Return True for the constraint of a generated column, in either of sqlglot's forms."""
    return (isinstance(kind, exp.ComputedColumnConstraint) and not isinstance(kind.this, exp.Paren)) or (
        isinstance(kind, exp.GeneratedAsIdentityColumnConstraint) and kind.args.get("expression") is not None
    )


def identity_of(kind: exp.GeneratedAsIdentityColumnConstraint, name: str) -> Identity:
    """Return start and step of an identity column; both are 1 by default."""
    start, step = (_number(kind.args.get(word), name) for word in ("start", "increment"))
    return Identity(start, step, bool(kind.this))


def _number(value: exp.Expr | None, name: str) -> int:
    try:
        return 1 if value is None else int(value.sql())
    except ValueError:
        raise InvalidConfig(f"The identity column {name} counts in whole numbers, not by {value}.") from None
