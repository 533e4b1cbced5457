"""Arrow types of the expressions of a query, if its text and its tables tell them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

from sqlglot import exp

from duckrun.libraries import pa
from duckrun.sql.pieces import dialect_of, known
from duckrun.sql.scopes import sources_of

_COLUMNS = "columns"  # of a replaced table: the types by name
_TYPE = "type"  # of a column whose table is not in the tree: types by name, and its name there
_OPEN = "open"  # of a source whose query is being looked at
_LIKE_FIRST = (
    exp.Paren, exp.Max, exp.Min, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.First, exp.Last,
    exp.AnyValue, exp.ArgMax, exp.ArgMin, exp.Window, exp.Filter, exp.Nullif, exp.IgnoreNulls, exp.RespectNulls,
    exp.Alias, exp.Neg,
)  # fmt: skip
_TEXTS = (exp.Concat, exp.DPipe, exp.Lower, exp.Substring, exp.Trim, exp.Upper)
_NAMES = {
    "TINYINT": "int8", "SMALLINT": "int16", "INT": "int32", "BIGINT": "int64", "FLOAT": "float32",
    "DOUBLE": "float64", "DATE": "date32",
}  # fmt: skip
_DEFAULTS = {"duckdb": (18, 3), "spark": (10, 0)}
"""Digits of a DECIMAL without any."""

Table = TypeVar("Table", bound=exp.Expr)


class Columns:
    """Types of columns by their names in lower case; copies of a tree share them."""

    def __init__(self, schema: Callable[[], pa.Schema]) -> None:
        """Take a function that returns the schema. Only a translated text needs it."""
        self._schema = schema

    def __deepcopy__(self, memo: dict[int, object]) -> Columns:
        return self

    @cached_property
    def _types(self) -> dict[str, pa.DataType]:
        return {field.name.lower(): field.type for field in self._schema()}

    def get(self, name: str) -> pa.DataType | None:
        return self._types.get(name.lower())


def with_columns(table: Table, columns: Columns) -> Table:
    """Store the types of its columns on a table's replacement."""
    table.meta[_COLUMNS] = columns
    return table


def with_type(column: exp.Column, columns: Columns) -> exp.Column:
    """Store the type on a column whose table is not in the tree."""
    # MERGE renames columns of its source later.
    column.meta[_TYPE] = columns, column.name
    return column


def kind_of(node: Any) -> pa.DataType:
    """Return the type that an expression certainly has; null if it is unknown."""
    match node:
        case exp.Literal():
            return pa.string() if node.is_string else _of_number(node.name)
        case exp.Cast():
            return _of_type(node.to, dialect_of(node))
        case exp.CurrentDate() | exp.LastDay() | exp.DateFromParts():
            return pa.date32()
        case exp.Column():
            if (typed := known(node, _TYPE)) is not None:
                columns, name = typed
                return columns.get(name) or pa.null()
            if node.is_star:
                return pa.null()
            return _of_column(node.name.lower(), node.table.lower(), node.find_ancestor(exp.Query))
        case exp.Dot():
            return next(
                (field.type for field in fields_of(kind_of(node.this)) if is_named(field, node.name)), pa.null()
            )
        case exp.Struct():
            if not all(isinstance(part, exp.PropertyEQ) for part in node.expressions):
                return pa.null()
            return pa.struct([(part.name, kind_of(part.expression)) for part in node.expressions])
        case exp.Add() | exp.Sub():
            is_day = pa.types.is_date(kind_of(node.this))
            counted = isinstance(node.expression, exp.Literal) or _is_integer(node.expression)
            return pa.date32() if is_day and counted else pa.null()
        case exp.Case():
            return _common([*(branch.args["true"] for branch in node.args["ifs"]), node.args.get("default")])
        case exp.If():
            return _common([node.args["true"], node.args.get("false")])
        case exp.Coalesce() | exp.Greatest() | exp.Least():
            return _common([node.this, *node.expressions])
        case exp.Subquery():
            return kind_of(node.this.selects[0]) if isinstance(node.this, exp.Select) else pa.null()
    if isinstance(node, _TEXTS):
        return pa.string()
    return kind_of(node.this) if isinstance(node, _LIKE_FIRST) else pa.null()


def fields_of(kind: pa.DataType) -> list[pa.Field]:
    """Return the fields of a struct; none for another type."""
    return list(kind) if pa.types.is_struct(kind) else []


def is_named(field: pa.Field, name: str) -> bool:
    return bool(field.name.lower() == name.lower())


def _of_number(text: str) -> pa.DataType:
    whole, _, behind = text.partition(".")
    if not (whole + behind).isdigit():
        return pa.float64()
    digits = len(whole.lstrip("0") + behind)
    if "." in text:
        return pa.decimal128(max(digits, 1), len(behind)) if digits <= 38 else pa.null()
    return pa.int32() if int(text) < 2**31 else pa.int64() if int(text) < 2**63 else pa.null()


