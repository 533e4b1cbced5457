"""Generated columns (GENERATED ALWAYS AS (…)) and identity columns."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from duckrun.errors import InvalidConfig
from duckrun.statements.parse.tokens import StatementText, TokenReader
from duckrun.values.tables import Identity


def expressions_of(source: StatementText) -> Iterator[str]:
    """Yield the expressions of the generated columns of a CREATE TABLE, as written, in order."""
    reader = TokenReader(source)
    while reader.next is not None:
        if not reader.accept("GENERATED"):
            reader.at += 1
        elif reader.accept("ALWAYS") and reader.accept("AS") and reader.next is not None and reader.next.text == "(":
            start = reader.at
            reader.brackets()
            yield source.with_(source.tokens[start + 1 : reader.at - 1]).written


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
