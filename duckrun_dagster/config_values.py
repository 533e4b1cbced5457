"""Parsers of metadata values, each from every form that a user may write.

Each parser raises InvalidConfig with ``what`` as the subject of the error text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from typing import Any, get_args

from duckrun.display.units import parse_bytes
from duckrun.errors import InvalidConfig
from duckrun.libraries import exp, sqlglot
from duckrun.values.checked import unknown_word
from duckrun.values.choices import ClauseKind
from duckrun.values.rows import MergeClause


@dataclass(frozen=True)
class PartitionExpr:
    """The column that holds a partition, as users of dagster-duckdb write it."""

    column: str
    cast: str | None = None
    """The type that the metadata casts the column to, if any."""

    @classmethod
    def parse(cls, text: str) -> PartitionExpr:
        """Parse ``day``, ``"day"`` or ``CAST(day AS TIMESTAMP)``.

        Any other text is the name of a column.
        """
        if text.isidentifier():  # most names need no sqlglot
            return cls(text)
        try:
            tree = sqlglot.parse_one(text, dialect="duckdb")
        except sqlglot.errors.SqlglotError:
            return cls(text)
        inner, cast = (tree.this, tree.to.this.name) if type(tree) is exp.Cast else (tree, None)
        if not isinstance(inner, exp.Column) or len(inner.parts) != 1 or isinstance(inner.this, exp.Star):
            return cls(text)
        return cls(inner.name, cast)


def text(value: Any, what: str) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidConfig(f"{what} is {value!r}; it takes a text that is not empty.")
    return value


def flag(value: Any, what: str) -> bool:
    """Return True or False."""
    if not isinstance(value, bool):
        raise InvalidConfig(f"{what} is {value!r}; it takes True or False.")
    return value


def condition(value: Any, what: str) -> bool | str:
    """Return True, False, or a condition in SQL."""
    return value if isinstance(value, bool) else text(value, what)


def one_of(words: Sequence[str]) -> Callable[[Any, str], Any]:
    """Return a parser of these words."""

    def parser(value: Any, what: str) -> Any:
        if value in words:
            return value
        raise unknown_word(what, value, words)

    return parser


def names(value: Any, what: str) -> tuple[str, ...]:
    """Return column names from one name or a list of names."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, Sequence) or not all(isinstance(name, str) and name for name in value):
        raise InvalidConfig(f"{what} is {value!r}; it takes a column name or a list of them.")
    return tuple(value)


def partition_expr(value: Any, what: str) -> dict[str | None, PartitionExpr]:
    """Return the partition column of each dimension; the key None stands for the only dimension."""
    if isinstance(value, str) and value.strip():
        return {None: PartitionExpr.parse(value)}
    if isinstance(value, Mapping) and all(isinstance(v, str) and v for v in value.values()):
        return {str(dimension): PartitionExpr.parse(column) for dimension, column in value.items()}
    raise InvalidConfig(
        f"{what} is {value!r}; it takes a column name, or for several dimensions {{dimension: column}}."
    )


def properties(value: Any, what: str) -> dict[str, str]:
    """Return table properties as texts; booleans are written in lower case as Delta writes them."""
    if not isinstance(value, Mapping):
        raise InvalidConfig(f"{what} is {value!r}; it takes a mapping such as {{'delta.appendOnly': 'true'}}.")
    return {str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in value.items()}


def texts(value: Any, what: str) -> dict[str, str]:
    """Return a mapping from names to texts."""
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value.values()):
        raise InvalidConfig(f"{what} is {value!r}; it takes a mapping such as {{'id': 'The number on the box'}}.")
    return {str(k): each for k, each in value.items()}


def words(value: Any, what: str) -> dict[str, str]:
    """Return commit metadata as texts; the key ``duckrun`` is reserved."""
    if not isinstance(value, Mapping) or "duckrun" in value:
        raise InvalidConfig(
            f"{what} is {value!r}; it takes a mapping such as {{'team': 'sales'}}, whose 'duckrun' is ours."
        )
    return {str(k): str(v) for k, v in value.items()}


def size(value: Any, what: str) -> int:
    """Return a size in bytes."""
    try:
        return parse_bytes(value)
    except InvalidConfig as error:
        raise InvalidConfig(f"{what}: {error}") from None


def version(value: Any, what: str) -> int:
    """Return the number of a table's version."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidConfig(f"{what} is {value!r}; it takes a version number such as 3.")
    return value


def moment(value: Any, what: str) -> str:
    """Return a time as text."""
    return value.isoformat() if isinstance(value, date) else text(value, what)  # a datetime is a date too


def clauses(value: Any, what: str) -> tuple[MergeClause, ...]:
    """Return merge clauses from mappings, kinds or MergeClause values."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise InvalidConfig(f"{what} is {value!r}; it takes a list of clauses, each a mapping with 'kind'.")
    return tuple(_clause(each, what) for each in value)


def _clause(value: Any, what: str) -> MergeClause:
    if isinstance(value, MergeClause):
        return value
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, Mapping):
        raise InvalidConfig(f"{what} holds {value!r}; a clause is a mapping with 'kind'.")
    for key in value:
        one_of([f.name for f in fields(MergeClause)])(key, f"A key in {what}")
    kinds = get_args(ClauseKind)
    if value.get("kind") is None:
        raise InvalidConfig(f"A clause in {what} has no 'kind'; the kinds are {', '.join(kinds)}.")
    columns = value.get("columns")
    return MergeClause(
        kind=one_of(kinds)(value["kind"], f"'kind' in {what}"),
        condition=value.get("condition"),
        columns=None if columns is None else names(columns, f"'columns' in {what}"),
        set=value.get("set"),
    )
