"""Expressions of Spark's SQL that mean the same in DuckDB's: those that are made of parts of which both say the same for all values.

A table keeps such an expression, and each writer computes it: rows of two engines differ where these do, and nobody sees it. So
what is not known to be the same is left to Spark. ``tests/differential/test_alike.py`` compares each part on both engines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckrun.sql.dialects import text_in, tree_in

_T = exp.DataType.Type
_PARTS = (
    exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Mod,
    exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.Is, exp.In, exp.Between, exp.Case, exp.If,
    exp.Coalesce, exp.Concat, exp.DPipe, exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam, exp.Length, exp.Substring, exp.Year, exp.Month,
    exp.Day, exp.Hour, exp.Minute, exp.Quarter, exp.DateTrunc, exp.TimestampTrunc, exp.TimeToStr, exp.Var, exp.CurrentTimestamp, exp.CurrentDate,
    exp.TsOrDsToDate, exp.Extract,
)  # fmt: skip
_CASTS: dict[Any, set[str]] = {
    _T.BIGINT: {"byte", "short", "integer", "long"},
    _T.INT: {"byte", "short", "integer", "long"},
    _T.SMALLINT: {"byte", "short", "integer", "long"},
    _T.DOUBLE: {"byte", "short", "integer", "long", "float", "double"},
    _T.DATE: {"date", "timestamp", "timestamp_ntz"},
    _T.TIMESTAMPTZ: {"timestamp", "date"},
    _T.TIMESTAMP: {"timestamp", "timestamp_ntz", "date"},
    _T.TEXT: {"byte", "short", "integer", "long", "string", "date", "boolean"},
}
"""What a column may be cast to, from which types: the other casts round, or spell values in ways of their own."""
_FORMAT = frozenset("%YmdHMS-/: _.T")


def duckdb_of(expression: str, kinds: Mapping[str, str]) -> str | None:
    """An expression of Spark's SQL over columns of these types (Delta's names) in DuckDB's; None where the two may differ."""
    try:
        tree = tree_in(expression, "spark")
    except SqlglotError:
        return None
    lower = {name.lower(): kind for name, kind in kinds.items()}
    if not all(_is_alike(node, lower) for node in tree.walk()):
        return None
    return text_in(tree, "duckdb")


def _is_alike(node: exp.Expr, kinds: Mapping[str, str]) -> bool:
    if not isinstance(node, _PARTS):
        return False
    match node:
        case exp.Column():
            return not node.table and node.name.lower() in kinds
        case exp.Cast():
            return _is_cast(node, kinds)
        case exp.Add() | exp.Sub() | exp.Mul():
            # Both raise an error where a number is too large; digits behind the point are kept by rules of their own.
            return not any(
                kinds.get(column.name.lower(), "").startswith(("decimal", "date", "time"))
                for column in node.find_all(exp.Column)
            )
        case exp.Mod():
            return isinstance(node.expression, exp.Literal) and node.expression.is_int and int(node.expression.name) > 0
        case exp.Substring():
            start = node.args.get("start")
            return isinstance(start, exp.Literal) and start.is_int and int(start.name) > 0
        case exp.TimeToStr():
            return isinstance(node.args.get("format"), exp.Literal) and set(node.args["format"].name) <= _FORMAT
    return True


def _is_cast(node: exp.Cast, kinds: Mapping[str, str]) -> bool:
    to, value = node.to.this, node.this
    while isinstance(value, exp.Paren):
        value = value.this
    if isinstance(value, exp.Column):
        return kinds.get(value.name.lower()) in _CASTS.get(to, ())
    if isinstance(value, exp.Literal):
        return True
    return to in (_T.DATE, _T.TIMESTAMP) and isinstance(value, exp.Column | exp.DateTrunc | exp.TimestampTrunc)
