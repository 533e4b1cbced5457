"""Translation of a SQL predicate to a pyarrow expression.

It covers comparisons of columns and struct fields with constants, joined by AND, OR and NOT.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp, parse_one
from sqlglot.errors import ParseError

from duckrun.errors import InvalidConfig, UnsupportedFeature

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "equal",
    exp.NEQ: "not_equal",
    exp.LT: "less",
    exp.LTE: "less_equal",
    exp.GT: "greater",
    exp.GTE: "greater_equal",
}
_TURNED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
_EXACT = 2**53
"""Below it every integer is a DOUBLE of its own."""
_EXACT_DIGITS = 15
"""Decimals of so many digits are DOUBLEs of their own."""


def arrow_predicate(sql: str, schema: pa.Schema, rounded: Collection[str] = ()) -> pc.Expression:
    """Return a SQL predicate (DuckDB's) as an expression for a Dataset of that schema.

    Args:
        sql: The predicate.
        schema: The columns of the Dataset.
        rounded: Columns that may have values outside the bounds of their files.

    Raises:
        InvalidConfig: The text is not SQL.
        UnsupportedFeature: A part has no exact form in pyarrow.
    """
    try:
        tree = parse_one(sql, dialect="duckdb")
    except ParseError as error:
        raise InvalidConfig(f"predicate {sql!r} is no SQL: {error}") from error
    return _Translation(sql, schema, rounded).of(tree)


class _Column(NamedTuple):
    """A column, or a field of a struct."""

    expression: pc.Expression
    kind: pa.DataType
    top: str
    """Name of the column that the field is in."""


class _Translation:
    def __init__(self, sql: str, schema: pa.Schema, rounded: Collection[str]) -> None:
        self.sql = sql
        self.schema = schema
        self.rounded = rounded

    def of(self, node: exp.Expr) -> pc.Expression:
        match node:
            case exp.Paren():
                return self.of(node.this)
            case exp.And():
                return self.of(node.left) & self.of(node.right)
            case exp.Or():
                return self.of(node.left) | self.of(node.right)
            case exp.Not():
                return ~self.of(node.this)
            case exp.Boolean():
                return pc.scalar(bool(node.this))
            case exp.Between():
                low, high = node.args["low"], node.args["high"]
                return self._compared(node.this, "greater_equal", low) & self._compared(node.this, "less_equal", high)
            case exp.In() if node.expressions:
                parts = [self._compared(node.this, "equal", each) for each in node.expressions]
                return reduce(lambda one, other: one | other, parts)
            case exp.Is() if isinstance(node.expression, exp.Null) and isinstance(node.this, exp.Column):
                return self._column(node.this).expression.is_null()
            case exp.Column():
                column = self._column(node)
                if pa.types.is_boolean(column.kind):
                    return column.expression
        operator = _COMPARISONS.get(type(node))
        if operator is None:
            raise self._unsupported(node)
        assert isinstance(node, exp.Binary)
        if isinstance(node.left, exp.Column):
            return self._compared(node.left, operator, node.right)
        return self._compared(node.right, _TURNED.get(operator, operator), node.left)

    def _compared(self, node: exp.Expr, operator: str, constant: exp.Expr) -> pc.Expression:
        if not isinstance(node, exp.Column):
            raise self._unsupported(node)
        column = self._column(node)
        compared = getattr(pc, operator)(column.expression, self._constant(constant, column.kind))
        if not pa.types.is_floating(column.kind):
            return compared
        if column.top in self.rounded:
            raise UnsupportedFeature(
                f"a pyarrow.dataset.Dataset cannot be filtered by column {column.top!r} of predicate {self.sql!r}: "
                "some files are of another writer, and may hold NaN, which the bounds of a file leave out and pyarrow "
                "goes by. Load a pyarrow.RecordBatchReader or a polars.LazyFrame, which take any predicate."
            )
        # In SQL, NaN is the greatest value; in Arrow it compares with nothing.
        if operator in ("greater", "greater_equal", "not_equal"):
            return compared | pc.is_nan(column.expression)
        return compared & ~pc.is_nan(column.expression)

    def _column(self, node: exp.Column) -> _Column:
        # sqlglot takes ship.city for the column city of a table ship. No table has a name here, so
        # each part after the first is a field of the struct before it.
        path, fields = list[str](), list(self.schema)
        for part in node.parts:
            alike = [field for field in fields if field.name.lower() == part.name.lower()]
            exact = [field for field in alike if field.name == part.name]
            if len(exact or alike) != 1:
                raise InvalidConfig(
                    f"predicate {self.sql!r} names {'.'.join(each.name for each in node.parts)!r}; the "
                    f"{f'fields of {path[-1]}' if path else 'columns'} are "
                    f"{', '.join(field.name for field in fields) or 'none'}."
                )
            field = (exact or alike)[0]
            path.append(field.name)
            fields = list(field.type) if pa.types.is_struct(field.type) else []
        return _Column(pc.field(*path), field.type, path[0])

    def _constant(self, node: exp.Expr, kind: pa.DataType) -> Any:
        """Return a constant as DuckDB computes it, in the type of the column."""
        if node.find(exp.Column, exp.Query) is not None:
            raise self._unsupported(node)
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            try:
                value = connection.sql(f"SELECT {node.sql(dialect='duckdb')}").to_arrow_table().column(0)[0]
                # SQL compares a text and a number as numbers; pyarrow has no such comparison.
                if not value.is_valid or (_is_text(kind) and not _is_text(value.type)):
                    raise self._unsupported(node)
                cast = value.cast(kind)
                if cast.cast(value.type) != value or not _is_compared_exactly(value, kind):
                    raise self._unsupported(node)
            except (duckdb.Error, pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
                raise self._unsupported(node) from error
        return pc.scalar(cast)

    def _unsupported(self, node: exp.Expr) -> UnsupportedFeature:
        return UnsupportedFeature(
            f"a pyarrow.dataset.Dataset cannot be filtered by {node.sql(dialect='duckdb')!r} of predicate "
            f"{self.sql!r}: it takes "
            "comparisons of a column with a constant of its type, and IN, BETWEEN, IS NULL, AND, OR, NOT. Load a "
            "pyarrow.RecordBatchReader or a polars.LazyFrame, which take any predicate."
        )


def _is_compared_exactly(value: pa.Scalar, kind: pa.DataType) -> bool:
    """Return False if DuckDB rounds the column's values to the floating type of the constant."""
    if not pa.types.is_floating(value.type) or pa.types.is_floating(kind):
        return True
    if pa.types.is_decimal(kind):
        return kind.precision <= _EXACT_DIGITS
    return pa.types.is_float64(value.type) and abs(value.as_py()) < _EXACT


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)