def _of_type(to: exp.DataType, dialect: str | None) -> pa.DataType:
    if to.this in exp.DataType.TEXT_TYPES:
        return pa.string()
    if to.this == exp.DType.DECIMAL:
        digits = [int(each.name) for each in to.expressions] or _DEFAULTS.get(dialect or "", (0, 0))
        return pa.decimal128(*digits) if 0 < digits[0] <= 38 else pa.null()
    name = _NAMES.get(to.this.name) if isinstance(to.this, exp.DType) else None
    return pa.null() if name is None else getattr(pa, name)()


def _common(nodes: list[Any]) -> pa.DataType:
    """Return the type that all branches have."""
    kinds = {kind_of(node) for node in nodes if node is not None and not isinstance(node, exp.Null)}
    return kinds.pop() if len(kinds) == 1 else pa.null()


def _is_integer(node: exp.Expr) -> bool:
    return isinstance(node, exp.Cast) and node.to.this in exp.DataType.INTEGER_TYPES


def _of_column(name: str, table: str, query: Any) -> pa.DataType:
    """Return the type of a column of a query, or else of an outer query."""
    while query is not None:
        for source in sources_of(query):
            if table in ("", source.alias_or_name.lower()):
                kind = _of_source(source, name)
                if kind is not None:
                    return kind
        query = query.parent and query.parent.find_ancestor(exp.Query)
    return pa.null()


def _of_source(source: Any, name: str) -> pa.DataType | None:
    """Return the type of a source's column; None if the source lacks it or is unknown."""
    if _COLUMNS in source.meta:
        columns: Columns = source.meta[_COLUMNS]
        return pa.null() if source.alias_column_names else columns.get(name)
    if source.meta.get(_OPEN):  # reached from its own query, which does not see it
        return None
    source.meta[_OPEN] = True
    try:
        names = source.alias_column_names
        if isinstance(source, exp.Subquery):
            return _of_query(source.this, name, names)
        if isinstance(source, exp.Values):
            return _of_values(source, name, names)
        if isinstance(source, exp.Table) and not source.db:
            query, listed = _cte(source)
            return _of_query(query, name, names or listed)
        return None
    finally:
        del source.meta[_OPEN]


def _of_values(values: exp.Values, name: str, names: list[str]) -> pa.DataType | None:
    """Return the type that a named column has in all inline rows."""
    spelled = [each.lower() for each in names]
    if name not in spelled:
        return None
    rows = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in values.expressions]
    at = spelled.index(name)
    return _common([row[at] for row in rows]) if all(at < len(row) for row in rows) else pa.null()


def _of_query(query: Any, name: str, names: list[str]) -> pa.DataType | None:
    """Return the type of a column of a query's result.

    Args:
        query: the query.
        name: the column in lower case.
        names: the column names of the query's alias, which override its own.
    """
    if isinstance(query, exp.Subquery):
        return _of_query(query.this, name, names)
    if isinstance(query, exp.SetOperation):
        sides = [_of_query(side, name, names or query.left.named_selects) for side in (query.left, query.right)]
        if None in sides:
            return None
        # The fields of a struct have the names of the first query.
        is_one = sides[0] == sides[1] or all(map(fields_of, sides))
        return sides[0] if is_one else pa.null()
    if not isinstance(query, exp.Select):
        return None
    if names and not query.is_star:
        at = [each.lower() for each in names].index(name) if name in map(str.lower, names) else len(query.selects)
        return kind_of(query.selects[at]) if at < len(query.selects) else None
    for item in query.selects:
        if not item.is_star:
            if item.alias_or_name.lower() == name:
                return kind_of(item)
        elif not _changes(item):
            table = item.table.lower() if isinstance(item, exp.Column) else ""
            for source in sources_of(query):
                kind = _of_source(source, name) if table in ("", source.alias_or_name.lower()) else None
                if kind is not None:
                    return kind
    return None


def _changes(star: Any) -> bool:
    whole = star.this if isinstance(star, exp.Column) else star
    return bool(whole.args.get("replace") or whole.args.get("rename"))


def _cte(table: exp.Table) -> tuple[Any, list[str]]:
    """Return the query and the column names of a common table expression.

    A name means the nearest one defined before it, or the first rows of the recursive one around
    it.
    """
    inside, node = None, table.parent
    while node is not None:
        if isinstance(node, exp.CTE):
            inside = node
        with_ = node.args.get("with_") or exp.With(expressions=[])
        for cte in with_.expressions:
            is_meant, is_around = cte.alias.lower() == table.name.lower(), cte is inside
            if is_meant and not is_around:
                return cte.this, cte.alias_column_names
            if is_meant and with_.args.get("recursive") and isinstance(cte.this, exp.SetOperation):
                return cte.this.left, cte.alias_column_names
            if is_around:
                break
        node = node.parent
    return None, []
